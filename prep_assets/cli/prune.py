"""`prep-assets prune`: delete versions of stores that are no longer used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import counted, out, size, table
from prep_assets.cli.find import Partition, asset_and_partitions, configured
from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from prep_assets.pipelines.workspace import Workspace
    from prep_assets.stores.published import Place


def prune(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; all when left out.")] = None,
    partition: Partition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
) -> None:
    """Delete the versions of stores that are neither current nor a candidate, with their quarantine files."""
    from prep_assets.pipelines.workspace import Workspace

    places = _places(Workspace.open(), asset, partition)
    sizes = {path: _size(path) for place in places for path in place.unused()}
    console = out()
    if sizes:
        shown = table("store", "version", "size", numbers=("size",))
        for place in places:
            for path in place.unused():
                shown.add_row(place.label, path.name, size(sizes[path]))
        console.print(shown)
    gone = list(sizes) if dry_run else [path for place in places for path in place.remove_unused()]
    freed = size(sum(sizes.get(path, 0) for path in gone))
    console.print(f"{counted(len(gone), 'version')}, {freed}, {'would be deleted' if dry_run else 'deleted'}", soft_wrap=True)


def _places(workspace: Workspace, name: str | None, partition: str | None) -> list[Place]:
    if name is None and partition is not None:
        raise ConfigError(f"--partition {partition} of which asset? prep-assets prune ASSET --partition {partition}")
    names = [name] if name else [asset.name for asset in configured(workspace)]
    asked = [asset_and_partitions(workspace, each, partition) for each in names]
    return [workspace.place(asset.name, each) for asset, partitions in asked for each in partitions]


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
