"""`prep-assets path`: where a trainer finds a store."""

from __future__ import annotations

import typer

from prep_assets.cli.find import AssetName, Partition, one_store


def path(asset: AssetName, partition: Partition = None) -> None:
    """Print the directory of a store: the stable link `current`, which trainers open."""
    from prep_assets.pipelines.workspace import Workspace

    workspace = Workspace.open()
    published = one_store(workspace, asset, partition)
    current = workspace.place(asset, published.manifest.partition).directory / "current"
    # a file system without links has a pointer file there
    typer.echo(current if current.is_dir() else published.directory)
