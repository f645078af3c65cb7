"""Files and folders: readable errors, fsync, mapped pages, small caches, strict JSON, sets of digests."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Timer
from typing import Any
from weakref import WeakSet

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Hashes, Ints
from prep_assets.caches import bounded_cache
from prep_assets.errors import PrepAssetsError, StoreError

# Errors of the operating system about files, as one sentence with a remedy.

FAULTY = "Nothing is published. Look for faults of the disk or the memory (dmesg, smartctl, memtest), then build again"
"""What to do when the disk does not return what was written."""
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
    """Return an error that says in one sentence what failed, where, the numbers and the remedy.

    Args:
        folder: the folder that was written to.
        written: bytes that this build had written.
        before: bytes of the store that it would have replaced, 0 if there is none.
    """
    path = str(error.filename2 or error.filename or folder)
    if error.errno in FULL:
        return StoreError(_disk_full_message(folder, path, written, before, quota=error.errno == errno.EDQUOT))
    if error.errno is None:  # a library's
        return StoreError(f"{type(error).__name__}: {error}. It happened while this was written or read: {folder}")
    reason = (error.strerror or os.strerror(error.errno)).lower()
    remedy = _REMEDIES.get(error.errno, "look at this file, then try again")
    return StoreError(f"{path}: {reason}: {remedy}")


def _disk_full_message(folder: Path, path: str, written: int, before: int, *, quota: bool) -> str:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    room_needed = (
        f"about {max(before, written):,} bytes, as the store before it" if before > written else f"more than the {written:,} bytes it had"
    )
    cause = "the quota of this user is used up" if quota else "the disk is full"
    return (
        f"{path}: {cause}: {free_bytes(existing):,} bytes are free at {existing}, the build needs {room_needed}. "
        "Free some (prep-assets prune) or move the stores, then build again"
    )


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder."""
    return shutil.disk_usage(folder).free


@contextmanager
def os_errors_in_words(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a readable `StoreError`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PrepAssetsError):
            raise
        raise in_words(error, folder) from error


def with_path(error: OSError, path: Path) -> OSError:
    """Return the error with its path; calls on a file descriptor do not set it."""
    if error.errno is not None and not error.filename:
        return type(error)(error.errno, error.strerror or os.strerror(error.errno), str(path))
    return error


# Folders: made, synced to disk, removed.

SILENT = 3.0
"""Seconds of waiting for a lock before a warning is logged."""
_LOG = logging.getLogger(__name__)


def sync(path: Path) -> None:
    """Call fsync on a file, or on a folder, whose entries are then on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        raise with_path(error, path) from error
    finally:
        os.close(handle)


def sync_folders(directory: Path) -> None:
    """Call `sync` on a folder and every folder below it; their files must be on disk already."""
    for path, _, _ in os.walk(directory, topdown=False):
        sync(Path(path))


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, each synced before the next one is made."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def remove_tree(path: Path) -> list[str]:
    """Delete a folder and everything below it, as far as possible. Return what could not be deleted, with reasons."""
    failures: list[str] = []

    def note_failure(_: object, path: str, exc_info: tuple[object, BaseException, object]) -> None:
        if not isinstance(error := exc_info[1], FileNotFoundError):
            failures.append(f"{path} ({error.strerror if isinstance(error, OSError) else error})")

    shutil.rmtree(path, onerror=note_failure)  # `onexc` is Python 3.12's
    return failures


def folder_size(directory: Path) -> int:
    """Return the bytes of all files below a folder; a file that disappears meanwhile counts 0."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    return total


