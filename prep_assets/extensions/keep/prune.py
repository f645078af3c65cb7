"""`prep-assets prune`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Annotated

import typer
from msgspec import Struct

from prep_assets.cli import terminal
from prep_assets.cli.stores import named_stores
from prep_assets.engine.status import forgotten
from prep_assets.errors import ConfigError
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.published import Place


class Deletion(Struct, frozen=True):
    """A folder to delete, and why: a version, leftovers of a killed build, or a whole store."""

    place: Place
    name: str
    why: str
    size: int

    @property
    def stays(self) -> bool:
        """Whether it still exists."""
        existing = {*self.place.backend.names(), *self.place.leftovers()}
        return self.name in existing or (self.name == self.place.directory.name and bool(existing))


def prune(
    asset: terminal.AnyAsset = None,
    partition: terminal.Partition = None,
    removed: Annotated[bool, typer.Option("--removed", help="Also delete stores that are no longer configured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """A store that is current, a candidate or a draft is never deleted."""
    workspace = Workspace.open()
    places = [workspace.place(*deletion) for deletion in named_stores(workspace, asset, partition)]
    unconfigured = [] if asset else forgotten(workspace)
    proofs = {place: place.proofs() for place in places}
    deletions = [deletion for place in places for deletion in _deletions(place, proofs[place])]
    deletions += [Deletion(place, place.directory.name, "not in the configuration", place.size) for place in unconfigured if removed]
    console, size = terminal.out(), sum(deletion.size for deletion in deletions)
    if deletions:
        rows = [(deletion.place.label, deletion.name, deletion.why, terminal.size(deletion.size)) for deletion in deletions]
        console.print(terminal.table("store", "folder", "why", "size", rows=rows, numbers=("size",)))
    if unconfigured and not removed:
        kept, names = terminal.size(sum(place.size for place in unconfigured)), ", ".join(place.label for place in unconfigured)
        console.print(f"not in the configuration any more, {kept}, and deleted only with --removed: {names}", style="yellow")
    for place, name, recall in ((place, name, recall) for place, kept in proofs.items() for name, recall in kept.items()):
        console.print(
            f"{place.label}: {name} stays: it alone shows that equal bytes are sound, which is why {recall}, spares what they made"
        )
    if not deletions or dry_run:
        console.print(f"{terminal.counted(len(deletions), 'folder')}, {terminal.size(size)}, would be deleted")
        return
    if not yes:
        _confirm(terminal.counted(len(deletions), "folder"), terminal.size(size))
    for place in places:
        place.remove_unused(proofs[place])
    for place in unconfigured if removed else ():
        place.remove()
    in_use = [deletion for deletion in deletions if deletion.stays]
    freed = size - sum(deletion.size for deletion in in_use)
    console.print(f"{terminal.counted(len(deletions) - len(in_use), 'folder')}, {terminal.size(freed)}, deleted")
    for each in in_use:
        console.print(f"{each.place.label}: {each.name} is being read and stays. Prune again when its readers have ended", style="yellow")


def _deletions(place: Place, proofs: Collection[str]) -> list[Deletion]:
    unused = [Deletion(place, name, "no longer used", place.backend.size(name)) for name in place.unused() if name not in proofs]
    return unused + [Deletion(place, name, "left by a killed build", place.backend.size(name)) for name in place.leftovers()]


def _confirm(folders: str, size: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(f"{folders} would be deleted, and there is no terminal to ask at. Delete them with --yes")
    if not typer.confirm(f"Delete {folders}, {size}?"):
        terminal.err().print("nothing is deleted")
        raise typer.Exit(1)
