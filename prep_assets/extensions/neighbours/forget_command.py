"""`prep-assets forget`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.stores import Live
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.loading import FILE
from prep_assets.extensions.neighbours.forget import Forgotten
from prep_assets.extensions.neighbours.forget import forget as forget_records
from prep_assets.pipeline.workspace import Workspace
from prep_assets.text.visible import visible

SHOWN = 5


@with_json
def forget(
    records: Annotated[list[str], typer.Argument(metavar="DOMAIN/RECORD...", help="Records, e.g. gsm8k/gsm8k.jsonl:17.")],
    reason: Annotated[str, typer.Option("--reason", help="The reason, written into the tombstone.")] = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the unused versions of stores that held them, and drafts and candidates that hold them.")
    ] = False,
    as_json: bool = False,
) -> Answer:
    """Tombstones are lines of forgotten.jsonl in the configuration folder; no refresh undoes them. Exit code 1 where a store still holds a record."""
    with Live(terminal.err() if as_json else terminal.out()) as live:
        workspace = Workspace.open(progress=live.progress)
        outcome = forget_records(workspace, records, reason=reason, prune=prune, tell=live)
    facts = {name: getattr(outcome, name) for name in ("tombstones", "held", "left", "searched", "removed")}
    facts["old_versions"] = [{"store": old.label, "path": old.published.where, "records": old.records} for old in outcome.old]
    return Answer(facts, lambda console: _show_forgotten(console, workspace, outcome, prune=prune), int(bool(outcome.left)))


def _show_forgotten(console: Console, workspace: Workspace, outcome: Forgotten, *, prune: bool) -> None:
    for tombstone in outcome.tombstones:
        console.print(
            f"{tombstone.family}: {tombstone.domain}/{visible(tombstone.record)} is forgotten, in {terminal.near(workspace.configs / FILE)}"
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
