"""Loss masks of pretraining: what of each document is trained, and with which weight, is what the regions of its source say.

The tokens of a document are decoded in runs of one weight; those must be the texts of the source's regions, joined where neighbours weigh the same.
White space is left out of the comparison, because a token may begin with a space of the region before its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import IMAGE, Region, Sample
from prep_assets.tokenization.vocabulary import Vocabulary

Run = tuple[float, str]
PICTURE: Run = (0.0, "\0image\0")


@dataclass(frozen=True, slots=True, eq=False)
class MaskedDocument:
    """A document of a store: its record id, what its source says now, its tokens, with the end-of-text token where it is `ended`, and their weights."""

    id: str
    sample: Sample
    ids: npt.NDArray[Any]
    mask: npt.NDArray[Any]
    ended: bool = True


def check_document_masks(documents: Iterable[MaskedDocument], vocabulary: Vocabulary, images: Collection[int]) -> Verdict:
    """Compare every document.

    Args:
        images: ids of the tokens that stand for images and around them; none where there can be no images.
    """
    checked = untrained = 0
    for document in documents:
        shown = [region for turn in document.sample.turns for region in turn.regions if not region.drop and region.text]
        expected, found = _expected(shown, vocabulary), _found(document, vocabulary, images)
        ending = next((_weight(region) for region in reversed(shown) if region.kind != IMAGE), 1.0)
        problem = ""
        if expected != found:
            at = next(
                (at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), min(len(expected), len(found))
            )
            wanted, got = (runs[at] if at < len(runs) else "nothing" for runs in (expected, found))
            problem = f"run {at} is {got!r:.120}, the source says {wanted!r:.120}"
        elif document.ended and float(document.mask[-1]) != ending:
            problem = f"the end-of-text token weighs {float(document.mask[-1]):g}, the region before it {ending:g}"
        if problem:
            worst = Worst(document.id, problem, tuple(document.ids.tolist()), tuple(map(float, document.mask.tolist())))
            return Verdict(False, f"{document.id}: {problem}", {"documents_masked": checked}, worst)
        checked += 1
        untrained += int((document.mask == 0).sum())
    return document_masks_hold({"documents_masked": checked, "masked_tokens": untrained})


def document_masks_hold(numbers: Mapping[str, float]) -> Verdict:
    """The verdict where all documents hold; `numbers` as it has them."""
    trained = f"{numbers['documents_masked']:,} documents are trained where their regions say so"
    return Verdict(True, f"{trained}; {numbers['masked_tokens']:,} tokens are not trained", numbers)


def _weight(region: Region) -> float:
    return 1.0 if region.loss_weight is None else float(np.float32(region.loss_weight))


def _expected(shown: Sequence[Region], vocabulary: Vocabulary) -> list[Run]:
    runs = [PICTURE if region.kind == IMAGE else (_weight(region), region.text) for region in shown]
    whole = _joined(runs)
    return [run if run == PICTURE else (run[0], _solid(vocabulary.normalized(run[1]))) for run in whole]


def _found(document: MaskedDocument, vocabulary: Vocabulary, images: Collection[int]) -> list[Run]:
    whole = len(document.ids) - document.ended
    ids, weights = document.ids[:whole], document.mask[:whole]
    pictures = np.isin(ids, list(images))
    begins = np.flatnonzero(np.append(True, (np.diff(weights) != 0) | np.diff(pictures))[: len(ids)]).tolist()
    return _joined(
        [
            PICTURE if pictures[first] and not weights[first] else (float(weights[first]), vocabulary.decode(ids[first:stop].tolist()))
            for first, stop in pairwise([*begins, len(ids)])
        ]
    )


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one weight as one, without white space; runs of white space alone are left out. Pictures side by side are one."""
    kept = [(weight, solid) for weight, text in runs if (solid := _solid(text))]
    grouped = groupby(kept, key=lambda run: (run[0], run == PICTURE))
    return [PICTURE if picture else (weight, "".join(text for _, text in same)) for (weight, picture), same in grouped]


def _solid(text: str) -> str:
    return "".join(text.split())
