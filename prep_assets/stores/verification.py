"""Verification of files by block hashes: what was meant to be written, compared with what the disk returns, after writing and on every read."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import FAULTY, os_errors_in_words, removed_on_failure, sync, sync_folders, with_path

# Hashes of a file: its sha256, and a short hash of each block of 1 MiB, so that parts can be verified on their own, also while they are read.

BLOCK = 1 << 20
"""Bytes per block. A manifest holds 16 characters for each: 1/65,536 of the data."""


class Sums(NamedTuple):
    """Size and hashes of a file.

    Attributes:
        bytes: its size.
        sha256: of the whole file, in hex.
        blocks: 64-bit xxh3 of each block of `BLOCK` bytes, 16 hex digits each, concatenated.
    """

    bytes: int
    sha256: str
    blocks: str


class Expected(NamedTuple):
    """The size and hashes that a file was meant to have, as in `Sums`; no sha256 where it was not written from its begin to its end."""

    bytes: int
    blocks: str
    sha256: str = ""


def sums_of(path: Path) -> Sums:
    """Compute the sums of a file."""
    with path.open("rb", buffering=0) as file:
        return sums_of_stream(file)


def sums_of_stream(file: Any, known: str = "") -> Sums:
    """Compute the sums of the rest of an open file. `known`: its sha256, if the caller compares its blocks with those that have it."""
    sha256, blocks, size, memory = hashlib.sha256(), list[int](), 0, memoryview(bytearray(BLOCK))
    while True:
        filled = 0
        while filled < BLOCK and (count := file.readinto(memory[filled:])):
            filled += count
        if not filled:
            return Sums(size, known or sha256.hexdigest(), digits(blocks))
        if not known:
            sha256.update(memory[:filled])
        blocks.append(xxh3_64_intdigest(memory[:filled]))
        size += filled


def digits(hashes: Sequence[int]) -> str:
    """Encode block hashes as in `Sums.blocks`."""
    return np.array(hashes, ">u8").tobytes().hex()


def hashes(blocks: str) -> list[int]:
    """Decode `Sums.blocks` to one integer per block."""
    numbers: list[int] = np.frombuffer(bytes.fromhex(blocks), ">u8").tolist()
    return numbers


def first_difference(blocks: str, expected: str) -> int | None:
    """Return the number of the first common block whose hashes differ, or `None`."""
    common = min(len(blocks), len(expected))
    actual_hashes, expected_hashes = (np.frombuffer(bytes.fromhex(digits_of[:common]), ">u8") for digits_of in (blocks, expected))
    return int((actual_hashes != expected_hashes).argmax()) if (actual_hashes != expected_hashes).any() else None


def span_of(block: int, size: int) -> str:
    """Return the name of a block in messages, for a file of `size` bytes."""
    return f"bytes {block * BLOCK:,} to {min((block + 1) * BLOCK, size):,}"


class _VerifiedReader(io.RawIOBase):
    """See `proven`."""

    def __init__(self, raw: BinaryIO, size: int, known: Sequence[int], wrong: Callable[[int], Exception]) -> None:
        self._raw, self._size, self._expected_hashes, self._wrong = raw, size, known, wrong
        self._at, self._raw_position, self._number, self._filled = 0, 0, -1, 0
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
        part = self._memory[within : min(within + len(memory), self._filled)]
        memory[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _load(self, number: int) -> None:
        begin = number * BLOCK
        filled, size, self._number = 0, min(BLOCK, self._size - begin), -1
        if begin != self._raw_position:
            self._raw.seek(begin)
        while filled < size and (part := self._raw.read(min(size - filled, PIECE))):
            self._memory[filled : filled + len(part)] = part
            filled += len(part)
        self._raw_position, self._filled = begin + filled, filled
        if xxh3_64_intdigest(self._memory[:filled]) != self._expected_hashes[number]:
            raise self._wrong(number)
        self._number = number

    def close(self) -> None:
        self._raw.close()
        super().close()


PIECE = 1 << 18
"""Bytes that are read at a time."""
BUFFER = 1 << 16
"""Bytes that are handed on at a time: each time takes a call in Python."""


def proven(raw: BinaryIO, size: int, known: Sequence[int], wrong: Callable[[int], Exception]) -> io.BufferedReader:
    """Wrap `raw` in a reader that verifies each block before it is returned. It is seekable if `raw` is.

    Args:
        size: expected bytes; the reader ends there.
        known: the `hashes` of its blocks.
        wrong: returns the error for a block, by number, whose hash differs.
    """
    return io.BufferedReader(_VerifiedReader(raw, size, known, wrong), BUFFER)


# Records of the files written below a folder, and what each was meant to hold.
#
#     with recording(payload) as expected_files:
#         …write files with `WrittenFile`, in any thread…
#     prove(payload, expected_files)
#
# A process that writes a shard records its files, and sends the result of `expected_in`.

ExpectedFiles = dict[Path, Expected]
"""By absolute path."""

_RECORDED: dict[Path, ExpectedFiles] = {}
_LOCK = threading.Lock()


@contextmanager
def recording(folder: Path) -> Iterator[ExpectedFiles]:
    """Record the expected content of every file that is written below `folder` while the block runs."""
    folder = folder.absolute()
    expected_files: ExpectedFiles = {}
    with _LOCK:
        _RECORDED[folder] = expected_files
    try:
        yield expected_files
    finally:
        with _LOCK:
            del _RECORDED[folder]


def rename(path: Path, target: Path) -> Path:
    """Rename a file that was written and recorded. Return the new path."""
    path.rename(target)
    with _LOCK:
        for expected_files in _RECORDED.values():
            if path.absolute() in expected_files:
                expected_files[target.absolute()] = expected_files.pop(path.absolute())
    return target


_MOST_PARTIAL_BLOCKS = 8
"""Most partial blocks of a file in memory, if it is not written sequentially."""
_ZEROS = xxh3_64_intdigest(bytes(BLOCK))
_FORGET_EVERY = 2
"""Blocks after which the system is told to write them and to forget them: a long file neither waits for the disk at its end nor fills memory until then."""


def forget(handle: int) -> None:
    """Ask the system to forget what it has in memory of a file: what is written is dropped, for the rest writing begins."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


