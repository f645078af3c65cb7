"""What a file was meant to hold: the pieces that were written to it, each by its hash; and what it holds, compared with them."""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import xxhash

from prep_assets.disk.blocks import BLOCK
from prep_assets.disk.faults import FAULTY
from prep_assets.errors import StoreError

Read = Callable[[int, int], bytes]
"""What a file holds from … until."""


class Piece(NamedTuple):
    """Bytes that were written: from, until, and their xxh3."""

    begin: int
    end: int
    hash: int


class Meant:
    """Pieces of a file in order, none over another; 24 bytes each. Between them nothing was written: zeros."""

    def __init__(self) -> None:
        self._begins, self._ends, self._hashes = array("Q"), array("Q"), array("Q")
        self.size = 0

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, self._begins, self._ends, self._hashes)

    @property
    def blocks(self) -> str | None:
        """The hashes of its blocks, as `prep_assets.disk.blocks` has them, where it was written from front to end; else `None`."""
        regular = range(0, self.size, BLOCK)
        if list(self._begins) != list(regular) or list(self._ends) != [min(begin + BLOCK, self.size) for begin in regular]:
            return None
        return "".join(f"{value:016x}" for value in self._hashes)

    def put(self, begin: int, data: bytes | memoryview, read: Read) -> None:
        """`data` is about to be written at `begin`; `read` gives what is there before, where a piece is written over in part."""
        end = begin + len(data)
        if not self._ends or begin >= self._ends[-1]:
            self._insert(len(self._begins), Piece(begin, end, xxhash.xxh3_64_intdigest(data)))
        else:
            self._replace(begin, end, bytes(data), read)
        self.size = max(self.size, end)

    def cut(self, size: int, read: Read) -> None:
        """The file is about to be cut, or to grow by zeros, to `size` bytes."""
        if size < self.size and len(self._begins) and self._ends[-1] > size:
            first = bisect_right(self._ends, size)
            rest = self._proven(first, read, until=size)
            begin = self._begins[first]
            self._remove(first, len(self._begins))
            if rest:
                self._insert(first, Piece(begin, size, xxhash.xxh3_64_intdigest(rest)))
        self.size = size

    def _replace(self, begin: int, end: int, data: bytes, read: Read) -> None:
        first, last = bisect_right(self._ends, begin), bisect_left(self._begins, end)
        if first < last:
            before, after = self._proven(first, read, until=begin), self._proven(last - 1, read, since=end)
            data, begin, end = before + data + after, begin - len(before), end + len(after)
        self._remove(first, last)
        self._insert(first, Piece(begin, end, xxhash.xxh3_64_intdigest(data)))

    def _proven(self, at: int, read: Read, *, until: int | None = None, since: int | None = None) -> bytes:
        """What of a piece that is on disk stays: its bytes before `until`, or from `since` on.

        Raises:
            OSError: the disk gives back something else than was written.
        """
        begin, end = self._begins[at], self._ends[at]
        low, high = (begin, min(until, end)) if until is not None else (max(since or 0, begin), end)
        if low >= high:
            return b""
        whole = read(begin, end)
        if xxhash.xxh3_64_intdigest(whole) != self._hashes[at]:
            raise OSError(errno.EIO, f"bytes {begin:,} to {end:,} read back are not what was written")
        return whole[low - begin : high - begin]

    def _remove(self, first: int, last: int) -> None:
        for column in (self._begins, self._ends, self._hashes):
            del column[first:last]

    def _insert(self, at: int, piece: Piece) -> None:
        for column, value in zip((self._begins, self._ends, self._hashes), piece, strict=True):
            column.insert(at, value)


class Comparison:
    """Compares the bytes of a file, as they come, with the pieces that were written, and with zeros between them."""

    def __init__(self, path: Path, meant: Meant | None) -> None:
        self._path, self._known = path, meant is not None
        self._pieces = iter(meant or ())
        self._piece: Piece | None = next(self._pieces, None)
        self._at, self._hash = 0, xxhash.xxh3_64()

    def add(self, block: memoryview) -> None:
        """The next bytes.

        Raises:
            StoreError: they are not what was written.
        """
        end = self._at + len(block)
        begin = self._at
        while self._known and self._at < end:
            piece = self._piece
            until = min(end, end if piece is None else piece.begin if self._at < piece.begin else piece.end)
            part = block[self._at - begin : until - begin]
            if piece is None or self._at < piece.begin:
                if any(bytes(part)):
                    raise self._wrong(self._at, until)
            else:
                self._hash.update(part)
                if until == piece.end:
                    self._finish_piece(piece)
            self._at = until
        self._at = end

    def _finish_piece(self, piece: Piece) -> None:
        if self._hash.intdigest() != piece.hash:
            raise self._wrong(piece.begin, piece.end)
        self._hash.reset()
        self._piece = next(self._pieces, None)

    def finish(self) -> None:
        """No more bytes come.

        Raises:
            StoreError: more were written.
        """
        if self._piece is not None:
            raise self._wrong(self._piece.begin, self._piece.end)

    def _wrong(self, begin: int, end: int) -> StoreError:
        return StoreError(f"{self._path}: bytes {begin:,} to {end:,} on disk are not what was written. {FAULTY}")
