"""A folder of files pinned as a whole: one hash over the names, sizes and contents of everything in it.

It is for folders of images, which may hold millions of files. So nothing is kept of them: the folder is walked in a fixed order, and what was
known of it before, a file in the same order, is read beside it. A file that looks untouched is not hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from prep_assets.disk.strict_json import loads
from prep_assets.errors import SourceError


@dataclass(frozen=True, slots=True)
class FolderPin:
    """What a folder held.

    Attributes:
        files, bytes: how many files there are below it, and their size.
        sha256: hash over the relative path, size and content hash of each of them.
    """

    files: int
    bytes: int
    sha256: str

    @property
    def identity(self) -> dict[str, str | int]:
        """What goes into a build's identity: the same on every machine."""
        return asdict(self)


def folder_sign(folder: Path) -> str:
    """A cheap sign of whether anything below `folder` may have changed: over names, sizes and times of change. It differs between machines.

    Raises:
        SourceError: it cannot be read, or is empty.
    """
    digest, files = hashlib.sha256(), 0
    with _readable(folder):
        for name, status in _walk(folder, "", ()):
            digest.update(json.dumps([name, status.st_size, status.st_mtime_ns]).encode() + b"\n")
            files += 1
    _check_any(folder, files)
    return digest.hexdigest()


def pin_folder(folder: Path, known: Path) -> FolderPin:
    """Pin everything below `folder`; links are followed.

    Args:
        known: file in which hashes are remembered between calls; deleting it only costs time.

    Raises:
        SourceError: no such folder, an empty one, a file that cannot be read, or one that changes while it is hashed.
    """
    if not folder.is_dir():
        raise SourceError(f"no folder of images at {folder}. Make it, or set image_dir to another one")
    known.parent.mkdir(parents=True, exist_ok=True)
    temporary, digest = known.with_name(f".{os.getpid()}-{threading.get_ident()}-{known.name}"), hashlib.sha256()
    files = total = 0
    try:
        with _readable(folder), temporary.open("w", encoding="utf-8") as out:
            remembered = _Remembered(known)
            for name, status in _walk(folder, "", ()):
                sign = f"{status.st_size}:{status.st_mtime_ns}"
                sha256 = remembered.of(name, sign) or _hash(folder / name, sign)
                out.write(json.dumps([name, sign, sha256]) + "\n")
                digest.update(json.dumps([name, status.st_size, sha256]).encode() + b"\n")
                files, total = files + 1, total + status.st_size
        with _readable(folder):
            temporary.replace(known)
    finally:
        temporary.unlink(missing_ok=True)
    _check_any(folder, files)
    return FolderPin(files, total, digest.hexdigest())


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Raises:
    SourceError: something below the folder cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"cannot read the folder of images {folder}: {error}. Make it readable, or set image_dir to another one"
        ) from error


def _check_any(folder: Path, files: int) -> None:
    """Raises:
    SourceError: an empty folder, as a drive leaves it that is not mounted. Its images are not taken for removed.
    """
    if not files:
        raise SourceError(
            f"the folder of images {folder} is empty. Mount its drive or bring the images back; or set image_dir to another one"
        )


def _walk(folder: Path, below: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Relative path and status of every file, in the order of `_order`. `above` are the folders on the way, so that a link into one ends."""
    here = folder.stat()
    mark = here.st_dev, here.st_ino
    if mark in above:
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{below}{entry.name}"
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{name}/", (*above, mark))
        elif entry.is_file():
            yield name, entry.stat()


def _order(name: str) -> tuple[str, ...]:
    return tuple(name.split("/"))


def _hash(path: Path, sign: str) -> str:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    status = path.stat()
    if f"{status.st_size}:{status.st_mtime_ns}" != sign:
        raise SourceError(f"{path} changes while it is read. Wait until it is written, then build again")
    return sha256


class _Remembered:
    """Hashes of an earlier walk, read line by line beside the present one."""

    def __init__(self, path: Path) -> None:
        self._lines = self._read(path)
        self._next = next(self._lines, None)

    def of(self, name: str, sign: str) -> str | None:
        """The hash of a file that looks as it did. Names are asked for in the order of the walk."""
        while self._next is not None and _order(self._next[0]) < _order(name):
            self._next = next(self._lines, None)
        return self._next[2] if self._next is not None and self._next[:2] == (name, sign) else None

    @staticmethod
    def _read(path: Path) -> Iterator[tuple[str, str, str]]:
        try:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    name, sign, sha256 = loads(line)
                    yield name, sign, sha256
        except (FileNotFoundError, ValueError, TypeError):
            return
