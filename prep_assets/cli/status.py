"""`prep-assets status`: which stores are missing, stale or current."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from prep_assets.cli.console import near, number, out, table
from prep_assets.cli.find import configured
from prep_assets.errors import PrepAssetsError

if TYPE_CHECKING:
    from rich.console import Console

    from prep_assets.pipelines.graph import Asset
    from prep_assets.pipelines.workspace import Workspace

STYLES = {"current": "green", "stale": "yellow", "missing": "dim", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Judged:
    """A store and what is to be said of it: its counts where it is built, what is wrong where it cannot be judged, what awaits publication."""

    asset: str
    partition: str
    state: str
    counts: Mapping[str, Any]
    fault: str = ""
    candidate: Path | None = None


def status() -> None:
    """Show every store: missing, stale or current, its rows and tokens; and the commands that build what is not current.

    A store that cannot be judged, because a source or its manifest is gone, is "broken"; then the exit code is 1.
    """
    from prep_assets.config.models import FAMILIES
    from prep_assets.pipelines.workspace import Workspace

    workspace = Workspace.open()
    judged = [_judge(workspace, asset, partition) for asset in configured(workspace) for partition in asset.partitions(workspace)]
    console = out()
    _show(console, judged)
    absent = [f"{name}.yaml" for name in FAMILIES if not (workspace.configs / f"{name}.yaml").is_file()]
    if absent:
        console.print(f"no configuration in {near(workspace.configs)}: {', '.join(absent)}", style="dim", soft_wrap=True)
    found = [each.state for each in judged]
    console.print(
        ", ".join(f"{found.count(state):,} {state}" for state in STYLES if state in found) + f" in {near(workspace.stores)}", soft_wrap=True
    )
    if "broken" in found:
        raise typer.Exit(1)


def _judge(workspace: Workspace, asset: Asset, partition: str) -> Judged:
    from prep_assets.pipelines.graph import state

    try:
        now = state(workspace, asset, partition)
        published = workspace.published(asset.name, partition)
        candidate = workspace.place(asset.name, partition).candidate()
    except PrepAssetsError as error:
        return Judged(asset.name, partition, "broken", {}, str(error))
    counts = published.manifest.counts if published else {}
    return Judged(asset.name, partition, now, counts, candidate=candidate.directory if candidate else None)


def _show(console: Console, judged: list[Judged]) -> None:
    from rich.text import Text

    from prep_assets.pipelines.commands import materialize_command

    shown = table("asset", "partition", "state", "rows", "tokens", numbers=("rows", "tokens"))
    for each in judged:
        rows, tokens = each.counts.get("rows", each.counts.get("kept")), each.counts.get("tokens")
        shown.add_row(each.asset, each.partition, Text(each.state, STYLES[each.state]), number(rows), number(tokens))
    console.print(shown)
    # below the table, where no column folds them and they can be copied
    for state in ("missing", "stale"):
        commands = [materialize_command(each.asset, each.partition) for each in judged if each.state == state]
        if commands:
            console.print(f"to build what is {state}:", *commands, sep="\n  ", soft_wrap=True)
    for each in judged:
        if each.fault:
            console.print(Text(f"{each.asset} {each.partition}: {each.fault}", "red"), soft_wrap=True)
        if each.candidate:
            text = f"{each.asset} {each.partition}: a newer store is not published, for not every check has passed: {near(each.candidate)}"
            console.print(Text(text, "yellow"), soft_wrap=True)
