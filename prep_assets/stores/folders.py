"""Folders that exist complete or not at all: written beside their place by one process at a time, synced to disk and renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.errors import PrepAssetsError
from prep_assets.stores.files import sync, sync_folders, told, undone
from prep_assets.stores.verification import prove, recording


@contextmanager
def whole_folder(place: Path, check: Callable[[], None], *, busy: PrepAssetsError, replace: bool = False) -> Iterator[Path]:
    """A folder ``.<name>.writing`` beside `place` to write into. What the disk gives back of it is compared with what was written. It becomes
    `place` when the block ends, and is removed when the block fails.

    Args:
        place: resolved; folders above it are made.
        check: raises where `place` must not be taken. It is called before the block and again after it.
        busy: raised where another process of this machine writes to the same place.
        replace: whether a folder that holds something gives way; otherwise only an empty one does.
    """
    work = place.with_name(f".{place.name}.writing")
    with told(place.parent), _locked(work, busy):
        check()
        for leftover in work.iterdir():  # by a process that was killed
            shutil.rmtree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()
        with undone(work, place.parent):
            with recording(work) as expected_files:
                yield work
                prove(work, expected_files)
            sync_folders(work)
            check()
            _rename(work, place, replace)


def _rename(work: Path, place: Path, replace: bool) -> None:
    old = place.with_name(f".{place.name}.replaced")
    if place.exists():
        if replace:
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        else:
            place.rmdir()
    work.rename(place)
    sync(place.parent)
    if replace:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _locked(folder: Path, busy: PrepAssetsError) -> Iterator[None]:
    """`folder`, made and locked; the system frees the lock of a process that dies."""
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
            if _is(folder, handle):  # else the one before has renamed or removed what was just locked
                yield
                return
        finally:
            os.close(handle)


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
