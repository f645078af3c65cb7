"""First-fit and best-fit decreasing, exactly, a run of equal lengths at a time.

Pieces are placed from the longest to the shortest. Two facts make this fast without a compiled kernel:

* A row that is chosen for a piece of n tokens is chosen for the next piece of n tokens too, as long as it fits: it is still the first
  row with enough space, and after best fit its space, now smaller, is the tightest. So a row with space s takes ``s // n`` at once.
* Rows opened for one run are neighbours with equal spaces, and stay so under later runs: they are kept as ranges of row numbers.

The steps are therefore counted in runs and ranges, and never more than the pieces. Ties go to the earliest record and the earliest row.
"""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np

from prep_assets.disk.columns import before, made, where
from prep_assets.packing.plan import Ints


class OpenRows(Protocol):
    """Ranges ``first … stop - 1`` of rows that all have the same space left."""

    def take(self, length: int) -> tuple[int, int, int] | None:
        """(space, first, stop) of the range whose first row is chosen for a piece of `length`; the caller puts back all of it."""

    def put(self, space: int, first: int, stop: int) -> None:
        """Keep the rows ``first … stop - 1`` under `space`."""


def place(lengths: Ints, row_len: int, rows: OpenRows) -> Ints:
    """int64[P], the row of each piece.

    Args:
        lengths: int64[P], longest first, none longer than `row_len`.
        rows: an empty `OpenRows`, which decides between first fit and best fit.
    """
    begins = where(made(lengths.size, lambda part: lengths[part] != before(lengths, part, row_len + 1), bool))
    counts = np.diff(begins, append=lengths.size)
    blocks = array("q")
    opened = 0
    for length, count in zip(lengths[begins].tolist(), counts.tolist(), strict=True):
        opened = _place_run(length, count, row_len, opened, rows, blocks)
    return _rows_of(np.frombuffer(blocks, np.int64).reshape(-1, 3))


def _place_run(length: int, count: int, row_len: int, opened: int, rows: OpenRows, blocks: array[int]) -> int:
    """Place `count` pieces of `length`, append first row, rows and pieces in each to `blocks`; return how many rows are open now."""
    while count:
        found = rows.take(length)
        if found is None:
            new = -(-count // (row_len // length))
            found = (row_len, opened, opened + new)
            opened += new
        space, first, stop = found
        each = min(space // length, count)
        filled = min(stop - first, count // each)
        blocks.extend((first, filled, each))
        rows.put(space - each * length, first, first + filled)
        if first + filled < stop:
            rows.put(space, first + filled, stop)
        count -= filled * each
    return opened


def _rows_of(blocks: Ints) -> Ints:
    """The row of each piece; a block may be longer than a stretch."""
    first, _, each = blocks.T
    ends = np.cumsum(blocks[:, 1] * each)

    def rows(part: slice) -> Ints:
        place = np.arange(part.start, part.stop)
        block = np.searchsorted(ends, place, "right")
        begin = ends[block] - blocks[block, 1] * each[block]
        found: Ints = first[block] + (place - begin) // each[block]
        return found

    return made(int(ends[-1]) if ends.size else 0, rows)
