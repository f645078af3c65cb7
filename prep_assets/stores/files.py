"""Files and folders: errors in words, syncing, mapped pages, small caches, strict JSON, sets of digests."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import mmap
import os
import platform
import shutil
import struct
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Timer
from typing import Any
from weakref import WeakSet

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.errors import PrepAssetsError, StoreError

# What the system says when a file cannot be written or read, in one sentence with the remedy.

FAULTY = "Nothing is published. Look for faults of the disk or the memory (dmesg, smartctl, memtest), then build again"
"""What to do where the disk gives back something else than was written."""
FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDIES = {
    errno.EIO: "the disk reports a fault. Look at dmesg and smartctl; move the stores to a sound disk, then build again",
    errno.ENOTDIR: "a part of this path is a file. Move it, or choose another folder with PREP_ASSETS_STORE_DIR",
    errno.EROFS: "the file system is mounted read-only. Mount it for writing, or choose another folder with PREP_ASSETS_STORE_DIR",
    errno.EACCES: "this user may not write there. Change the rights of the folder, or choose another one with PREP_ASSETS_STORE_DIR",
    errno.EPERM: "the system does not allow it. Change the rights of the folder, or choose another one with PREP_ASSETS_STORE_DIR",
    errno.EMFILE: "this process has too many files open. Raise the limit with `ulimit -n`, then try again",
    errno.ENFILE: "the machine has too many files open. End other programs, then try again",
    errno.ENOMEM: "there is no memory left. End other programs, or build on a larger machine",
    errno.EFBIG: "the file is larger than this user or file system allows. Look at `ulimit -f`, or write smaller shards",
}


def in_words(error: OSError, folder: Path, *, written: int = 0, before: int = 0) -> StoreError:
    """One sentence: what could not be done, where, the numbers, the remedy.

    Args:
        folder: where the work was going on.
        written: bytes that this build had written.
        before: bytes of the store that it would have replaced, 0 where there is none.
    """
    where = str(error.filename2 or error.filename or folder)
    if error.errno in FULL:
        return StoreError(_full(folder, where, written, before, quota=error.errno == errno.EDQUOT))
    if error.errno is None:  # a library's
        return StoreError(f"{type(error).__name__}: {error}. It happened while this was written or read: {folder}")
    said = (error.strerror or os.strerror(error.errno)).lower()
    remedy = _REMEDIES.get(error.errno, "look at this file, then try again")
    return StoreError(f"{where}: {said}: {remedy}")


def _full(folder: Path, where: str, written: int, before: int, *, quota: bool) -> str:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    needed = (
        f"about {max(before, written):,} bytes, as the store before it" if before > written else f"more than the {written:,} bytes it had"
    )
    what = "the quota of this user is used up" if quota else "the disk is full"
    return (
        f"{where}: {what}: {free_bytes(there):,} bytes are free at {there}, the build needs {needed}. "
        "Free some (prep-assets prune) or move the stores, then build again"
    )


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write where a folder is."""
    return shutil.disk_usage(folder).free


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Turn what the system says about files into a `StoreError` in words."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PrepAssetsError):
            raise
        raise in_words(error, folder) from error


def named(error: OSError, path: Path) -> OSError:
    """The error with the file that it is about; calls on an open file do not say it."""
    if error.errno is not None and not error.filename:
        return type(error)(error.errno, error.strerror or os.strerror(error.errno), str(path))
    return error


# Folders: made, brought to disk, removed.

SILENT = 3.0
"""Seconds for which nothing is said of waiting."""
_LOG = logging.getLogger(__name__)


