"""`prep-assets forget`: take records out of everything, prove that they are gone, and keep them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from prep_assets.cli.console import Live, counted, err, near, near_url, out, print_json
from prep_assets.cli.find import opened
from prep_assets.cli.tokens import visible

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.lineage.forget import Forgotten

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
    from prep_assets.lineage.forget import forget as forgotten

    workspace = opened()
    with Live(err() if as_json else out()) as live:
        done = forgotten(workspace, records, reason=reason, prune=prune, tell=live)
    if as_json:
        print_json(_as_json(done))
    else:
        _show(out(), workspace, done, prune=prune)
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


def _show(console: Console, workspace: Workspace, done: Forgotten, *, prune: bool) -> None:
    from prep_assets.config.tombstones import FILE

    for each in done.tombstones:
        console.print(f"{each.family}: {each.domain}#{visible(each.record)} is forgotten, in {near(workspace.configs / FILE)}")
    if not done.tombstones:
        console.print("every one of them has a tombstone already")
    console.print(f"held by: {', '.join(done.held) or 'no store'}")
    if done.left:
        for label, records in done.left.items():
            more = f" and {len(records) - SHOWN:,} more" if len(records) > SHOWN else ""
            named = ", ".join(visible(each) for each in records[:SHOWN])
            console.print(f"{label} still holds it, or the same text: {named}{more}", style="bold red")
    else:
        console.print(f"searched {counted(done.searched, 'current store')}, by index and by text: no trace is left", style="green")
    for path in done.removed:
        console.print(f"deleted {path}")
    for old in done.old:
        console.print(f"{old.label}: an old version still holds it: {near_url(old.published.where)}", style="yellow")
    if done.old and prune:
        console.print("another process reads them, so they were not deleted: wait for it, and run the command again")
    elif done.old:
        console.print("to delete them, drafts and refused candidates too: prep-assets forget … --prune")
    console.print(
        "the source file still has the row, and so may copies of exports elsewhere, and Dagster's history of previews",
        style="dim",
    )
