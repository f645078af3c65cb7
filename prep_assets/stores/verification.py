"""Hashes of files, and the comparison of what was written with what the disk gives back."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.errors import StoreError
from prep_assets.stores.files import FAULTY, named

# Hashes of a file: its sha256, and a short hash of each block of 1 MiB, so that a part of it can be checked by itself, also while it is read.

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
    return next((number for number, (found, expected) in enumerate(pairs) if found != expected), None)


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


# What a file was meant to hold: the pieces that were written to it, each by its hash; and what it holds, compared with them.

Read = Callable[[int, int], bytes]
"""What a file holds from … until."""


class Piece(NamedTuple):
    """Bytes that were written: from, until, and their xxh3."""

    begin: int
    end: int
    hash: int


class ExpectedBytes:
    """Pieces of a file in order, none over another; 24 bytes each. Between them nothing was written: zeros."""

    def __init__(self) -> None:
        self._begins, self._ends, self._hashes = array("Q"), array("Q"), array("Q")
        self.size = 0

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, self._begins, self._ends, self._hashes)

    @property
    def blocks(self) -> str | None:
        """The hashes of its blocks, as `prep_assets.stores.verification` has them, where it was written from front to end; else `None`."""
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

    def __init__(self, path: Path, expected: ExpectedBytes | None) -> None:
        self._path, self._known = path, expected is not None
        self._pieces = iter(expected or ())
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


# Expected files: which files were written below a folder, and what each was meant to hold.
#
#     with recording(payload) as expected_files:
#         …write files with `WrittenFile`, in any thread…
#     prove(payload, expected_files)
#
# A process that writes a shard has a expected_files of its own, and sends what `expected_in` makes of it.

ExpectedFiles = dict[Path, ExpectedBytes]
"""By absolute path."""

_OPEN: dict[Path, ExpectedFiles] = {}
_LOCK = threading.Lock()


@contextmanager
def recording(folder: Path) -> Iterator[ExpectedFiles]:
    """A expected_files of everything that is written below `folder` meanwhile."""
    folder = folder.absolute()
    expected_files: ExpectedFiles = {}
    with _LOCK:
        _OPEN[folder] = expected_files
    try:
        yield expected_files
    finally:
        with _LOCK:
            del _OPEN[folder]


def note(path: Path, expected: ExpectedBytes) -> None:
    """A file was written; whoever records below a folder that it is in is told."""
    path = path.absolute()
    with _LOCK:
        for folder in path.parents:
            if folder in _OPEN:
                _OPEN[folder][path] = expected
                return


def rename(path: Path, target: Path) -> Path:
    """Give a file that was written another name, which is returned."""
    path.rename(target)
    with _LOCK:
        for expected_files in _OPEN.values():
            if path.absolute() in expected_files:
                expected_files[target.absolute()] = expected_files.pop(path.absolute())
    return target


# Files that note what was meant to be written to them, so that it can be compared with what the disk gives back.


class WrittenFile(AbstractContextManager["WrittenFile"]):
    """A new file, written in any order. When it is closed, what was meant to be in it stands in the list of its folder.

    It takes the place of a binary file: for NumPy, pyarrow and h5py too. Bytes that follow one another are gathered to blocks.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.closed = path, False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._expected = ExpectedBytes()
        self._gathered, self._held, self._at = memoryview(b""), 0, 0

    def write(self, data: Any) -> int:
        """Write at the present place, all of it."""
        memory = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        taken = 0
        while taken < len(memory):
            if not self._held and len(memory) - taken >= BLOCK:
                self._put_next(memory[taken : taken + BLOCK])
                taken += BLOCK
                continue
            if not self._gathered:
                self._gathered = memoryview(bytearray(BLOCK))
            step = min(BLOCK - self._held, len(memory) - taken)
            self._gathered[self._held : self._held + step] = memory[taken : taken + step]
            taken, self._held = taken + step, self._held + step
            if self._held == BLOCK:
                self.flush()
        return len(memory)

    def write_array(self, values: npt.NDArray[Any]) -> None:
        """The elements of an array, one after another."""
        self.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def flush(self) -> None:
        """Give the system what was gathered."""
        if held := self._held:
            self._held = 0
            self._put_next(self._gathered[:held])

    def _put_next(self, data: memoryview) -> None:
        at = self._at
        self._at = at + len(data)
        self._intend(at, data)
        self._put(at, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._end()}[whence]
        if base + offset != self.tell():
            self.flush()
            self._at = base + offset
        return self.tell()

    def tell(self) -> int:
        """The present place."""
        return self._at + self._held

    def read(self, size: int = -1) -> bytes:
        """What is at the present place."""
        self.flush()
        begin = self._at
        self._at = begin + size if size >= 0 else self._end()
        found = self._read_at(begin, self._at)
        self._at = begin + len(found)
        return found

    def readinto(self, memory: Any) -> int:
        """As `read`, into memory."""
        view = memoryview(memory).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def truncate(self, size: int) -> int:
        """Cut, or fill up with zeros."""
        self.flush()
        self._resize(size)
        return size

    def readable(self) -> bool:
        """It can be read, written to, and go anywhere."""
        return True

    writable = seekable = readable

    def close(self) -> None:
        """Write the rest, and note what the file was meant to hold. A file whose writing failed is not noted."""
        if self.closed:
            return
        self.closed = True
        try:
            self.flush()
        finally:
            os.close(self._handle)
        note(self.path, self._expected)

    def abandon(self) -> None:
        """Close the file, and note nothing of it."""
        if not self.closed:
            self.closed = True
            os.close(self._handle)

    def _end(self) -> int:
        return max(self._expected.size, self.tell())

    def _intend(self, at: int, data: bytes | memoryview) -> None:
        self._expected.put(at, data, self._read_at)

    def _put(self, at: int, data: bytes | memoryview) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._handle, memoryview(data)[done:], at + done)
        except OSError as error:
            raise named(error, self.path) from error

    def _resize(self, size: int) -> None:
        self._expected.cut(size, self._read_at)
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            raise named(error, self.path) from error

    def _read_at(self, begin: int, end: int) -> bytes:
        found = bytearray()
        while begin + len(found) < end and (part := os.pread(self._handle, end - begin - len(found), begin + len(found))):
            found += part
        return bytes(found)

    def __exit__(self, *_: object) -> None:
        self.close()


