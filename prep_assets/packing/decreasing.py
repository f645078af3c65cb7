"""First-fit and best-fit decreasing, exactly, a run of equal lengths at a time, and the two ways to choose among open
rows: the first with enough space, or the one with the least space that is enough.

Pieces are placed from the longest to the shortest. Two facts make this fast without a compiled kernel:

* A row that is chosen for a piece of n tokens is chosen for the next piece of n tokens too, as long as it fits: it is still the first
  row with enough space, and after best fit its space, now smaller, is the tightest. So a row with space s takes ``s // n`` at once.
* Rows opened for one run are neighbours with equal spaces, and stay so under later runs: they are kept as ranges of row numbers.

The steps are therefore counted in runs and ranges, and never more than the pieces. Ties go to the earliest record and the earliest row.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from heapq import heappop, heappush

import numpy as np

from prep_assets.disk.columns import before, made, where
from prep_assets.packing.plan import Ints


def place(lengths: Ints, row_len: int, rows: FirstFit | BestFit) -> Ints:
    """int64[P], the row of each piece.

    Args:
        lengths: int64[P], longest first, none longer than `row_len`.
        rows: empty; it keeps ranges ``first … stop - 1`` of rows that all have the same space left, and decides which one is taken.
    """
    begins = where(made(lengths.size, lambda part: lengths[part] != before(lengths, part, row_len + 1), bool))
    counts = np.diff(begins, append=lengths.size)
    blocks = array("q")
    opened = 0
    for length, count in zip(lengths[begins].tolist(), counts.tolist(), strict=True):
        opened = _place_run(length, count, row_len, opened, rows, blocks)
    return _rows_of(np.frombuffer(blocks, np.int64).reshape(-1, 3))


def _place_run(length: int, count: int, row_len: int, opened: int, rows: FirstFit | BestFit, blocks: array[int]) -> int:
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


class FirstFit:
    """A tree of maxima over row numbers; a range of rows is one leaf, at its first row."""

    def __init__(self, at_most: int) -> None:
        """Room for row numbers below `at_most`."""
        self._leaves = 1 << max(at_most - 1, 0).bit_length()
        self._most = [0] * (2 * self._leaves)
        self._stop = [0] * self._leaves

    def take(self, length: int) -> tuple[int, int, int] | None:
        """The leftmost range with a space of at least `length`, as (space, first, stop)."""
        most = self._most
        if most[1] < length:
            return None
        node = 1
        while node < self._leaves:
            node *= 2
            if most[node] < length:
                node += 1
        first = node - self._leaves
        return most[node], first, self._stop[first]

    def put(self, space: int, first: int, stop: int) -> None:
        """Set the leaf of the range, and every maximum above it that changes."""
        most = self._most
        self._stop[first] = stop
        node = first + self._leaves
        most[node] = space
        while node > 1:
            node //= 2
            higher = max(most[2 * node], most[2 * node + 1])
            if most[node] == higher:
                return
            most[node] = higher


class BestFit:
    """A heap of ranges for each space, and a bitmask in two levels of the spaces whose heap is not empty.

    Two levels keep a search cheap for long rows: about ``sqrt(row_len)`` bits are looked at in each.
    """

    def __init__(self, row_len: int) -> None:
        """Room for spaces up to `row_len`."""
        self._shift = row_len.bit_length() // 2
        self._low = (1 << self._shift) - 1
        self._words = [0] * ((row_len >> self._shift) + 1)
        self._filled_words = 0
        self._ranges: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def take(self, length: int) -> tuple[int, int, int] | None:
        """The earliest range with the least space that is at least `length`, as (space, first, stop)."""
        space = self._least(length)
        if space is None:
            return None
        ranges = self._ranges[space]
        first, stop = heappop(ranges)
        if not ranges:
            self._clear(space)
        return space, first, stop

    def put(self, space: int, first: int, stop: int) -> None:
        """Keep the range; full rows are forgotten."""
        if space:
            heappush(self._ranges[space], (first, stop))
            word = space >> self._shift
            self._words[word] |= 1 << (space & self._low)
            self._filled_words |= 1 << word

    def _least(self, length: int) -> int | None:
        word = length >> self._shift
        here = self._words[word] >> (length & self._low)
        if here:
            return length + _lowest_bit(here)
        above = self._filled_words >> (word + 1)
        if not above:
            return None
        word += 1 + _lowest_bit(above)
        return (word << self._shift) + _lowest_bit(self._words[word])

    def _clear(self, space: int) -> None:
        word = space >> self._shift
        self._words[word] &= ~(1 << (space & self._low))
        if not self._words[word]:
            self._filled_words &= ~(1 << word)


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
