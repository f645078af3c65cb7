"""Pieces: the stretches of records that are placed whole, after long documents have been dealt with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import at, before, made, order, stretches, sums, where, zeros
from prep_assets.errors import PrepAssetsError
from prep_assets.packing.plan import Ints, PackPlan

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

    def at(self, index: Ints) -> Pieces:
        """These pieces, in this order; `dropped` stays."""
        return Pieces(at(self.record, index), at(self.start, index), at(self.length, index), at(self.size, index), self.dropped)

    def plan(self, row_len: int, row: Ints) -> PackPlan:
        """The plan of these pieces, in the order in which they were placed, given the row of each."""
        by_row = order(row)
        row, length = at(row, by_row), at(self.length, by_row)
        ends = sums(length)
        begin = 0

        def offsets(part: slice) -> Ints:
            nonlocal begin
            begins = before(ends, part, 0)
            opens = np.where(row[part] != before(row, part, -1), begins, begin)
            found = begins - np.maximum.accumulate(opens)
            begin = int(begins[-1] - found[-1])
            return found

        row_offset = made(row.size, offsets)
        rows = int(row[-1]) + 1 if row.size else 0
        return PackPlan(row_len, rows, row, at(self.record, by_row), at(self.start, by_row), length, row_offset, self.dropped)


def checked_lengths(lengths: npt.ArrayLike, what: str = "lengths") -> Ints:
    """`lengths` as int64[N].

    Raises:
        PrepAssetsError: not one-dimensional, not integers, or a record without tokens.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise PrepAssetsError(f"{what} must be a one-dimensional array of integers, got {array.dtype}{list(array.shape)}")
    array = array if array.dtype == np.int64 else made(array.size, lambda part: array[part])
    empty = where(made(array.size, lambda part: array[part] < 1, bool))
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
    long = made(lengths.size, lambda part: lengths[part] > row_len, bool)
    if overlong == "raise" and long.any():
        raise PrepAssetsError(
            f"{int(long.sum())} of {lengths.size} documents are longer than a row of {row_len} tokens; the longest is record "
            f"{int(lengths.argmax())} with {int(lengths.max())}. Make rows longer, pack with 'concat' or 'bfd_split', which cut such "
            "documents, or set overlong to 'truncate', 'split' or 'drop'"
        )
    if overlong == "split":
        return cut(lengths, row_len, made(lengths.size, lambda part: -(-lengths[part] // row_len)))
    cut_short = where(long)
    if overlong == "drop":
        kept = where(made(lengths.size, lambda part: ~long[part], bool))
        short = at(lengths, kept)
        dropped = np.stack([cut_short, np.zeros_like(cut_short), lengths[cut_short]], axis=1)
        return Pieces(kept, zeros(kept.size), short, short, dropped)
    record = made(lengths.size, lambda part: np.arange(part.start, part.stop))
    dropped = np.stack([cut_short, np.full_like(cut_short, row_len), lengths[cut_short] - row_len], axis=1)
    return Pieces(record, zeros(record.size), made(record.size, lambda part: np.minimum(lengths[part], row_len)), lengths, dropped)


def cut(lengths: Ints, row_len: int, parts: Ints, shift: Ints | None = None) -> Pieces:
    """Records cut into so many parts each, where a stream has a border every `row_len` tokens.

    Args:
        shift: int64[N], how far behind a border each record begins; `None`: every one begins at a border.
    """
    ends = sums(parts)
    count = int(ends[-1]) if ends.size else 0
    record, start, length = zeros(count), zeros(count), zeros(count)
    for part in stretches(lengths.size):
        first = before(ends, part, 0)
        here = slice(int(first[0]), int(ends[part.stop - 1]))
        of, number = np.repeat(np.arange(part.start, part.stop), parts[part]), within(parts[part])
        behind = 0 if shift is None else shift[of]
        start[here] = np.maximum(0, number * row_len - behind)
        record[here], length[here] = of, np.minimum(lengths[of], (number + 1) * row_len - behind) - start[here]
    return Pieces(record, start, length, length, nothing_dropped())


def concatenated(lengths: Ints, row_len: int) -> tuple[Pieces, Ints]:
    """The pieces and rows of the one long stream of all documents, cut every `row_len` tokens.

    A document has one piece in each row it touches. The same stream as ``pack_examples`` of train-llm-from-scratch, before its tail
    is dropped.
    """
    ends = sums(lengths)
    shift = made(lengths.size, lambda part: (ends[part] - lengths[part]) % row_len)
    pieces = cut(lengths, row_len, made(lengths.size, lambda part: -(-(shift[part] + lengths[part]) // row_len)), shift)
    placed = sums(pieces.length)
    return pieces, made(placed.size, lambda part: (placed[part] - 1) // row_len)


def within(counts: Ints) -> Ints:
    """0 … counts[0] - 1, 0 … counts[1] - 1, …: int64[sum(counts)]."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - counts, counts)


def nothing_dropped() -> Ints:
    """int64[0, 3]."""
    return np.empty((0, 3), dtype=np.int64)