def write_bytes(path: Path, data: bytes) -> None:
    """A new file with these bytes."""
    with WrittenFile(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """A new file with this text, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, **form: Any) -> None:
    """A new file with ``json.dumps(value, **form)`` and a line feed."""
    write_text(path, json.dumps(value, **form) + "\n")


# Files are brought to disk, read back, and compared with what they were meant to hold.


def prove(folder: Path, expected_files: ExpectedFiles) -> dict[str, Sums]:
    """Bring every file below a folder to disk, read it back, compare it, and return its sums by relative path, sorted.

    Files that are not in the expected_files were written by a library of its own; they are brought to disk and summed.

    Raises:
        StoreError: a file is not there, or does not hold what was written to it.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    gone = sorted(path for path in expected_files if path.is_relative_to(folder.absolute()) and not path.exists())
    if gone:
        raise StoreError(f"{gone[0]} was written and is not there. {FAULTY}")
    return {path.relative_to(folder).as_posix(): read_back(path, expected_files.get(path.absolute())) for path in files}


def expected_in(folder: Path, expected_files: ExpectedFiles) -> dict[str, dict[str, Any]]:
    """Size and hashes of blocks of what every file below a folder was meant to hold, by relative path, sorted. The reader compares.

    Raises:
        StoreError: a file that was not written from front to end is not there, or does not hold what was written to it.
    """
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        expected = expected_files.get(path.absolute())
        blocks = None if expected is None else expected.blocks
        size, blocks = (expected.size, blocks) if expected is not None and blocks is not None else read_back(path, expected)[::2]
        found[path.relative_to(folder).as_posix()] = {"bytes": size, "blocks": blocks}
    return found


def read_back(path: Path, expected: ExpectedBytes | None) -> Sums:
    """The sums of what the disk gives back of a file.

    Raises:
        StoreError: it is not what was meant.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            os.fsync(handle)
        except OSError as error:
            raise named(error, path) from error
        if hasattr(os, "posix_fadvise"):  # what is in memory only would be compared with itself
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(handle).st_size
        if expected is not None and size != expected.size:
            raise StoreError(f"{path}: {size:,} bytes on disk, {expected.size:,} were written. {FAULTY}")
        comparing = Comparison(path, expected)
        with open(handle, "rb", buffering=0, closefd=False) as file:
            sums = sums_of_stream(file, comparing.add)
        comparing.finish()
        return sums
    finally:
        os.close(handle)
