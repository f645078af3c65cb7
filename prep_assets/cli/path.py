"""`prep-assets path`: where a trainer finds a store."""

from __future__ import annotations

from typing import Annotated

import typer

from prep_assets.cli.console import err
from prep_assets.cli.find import AssetName, Partition, one_partition, one_store
from prep_assets.errors import StoreError


def path(
    asset: AssetName,
    partition: Partition = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="The last store that options of one run gave, instead of the current one.")
    ] = False,
    even_if_failed: Annotated[bool, typer.Option("--even-if-failed", help="Print it although its checks do not hold.")] = False,
) -> None:
    """Print the directory of a store: the stable link `current`, which trainers open. A store that fails its checks is refused.

    What else is to be known of it, e.g. that it is out of date or has options of one run, is said on stderr.
    """
    from prep_assets.assets.workspace import Workspace
    from prep_assets.engine import Look

    workspace = Workspace.open()
    found, each = one_partition(workspace, asset, partition)
    place = workspace.place(found.name, each)
    if draft:
        store = place.draft()
        if store is None:
            raise StoreError(f"{place.label} has no draft. Options of one run make one, e.g. prep-assets build {asset} --set KEY=VALUE")
        typer.echo(store.directory)
        return
    published = one_store(workspace, asset, partition)
    standing = Look(workspace).at(found, each)
    if standing.failed and not even_if_failed:
        reasons = "\n".join(f"  {name}: {result.summary}" for name, result in standing.failed.items())
        raise StoreError(f"{place.label} fails its checks. Build it again, or add --even-if-failed\n{reasons}")
    for said in (standing.why, *(f"it has options of one run: {key}" for key in (*standing.overrides, *standing.inherited))):
        if said:
            err().print(f"{place.label}: {said}", style="yellow", soft_wrap=True)
    # a file system without links has a pointer file there
    typer.echo(place.directory / "current" if (place.directory / "current").is_dir() else published.directory)
