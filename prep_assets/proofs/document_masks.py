"""Masks of pretraining: what of each document is trained, and with which weight, and what is not attended, is what the regions of its source say.

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
from prep_assets.samples import IMAGE, UNATTENDED, Region, Sample
from prep_assets.tokenization.vocabulary import Vocabulary

Run = tuple[float, str]
PICTURE = "\0image\0"


@dataclass(frozen=True, slots=True, eq=False)
class MaskedDocument:
    """A document of a store: its record id, what its source says now, its tokens, with the end-of-text token where it is `ended`, and their weights, below
    0 where a token is not attended."""

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
    checked = untrained = unattended = 0
    for document in documents:
        shown = [region for turn in document.sample.turns for region in turn.regions if not region.drop and region.text]
        expected, found = _expected(shown, vocabulary), _found(document, vocabulary, images)
        ending = max(0.0, next((_weight(region) for region in reversed(shown) if region.kind != IMAGE), 1.0))
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
        untrained += int((document.mask <= 0).sum())
        unattended += int((document.mask < 0).sum())
    more = {"unattended_tokens": unattended} if unattended else {}
    return document_masks_hold({"documents_masked": checked, "masked_tokens": untrained, **more})


def document_masks_hold(numbers: Mapping[str, float]) -> Verdict:
    """The verdict where all documents hold; `numbers` as it has them."""
    trained = f"{numbers['documents_masked']:,} documents are trained where their regions say so"
    unattended = f", {numbers['unattended_tokens']:,} of them not attended" if "unattended_tokens" in numbers else ""
    return Verdict(True, f"{trained}; {numbers['masked_tokens']:,} tokens are not trained{unattended}", numbers)


def _weight(region: Region) -> float:
    if not region.attend:
        return UNATTENDED
    if region.kind == IMAGE:
        return 0.0
    return 1.0 if region.loss_weight is None else float(np.float32(region.loss_weight))


def _expected(shown: Sequence[Region], vocabulary: Vocabulary) -> list[Run]:
    whole = _joined([(_weight(region), PICTURE if region.kind == IMAGE else region.text) for region in shown])
    return [(weight, text if text == PICTURE else _solid(vocabulary.normalized(text))) for weight, text in whole]


def _found(document: MaskedDocument, vocabulary: Vocabulary, images: Collection[int]) -> list[Run]:
    whole = len(document.ids) - document.ended
    ids, weights = document.ids[:whole], document.mask[:whole]
    pictures = np.isin(ids, list(images))
    begins = np.flatnonzero(np.append(True, (np.diff(weights) != 0) | np.diff(pictures))[: len(ids)]).tolist()
    return _joined(
        [
            (float(weights[first]), PICTURE if pictures[first] and weights[first] <= 0 else vocabulary.decode(ids[first:stop].tolist()))
            for first, stop in pairwise([*begins, len(ids)])
        ]
    )


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one weight as one, without white space; runs of white space alone are left out. Pictures side by side are one."""
    kept = [(weight, solid) for weight, text in runs if (solid := _solid(text))]
    grouped = groupby(kept, key=lambda run: (run[0], run[1] == PICTURE))
    return [(weight, PICTURE if picture else "".join(text for _, text in same)) for (weight, picture), same in grouped]


def _solid(text: str) -> str:
    return "".join(text.split())
