"""What the system says when a file cannot be written or read, in one sentence with the remedy."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.errors import PrepAssetsError, StoreError

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