class WrittenFile(AbstractContextManager["WrittenFile"]):
    """A new file, written in any order. When it is closed, the hashes of what was meant to be in it are recorded for its folder.

    It is a binary file object, for NumPy, pyarrow and h5py too. It is written and hashed by blocks: a partial block stays in memory, and a block that
    is changed later is read back and verified first. Bytes that were never written are zeros.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.closed = path, False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._at = self._size = 0
        self._hashes = array("Q")
        self._sha256, self._next = hashlib.sha256(), 0  # of the blocks before this one; -1 once one came out of order
        self._blocks: dict[int, bytearray] = {}

    def write(self, data: Any) -> int:
        """Write all of `data` at the current position."""
        memory, written = memoryview(data), 0
        if not memory.nbytes:
            return 0
        memory = memory.cast("B")
        number, within = divmod(self._at, BLOCK)
        block = self._blocks.get(number)
        if block is not None and len(block) == within and within + len(memory) < BLOCK:  # the next of many small ones
            block += memory
            self._at += len(memory)
            self._size = max(self._size, self._at)
            return len(memory)
        while written < len(memory):
            number, within = divmod(self._at, BLOCK)
            part = memory[written : written + BLOCK - within]
            if self._size < number * BLOCK:
                self._fill(number * BLOCK)
            if len(part) == BLOCK:  # without a copy
                self._blocks.pop(number, None)
                self._store(number, part)
            else:
                block = self._block(number)
                if len(block) < within:
                    block.extend(bytes(within - len(block)))
                block[within : within + len(part)] = part
                if within + len(part) == BLOCK:
                    self._store(number, self._blocks.pop(number))
            written, self._at = written + len(part), self._at + len(part)
            self._size = max(self._size, self._at)
        return len(memory)

    def write_array(self, values: npt.NDArray[Any]) -> None:
        """Write the elements of an array."""
        self.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def flush(self) -> None:
        """Write the partial blocks."""
        for number in sorted(self._blocks):
            self._store(number, self._blocks.pop(number))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the current position."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read from the current position."""
        begin, end = self._at, self._size if size < 0 else min(self._at + size, self._size)
        data = b"".join(
            self._block(number)[max(0, begin - number * BLOCK) : end - number * BLOCK] for number in range(begin // BLOCK, -(-end // BLOCK))
        )
        self._at += len(data)
        return data

    def readinto(self, memory: Any) -> int:
        """Read into a buffer."""
        view = memoryview(memory).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> int:
        """Truncate the file, or extend it with zeros."""
        if size > self._size:
            self._fill(size)
        elif size < self._size:
            number, within = divmod(size, BLOCK)
            if within:
                del self._block(number)[within:]
            block_count = number + (within > 0)
            self._blocks = {index: block for index, block in self._blocks.items() if index < block_count}
            del self._hashes[block_count:]
            self._size = size
        self._resize(size)
        return size

    def readable(self) -> bool:
        """Return true: the file is readable, writable and seekable."""
        return True

    writable = seekable = readable

    def close(self) -> None:
        """Write the partial blocks, and record the expected content of the file. A file whose writing failed is not recorded."""
        if self.closed:
            return
        self.closed = True
        try:
            self.flush()
        finally:
            os.close(self._handle)
        path, sha256 = self.path.absolute(), self._sha256.hexdigest() if self._next == len(self._hashes) else ""
        with _LOCK:
            if folder := next((folder for folder in path.parents if folder in _RECORDED), None):
                _RECORDED[folder][path] = Expected(self._size, digits(self._hashes), sha256)

    def abandon(self) -> None:
        """Close the file without recording it."""
        if not self.closed:
            self.closed = True
            os.close(self._handle)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, number: int) -> bytearray:
        """Return a partial block, loaded from disk if need be; a new one at the end of the file."""
        if number in self._blocks:
            return self._blocks[number]
        while len(self._blocks) >= _MOST_PARTIAL_BLOCKS:
            self._store(eldest := next(iter(self._blocks)), self._blocks[eldest])
            del self._blocks[eldest]
        if number == len(self._hashes):
            self._hashes.append(0)
            block = bytearray()
        else:
            block = self._load(number)
        self._blocks[number] = block
        return block

    def _fill(self, size: int) -> None:
        """Extend the file with zeros to `size` bytes."""
        while self._size < size:
            number = self._size // BLOCK
            end = min(size, (number + 1) * BLOCK)
            if end - self._size == BLOCK:
                self._hashes.append(_ZEROS)
            else:
                self._block(number).extend(bytes(end - self._size))
            self._size = end

    def _store(self, number: int, block: bytearray | memoryview) -> None:
        self._hashes[number : number + 1] = array("Q", (xxh3_64_intdigest(block),))
        if number == self._next:  # hashed while a tokenizer is at work in another thread, not after it
            self._sha256.update(block)
        self._next = number + 1 if number == self._next else -1
        done = 0
        try:
            while done < len(block):
                done += os.pwrite(self._handle, memoryview(block)[done:], number * BLOCK + done)
        except OSError as error:
            raise with_path(error, self.path) from error
        if number % _FORGET_EVERY == _FORGET_EVERY - 1:
            forget(self._handle)

    def _load(self, number: int) -> bytearray:
        begin, block = number * BLOCK, bytearray()
        end = min(begin + BLOCK, self._size)
        while begin + len(block) < end and (part := os.pread(self._handle, end - begin - len(block), begin + len(block))):
            block += part
        block.extend(bytes(end - begin - len(block)))  # of zeros at the end the system may not know yet
        if xxh3_64_intdigest(block) != self._hashes[number]:
            raise OSError(errno.EIO, f"{span_of(number, self._size)} read back are not what was written", str(self.path))
        return block

    def _resize(self, size: int) -> None:
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            raise with_path(error, self.path) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write a new file with these bytes."""
    with WrittenFile(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write a new file with this text, in UTF-8."""
    write_bytes(path, text.encode())


