"""The output directory, and what of it may be replaced."""

from __future__ import annotations

import re
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