def sync(path: Path) -> None:
    """Have a file, or the list of names in a folder, on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        raise named(error, path) from error
    finally:
        os.close(handle)


def sync_folders(directory: Path) -> None:
    """`sync` a folder and every folder below it; their files are on disk already."""
    for path, _, _ in os.walk(directory, topdown=False):
        sync(Path(path))


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing, each on disk before the next one."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync(each.parent)


def remove_tree(path: Path) -> list[str]:
    """Delete a folder with everything below it as far as that is possible; what could not be deleted, in words."""
    left: list[str] = []

    def note(_: object, name: str, info: tuple[object, BaseException, object]) -> None:
        if not isinstance(error := info[1], FileNotFoundError):
            left.append(f"{name} ({error.strerror if isinstance(error, OSError) else error})")

    shutil.rmtree(path, onerror=note)  # `onexc` is Python 3.12's
    return left


def folder_size(directory: Path) -> int:
    """Bytes of all files below a folder; a file that goes meanwhile counts nothing."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    return total


@contextmanager
def undone(work: Path, place: Path, *, before: int = 0, also: Callable[[], None] | None = None) -> Iterator[None]:
    """Delete a folder where the block that writes into it fails, and say in words what the system said.

    Args:
        place: where the work is going on.
        before: bytes of what it would have replaced, for the message that the disk is full.
        also: deletes more, after a fault of the disk or of a store; not where the block was interrupted, and begins again.
    """
    try:
        yield
    except BaseException as error:
        fault: BaseException = error
        if isinstance(error, OSError) and not isinstance(error, PrepAssetsError):
            fault = in_words(error, place, written=folder_size(work), before=before)
        left = remove_tree(work) if work.exists() else []
        if also is not None and isinstance(error, OSError | StoreError):
            try:
                also()
            except (OSError, StoreError) as more:
                left.append(str(more))
        if left and isinstance(fault, PrepAssetsError):
            fault = type(fault)(f"{fault}. What was written could not be deleted: {'; '.join(left[:3])}")
        if fault is error:
            raise
        raise fault from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the system frees the lock of a process that dies. Whoever waits for long says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting = Timer(SILENT, _LOG.warning, ("%s: another process is at work there; waiting until it ends", path.parent))
            waiting.start()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            finally:
                waiting.cancel()
        yield


# Pages of mapped files, which this process gives back while it goes through them.
#
# What was read of a mapped file counts as memory of the process, although the system could take it back. Given back, it stays where the system keeps files,
# and is there again as soon as somebody reads it. So work on a long file takes the memory of a stretch of it, and never of the file.

ROOM = 24 << 20
"""Bytes of mapped files that a process keeps. To get a page again takes 2 µs, so it gives back many at a time, and not often."""
LOOK = 4 << 20
"""Bytes that are gone through between two looks at how much it has."""
_MEMORY = Path("/proc/self/statm")
_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_since_look = 0
_others = 0


def mapped(array: np.memmap[Any, Any]) -> npt.NDArray[Any]:
    """The elements of a mapped file, which are given back from now on. A slice of them is several times cheaper than one of an `np.memmap`."""
    if isinstance(array.base, mmap.mmap):
        _MAPPED.add(array.base)
    return np.asarray(array)


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """A file's bytes, mapped, read-only."""
    return mapped(np.memmap(str(path), np.uint8, "r")) if path.stat().st_size else np.zeros(0, np.uint8)  # a `Path` would be resolved


def went_through(count: int) -> None:
    """Note that about so many bytes of mapped files were read or written one after another, and give pages back where it is time."""
    global _since_look
    _since_look += count
    if _since_look >= LOOK:
        give_back()


def give_back() -> None:
    """Give all pages back where there are more than `ROOM`. Whoever still reads them gets them again."""
    global _since_look, _others
    _since_look = 0
    found = _of_files()
    _others = min(_others, found)
    if found > _others + ROOM:
        for each in list(_MAPPED):
            each.madvise(mmap.MADV_DONTNEED)
        _others = _of_files()