def replace_text(path: Path, text: str) -> None:
    """Write a small file in one step: whoever reads it finds the old text or the new one."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    write_text(temporary, text)
    temporary.replace(path)


def write_json(path: Path, value: Any, **form: Any) -> None:
    """Write a new file with ``json.dumps(value, **form)`` and a line feed."""
    write_text(path, json.dumps(value, **form) + "\n")


# Files are synced, read back, and compared with what they were meant to hold.


def prove(folder: Path, expected_files: Mapping[Path, Expected]) -> dict[str, Sums]:
    """Sync every file below a folder, read it back and verify it. Return the sums by relative path, sorted.

    Files that were not recorded were written by a library; they are synced and summed only.

    Raises:
        StoreError: a file is missing, or does not hold what was written to it.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    gone = sorted(path for path in expected_files if path.is_relative_to(folder.absolute()) and not path.exists())
    if gone:
        raise StoreError(f"{gone[0]} was written and is not there. {FAULTY}")
    return {path.relative_to(folder).as_posix(): read_back(path, expected_files.get(path.absolute())) for path in files}


def expected_in(folder: Path, expected_files: Mapping[Path, Expected]) -> dict[str, dict[str, Any]]:
    """Return expected size and block hashes of every file below a folder, by relative path, sorted. The reader verifies them."""
    entries = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        expected = expected_files.get(path.absolute()) or read_back(path, None)
        entries[path.relative_to(folder).as_posix()] = {"bytes": expected.bytes, "blocks": expected.blocks}
    return entries


