"""The output directory: there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prep_assets.errors import StoreError

SUMMARY, DOMAINS, QUARANTINE = "preprocess.json", "domains.json", "quarantine.jsonl"
_OURS = {SUMMARY, DOMAINS, QUARANTINE, "meta.json"}
_H5 = re.compile(r"data_\d{4,}\.(h5|offsets\.json)")


def require_free(target: Path, *, overwrite: bool) -> None:
    """Refuse a target that holds anything, unless it is to be overwritten and holds nothing but what preprocessing writes.

    Raises:
        StoreError: it holds something; the message says what, and how to go on.
    """
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file; the output is a directory. Choose another name")
    first = next(iter(sorted(target.iterdir())), None) if target.is_dir() else None
    if first is not None and not overwrite:
        raise StoreError(f"{target} is not empty: it holds {first.name}. Choose another directory, or replace it with --overwrite")
    for path in sorted(target.rglob("*")) if first is not None else ():
        if not _is_ours(path):
            raise StoreError(
                f"--overwrite would delete {path}, which preprocessing does not write. Choose another directory, or move it away"
            )


def _is_ours(path: Path) -> bool:
    """Whether a path is what preprocessing, AstrAI's or this one, writes."""
    if path.is_symlink() or not path.is_file():
        return path.is_dir() and not path.is_symlink()
    is_key = path.suffix == ".bin" and path.with_name("meta.json").is_file()
    return path.name in _OURS or is_key or _H5.fullmatch(path.name) is not None


@contextmanager
def replacing(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A directory beside `target` to write into. It takes the place of `target` when the block ends, and is removed when it fails.

    Raises:
        StoreError: see `require_free`; or another run writes to the same target.
    """
    target = target.expanduser().resolve()
    require_free(target, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = target.with_name(f".{target.name}.writing")
    work.mkdir(exist_ok=True)
    with _locked(work):
        _clear(work)  # what a killed run has left
        try:
            yield work
            require_free(target, overwrite=overwrite)
            _publish(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another run is writing to {directory}. Wait until it has ended, or choose another directory") from error
        yield
    finally:
        os.close(handle)


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _publish(work: Path, target: Path) -> None:
    for path in [*work.rglob("*"), work]:
        _sync(path)
    old = target.with_name(f".{target.name}.replaced")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    work.rename(target)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