@contextmanager
def removed_on_failure(
    work: Path, place: Path, *, replaced_bytes: Callable[[], int] = int, cleanup: Callable[[], None] | None = None
) -> Iterator[None]:
    """Delete the folder `work` if the block that writes to it fails, and raise an `OSError` of the block as a readable `StoreError`.

    Args:
        place: the folder for messages.
        replaced_bytes: the size of what `work` would have replaced, for the message that the disk is full.
        cleanup: called after a fault of the disk or of a store, but not after an interruption, since an interrupted build is resumed.
    """
    try:
        yield
    except BaseException as error:
        raised: BaseException = error
        if isinstance(error, OSError) and not isinstance(error, PrepAssetsError):
            raised = in_words(error, place, written=folder_size(work), before=replaced_bytes())
        failures = remove_tree(work) if work.exists() else []
        if cleanup is not None and isinstance(error, OSError | StoreError):
            try:
                cleanup()
            except (OSError, StoreError) as cleanup_error:
                failures.append(str(cleanup_error))
        if failures and isinstance(raised, PrepAssetsError):
            raised = type(raised)(f"{raised}. What was written could not be deleted: {'; '.join(failures[:3])}")
        if raised is error:
            raise
        raise raised from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, which the system frees when the process dies. Waiting for more than `SILENT` seconds logs a warning."""
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


# Pages of mapped files, which the process releases as it moves through them.
#
# Pages that were read count as memory of the process, although the system could reclaim them. Released pages stay in the page cache and are mapped again
# on the next read. So work on a long file takes the memory of a stretch of it, never of the whole file.

ROOM = 24 << 20
"""Bytes of mapped files that a process goes through until it releases them. Mapping a page again takes 2 µs, so pages are released rarely and many at a
time."""
_MAPPED: WeakSet[mmap.mmap] = WeakSet()
_since_release = 0


def mapped(array: np.memmap[Any, Any]) -> npt.NDArray[Any]:
    """Return a memmap as a plain array, whose pages `note_mapped_bytes` releases. Its slices are several times cheaper than those of an `np.memmap`."""
    if isinstance(array.base, mmap.mmap):
        _MAPPED.add(array.base)
    return np.asarray(array)


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file as read-only bytes."""
    return mapped(np.memmap(str(path), np.uint8, "r")) if path.stat().st_size else np.zeros(0, np.uint8)  # a `Path` would be resolved


def note_mapped_bytes(count: int) -> None:
    """Count about `count` bytes of mapped files that were read or written in sequence, and release all pages every `ROOM` bytes; a later read maps them
    again."""
    global _since_release
    _since_release += count
    if _since_release >= ROOM:
        _since_release = 0
        with suppress(RuntimeError):  # another thread maps a file at this moment: the next release is soon enough
            for mapping in list(_MAPPED):
                mapping.madvise(mmap.MADV_DONTNEED)


# Caches on disk: results in the user's cache folder, for the next process.
#
# One small file per key. Files are replaced atomically; a damaged one counts as missing. Losing them costs only the time to compute them again.

FOLDER = "PREP_ASSETS_CACHE"
"""Environment variable that names another folder; empty turns the caches off."""
_DIGEST = hashlib.sha256().digest_size


def cache_folder() -> Path | None:
    """Return the folder of this user's caches; `None` if caches are turned off."""
    configured, cache_home = os.environ.get(FOLDER), os.environ.get("XDG_CACHE_HOME")
    if configured is not None:
        return Path(configured).expanduser().absolute() if configured else None
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "prep-assets"