def read_back(path: Path, expected: Expected | None) -> Sums:
    """Sync a file, read it back from disk, and return its sums.

    Raises:
        StoreError: it is not what was meant to be written.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            os.fsync(handle)
        except OSError as error:
            raise with_path(error, path) from error
        forget(handle)  # what is in memory only would be compared with itself
        with open(handle, "rb", buffering=0, closefd=False) as file:
            sums = sums_of_stream(file, expected.sha256 if expected else "")
    finally:
        os.close(handle)
    if expected is not None and sums.bytes != expected.bytes:
        raise StoreError(f"{path}: {sums.bytes:,} bytes on disk, {expected.bytes:,} were written. {FAULTY}")
    if expected is not None and (block := first_difference(sums.blocks, expected.blocks)) is not None:
        raise StoreError(f"{path}: {span_of(block, sums.bytes)} on disk are not what was written. {FAULTY}")
    return sums


# Folders that exist complete or not at all: written next to their target by one process at a time, synced to disk and renamed.


@contextmanager
def whole_folder(target: Path, check: Callable[[], None], *, busy: PrepAssetsError, replace: bool = False) -> Iterator[Path]:
    """Yield a folder ``.<name>.writing`` next to `target` to write into. When the block ends it is read back, compared with what was written, and
    renamed to `target`; when the block fails it is deleted.

    Args:
        target: resolved; its parents are made.
        check: raises if `target` must not be overwritten. Called before the block and after it.
        busy: raised if another process of this machine writes to the same target.
        replace: replace a folder that is not empty, too.
    """
    work = target.with_name(f".{target.name}.writing")
    with os_errors_in_words(target.parent), _locked(work, busy):
        check()
        for leftover in work.iterdir():  # by a process that was killed
            shutil.rmtree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
        with removed_on_failure(work, target.parent):
            with recording(work) as expected_files:
                yield work
                prove(work, expected_files)
            sync_folders(work)
            check()
            _replace(work, target, replace)


def _replace(work: Path, target: Path, replace: bool) -> None:
    old = target.with_name(f".{target.name}.replaced")
    if target.exists():
        if replace:
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
        else:
            target.rmdir()
    work.rename(target)
    sync(target.parent)
    if replace:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _locked(folder: Path, busy: PrepAssetsError) -> Iterator[None]:
    """Make `folder` and hold a lock on it, which the system frees when the process dies."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(busy)(f"cannot write to {folder.parent}: {error}. Choose another folder") from error
        handle = os.open(folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise busy from error
            if _is_same_file(folder, handle):  # otherwise the previous holder has renamed or removed the folder that was just locked
                yield
                return
        finally:
            os.close(handle)


def _is_same_file(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
