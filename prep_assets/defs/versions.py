"""Code versions: what Dagster compares to mark a store as out of sync with its code and its configuration."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Family
from prep_assets.stores.manifest import digest, file_hash

FILES = ("tokenizer", "template")
"""Options that may name a folder or a file beside the configuration, whose content counts."""


def code_version(workspace: Workspace, asset: Asset) -> str:
    """The asset's code version and a hash over the options that it depends on, files that these name included.

    What one domain says is left out where each domain has a store of its own: a code version is of the whole asset, and another
    filter in one domain must not mark all others. `prep-assets status` tells them apart.
    """
    family = workspace.family(FAMILIES[asset.family])
    options = {option: _value(workspace, family, option) for option in asset.options}
    return f"{asset.version}-{digest(options)[:10]}" if options else asset.version


def _value(workspace: Workspace, family: Family, option: str) -> Any:
    values: Any = family.model_dump(mode="json", by_alias=True)
    for key in option.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return [values, _content(workspace.configs / str(values))] if option in FILES else values


def _content(path: Path) -> Any:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [[file.name, _hash(file, file.stat().st_size, file.stat().st_mtime_ns)] for file in files if file.is_file()]


@cache
def _hash(file: Path, size: int, changed: int) -> str:
    """sha256 of a file, which is read again only where it looks changed."""
    return file_hash(file)
