"""`prep-assets where`: every store that holds a record, or why none does."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import out, table
from prep_assets.cli.tokens import visible

if TYPE_CHECKING:
    from rich.console import Console

    from prep_assets.lineage.where import Found, NotHere, Whereabouts

RecordName = Annotated[
    str, typer.Argument(metavar="DOMAIN#RECORD", show_default=False, help="A record, e.g. gsm8k#gsm8k.jsonl:17, or gsm8k#17 of one file.")
]


def where(
    record: RecordName,
    draft: Annotated[bool, typer.Option("--draft", help="Look into drafts as well, the last stores that options of one run gave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the places as JSON.")] = False,
) -> None:
    """Show every row, pair, prompt, group and export that holds a record; where it was refused, or a duplicate, the reason and who won."""
    from prep_assets.assets.workspace import Workspace
    from prep_assets.lineage.where import where as found_at

    workspace = Workspace.open()
    found = found_at(workspace, record, drafts=draft)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False, default=str))
        return
    console = out()
    for each in found:
        _show(console, each)


def _show(console: Console, whereabouts: Whereabouts) -> None:
    console.print(f"{whereabouts.domain}#{whereabouts.id} in {whereabouts.family}", style="bold")
    shown = table("store", "stream", "row", "tokens", "of the record", numbers=("row",))
    for each in whereabouts.found:
        store = _store(each)
        tokens = f"{each.start:,}–{each.end:,}" if each.end else ""
        part = f"{each.first:,}–{each.first + each.end - each.start:,}" if each.end else ""
        shown.add_row(store, each.stream, f"{each.row:,}", tokens, part + (f" of part {each.part + 1}" if each.part else ""))
    if whereabouts.found:
        console.print(shown)
    for gone in whereabouts.not_here:
        console.print(f"  {_store(gone)}: {gone.reason}: {visible(gone.detail)}", style="yellow", soft_wrap=True)
        if gone.winner:
            console.print(f"    the one that came first: prep-assets where '{whereabouts.domain}#{visible(gone.winner)}'", soft_wrap=True)
    for label, why in whereabouts.unknown:
        console.print(f"  {label} cannot say: {why}", style="dim", soft_wrap=True)


def _store(each: Found | NotHere) -> str:
    return each.asset + (f"[{each.partition}]" if each.partition else "") + (" (draft)" if each.draft else "")
