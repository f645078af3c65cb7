"""`prep-assets prune`: delete what is no longer used."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import counted, err, out, size, table
from prep_assets.cli.find import Partition, named_stores, opened
from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from prep_assets.stores.published import Place


@dataclass(frozen=True, slots=True)
class Deletion:
    """What would be deleted, and why: a version, what a killed build left, or a whole store."""

    place: Place
    name: str
    why: str
    size: int

    @property
    def stays(self) -> bool:
        """Whether it is still there."""
        left = {*self.place.shelf.names(), *self.place.leftovers()}
        return self.name in left or (self.name == self.place.directory.name and bool(left))


def prune(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; all when left out.")] = None,
    partition: Partition = None,
    removed: Annotated[bool, typer.Option("--removed", help="Also the stores of what the configuration does not have any more.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Show the versions of stores that nothing points to, and what killed builds left; ask; then delete them.

    A store that is current, a candidate or a draft is never deleted.
    """
    from prep_assets.engine.left import forgotten

    workspace = opened()
    places = [workspace.place(*each) for each in named_stores(workspace, asset, partition)]
    gone = [] if asset else forgotten(workspace)
    deletions = [each for place in places for each in _deletions(place)]
    deletions += [Deletion(place, place.directory.name, "not in the configuration", place.size) for place in gone if removed]
    _show(deletions)
    if gone and not removed:
        _name(gone)
    if not deletions or dry_run:
        out().print(f"{counted(len(deletions), 'folder')}, {size(sum(each.size for each in deletions))}, would be deleted")
        return
    _confirm(deletions, yes=yes)
    for place in places:
        place.remove_unused()
    for place in gone if removed else ():
        place.remove()
    left = [each for each in deletions if each.stays]
    freed = sum(each.size for each in deletions) - sum(each.size for each in left)
    out().print(f"{counted(len(deletions) - len(left), 'folder')}, {size(freed)}, deleted")
    for each in left:
        out().print(
            f"{each.place.label}: {each.name} is being read and stays. Prune again when its readers have ended",
            style="yellow",
        )


def _deletions(place: Place) -> list[Deletion]:
    unused = [Deletion(place, name, "no longer used", place.shelf.size(name)) for name in place.unused()]
    return unused + [Deletion(place, name, "left by a killed build", place.shelf.size(name)) for name in place.leftovers()]


def _show(deletions: list[Deletion]) -> None:
    if deletions:
        rows = [(each.place.label, each.name, each.why, size(each.size)) for each in deletions]
        out().print(table("store", "folder", "why", "size", rows=rows, numbers=("size",)))


def _name(gone: list[Place]) -> None:
    total = size(sum(place.size for place in gone))
    names = ", ".join(place.label for place in gone)
    out().print(f"not in the configuration any more, {total}, and deleted only with --removed: {names}", style="yellow")


def _confirm(deletions: list[Deletion], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{counted(len(deletions), 'folder')} would be deleted, and there is no terminal to ask at. Delete them with --yes"
        )
    if not typer.confirm(f"Delete {counted(len(deletions), 'folder')}, {size(sum(each.size for each in deletions))}?"):
        err().print("nothing is deleted")
        raise typer.Exit(1)
