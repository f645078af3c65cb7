"""`prep-assets prune` and `forget`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError
from prep_assets.explain.visible import visible

if TYPE_CHECKING:
    from prep_assets.explain.forget import Forgotten
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.published import Place

# `prep-assets prune`: delete what is no longer used.


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
    places = [workspace.place(*deletion) for deletion in terminal.named_stores(workspace, asset, partition)]
    unconfigured = [] if asset else forgotten(workspace)
    deletions = [deletion for place in places for deletion in _deletions(place)]
    deletions += [Deletion(place, place.directory.name, "not in the configuration", place.size) for place in unconfigured if removed]
    _show_deletions(deletions)
    if unconfigured and not removed:
        _show_unconfigured(unconfigured)
    if not deletions or dry_run:
        terminal.out().print(
            f"{terminal.counted(len(deletions), 'folder')}, {terminal.size(sum(deletion.size for deletion in deletions))}, would be deleted"
        )
        return
    _confirm(deletions, yes=yes)
    for place in places:
        place.remove_unused()
    for place in unconfigured if removed else ():
        place.remove()
    in_use = [deletion for deletion in deletions if deletion.stays]
    freed = sum(deletion.size for deletion in deletions) - sum(deletion.size for deletion in in_use)
    terminal.out().print(f"{terminal.counted(len(deletions) - len(in_use), 'folder')}, {terminal.size(freed)}, deleted")
    for deletion in in_use:
        terminal.out().print(
            f"{deletion.place.label}: {deletion.name} is being read and stays. Prune again when its readers have ended",
            style="yellow",
        )


def _deletions(place: Place) -> list[Deletion]:
    unused = [Deletion(place, name, "no longer used", place.backend.size(name)) for name in place.unused()]
    return unused + [Deletion(place, name, "left by a killed build", place.backend.size(name)) for name in place.leftovers()]


def _show_deletions(deletions: list[Deletion]) -> None:
    if deletions:
        rows = [(deletion.place.label, deletion.name, deletion.why, terminal.size(deletion.size)) for deletion in deletions]
        terminal.out().print(terminal.table("store", "folder", "why", "size", rows=rows, numbers=("size",)))


def _show_unconfigured(unconfigured: list[Place]) -> None:
    total = terminal.size(sum(place.size for place in unconfigured))
    names = ", ".join(place.label for place in unconfigured)
    terminal.out().print(f"not in the configuration any more, {total}, and deleted only with --removed: {names}", style="yellow")


def _confirm(deletions: list[Deletion], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{terminal.counted(len(deletions), 'folder')} would be deleted, and there is no terminal to ask at. Delete them with --yes"
        )
    if not typer.confirm(
        f"Delete {terminal.counted(len(deletions), 'folder')}, {terminal.size(sum(deletion.size for deletion in deletions))}?"
    ):
        terminal.err().print("nothing is deleted")
        raise typer.Exit(1)


# `prep-assets forget`: remove records from every store, prove that they are gone, and keep them out.

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
    from prep_assets.engine.events import Progress
    from prep_assets.explain.forget import forget as forget_records
    from prep_assets.pipeline.workspace import Workspace

    with terminal.Live(terminal.err() if as_json else terminal.out()) as live:
        workspace = Workspace.open(progress=lambda what, done, total: live(Progress(what, done, total)))
        outcome = forget_records(workspace, records, reason=reason, prune=prune, tell=live)
    if as_json:
        terminal.print_json(_as_json(outcome))
    else:
        _show_forgotten(terminal.out(), workspace, outcome, prune=prune)
    if outcome.left:
        raise typer.Exit(1)


def _as_json(outcome: Forgotten) -> dict[str, Any]:
    return {
        "tombstones": [msgspec.structs.asdict(tombstone) for tombstone in outcome.tombstones],
        "held": list(outcome.held),
        "left": {label: list(records) for label, records in outcome.left.items()},
        "searched": outcome.searched,
        "old_versions": [
            {"store": version.label, "path": version.published.where, "records": list(version.records)} for version in outcome.old
        ],
        "removed": list(outcome.removed),
    }


def _show_forgotten(console: Console, workspace: Workspace, outcome: Forgotten, *, prune: bool) -> None:
    from prep_assets.config.loading import FILE

    for tombstone in outcome.tombstones:
        console.print(
            f"{tombstone.family}: {tombstone.domain}#{visible(tombstone.record)} is forgotten, in {terminal.near(workspace.configs / FILE)}"
        )
    if not outcome.tombstones:
        console.print("every one of them has a tombstone already")
    console.print(f"held by: {', '.join(outcome.held) or 'no store'}")
    if outcome.left:
        for label, records in outcome.left.items():
            more = f" and {len(records) - SHOWN:,} more" if len(records) > SHOWN else ""
            names = ", ".join(visible(record) for record in records[:SHOWN])
            console.print(f"{label} still holds it, or the same text: {names}{more}", style="bold red")
    else:
        console.print(
            f"searched {terminal.counted(outcome.searched, 'current store')}, by index and by text: no trace is left", style="green"
        )
    for path in outcome.removed:
        console.print(f"deleted {path}")
    for old in outcome.old:
        console.print(f"{old.label}: an old version still holds it: {terminal.near_url(old.published.where)}", style="yellow")
    if outcome.old and prune:
        console.print("another process reads them, so they were not deleted: wait for it, and run the command again")
    elif outcome.old:
        console.print("to delete them, drafts and refused candidates too: prep-assets forget … --prune")
    console.print(
        "the source file still has the row, and so may copies of exports elsewhere, and Dagster's history of previews",
        style="dim",
    )
