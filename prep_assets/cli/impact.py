"""`prep-assets impact`: what a change of the configuration would change. It builds aside and writes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli.build import put_option
from prep_assets.cli.console import Live, counted, err, out, print_json, table
from prep_assets.cli.diff import difference_as_json, show_difference
from prep_assets.cli.tokens import visible
from prep_assets.errors import ConfigError, nearest

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.lineage.impact import Effect

NAMED = 3
"""Refused records that are named of each reason."""
OUTCOMES = {
    "changed": ("built again, with other content", "yellow"),
    "equal": ("built again, with the same content", "dim"),
    "new": ("built for the first time", "yellow"),
    "removed": ("left behind", "yellow"),
    "fails": ("refused", "bold red"),
    "blocked": ("not built", ""),
    "waits": ("built again", "yellow"),
}
"""What becomes of a store, in words, and their style."""


def impact(
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FAMILY.KEY=VALUE", help="An option to change, e.g. sft.template=chatml; may be repeated."),
    ] = None,
    configs: Annotated[Path | None, typer.Option("--configs", metavar="DIR", help="Another folder of configurations.")] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many records to show of each store.")] = 3,
    sample: Annotated[int | None, typer.Option("--sample", min=1, metavar="N", help="Try long domains on their first N rows.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Build everything, however long it is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the effects as JSON.")] = False,
) -> None:
    """Show which stores a change makes stale, how many records and tokens change, what would be refused. Nothing is written.

    Stores that change are built in a temporary folder, without their checks; domains of more than 64 MB on their first 2,000 rows. Exit code 1 where
    the change stops a build.
    """
    from prep_assets.assets.workspace import Workspace
    from prep_assets.engine.events import Progress
    from prep_assets.lineage.impact import LONG, SAMPLE
    from prep_assets.lineage.impact import impact as effects_of

    if full and sample is not None:
        raise ConfigError("--full builds everything and --sample does not; give one of them")
    console = err() if as_json else out()
    with Live(console) as live:
        workspace = Workspace.open(progress=lambda what, done, total: live(Progress(what, done, total)))
        changed = _changed(workspace, options or [], configs)
        limit = 1 << 62 if full else LONG
        found = list(effects_of(workspace, changed, examples=count, sample=sample or SAMPLE, long=limit))
    if as_json:
        print_json([_as_json(each) for each in found])
    else:
        _show(console, workspace, found)
    if any(each.outcome == "fails" for each in found):
        raise typer.Exit(1)


def _changed(workspace: Workspace, words: list[str], configs: Path | None) -> Workspace:
    """The workspace as it would be."""
    from dataclasses import replace

    from prep_assets.config.models import FAMILIES

    if not words and configs is None:
        raise ConfigError("what changes? Give --set FAMILY.KEY=VALUE, e.g. --set sft.template=chatml, or --configs DIR")
    if configs is not None and not configs.is_dir():
        raise ConfigError(f"--configs {configs}: there is no such folder")
    options: dict[str, dict[str, Any]] = {}
    for word in words:
        family, dot, rest = word.partition(".")
        if not dot or family not in FAMILIES:
            known = f"{nearest(family, FAMILIES) or '.'} There are: {', '.join(FAMILIES)}"
            raise ConfigError(f"--set {word}: begins with a family, e.g. sft.template=chatml{known}")
        put_option(options.setdefault(family, {}), rest)
    found = workspace if configs is None else replace(workspace, configs=configs)
    for family, each in options.items():
        found = found.overriding(family, each)
    return found


def _as_json(effect: Effect) -> dict[str, Any]:
    return {
        "asset": effect.asset,
        "partition": effect.partition,
        "outcome": effect.outcome,
        "why": effect.why,
        "sample": effect.sample,
        "difference": effect.difference and difference_as_json(effect.difference),
        "newly_refused": [{"id": each.id, "reason": f"{each.stage}/{each.reason}", "detail": each.detail} for each in effect.refused],
        "newly_accepted": effect.accepted,
    }


def _show(console: Console, workspace: Workspace, effects: list[Effect]) -> None:
    from prep_assets.lineage.impact import STALE

    stale = [each for each in effects if each.outcome in STALE]
    for each in effects:
        if each.difference is not None:
            show_difference(console, workspace, each.difference, title=_title(each))
        _show_refused(console, each)
    rows = [(each.label, Text(*OUTCOMES[each.outcome]), visible(each.why)) for each in effects if each.outcome in OUTCOMES]
    if rows:
        console.print(table("store", "would be", "because", rows=rows))
    same, absent = (sum(each.outcome == outcome for each in effects) for outcome in ("same", "absent"))
    left = (
        {each.partition for each in effects if each.outcome == "same"}
        - {each.partition for each in effects if each.outcome != "same"}
        - {""}
    )
    summary = f"{counted(len(stale), 'store')} would be built again, {same:,} stay" + (f", {absent:,} have no store yet" if absent else "")
    console.print(f"{summary}; domains left alone: {', '.join(sorted(left)) or 'none'}")
    console.print("nothing was written", style="dim")


def _title(effect: Effect) -> str:
    return effect.label + (f", tried on the first {effect.sample:,} rows of each domain" if effect.sample else "")


def _show_refused(console: Console, effect: Effect) -> None:
    reasons = Counter(f"{each.stage}/{each.reason}" for each in effect.refused)
    for reason, number in reasons.most_common():
        named = [each for each in effect.refused if f"{each.stage}/{each.reason}" == reason][:NAMED]
        console.print(f"{effect.label} would refuse {counted(number, 'record')} more: {reason}", style="red")
        for each in named:
            console.print(f"  {visible(each.id)}: {visible(each.detail)}", style="dim")
    if effect.accepted:
        console.print(f"{effect.label} would accept {counted(effect.accepted, 'record')} that it refuses now", style="green")
