"""`pack`: lengths of records → a pack plan, by one of five strategies."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, PrepAssetsError, nearest
from prep_assets.packing.plan import PackPlan
from prep_assets.stores.arrays import (
    argsort,
    compress,
    cumulative_sums,
    equals,
    fill_column,
    predecessors,
    rounded_up,
    stretches,
    take,
    zeros,
)

# Pieces: the stretches of records that are placed whole, after long documents have been dealt with.

Overlong = Literal["raise", "truncate", "drop", "split"]


class Pieces(Struct, frozen=True, eq=False):
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
        """Return the pieces of an index; `dropped` is unchanged."""
        return Pieces(take(self.record, index), take(self.start, index), take(self.length, index), take(self.size, index), self.dropped)

    def plan(self, row_len: int, row: Ints, align: int = 1) -> PackPlan:
        """The plan of these pieces, in the order in which they were placed, given the row of each."""
        by_row = argsort(row)
        row, length = take(row, by_row), take(self.length, by_row)
        ends = cumulative_sums(length)
        begin = 0

        def offsets(part: slice) -> Ints:
            nonlocal begin
            begins = predecessors(ends, part, 0)
            opens = np.where(row[part] != predecessors(row, part, -1), begins, begin)
            row_offsets = begins - np.maximum.accumulate(opens)
            begin = int(begins[-1] - row_offsets[-1])
            return row_offsets

        row_offset = fill_column(row.size, offsets)
        rows = int(row[-1]) + 1 if row.size else 0
        return PackPlan(row_len, rows, row, take(self.record, by_row), take(self.start, by_row), length, row_offset, self.dropped, align)


def checked_lengths(lengths: npt.ArrayLike, label: str = "lengths") -> Ints:
    """`lengths` as int64[N].

    Raises:
        PrepAssetsError: not one-dimensional, not integers, or a record without tokens.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise PrepAssetsError(f"{label} must be a one-dimensional array of integers, got {array.dtype}{list(array.shape)}")
    array = array if array.dtype == np.int64 else fill_column(array.size, lambda part: array[part])
    empty = compress(fill_column(array.size, lambda part: array[part] < 1, bool))
    if empty.size:
        first = ", ".join(map(str, empty[:5])) + (", …" if empty.size > 5 else "")
        raise PrepAssetsError(
            f"{label}: {empty.size} of {array.size} records have no tokens (records {first}): a record of length "
            f"{array[empty[0]]} cannot be placed in a row. Refuse empty records before packing"
        )
    return array


