"""`prep-assets status`: what every store is, and what lies around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli.console import near, near_url, number, out, print_json, size, table
from prep_assets.cli.find import configured, opened
from prep_assets.errors import PrepAssetsError

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.engine import Standing

STYLES = {"current": "green", "unchecked": "yellow", "stale": "yellow", "missing": "dim", "failed": "bold red", "broken": "bold red"}
Found = tuple[str, str, "Standing"]
"""Asset, partition and what its store is."""


def status(as_json: Annotated[bool, typer.Option("--json", help="Print the stores as JSON.")] = False) -> None:
    """Show what every store is: missing, stale, failed or current, its rows and tokens; how to build what is not current; and what is left over.

    Exit code 1 where a store is "broken", because a source or its manifest cannot be read, or fails its checks, published or not.
    """
    from prep_assets.config.models import FAMILIES

    workspace = opened()
    faults: list[str] = []
    found = list(_look(workspace, faults))
    if as_json:
        print_json([_as_json(*each) for each in found])
    else:
        console = out()
        _show(console, workspace, found)
        absent = [f"{name}.yaml" for name in FAMILIES if not workspace.has(name)]
        if absent:
            console.print(f"no configuration in {near(workspace.configs)}: {', '.join(absent)}", style="dim")
        for fault in faults:
            console.print(fault, style="bold red")
        _show_left(console, workspace, found)
        states = [standing.state for _, _, standing in found]
        counts = ", ".join(f"{states.count(state):,} {state}" for state in STYLES if state in states)
        console.print(f"{counts or 'no stores'} in {near_url(workspace.where)}")
    if faults or any(standing.state in ("broken", "failed") or standing.refused for _, _, standing in found):
        raise typer.Exit(1)


def _look(workspace: Workspace, faults: list[str]) -> Iterator[Found]:
    from prep_assets.engine import Look, Standing

    look = Look(workspace)
    stores = [(asset, partition) for asset in configured(workspace, faults) for partition in asset.partitions(workspace)]
    look.ahead(stores)
    for asset, partition in stores:
        try:
            yield asset.name, partition, look.at(asset, partition)
        except PrepAssetsError as error:
            yield asset.name, partition, Standing("broken", str(error))


def _as_json(asset: str, partition: str, standing: Standing) -> dict[str, Any]:
    published = standing.published
    return {
        "asset": asset,
        "partition": partition,
        "state": standing.state,
        "why": standing.why,
        "counts": dict(published.manifest.counts) if published else {},
        "path": published.where if published else None,
        "overrides": list(standing.overrides),
        "made_from_overridden": list(standing.inherited),
        "failed_checks": {name: result.summary for name, result in standing.failed.items()},
        "refused_candidate": standing.candidate.where if standing.candidate else None,
        "draft": standing.draft.where if standing.draft else None,
    }


def _show(console: Console, workspace: Workspace, found: list[Found]) -> None:
    from prep_assets.assets.commands import build_command

    shown = table("asset", "partition", "state", "rows", "tokens", numbers=("rows", "tokens"))
    for asset, partition, standing in found:
        counts = standing.published.manifest.counts if standing.published else {}
        rows, tokens = counts.get("rows", counts.get("kept")), counts.get("tokens")
        shown.add_row(asset, partition, Text(_state(standing), STYLES[standing.state]), number(rows), number(tokens))
    console.print(shown)
    # below the table, where no column folds them and they can be copied
    for state in ("missing", "stale", "failed", "unchecked"):
        commands = [build_command(asset, partition) for asset, partition, standing in found if standing.state == state]
        if commands:
            console.print(f"to build what is {state}:", *commands, sep="\n  ")
    for asset, partition, standing in found:
        for text, style in _remarks(standing):
            console.print(Text(f"{workspace.place(asset, partition).label}: {text}", style))


def _state(standing: Standing) -> str:
    changed = [*standing.overrides, *(["what it is made from"] if standing.inherited else [])]
    return f"{standing.state} (overridden: {', '.join(changed)})" if changed else standing.state


def _remarks(standing: Standing) -> Iterator[tuple[str, str]]:
    if standing.state in ("broken", "stale", "unchecked"):
        yield standing.why, "red" if standing.state == "broken" else "dim"
    for name, result in standing.failed.items():
        yield f"{name} does not hold: {result.summary}", "bold red"
    if standing.candidate:
        why = f"it fails {', '.join(standing.refused)}" if standing.refused else "its checks are not complete"
        yield (
            f"a newer store is not published, because {why}: {near_url(standing.candidate.where)}",
            "bold red" if standing.refused else "yellow",
        )
    for each in standing.inherited:
        yield f"made from a store with options of one run, {each}", "yellow"
    if standing.draft:
        yield f"there is a draft, which is not current: {near_url(standing.draft.where)}", "dim"


def _show_left(console: Console, workspace: Workspace, found: list[Found]) -> None:
    """Stores of what the configuration no longer has, and what killed builds left."""
    from prep_assets.engine.left import forgotten

    removed = forgotten(workspace)
    for place in removed:
        console.print(f"{place.label}: not in the configuration any more, {size(place.size)}", style="yellow")
    for place in (*removed, *(workspace.place(asset, partition) for asset, partition, _ in found)):
        for name in place.leftovers():
            bytes_ = size(place.shelf.size(name))
            text = f"{place.label}: left by a build that was killed, or is under way: {near(place.shelf.versions / name)}, {bytes_}"
            console.print(text, style="yellow")
    if removed:
        console.print("to delete what is not in the configuration any more:\n  prep-assets prune --removed")
