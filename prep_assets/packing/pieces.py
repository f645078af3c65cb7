"""Pieces: the stretches of records that are placed whole, after long documents have been dealt with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import PrepAssetsError
from prep_assets.packing.plan import Ints

Overlong = Literal["raise", "truncate", "drop", "split"]


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """P pieces in record order, each at most one row long, and what is left over.

    Attributes:
        record: int64[P], start: int64[P], length: int64[P].
        size: int64[P], the length by which packers sort: `length`, but the whole document's for one that is truncated, so that the
            longest document comes first (AstrAI's order).
        dropped: int64[K, 3], pieces (record, start, length) that are not to be placed.
    """

    record: Ints
    start: Ints
    length: Ints
    size: Ints
    dropped: Ints

    def at(self, index: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> Pieces:
        """These pieces, in this order; `dropped` stays."""
        return Pieces(self.record[index], self.start[index], self.length[index], self.size[index], self.dropped)


def checked_lengths(lengths: npt.ArrayLike, what: str = "lengths") -> Ints:
    """`lengths` as int64[N].

    Raises:
        PrepAssetsError: not one-dimensional, not integers, or a record without tokens.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise PrepAssetsError(f"{what} must be a one-dimensional array of integers, got {array.dtype}{list(array.shape)}")
    array = array.astype(np.int64)
    empty = np.flatnonzero(array < 1)
    if empty.size:
        first = ", ".join(map(str, empty[:5])) + (", …" if empty.size > 5 else "")
        raise PrepAssetsError(
            f"{what}: {empty.size} of {array.size} records have no tokens (records {first}): a record of length "
            f"{array[empty[0]]} cannot be placed in a row. Refuse empty records before packing"
        )
    return array


def cut_to_rows(lengths: Ints, row_len: int, overlong: Overlong) -> Pieces:
    """Pieces of at most `row_len` tokens; `overlong` decides about the documents that are longer.

    Raises:
        PrepAssetsError: there are such documents and `overlong` is ``"raise"``.
    """
    long = lengths > row_len
    if overlong == "raise" and long.any():
        raise PrepAssetsError(
            f"{int(long.sum())} of {lengths.size} documents are longer than a row of {row_len} tokens; the longest is record "
            f"{int(lengths.argmax())} with {int(lengths.max())}. Make rows longer, pack with 'concat' or 'bfd_split', which cut such "
            "documents, or set overlong to 'truncate', 'split' or 'drop'"
        )
    if overlong == "split":
        return _split(lengths, row_len)
    record = np.arange(lengths.size)
    if overlong == "drop":
        kept, gone = np.flatnonzero(~long), np.flatnonzero(long)
        dropped = np.stack([gone, np.zeros_like(gone), lengths[gone]], axis=1)
        return Pieces(kept, np.zeros_like(kept), lengths[kept], lengths[kept], dropped)
    cut = np.flatnonzero(long)
    dropped = np.stack([cut, np.full_like(cut, row_len), lengths[cut] - row_len], axis=1)
    return Pieces(record, np.zeros_like(record), np.minimum(lengths, row_len), lengths, dropped)


def _split(lengths: Ints, row_len: int) -> Pieces:
    parts = -(-lengths // row_len)
    record = np.repeat(np.arange(lengths.size), parts)
    start = within(parts) * row_len
    length = np.minimum(row_len, lengths[record] - start)
    return Pieces(record, start, length, length, nothing_dropped())


def within(counts: Ints) -> Ints:
    """0 … counts[0] - 1, 0 … counts[1] - 1, …: int64[sum(counts)]."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - counts, counts)


def nothing_dropped() -> Ints:
    """int64[0, 3]."""
    return np.empty((0, 3), dtype=np.int64)