def cut_to_rows(lengths: Ints, row_len: int, overlong: Overlong) -> Pieces:
    """Pieces of at most `row_len` tokens; `overlong` decides about the documents that are longer.

    Raises:
        PrepAssetsError: there are such documents and `overlong` is ``"raise"``.
    """
    long = fill_column(lengths.size, lambda part: lengths[part] > row_len, bool)
    if overlong == "raise" and long.any():
        raise PrepAssetsError(
            f"{int(long.sum())} of {lengths.size} documents are longer than a row of {row_len} tokens; the longest is record "
            f"{int(lengths.argmax())} with {int(lengths.max())}. Make rows longer, pack with 'concat' or 'bfd_split', which cut such "
            "documents, or set overlong to 'truncate', 'split' or 'drop'"
        )
    if overlong == "split":
        return cut(lengths, row_len, fill_column(lengths.size, lambda part: -(-lengths[part] // row_len)))
    cut_short = compress(long)
    if overlong == "drop":
        short_records = compress(fill_column(lengths.size, lambda part: ~long[part], bool))
        short = take(lengths, short_records)
        dropped = np.stack([cut_short, np.zeros_like(cut_short), lengths[cut_short]], axis=1)
        return Pieces(short_records, zeros(short_records.size), short, short, dropped)
    record = fill_column(lengths.size, lambda part: np.arange(part.start, part.stop))
    dropped = np.stack([cut_short, np.full_like(cut_short, row_len), lengths[cut_short] - row_len], axis=1)
    return Pieces(record, zeros(record.size), fill_column(record.size, lambda part: np.minimum(lengths[part], row_len)), lengths, dropped)


def cut(lengths: Ints, row_len: int, parts: Ints, shift: Ints | None = None) -> Pieces:
    """Cut each record into `parts` pieces at the row borders of a stream.

    Args:
        shift: int64[N], how far behind a border each record begins; `None`: every one begins at a border.
    """
    ends = cumulative_sums(parts)
    count = int(ends[-1]) if ends.size else 0
    record, start, length = zeros(count), zeros(count), zeros(count)
    for part in stretches(lengths.size):
        first = predecessors(ends, part, 0)
        target = slice(int(first[0]), int(ends[part.stop - 1]))
        records, part_number = np.repeat(np.arange(part.start, part.stop), parts[part]), within(parts[part])
        behind = 0 if shift is None else shift[records]
        start[target] = np.maximum(0, part_number * row_len - behind)
        record[target], length[target] = records, np.minimum(lengths[records], (part_number + 1) * row_len - behind) - start[target]
    return Pieces(record, start, length, length, nothing_dropped())


def concatenated(lengths: Ints, row_len: int) -> tuple[Pieces, Ints]:
    """The pieces and rows of the one long stream of all documents, cut every `row_len` tokens.

    A document has one piece in each row it touches. The same stream as ``pack_examples`` of train-llm-from-scratch, before its tail
    is dropped.
    """
    ends = cumulative_sums(lengths)
    shift = fill_column(lengths.size, lambda part: (ends[part] - lengths[part]) % row_len)
    pieces = cut(lengths, row_len, fill_column(lengths.size, lambda part: -(-(shift[part] + lengths[part]) // row_len)), shift)
    placed = cumulative_sums(pieces.length)
    return pieces, fill_column(placed.size, lambda part: (placed[part] - 1) // row_len)


def within(counts: Ints) -> Ints:
    """0 … counts[0] - 1, 0 … counts[1] - 1, …: int64[sum(counts)]."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - counts, counts)


def nothing_dropped() -> Ints:
    """int64[0, 3]."""
    return np.empty((0, 3), dtype=np.int64)


# First-fit and best-fit decreasing, exactly, a run of equal lengths at a time, and the two ways to choose among open rows: the first with enough space, or
# the one with the least space that is enough.
#
# Pieces are placed from the longest to the shortest. Two facts make this fast without a compiled kernel:
#
# * A row that is chosen for a piece of n tokens is chosen for the next piece of n tokens too, as long as it fits: it is still the first
#   row with enough space, and after best fit its space, now smaller, is the tightest. So a row with space s takes ``s // n`` at once.
# * Rows opened for one run are neighbours with equal spaces, and stay so under later runs: they are kept as ranges of row numbers.
#
# The steps are therefore counted in runs and ranges, and never more than the pieces. Ties go to the earliest record and the earliest row.


def place(lengths: Ints, row_len: int, rows: FirstFit | BestFit) -> Ints:
    """int64[P], the row of each piece.

    Args:
        lengths: int64[P], longest first, none longer than `row_len`.
        rows: empty; it keeps ranges ``first … stop - 1`` of rows that all have the same space left, and decides which one is taken.
    """
    begins = compress(fill_column(lengths.size, lambda part: lengths[part] != predecessors(lengths, part, row_len + 1), bool))
    counts = np.diff(begins, append=lengths.size)
    blocks = array("q")  # first row, rows, and pieces in each
    opened = 0
    for length, count in zip(lengths[begins].tolist(), counts.tolist(), strict=True):
        while count:
            if (space_range := rows.take(length)) is None:
                new = -(-count // (row_len // length))
                space_range = (row_len, opened, opened + new)
                opened += new
            space, first, stop = space_range
            per_row = min(space // length, count)
            filled = min(stop - first, count // per_row)
            blocks.extend((first, filled, per_row))
            rows.put(space - per_row * length, first, first + filled)
            if first + filled < stop:
                rows.put(space, first + filled, stop)
            count -= filled * per_row
    return _rows_of(np.frombuffer(blocks, np.int64).reshape(-1, 3))


def _rows_of(blocks: Ints) -> Ints:
    """Return the row of each piece; a block may be longer than a stretch."""
    first, _, per_row = blocks.T
    ends = np.cumsum(blocks[:, 1] * per_row)

    def rows(part: slice) -> Ints:
        place = np.arange(part.start, part.stop)
        block = np.searchsorted(ends, place, "right")
        begin = ends[block] - blocks[block, 1] * per_row[block]
        row_numbers: Ints = first[block] + (place - begin) // per_row[block]
        return row_numbers

    return fill_column(int(ends[-1]) if ends.size else 0, rows)


class FirstFit:
    """A tree of maxima over row numbers; a range of rows is one leaf, at its first row."""

    def __init__(self, at_most: int) -> None:
        """Room for row numbers below `at_most`."""
        self._leaves = 1 << max(at_most - 1, 0).bit_length()
        self._maxima = [0] * (2 * self._leaves)
        self._stop = [0] * self._leaves

    def take(self, length: int) -> tuple[int, int, int] | None:
        """The leftmost range with a space of at least `length`, as (space, first, stop)."""
        maxima = self._maxima
        if maxima[1] < length:
            return None
        node = 1
        while node < self._leaves:
            node *= 2
            if maxima[node] < length:
                node += 1
        first = node - self._leaves
        return maxima[node], first, self._stop[first]

    def put(self, space: int, first: int, stop: int) -> None:
        """Set the leaf of the range, and every maximum above it that changes."""
        maxima = self._maxima
        self._stop[first] = stop
        node = first + self._leaves
        maxima[node] = space
        while node > 1:
            node //= 2
            higher = max(maxima[2 * node], maxima[2 * node + 1])
            if maxima[node] == higher:
                return
            maxima[node] = higher


class BestFit:
    """A heap of ranges for each space, and the spaces whose heap is not empty, sorted. There are never more than rows that are open."""

    def __init__(self) -> None:
        self._spaces: list[int] = []
        self._ranges: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def take(self, length: int) -> tuple[int, int, int] | None:
        """The earliest range with the least space that is at least `length`, as (space, first, stop)."""
        at = bisect_left(self._spaces, length)
        if at == len(self._spaces):
            return None
        space = self._spaces[at]
        first, stop = heappop(self._ranges[space])
        if not self._ranges[space]:
            del self._spaces[at]
        return space, first, stop

    def put(self, space: int, first: int, stop: int) -> None:
        """Keep the range; full rows are forgotten."""
        if space:
            if not self._ranges[space]:
                insort(self._spaces, space)
            heappush(self._ranges[space], (first, stop))


# `pack`: lengths of records to a pack plan, by one of five strategies. Two of them keep the order of the records.

Strategy = Literal["concat", "simple", "ffd", "bfd", "bfd_split"]
Tail = Literal["pad", "drop"]


def pack(
    lengths: npt.ArrayLike,
    row_len: int,
    strategy: Strategy,
    *,
    tail: Tail = "pad",
    overlong: Overlong = "raise",
    buckets: Sequence[int] = (),
    align: int = 1,
) -> PackPlan:
    """Plan rows of `row_len` tokens for records of the given lengths.

    Records of 5, 2 and 4 tokens in rows of 6 (``.`` is padding)::

        concat     aaaaab bcccc.    one stream, cut every 6 tokens: documents straddle rows
        simple     aaaaa. bbcccc    order kept, no document straddles
        ffd, bfd   aaaaa. ccccbb    longest first, into the first row / the tightest row that has space
        bfd_split                   as bfd, after cutting documents longer than a row at multiples of 6

    The same lengths always give the same plan: equal lengths keep the order of the records, equal spaces take the earliest row.

    Args:
        lengths: int[N], tokens per record, each at least 1.
        row_len: tokens per row.
        strategy: see above.
        tail: whether ``concat`` pads its last, short row or drops it (as train-llm-from-scratch does).
        overlong: what ``simple``, ``ffd`` and ``bfd`` do with documents longer than a row: ``"raise"``; ``"truncate"`` to the first
            `row_len` tokens; ``"drop"``; ``"split"`` at multiples of `row_len`. The other two strategies cut such documents anyway.

        buckets: ascending lengths; documents up to the first, up to the second, and so on, never share a row, so that attention costs about the
            same all over a row. Not for the two strategies that keep the order.
        align: rows have room for each piece with its length rounded up to a multiple of it, see `PackPlan.rooms`; `row_len` is a multiple too.

    Raises:
        ConfigError: an unknown word, a `row_len` below 1 or that is no multiple of `align`, or an option without effect.
        PrepAssetsError: a record without tokens, or documents that are too long under ``"raise"``.
    """
    _check_options(row_len, strategy, tail, overlong, buckets, align)
    checked = checked_lengths(lengths)
    if strategy == "concat":
        return _concat(checked, row_len, tail)
    pieces = cut_to_rows(checked, row_len, "split" if strategy == "bfd_split" else overlong)
    if strategy == "simple":
        return pieces.plan(row_len, next_fit(rounded_up(pieces.length, align), row_len), align)
    longest = int(pieces.size.max(initial=0))
    longest_first = pieces.at(argsort(fill_column(pieces.size.size, lambda part: longest - pieces.size[part])))
    numbers = np.array(buckets, np.int64)
    bucket = fill_column(longest_first.record.size, lambda part: np.searchsorted(numbers, checked[longest_first.record[part]]))
    row, opened = zeros(bucket.size), 0
    for number in range(len(buckets) + 1):
        members = compress(equals(bucket, number))
        placed = _placed(rounded_up(take(longest_first.length, members), align), row_len, strategy)
        row[members] = placed + opened
        opened += int(placed.max(initial=-1)) + 1
    return longest_first.plan(row_len, row, align)


def _placed(lengths: Ints, row_len: int, strategy: str) -> Ints:
    """int64[P], the rows of pieces by first fit or best fit, longest first."""
    # first fit never needs more rows: of two at most half full, the later one's pieces would have gone into the earlier
    rows = FirstFit(min(lengths.size, 2 * int(lengths.sum()) // row_len + 1)) if strategy == "ffd" else BestFit()
    return place(lengths, row_len, rows)


def _concat(lengths: Ints, row_len: int, tail: Tail) -> PackPlan:
    pieces, row = concatenated(lengths, row_len)
    if tail == "pad":
        return pieces.plan(row_len, row)
    full = int(np.searchsorted(row, int(lengths.sum()) // row_len))
    cut = pieces.at(np.arange(full, row.size))
    dropped = np.stack([cut.record, cut.start, cut.length], axis=1)
    kept_pieces = Pieces(pieces.record[:full], pieces.start[:full], pieces.length[:full], pieces.size[:full], dropped)
    return kept_pieces.plan(row_len, row[:full])


def _check_options(row_len: int, strategy: str, tail: str, overlong: str, buckets: Sequence[int], align: int) -> None:
    for name, word, allowed in (("strategy", strategy, Strategy), ("tail", tail, Tail), ("overlong", overlong, Overlong)):
        words = get_args(allowed)
        if word not in words:
            raise ConfigError(f"packing {name} {word!r} is not one of {', '.join(words)}{nearest(str(word), words)}")
    if row_len < 1:
        raise ConfigError(f"a row must have at least 1 token, got row_len {row_len}")
    if tail == "drop" and strategy != "concat":
        raise ConfigError(f"tail='drop' drops the last, short row of 'concat'; every row of {strategy!r} may be short. Use tail='pad'")
    if overlong in ("truncate", "drop") and strategy in ("concat", "bfd_split"):
        raise ConfigError(
            f"overlong={overlong!r} has no effect with {strategy!r}, which cuts documents that are longer than a row and keeps every part. "
            "Leave overlong out, or choose 'simple', 'ffd' or 'bfd'"
        )
    if buckets and strategy in ("concat", "simple"):
        raise ConfigError(f"buckets have no effect with {strategy!r}, which keeps the order of the records. Choose ffd, bfd or bfd_split")
    if any(low >= high for low, high in pairwise((0, *buckets))):
        raise ConfigError(f"buckets are {list(buckets)}; they must be ascending lengths, each at least 1")
    if align < 1 or row_len % align:
        raise ConfigError(f"row_len {row_len} is no multiple of align {align}: ranks could not split a row")
    if align > 1 and strategy == "concat":
        raise ConfigError(
            f"align={align} has no effect with 'concat', which cuts documents where rows end. Choose simple, ffd, bfd or bfd_split"
        )


def next_fit(lengths: Ints, row_len: int) -> Ints:
    """int64[P], the row of each piece: a piece that does not fit into the current row opens the next.

    Where a row ends depends only on where it begins, so the ends for all possible beginnings are found at once, and then followed.
    """
    ends = cumulative_sums(lengths)
    stops = fill_column(lengths.size, lambda part: np.searchsorted(ends, ends[part] - lengths[part] + row_len, side="right")).data
    opens = zeros(lengths.size, np.uint8)
    begin = 0
    while begin < lengths.size:
        opens[begin] = 1
        begin = stops[begin]
    rows = cumulative_sums(opens)
    rows -= 1
    return rows
