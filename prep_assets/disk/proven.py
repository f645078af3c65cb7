"""Files of which every block is compared with what it must be before any of it is given out."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO

from prep_assets.disk.blocks import BLOCK

Compare = Callable[[int, bytes], None]
"""Is given the number of a block and what was read of it, and raises where that is wrong."""


class _Proven(io.RawIOBase):
    """A file that is read block by block. One that cannot go back is read from front to end."""

    def __init__(self, raw: BinaryIO, size: int, compare: Compare) -> None:
        self._raw, self._size, self._compare = raw, size, compare
        self._at, self._raw_at, self._number, self._block = 0, 0, -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._raw.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, memory: Any) -> int:
        if self._at >= self._size:
            return 0
        number, within = divmod(self._at, BLOCK)
        if number != self._number:
            self._block, self._number = self._load(number), number
        part = self._block[within : within + len(memory)]
        memory[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _load(self, number: int) -> bytes:
        begin = number * BLOCK
        found, size = bytearray(), min(BLOCK, self._size - begin)
        if begin != self._raw_at:
            self._raw.seek(begin)
        while len(found) < size and (part := self._raw.read(size - len(found))):
            found += part
        self._raw_at = begin + len(found)
        self._compare(number, bytes(found))
        return bytes(found)

    def close(self) -> None:
        self._raw.close()
        super().close()


def proven(raw: BinaryIO, size: int, compare: Compare) -> io.BufferedReader:
    """`raw`, to be read at any place, or from front to end where it cannot go back.

    Args:
        size: bytes that it must have; what follows them is not read.
    """
    return io.BufferedReader(_Proven(raw, size, compare))
