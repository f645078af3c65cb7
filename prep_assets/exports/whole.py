"""An export's folder: written beside its place by one export at a time, and renamed when it is whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.errors import ConfigError


def check_folder(out: Path) -> None:
    """Raises:
    ConfigError: an export cannot stand at `out`; the message says why.
    """
    place = out.resolve()
    if place == Path.cwd():
        raise ConfigError(
            f"cannot export to {str(out)!r}: it is the current folder, and an export puts a new one in place. Name another folder"
        )
    above = next(path for path in (place, *place.parents) if path.exists() or path.is_symlink())
    if not above.is_dir():
        what = "is a file" if above == place else f"is below {above}, which is a file"
        raise ConfigError(f"cannot export to {out}: it {what}, and an export is a folder. Name another folder")
    if above == place and any(place.iterdir()):
        raise ConfigError(f"{out} is not empty: an export never mixes with what is there. Remove it, or name another folder")


def whole(out: Path, write: Callable[[Path], None]) -> None:
    """Have a folder written beside `out`, sync it to disk and rename it."""
    place = out.resolve()
    work = place.with_name(f".writing-{place.name}")
    with _locked(place):
        # another export may have put its folder there between the first look and the lock
        check_folder(out)
        # the lock is held, so whatever is there was left by an export that was killed
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            write(work)
            for path in [*sorted(work.rglob("*")), work]:
                handle = os.open(path, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
            check_folder(out)
            if place.exists():
                place.rmdir()
            work.rename(place)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One export to a folder at a time; the system frees the lock of one that dies.

    Raises:
        ConfigError: another one is under way, or the folder above cannot be written to.
    """
    path = place.with_name(f".lock-{place.name}")
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        except OSError as error:
            raise ConfigError(f"cannot export to {place}: {error}. Name another folder") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"another export to {place} is under way. Wait until it ends, or name another folder") from error
            if not _is(path, lock.fileno()):
                continue  # the one before has removed the file that was just locked
            try:
                yield
                return
            finally:
                path.unlink(missing_ok=True)


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
