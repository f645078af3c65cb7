"""What was found about a tokenizer's engines, kept on disk: the next process reads it instead of comparing them again.

One small file for each tokenizer and set of versions, in the user's cache folder. Files are replaced whole; one that is damaged, or made by other
versions, counts as none. Losing them costs a few seconds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import unicodedata
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from prep_assets.tokenization.suspects import Ranges

FOLDER = "PREP_ASSETS_CACHE"
"""Environment variable that names another folder; the empty text keeps nothing."""
MOST = 256
"""Files that are kept; the oldest go first."""
_RULES = 2
"""Counted up when the comparison itself changes."""
_PACKAGES = ("tokenizers", "gigatoken")
_DECIDES = ("added_tokens", "normalizer", "pre_tokenizer", "model")


class Finding(msgspec.Struct, frozen=True):
    """Whether the fast engine may be used for a tokenizer, why, and at which code points (first, one past the last) it differs."""

    fast: bool
    verdict: str
    suspects: Ranges = ()


class _Kept(msgspec.Struct, frozen=True):
    sha256: str
    finding: Finding


def key_of(spec: Mapping[str, Any], engine: str) -> str:
    """What a finding depends on: the tokenizer, the engines and their versions, Python's tables of Unicode, and the processor's kind."""
    versions = [engine, *map(_version, _PACKAGES), unicodedata.unidata_version, platform.machine(), sys.byteorder, _RULES]
    return hashlib.sha256(msgspec.json.encode([versions, [spec.get(part) for part in _DECIDES]])).hexdigest()


def find(key: str) -> Finding | None:
    """The finding that was kept, or `None`."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        cached = msgspec.json.decode((folder / f"{key}.json").read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return cached.finding if cached.sha256 == _digest(key, cached.finding) else None


def keep(key: str, finding: Finding) -> None:
    """Keep a finding; where the folder cannot be written, nothing is kept."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".new-", delete=False) as file:
            file.write(msgspec.json.encode(_Kept(_digest(key, finding), finding)))
        Path(file.name).replace(folder / f"{key}.json")
        _drop_oldest(folder)
    except OSError:
        return


def cache_folder() -> Path | None:
    """Where findings are kept; `None` where the environment wants none."""
    named = os.environ.get(FOLDER)
    if named is not None:
        return Path(named) / "engines" if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "prep-assets" / "engines"


def _drop_oldest(folder: Path) -> None:
    files = sorted((path.stat().st_mtime_ns, path) for path in folder.iterdir())
    for _, path in files[: max(0, len(files) - MOST)]:
        path.unlink(missing_ok=True)


def _digest(key: str, finding: Finding) -> str:
    return hashlib.sha256(key.encode() + msgspec.json.encode(finding)).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