def _of_files() -> int:
    """Bytes of files, the code of libraries among them, that this process has in memory; 0 where the system does not say."""
    try:
        return int(_MEMORY.read_bytes().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


# What was found once and would be found again, kept in the user's cache folder for the next process.
#
# A small file for each key. Files are replaced whole; one that is damaged counts as none. Losing them costs the time to find it again.

FOLDER = "PREP_ASSETS_CACHE"
"""Environment variable that names another folder; the empty text keeps nothing."""
_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Where this user's caches are; `None` where nothing is to be kept."""
    named, base = os.environ.get(FOLDER), os.environ.get("XDG_CACHE_HOME")
    if named is not None:
        return Path(named).expanduser().absolute() if named else None
    return (Path(base) if base else Path.home() / ".cache") / "prep-assets"


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of one kind.

    Attributes:
        kind: the name of their folder.
        most: how many are kept; the oldest go first.
    """

    kind: str
    most: int

    def find(self, key: str) -> bytes | None:
        """What was kept under a key; `None` where nothing was."""
        folder = self._folder()
        try:
            found = b"" if folder is None else (folder / key).read_bytes()
        except OSError:
            return None
        return found[_DIGEST:] if found[:_DIGEST] == _checksum(key, found[_DIGEST:]) else None

    def keep(self, key: str, data: bytes) -> None:
        """Keep something; where the folder cannot be written, nothing is kept."""
        folder = self._folder()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as file:
                file.write(_checksum(key, data) + data)
            Path(file.name).replace(folder / key)
            self._drop_oldest(folder)
        except OSError:
            return

    def _folder(self) -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / self.kind

    def _drop_oldest(self, folder: Path) -> None:
        files = sorted((path.stat().st_mtime_ns, path) for path in folder.iterdir())
        for _, path in files[: max(0, len(files) - self.most)]:
            path.unlink(missing_ok=True)


def key_of(*depends: Any) -> str:
    """A key for what depends on some values, on the versions of the libraries that tokenize, on Python's tables of Unicode and on the processor's kind."""
    versions = [*map(_version, ("tokenizers", "gigatoken")), unicodedata.unidata_version, platform.machine(), sys.byteorder]
    return hashlib.sha256(msgspec.json.encode([versions, depends])).hexdigest()


def _checksum(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


@bounded_cache("versions of engines", 16)
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# JSON that means one thing: no key twice in an object, of which readers keep another one each, and a fixed limit of nesting, far below what the stack of any
# caller allows, so that it never depends on who calls.

MOST_NESTED = 100
"""Lists and objects inside one another, the outermost counted."""
dumps = json.JSONEncoder(ensure_ascii=False).encode
"""A value as JSON, every character as itself."""
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


class KeyTwice(ValueError):
    """An object has a key twice."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, as `json.loads` asks its `object_pairs_hook` for it.

    Raises:
        KeyTwice: a key stands twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise KeyTwice(f"the key {key[:60]!r} stands twice in an object")
    return found


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than allowed."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def may_be_too_deep(text: bytes | str) -> bool:
    """Whether JSON text has so many brackets that it is worth a look."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MOST_NESTED
    return text.count(b"[") + text.count(b"{") > MOST_NESTED


def loads(text: bytes | str) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: it is no UTF-8 or no JSON, is nested too deeply, or has a key twice.
    """
    try:
        value = json.loads(text.decode() if isinstance(text, bytes) else text, object_pairs_hook=once)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if may_be_too_deep(text) and is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


# Which digests came so far, each with a number: an open hash table, in memory as long as it is small, then in a file that has no name.

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
        self._open(IN_MEMORY)
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
            before = self._pairs
            self._open(2 * self._slots)
            for start in range(0, len(before), _AT_A_TIME):
                part = before[start : start + _AT_A_TIME]
                self._put(part[part[:, 0] != 0])

    def _open(self, slots: int) -> None:
        """An empty table."""
        self._slots, self._count, size = slots, 0, slots * _SLOT
        if slots <= IN_MEMORY:
            self._table = memoryview(bytearray(size)).cast("Q")
        else:
            with tempfile.TemporaryFile() as file:
                try:
                    os.posix_fallocate(
                        file.fileno(), 0, size
                    )  # a disk that is full is told here, and not by a signal when a page is written
                except OSError as error:
                    raise named(error, Path(tempfile.gettempdir())) from error
                self._table = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
        self._pairs = np.frombuffer(self._table, np.uint64).reshape(-1, 2)


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
