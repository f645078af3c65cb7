"""Which digests came so far, each with a number: an open hash table, in memory as long as it is small, then in a file that has no name."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from pathlib import Path

from prep_assets.disk.faults import named

_HALVES = struct.Struct("<QQ")
_SLOT = _HALVES.size
IN_MEMORY = 1 << 14
"""Slots of a table that is kept in memory. The pages of a larger one are a file's, which the system takes back when it needs them."""
NUMBER = 40
"""Bits of a number. They take the place of bits of its digest: of 10⁹ digests two are equal by chance in the other 88 once in 600 million such sets."""


class Digests:
    """Digests of 16 bytes, each once. A slot is free where its first half is 0; at most two of three are taken.

    Args:
        numbered: whether a number is kept with each, which leaves 88 bits of a digest.
    """

    def __init__(self, *, numbered: bool = False) -> None:
        self._slots, self._count = IN_MEMORY, 0
        self._table = _empty(self._slots)
        self._shift = 64 - NUMBER if numbered else 64
        self._kept = (1 << self._shift) - 1

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        return self._table[self._place(*_halves(digest))] != 0

    def add(self, digest: bytes) -> bool:
        """Note a digest; false where it came before."""
        return self.first(digest) is None

    def first(self, digest: bytes, number: int = 0) -> int | None:
        """The number that a digest came with first; `None` where it did not come before, and is noted with this one."""
        low, high = _halves(digest)
        at = self._place(low, high)
        if self._table[at]:
            return self._table[at + 1] >> self._shift
        self._table[at], self._table[at + 1] = low, high & self._kept | number << self._shift
        self._count += 1
        if 3 * self._count > 2 * self._slots:
            self._grow()
        return None

    def _place(self, low: int, high: int) -> int:
        """Where a digest stands, or would."""
        table, last, kept = self._table, 2 * self._slots - 1, self._kept
        at = 2 * low & last
        while table[at] and (table[at] != low or (table[at + 1] ^ high) & kept):
            at = at + 2 & last
        return at

    def _grow(self) -> None:
        before = self._table
        self._slots *= 2
        self._table = _empty(self._slots)
        for at in range(0, len(before), 2):
            if low := before[at]:
                high = before[at + 1]
                place = self._place(low, high)
                self._table[place], self._table[place + 1] = low, high


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
