"""The two ways to choose among rows that are open: the first with enough space, or the one with the least space that is enough."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush


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
