"""`prep-assets prune` and `forget`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError
from prep_assets.explain.visible import visible

if TYPE_CHECKING:
    from prep_assets.explain.forget import Forgotten
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.published import Place

# `prep-assets prune`: delete what is no longer used.


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
        left = {*self.place.backend.names(), *self.place.leftovers()}
        return self.name in left or (self.name == self.place.directory.name and bool(left))


def prune(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; all when left out.")] = None,
    partition: terminal.Partition = None,
    removed: Annotated[bool, typer.Option("--removed", help="Also the stores of what the configuration does not have any more.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Show the versions of stores that nothing points to, and what killed builds left; ask; then delete them.

    A store that is current, a candidate or a draft is never deleted.
    """
    from prep_assets.engine.status import forgotten

    workspace = terminal.opened()
    places = [workspace.place(*each) for each in terminal.named_stores(workspace, asset, partition)]
    gone = [] if asset else forgotten(workspace)
    deletions = [each for place in places for each in _deletions(place)]
    deletions += [Deletion(place, place.directory.name, "not in the configuration", place.size) for place in gone if removed]
    _show(deletions)
    if gone and not removed:
        _name(gone)
    if not deletions or dry_run:
        terminal.out().print(
            f"{terminal.counted(len(deletions), 'folder')}, {terminal.size(sum(each.size for each in deletions))}, would be deleted"
        )
        return
    _confirm(deletions, yes=yes)
    for place in places:
        place.remove_unused()
    for place in gone if removed else ():
        place.remove()
    left = [each for each in deletions if each.stays]
    freed = sum(each.size for each in deletions) - sum(each.size for each in left)
    terminal.out().print(f"{terminal.counted(len(deletions) - len(left), 'folder')}, {terminal.size(freed)}, deleted")
    for each in left:
        terminal.out().print(
            f"{each.place.label}: {each.name} is being read and stays. Prune again when its readers have ended",
            style="yellow",
        )


def _deletions(place: Place) -> list[Deletion]:
    unused = [Deletion(place, name, "no longer used", place.backend.size(name)) for name in place.unused()]
    return unused + [Deletion(place, name, "left by a killed build", place.backend.size(name)) for name in place.leftovers()]


def _show(deletions: list[Deletion]) -> None:
    if deletions:
        rows = [(each.place.label, each.name, each.why, terminal.size(each.size)) for each in deletions]
        terminal.out().print(terminal.table("store", "folder", "why", "size", rows=rows, numbers=("size",)))


def _name(gone: list[Place]) -> None:
    total = terminal.size(sum(place.size for place in gone))
    names = ", ".join(place.label for place in gone)
    terminal.out().print(f"not in the configuration any more, {total}, and deleted only with --removed: {names}", style="yellow")


def _confirm(deletions: list[Deletion], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{terminal.counted(len(deletions), 'folder')} would be deleted, and there is no terminal to ask at. Delete them with --yes"
        )
    if not typer.confirm(f"Delete {terminal.counted(len(deletions), 'folder')}, {terminal.size(sum(each.size for each in deletions))}?"):
        terminal.err().print("nothing is deleted")
        raise typer.Exit(1)


# `prep-assets forget`: take records out of everything, prove that they are gone, and keep them out.

SHOWN = 5


def forget(
    records: Annotated[
        list[str], typer.Argument(metavar="DOMAIN#RECORD...", show_default=False, help="Records, e.g. gsm8k#gsm8k.jsonl:17.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is written into the tombstone.")] = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the unused versions of stores that held them, and drafts and candidates that hold them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Write a tombstone for each record, build again what held it, and prove that neither its ids nor its text are in a current store.

    Tombstones are lines of forgotten.jsonl in the configuration folder; no refresh undoes them. Exit code 1 where a store still holds a record.
    """
    from prep_assets.explain.forget import forget as forgotten

    workspace = terminal.opened()
    with terminal.Live(terminal.err() if as_json else terminal.out()) as live:
        done = forgotten(workspace, records, reason=reason, prune=prune, tell=live)
    if as_json:
        terminal.print_json(_as_json(done))
    else:
        _show_forgotten(terminal.out(), workspace, done, prune=prune)
    if done.left:
        raise typer.Exit(1)


def _as_json(done: Forgotten) -> dict[str, Any]:
    return {
        "tombstones": [msgspec.structs.asdict(each) for each in done.tombstones],
        "held": list(done.held),
        "left": {label: list(each) for label, each in done.left.items()},
        "searched": done.searched,
        "old_versions": [{"store": each.label, "path": each.published.where, "records": list(each.records)} for each in done.old],
        "removed": list(done.removed),
    }


def _show_forgotten(console: Console, workspace: Workspace, done: Forgotten, *, prune: bool) -> None:
    from prep_assets.config.loading import FILE

    for each in done.tombstones:
        console.print(f"{each.family}: {each.domain}#{visible(each.record)} is forgotten, in {terminal.near(workspace.configs / FILE)}")
    if not done.tombstones:
        console.print("every one of them has a tombstone already")
    console.print(f"held by: {', '.join(done.held) or 'no store'}")
    if done.left:
        for label, records in done.left.items():
            more = f" and {len(records) - SHOWN:,} more" if len(records) > SHOWN else ""
            named = ", ".join(visible(each) for each in records[:SHOWN])
            console.print(f"{label} still holds it, or the same text: {named}{more}", style="bold red")
    else:
        console.print(f"searched {terminal.counted(done.searched, 'current store')}, by index and by text: no trace is left", style="green")
    for path in done.removed:
        console.print(f"deleted {path}")
    for old in done.old:
        console.print(f"{old.label}: an old version still holds it: {terminal.near_url(old.published.where)}", style="yellow")
    if done.old and prune:
        console.print("another process reads them, so they were not deleted: wait for it, and run the command again")
    elif done.old:
        console.print("to delete them, drafts and refused candidates too: prep-assets forget … --prune")
    console.print(
        "the source file still has the row, and so may copies of exports elsewhere, and Dagster's history of previews",
        style="dim",
    )
