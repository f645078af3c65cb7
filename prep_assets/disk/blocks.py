"""Hashes of a file: its sha256, and a short hash of each block of 1 MiB, so that a part of it can be checked by itself, also while it is read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import xxhash

BLOCK = 1 << 20
"""Bytes in a block. A manifest holds 16 characters for each: a 65,536th of the data."""


class Sums(NamedTuple):
    """What a file holds.

    Attributes:
        bytes: its size.
        sha256: of all of it, hex.
        blocks: xxh3 of 64 bits of each block of `BLOCK` bytes, 16 hex digits each, one after another.
    """

    bytes: int
    sha256: str
    blocks: str

    @property
    def entry(self) -> dict[str, Any]:
        """As a manifest has it."""
        return self._asdict()


class Summing:
    """Sums of bytes that come in blocks, each of `BLOCK` bytes but the last."""

    def __init__(self) -> None:
        self._sha256, self._blocks, self._size = hashlib.sha256(), list[str](), 0

    def add(self, block: bytes | memoryview) -> None:
        """The next block."""
        self._sha256.update(block)
        self._blocks.append(xxhash.xxh3_64_hexdigest(block))
        self._size += len(block)

    @property
    def sums(self) -> Sums:
        """Of all that came."""
        return Sums(self._size, self._sha256.hexdigest(), "".join(self._blocks))


def sums_of(path: Path) -> Sums:
    """The sums of a file as it can be read now."""
    with path.open("rb", buffering=0) as file:
        return sums_of_stream(file)


def sums_of_stream(file: Any, watch: Callable[[memoryview], None] = lambda block: None) -> Sums:
    """The sums of what an open file gives from here on, and each block to whoever watches."""
    summing, memory = Summing(), memoryview(bytearray(BLOCK))
    while size := _fill(file, memory):
        summing.add(memory[:size])
        watch(memory[:size])
    return summing.sums


def _fill(file: Any, memory: memoryview) -> int:
    """Read until the memory is full or the file ends."""
    size = 0
    while size < len(memory) and (got := file.readinto(memory[size:])):
        size += got
    return size


def hashes(blocks: str) -> list[int]:
    """The hash of each block as a number, of the digits that `Sums.blocks` has."""
    raw = bytes.fromhex(blocks)
    return [int.from_bytes(raw[at : at + 8]) for at in range(0, len(raw), 8)]


def first_difference(blocks: str, entry: Mapping[str, Any]) -> int | None:
    """The number of the first block that is not as a manifest's entry says; `None` where the entry has no blocks or none differs."""
    pairs = zip(hashes(blocks), hashes(str(entry.get("blocks", blocks))), strict=False)
    return next((number for number, (found, meant) in enumerate(pairs) if found != meant), None)


PIECE = 1 << 18
"""Bytes that are read at a time."""
Wrong = Callable[[int], Exception]
"""The error for the block of a number, which is not what it was."""


class _Proven(io.RawIOBase):
    """A file that is read block by block. One that cannot go back is read from front to end."""

    def __init__(self, raw: BinaryIO, size: int, known: Sequence[int], wrong: Wrong) -> None:
        self._raw, self._size, self._known, self._wrong = raw, size, known, wrong
        self._at, self._raw_at, self._number, self._held = 0, 0, -1, 0
        self._memory = memoryview(bytearray(min(BLOCK, size)))

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
            self._load(number)
        part = self._memory[within : min(within + len(memory), self._held)]
        memory[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _load(self, number: int) -> None:
        begin = number * BLOCK
        held, size, self._number = 0, min(BLOCK, self._size - begin), -1
        if begin != self._raw_at:
            self._raw.seek(begin)
        while held < size and (part := self._raw.read(min(size - held, PIECE))):
            self._memory[held : held + len(part)] = part
            held += len(part)
        self._raw_at, self._held = begin + held, held
        if xxhash.xxh3_64_intdigest(self._memory[:held]) != self._known[number]:
            raise self._wrong(number)
        self._number = number

    def close(self) -> None:
        self._raw.close()
        super().close()


def proven(raw: BinaryIO, size: int, known: Sequence[int], wrong: Wrong) -> io.BufferedReader:
    """`raw`, to be read at any place, or from front to end where it cannot go back. Each block is compared before it is returned.

    Args:
        size: bytes that it must have; what follows them is not read.
        known: the `hashes` of its blocks.
    """
    return io.BufferedReader(_Proven(raw, size, known, wrong))
