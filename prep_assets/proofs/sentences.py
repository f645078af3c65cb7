"""Borders of sentences in token streams: where the store says that one begins, the bytes of the tokens before it are those of the sentences before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class CutDocument:
    """A document of a store.

    Attributes:
        id: its record id.
        sentences: its text, cut.
        ids: its tokens, without what stands around them.
        starts: of all its tokens, 1 where a sentence begins.
        before: how many tokens stand before those of its text.
    """

    id: str
    sentences: tuple[str, ...]
    ids: npt.NDArray[Any]
    starts: npt.NDArray[Any]
    before: int


def check_sentences(documents: Iterable[CutDocument], vocabulary: Vocabulary) -> Verdict:
    """Compare every document. What stands before its text belongs to the first sentence, what stands after it to the last."""
    lengths = vocabulary.byte_lengths
    assert lengths is not None  # only tokenizers whose ids stand for bytes are cut into sentences
    count = sentences = 0
    for document in documents:
        found = np.flatnonzero(document.starts)
        sizes = [len(vocabulary.normalized(sentence).encode()) for sentence in document.sentences]
        wanted = np.cumsum([0, *sizes[:-1]])
        borders = np.concatenate([[0], np.cumsum(lengths[document.ids.astype(np.int64)])])
        if not np.isin(document.starts, (0, 1)).all() or not len(found) or found[0] != 0:
            problem = "its first token does not begin a sentence"
        elif len(found) != len(wanted):
            problem = f"{len(found)} sentences are marked, Punkt cuts it into {len(wanted)}"
        else:
            places = borders.take(found - document.before, mode="clip")
            wrong = np.flatnonzero(places != wanted)
            if not wrong.size:
                count, sentences = count + 1, sentences + len(wanted)
                continue
            at = int(wrong[0])
            problem = f"sentence {at} begins at byte {int(places[at]):,} of the text, Punkt says {int(wanted[at]):,}"
        worst = Worst(document.id, problem, tuple(document.ids.tolist()))
        return Verdict(False, f"{document.id}: {problem}", {"documents_cut": count}, worst)
    return sentences_hold({"documents_in_sentences": count, "sentences": sentences})


def sentences_hold(numbers: Mapping[str, float]) -> Verdict:
    """The verdict where all documents hold; `numbers` as it has them."""
    said = f"{numbers['documents_in_sentences']:,} documents have their {numbers['sentences']:,} sentences"
    return Verdict(True, said, numbers)
