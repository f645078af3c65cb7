"""What was found once and would be found again, kept in the user's cache folder for the next process.

A small file for each key. Files are replaced whole; one that is damaged counts as none. Losing them costs the time to find it again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import unicodedata
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from prep_assets.caches import bounded_cache

FOLDER = "PREP_ASSETS_CACHE"
"""Environment variable that names another folder; the empty text keeps nothing."""
_DIGEST = hashlib.sha256().digest_size


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
        named = os.environ.get(FOLDER)
        if named is not None:
            return Path(named) / self.kind if named else None
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "prep-assets" / self.kind

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
