"""`prep-assets forget`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.stores import Live
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.loading import FILE
from prep_assets.errors import ConfigError
from prep_assets.extensions.neighbours.forget import Forgotten
from prep_assets.extensions.neighbours.forget import forget as forget_records
from prep_assets.extensions.neighbours.opt_outs import listed_in, rule_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.text.visible import visible

SHOWN = 5
MOST = 20
"""Tombstones that are printed."""


@with_json
def forget(
    records: Annotated[list[str] | None, typer.Argument(metavar="[DOMAIN/RECORD...]", help="Records, e.g. gsm8k/gsm8k.jsonl:17.")] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            help="Rows whose field says this, or for one field one of several; host(url)=example.org by host.",
        ),
    ] = None,
    listed: Annotated[Path | None, typer.Option("--list", metavar="FILE", help="Records, one a line; with --field, values of it.")] = None,
    field: Annotated[str, typer.Option("--field", metavar="FIELD", help="The field whose values --list has.")] = "",
    domains: Annotated[
        list[str] | None, typer.Option("--domain", metavar="NAME", help="Where --where and --field look; all domains.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", metavar="FILE", help="Write what --json prints into a file.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason, written into the tombstone.")] = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the unused versions of stores that held them, and drafts and candidates that hold them.")
    ] = False,
    as_json: bool = False,
) -> Answer:
    """Tombstones are lines of forgotten.jsonl in the configuration folder; no refresh undoes them. Exit code 1 where a store still holds a record."""
    if field and listed is None:
        raise ConfigError("--field says what a list has: add --list FILE, or write --where FIELD=VALUE")
    lines = [] if listed is None else listed_in(listed)
    asked = rule_of(rule or [], field, lines) if rule or field else None
    names = [*(records or []), *([] if field else lines)]
    if not names and asked is None:
        raise ConfigError("nothing is asked for: name records, or give --where FIELD=VALUE or --list FILE")
    if domains and asked is None:
        raise ConfigError("--domain has no effect: records have their domains in their names. Leave it out")
    with Live(terminal.err() if as_json else terminal.out()) as live:
        workspace = Workspace.open(progress=live.progress)
        outcome = forget_records(workspace, names, reason=reason, prune=prune, rule=asked, domains=domains or (), tell=live)
    facts = {name: getattr(outcome, name) for name in ("tombstones", "held", "left", "searched", "removed", "rule", "unsearched")}
    facts["contents"] = {label: {"before": before, "after": after} for label, (before, after) in outcome.contents.items()}
    facts["old_versions"] = [{"store": old.label, "path": old.published.where, "records": old.records} for old in outcome.old]
    if certificate is not None:
        certificate.write_text(terminal.json_text(to_builtins(facts, str_keys=True)) + "\n", "utf-8")
    return Answer(facts, lambda console: _show_forgotten(console, workspace, outcome, prune=prune), int(bool(outcome.left)))


def _show_forgotten(console: Console, workspace: Workspace, outcome: Forgotten, *, prune: bool) -> None:
    where = f"in {terminal.near(workspace.configs / FILE)}"
    for tombstone in outcome.tombstones[:MOST]:
        console.print(f"{tombstone.family}: {tombstone.domain}/{visible(tombstone.record)} is forgotten, {where}")
    if len(outcome.tombstones) > MOST:
        console.print(f"and {len(outcome.tombstones) - MOST:,} more, {where}")
    if not outcome.tombstones:
        console.print("no row is new: every one of them has a tombstone already")
    if outcome.unsearched:
        console.print(f"not built, so nothing is known of their rows: {', '.join(outcome.unsearched)}", style="yellow")
    same = sum(before == after for before, after in outcome.contents.values())
    if outcome.contents:
        console.print(f"{terminal.counted(same, 'store')} of {len(outcome.contents):,} kept every byte")
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