class Kept(Struct, frozen=True):
    """A cache on disk with entries of one kind.

    Attributes:
        kind: the name of its folder.
        most: largest number of entries. Beyond it the oldest go, with an eighth of the others, so that files are rarely looked at.
    """

    kind: str
    most: int

    def find(self, key: str) -> bytes | None:
        """Return the entry of a key; `None` if there is none."""
        folder = self._folder()
        try:
            stored = b"" if folder is None else (folder / key).read_bytes()
        except OSError:
            return None
        return stored[_DIGEST:] if stored[:_DIGEST] == _checksum(key, stored[_DIGEST:]) else None

    def keep(self, key: str, data: bytes) -> None:
        """Store an entry; do nothing if the folder is not writable."""
        folder = self._folder()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as file:
                file.write(_checksum(key, data) + data)
            Path(file.name).replace(folder / key)
            if (excess := len(os.listdir(folder)) - self.most) > 0:  # noqa: PTH208 a path for each of thousands takes long
                oldest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
                for path in oldest[: excess + self.most // 8]:
                    path.unlink(missing_ok=True)
        except OSError:
            return

    def _folder(self) -> Path | None:
        folder = cache_folder()
        return None if folder is None else folder / self.kind


def key_of(*depends: Any) -> str:
    """Return a key of some values, the versions of the tokenizer libraries, Python's Unicode tables and the processor architecture."""
    versions = [*map(installed_version, ("tokenizers", "gigatoken")), unicodedata.unidata_version, platform.machine(), sys.byteorder]
    return hashlib.sha256(msgspec.json.encode([versions, depends])).hexdigest()


def _checksum(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


@bounded_cache("installed versions", 16)
def installed_version(package: str) -> str:
    """Return the version of an installed package; ``none`` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# Unambiguous JSON: no duplicate keys, which parsers resolve differently, and a fixed limit of nesting, far below what the stack of any caller allows, so that
# it does not depend on the caller.

MOST_NESTED = 100
"""Most levels of lists and objects, including the outermost."""
dumps = json.JSONEncoder(ensure_ascii=False).encode
"""Return a value as JSON, with characters beyond ASCII unescaped."""
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


class KeyTwice(ValueError):
    """An object has a duplicate key."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values: an `object_pairs_hook` for `json.loads`.

    Raises:
        KeyTwice: a key is duplicate.
    """
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise KeyTwice(f"the key {key[:60]!r} stands twice in an object")
    return result


_ONCE = json.JSONDecoder(object_pairs_hook=once)


def decode_once(text: str) -> Any:
    """Parse JSON text whose objects have no duplicate key, as `json.loads` with `once`, which makes a decoder each time."""
    return json.loads(text) if text.startswith("\ufeff") else _ONCE.decode(text)


def is_too_deep(value: Any) -> bool:
    """Return whether a JSON value is nested more than `MOST_NESTED` deep."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [node for node in level if isinstance(node, dict | list)]
        if not level:
            return False
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]
    return True


def may_be_too_deep(text: bytes | str) -> bool:
    """Return whether JSON text has enough brackets to be nested too deep."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MOST_NESTED
    return text.count(b"[") + text.count(b"{") > MOST_NESTED


def loads(text: bytes | str) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: it is not UTF-8 or not JSON, is nested too deep, or has a duplicate key.
    """
    try:
        value = decode_once(text.decode() if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if may_be_too_deep(text) and is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value


# The set of digests seen so far, each with a number: an open-addressing hash table, in memory while it is small, then in an unnamed file.

_HALVES = struct.Struct("<QQ")
_SLOT = _HALVES.size
IN_MEMORY = 1 << 14
"""Most slots of a table in memory. A larger one is a mapped file, whose pages the system reclaims when it needs them."""
NUMBER = 40
"""Bits of a number, which replace bits of its digest: among 10⁹ digests, two agree in the other 88 bits by chance once in 600 million such sets."""
_AT_A_TIME = 1 << 11
"""Slots that are moved to a larger table at a time."""


class Digests:
    """A set of 16-byte digests. A slot is free if its first half is 0; at most two thirds of the slots are taken.

    Args:
        numbered: store a number with each digest, which leaves 88 bits of it.
    """

    def __init__(self, *, numbered: bool = False) -> None:
        self._allocate(IN_MEMORY)
        self._shift = 64 - NUMBER if numbered else 64
        self._high_mask = (1 << self._shift) - 1

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        return self._table[self._find_slot(*_halves(digest))] != 0

    def add(self, digest: bytes) -> bool:
        """Add a digest without a number; return false if it was in the set."""
        low, high = _halves(digest)
        slot = self._find_slot(low, high)
        if self._table[slot]:
            return False
        self._table[slot], self._table[slot + 1] = low, high & self._high_mask
        self._count += 1
        self._grow(0)
        return True

    def firsts(self, digests: Hashes, numbers: Ints) -> Ints:
        """Add digests, uint64[n, 2], with their numbers, and return the number with which each was first added, which may be that of an earlier one of
        `digests`; -1 for new ones: int64[n]. Requires `numbered`."""
        low, high = np.maximum(digests[:, 0], 1), digests[:, 1] & np.uint64(self._high_mask)
        self._grow(len(low))
        leads = _first_equal(low, high)
        distinct = np.flatnonzero(leads == np.arange(len(low)))
        shift = np.uint64(self._shift)
        slots = self._insert(np.stack([low, high | numbers.astype(np.uint64) << shift], axis=1)[distinct])
        first_numbers = np.full(len(low), -1, np.int64)
        is_known = slots >= 0
        first_numbers[distinct[is_known]] = (self._pairs[slots[is_known], 1] >> shift).astype(np.int64)
        repeats = np.flatnonzero(leads != np.arange(len(low)))
        leaders = leads[repeats]
        first_numbers[repeats] = np.where(first_numbers[leaders] >= 0, first_numbers[leaders], numbers[leaders])
        return first_numbers

    def _find_slot(self, low: int, high: int) -> int:
        """Return the slot of a digest, or the free one where it would be inserted."""
        table, last, mask = self._table, 2 * self._slots - 1, self._high_mask
        slot = 2 * low & last
        while table[slot] and (table[slot] != low or (table[slot + 1] ^ high) & mask):
            slot = slot + 2 & last
        return slot

    def _insert(self, digests: Hashes) -> Ints:
        """Insert distinct digests, for which there is room. Return the slot of each that was in the set before, -1 for the others."""
        mask, last, low = np.uint64(self._high_mask), self._slots - 1, digests[:, 0]
        known_slots, pending, slots = np.full(len(low), -1, np.int64), np.arange(len(low)), (low & np.uint64(last)).astype(np.int64)
        while len(pending):
            wanted, occupants = digests[pending], self._pairs[slots]
            free = np.flatnonzero(occupants[:, 0] == 0)
            self._pairs[slots[free]] = wanted[free]  # where several claim one slot, one of them gets it
            difference = self._pairs[slots] ^ wanted
            done = (difference[:, 0] == 0) & (difference[:, 1] & mask == 0)
            known_slots[pending[done]] = slots[done]
            known_slots[pending[free]] = -1
            self._count += int(np.count_nonzero(done[free]))
            pending, slots = pending[~done], slots[~done] + 1 & last
        return known_slots

    def _grow(self, count: int) -> None:
        while 3 * (self._count + count) > 2 * self._slots:
            old = self._pairs
            self._allocate(2 * self._slots)
            for start in range(0, len(old), _AT_A_TIME):
                part = old[start : start + _AT_A_TIME]
                self._insert(part[part[:, 0] != 0])

    def _allocate(self, slots: int) -> None:
        """Allocate an empty table."""
        self._slots, self._count, size = slots, 0, slots * _SLOT
        if slots <= IN_MEMORY:
            self._table = memoryview(bytearray(size)).cast("Q")
        else:
            with tempfile.TemporaryFile() as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)  # a full disk fails here, and not with a signal when a page is written
                except OSError as error:
                    raise with_path(error, Path(tempfile.gettempdir())) from error
                self._table = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
        self._pairs = np.frombuffer(self._table, np.uint64).reshape(-1, 2)


def _first_equal(low: Hashes, high: Hashes) -> Ints:
    """Return, for each digest, the index of the first that equals it."""
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


# A line of JSON, as ``json.dumps`` writes it.

_decode = msgspec.json.Decoder().decode


def row_of(line: bytes) -> dict[str, Any]:
    """Parse a line. The standard library, which wrote it, also writes NaN, infinities and lone surrogates, which are not JSON, and parses them back."""
    try:
        row: dict[str, Any] = _decode(line)
    except (msgspec.MsgspecError, ValueError):
        row = json.loads(line)
    return row
