"""Which digests came so far, each with a number: an open hash table, in memory as long as it is small, then in a file that has no name."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prep_assets.disk.faults import named

_HALVES = struct.Struct("<QQ")
_SLOT = _HALVES.size
IN_MEMORY = 1 << 14
"""Slots of a table that is kept in memory. The pages of a larger one are a file's, which the system takes back when it needs them."""
NUMBER = 40
"""Bits of a number. They take the place of bits of its digest: of 10⁹ digests two are equal by chance in the other 88 once in 600 million such sets."""
_FEW = 48
"""Digests whose slots are looked for one by one."""
_AT_A_TIME = 1 << 11
"""Slots of a table that are moved to a larger one at a time."""
Ints = npt.NDArray[np.int64]
_Halves = npt.NDArray[np.uint64]


class Digests:
    """Digests of 16 bytes, each once. A slot is free where its first half is 0; at most two of three are taken.

    Args:
        numbered: whether a number is kept with each, which leaves 88 bits of a digest.
    """

    def __init__(self, *, numbered: bool = False) -> None:
        self._slots, self._count = IN_MEMORY, 0
        self._open(_empty(self._slots))
        self._shift = 64 - NUMBER if numbered else 64
        self._kept = (1 << self._shift) - 1

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        return self._table[self._place(*_halves(digest))] != 0

    def add(self, digest: bytes) -> bool:
        """Note a digest, with no number; false where it came before."""
        low, high = _halves(digest)
        at = self._place(low, high)
        if self._table[at]:
            return False
        self._table[at], self._table[at + 1] = low, high & self._kept
        self._count += 1
        self._make_room(0)
        return True

    def firsts(self, digests: Sequence[bytes], numbers: Ints) -> Ints:
        """The number that each digest came with first, which may be that of an earlier one among these; -1 where it did not come before, and is noted with
        its own number: int64[digests]. For a table with numbers."""
        halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).astype(np.uint64)
        low, high = np.maximum(halves[:, 0], 1), halves[:, 1] & np.uint64(self._kept)
        self._make_room(len(low))
        leads = _leads(low, high)
        ones = np.flatnonzero(leads == np.arange(len(low)))
        shift = np.uint64(self._shift)
        before = self._put(np.stack([low, high | numbers.astype(np.uint64) << shift], axis=1)[ones])
        found = np.full(len(low), -1, np.int64)
        came = before >= 0
        found[ones[came]] = (self._pairs[before[came], 1] >> shift).astype(np.int64)
        later = np.flatnonzero(leads != np.arange(len(low)))
        of = leads[later]
        found[later] = np.where(found[of] >= 0, found[of], numbers[of])
        return found

    def _place(self, low: int, high: int) -> int:
        """Where a digest stands, or would."""
        table, last, kept = self._table, 2 * self._slots - 1, self._kept
        at = 2 * low & last
        while table[at] and (table[at] != low or (table[at + 1] ^ high) & kept):
            at = at + 2 & last
        return at

    def _put(self, digests: _Halves) -> Ints:
        """Put in digests, each there once: the slot of each that came before, -1 of all others. There is room for them."""
        kept, last, low = np.uint64(self._kept), self._slots - 1, digests[:, 0]
        before, left, at = np.full(len(low), -1, np.int64), np.arange(len(low)), (low & np.uint64(last)).astype(np.int64)
        while len(left) > _FEW:
            mine, there = digests[left], self._pairs[at]
            free = np.flatnonzero(there[:, 0] == 0)
            self._pairs[at[free]] = mine[free]  # where several come to one slot, one of them takes it
            differs = self._pairs[at] ^ mine
            done = (differs[:, 0] == 0) & (differs[:, 1] & kept == 0)
            before[left[done]] = at[done]
            before[left[free]] = -1
            self._count += int(np.count_nonzero(done[free]))
            left, at = left[~done], at[~done] + 1 & last
        for number, (one, two) in zip(left.tolist(), digests[left].tolist(), strict=True):
            place = self._place(one, two)
            if self._table[place]:
                before[number] = place >> 1
            else:
                self._table[place], self._table[place + 1] = one, two
                self._count += 1
        return before

    def _make_room(self, more: int) -> None:
        while 3 * (self._count + more) > 2 * self._slots:
            before, self._slots, self._count = self._pairs, 2 * self._slots, 0
            self._open(_empty(self._slots))
            for start in range(0, len(before), _AT_A_TIME):
                part = before[start : start + _AT_A_TIME]
                part = part[part[:, 0] != 0]
                self._put(part)

    def _open(self, table: memoryview) -> None:
        self._table, self._pairs = table, np.frombuffer(table, np.uint64).reshape(-1, 2)


def _leads(low: _Halves, high: _Halves) -> Ints:
    """Of each of some digests, the place of the first among them that it equals."""
    ascending = np.sort(low)  # not `np.unique`, which loads masked arrays for 10 ms
    if (ascending[1:] != ascending[:-1]).all():
        return np.arange(len(low))
    order = np.lexsort((high, low))  # stable, so that equal ones stay in order
    begins = np.append(True, (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0))
    leads = np.empty(len(low), np.int64)
    leads[order] = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return leads


def _halves(digest: bytes) -> tuple[int, int]:
    low, high = _HALVES.unpack(digest)
    return low or 1, high


def _empty(slots: int) -> memoryview:
    size = slots * _SLOT
    if slots <= IN_MEMORY:
        return memoryview(bytearray(size)).cast("Q")
    with tempfile.TemporaryFile() as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full is told here, and not by a signal when a page is written
        except OSError as error:
            raise named(error, Path(tempfile.gettempdir())) from error
        return memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
