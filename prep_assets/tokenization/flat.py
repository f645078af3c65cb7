"""Ids of several texts in one array, and what makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flat:
    """Ids of several texts, one after the other.

    Attributes:
        ids: uint32[T].
        offsets: int64[n + 1]; text `i` has ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: Ids
    offsets: Offsets


NO_TEXTS = Flat(np.zeros(0, np.uint32), np.zeros(1, np.int64))


class Engine(Protocol):
    """What tokenizes ordinary text in batches. No control token is ever produced and none is added."""

    name: str

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order. Texts must be valid Unicode (no lone surrogates)."""
        ...


def offsets_of(counts: npt.NDArray[np.int64]) -> Offsets:
    """Where each of several runs begins, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def interleaved(yes: Flat, no: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """Two results as one, in the order of the texts; `chosen` says which texts are of the first."""
    counts = np.empty(len(chosen), np.int64)
    counts[chosen], counts[~chosen] = np.diff(yes.offsets), np.diff(no.offsets)
    of_first = np.repeat(chosen, counts)
    ids = np.empty(len(of_first), np.uint32)
    ids[of_first], ids[~of_first] = yes.ids, no.ids
    return Flat(ids, offsets_of(counts))


def some_of(flat: Flat, chosen: npt.NDArray[np.bool_]) -> Flat:
    """The texts that are chosen, in their order."""
    counts = np.diff(flat.offsets)
    return Flat(flat.ids[np.repeat(chosen, counts)], offsets_of(counts[chosen]))
