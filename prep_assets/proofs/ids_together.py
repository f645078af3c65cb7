"""Ids of parts of texts, put together as those of the texts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import stretches
from prep_assets.tokenization.flat import Flat

Ints = npt.NDArray[np.int64]


def between(texts: Flat, token: Ints) -> Flat:
    """The ids of texts with those of the control tokens between them."""
    counts, ordinary = np.ones(len(token), np.int64), token < 0
    counts[ordinary] = np.diff(texts.offsets)
    ids = np.repeat(token, counts)
    ids[ids < 0] = texts.ids
    return Flat(ids.astype(np.uint32), np.concatenate([[0], np.cumsum(counts)]))


def put_together(known: Flat, counts: npt.NDArray[np.int32], which: npt.NDArray[np.int32], borders: Ints) -> Flat:
    """Ids of texts from those of their parts, a stretch at a time: a long text has many.

    Args:
        known: ids, and where those of each distinct part begin among them.
        counts: how many each distinct part has.
        which: the distinct part that each part is.
        borders: the part with which each text begins, and the number of all.
    """
    filled = sum(int(counts[which[part]].sum()) for part in stretches(len(which)))
    ids, offsets, filled = np.empty(filled, np.uint32), np.zeros(len(borders), np.int64), 0
    for part in stretches(len(which)):
        lengths, starts = counts[which[part]], known.offsets[which[part]]
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        ids[filled : filled + total] = known.ids[np.repeat(starts - (ends - lengths), lengths) + np.arange(total)]
        low, high = np.searchsorted(borders, [part.start, part.stop], "right")
        offsets[low:high] = filled + ends[borders[low:high] - part.start - 1]
        filled += total
    return Flat(ids, offsets)


def interleaved(yes: Flat, no: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """Two results as one, in the order of the texts; `chosen` says which are of the first."""
    counts = np.empty_like(yes.offsets, shape=len(chosen))
    counts[chosen], counts[~chosen] = np.diff(yes.offsets), np.diff(no.offsets)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids, of_first = np.empty_like(yes.ids, shape=offsets[-1]), np.repeat(chosen, counts)
    ids[of_first], ids[~of_first] = yes.ids, no.ids
    return Flat(ids, offsets)


def one_after_the_other(heads: Flat, tails: Flat, headed: npt.NDArray[np.bool_]) -> Flat:
    """Each text's head, where it has one, and its tail."""
    pieces = np.zeros((len(headed), 2), bool)
    pieces[:, 0] = True
    shown = np.stack([headed, np.ones(len(headed), bool)], axis=1)
    both = interleaved(heads, tails, pieces[shown])
    return Flat(both.ids, both.offsets[np.concatenate([[0], np.cumsum(shown.sum(axis=1))])])
