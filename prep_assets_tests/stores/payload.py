"""What a manifest says about the files of a store, worked out from the files: for tests that alter a store and make its manifest fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets.disk.blocks import sums_of
from prep_assets.errors import StoreError
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.mapped_h5 import h5_layout


def list_payload(directory: Path) -> dict[str, dict[str, Any]]:
    """The entry of every payload file below `directory`, by relative path, sorted."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / MANIFEST)
    return {path.relative_to(directory).as_posix(): {**sums_of(path).entry, **_layout(path)} for path in files}


def _layout(path: Path) -> dict[str, str]:
    try:
        return h5_layout(path)
    except StoreError:  # a test has damaged it
        return {}
