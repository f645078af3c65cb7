"""Folders that exist complete or not at all: written next to their target by one process at a time, synced to disk and renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.errors import PrepAssetsError
from prep_assets.stores.files import os_errors_in_words, removed_on_failure, sync, sync_folders
from prep_assets.stores.verification import prove, recording


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
