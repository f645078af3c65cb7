"""Folders: made, brought to disk, removed."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

from prep_assets.disk.faults import in_words, named
from prep_assets.errors import PrepAssetsError, StoreError

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
