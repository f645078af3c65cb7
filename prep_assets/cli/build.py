"""`prep-assets build`, `accept`, `demo` and `status`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, PrepAssetsError

if TYPE_CHECKING:
    from prep_assets.engine import Built, Status, Step
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.stores.version_folders import Published

# `prep-assets build`: bring assets up to date; `prep-assets accept`: publish what was left for review.

WOULD_BUILD = 2
"""Exit code of a dry run with something to build, if it is asked for; as `terraform plan -detailed-exitcode`."""


def build(
    assets: Annotated[list[str] | None, typer.Argument(metavar="[ASSET]...", show_default=False, help="Assets, e.g. sft_packed.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every asset that the configuration has.")] = False,
    partition: terminal.Partition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be built, in which order and why; build nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Build the assets named even where they are current.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of this run, e.g. packing.row_len=2048; may be repeated. It makes a draft."
        ),
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="With --set: make the store current instead of a draft.")] = False,
    review: Annotated[
        bool, typer.Option("--review", help="Leave the assets named as drafts, which `prep-assets accept` makes current.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, show_default=False, help="Processes that work at a time, if not as configured.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="With --dry-run: exit code 2 where something would be built.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the stores as JSON.")] = False,
) -> None:
    """Build assets and whatever they are made from, run the checks, and publish what passes. Exit code 1 when a store is refused.

    What is current is left alone. A domain that fails does not stop the others.
    """
    from prep_assets.engine import build as bring_up_to_date
    from prep_assets.engine import plan
    from prep_assets.engine.execute import stores_of

    workspace = replace(terminal.opened(), workers=workers)
    names = _names(workspace, assets or [], everything)
    workspace = _with_options(workspace, names, options or [])
    if exit_code and not dry_run:
        raise ConfigError("--exit-code says what a dry run found: add --dry-run")
    if dry_run:
        steps = plan(workspace, stores_of(workspace, names, partition), force=force)
        _show_plan(workspace, steps, as_json=as_json)
        if exit_code and any(step.why for step in steps):
            raise typer.Exit(WOULD_BUILD)
        return
    with terminal.Live(terminal.err() if as_json else terminal.out()) as live:
        built = bring_up_to_date(workspace, *names, partition=partition, force=force, publish=publish, review=review, tell=live)
    _show_built(built, as_json=as_json)


def _names(workspace: Workspace, assets: list[str], everything: bool) -> list[str]:
    if everything == bool(assets):
        raise ConfigError("build what? Name assets, e.g. prep-assets build sft_packed, or build all of them with --all")
    return assets or [asset.name for asset in terminal.configured(workspace)]


def _with_options(workspace: Workspace, names: list[str], words: list[str]) -> Workspace:
    """The workspace with the options of this run, for the one family that is built."""
    from prep_assets.graph.graph import asset_named

    if not words:
        return workspace
    families = list(dict.fromkeys(asset_named(name, workspace).family for name in names))
    if len(families) > 1:
        raise ConfigError(f"--set is for assets of one family; these are of {', '.join(families)}")
    options: dict[str, Any] = {}
    for word in words:
        put_option(options, word)
    return workspace.overriding(families[0], options)


def put_option(options: dict[str, Any], word: str) -> None:
    """Add ``packing.row_len=2048`` to nested options; the value is read as YAML."""
    import yaml

    key, equals, value = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {word}: needs the form KEY=VALUE, e.g. packing.row_len=2048")
    *above, last = key.split(".")
    for part in above:
        options = options.setdefault(part, {})
    try:
        options[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {word}: the value is not YAML: {error}") from error


def _show_plan(workspace: Workspace, steps: list[Step], *, as_json: bool) -> None:
    from prep_assets.engine.forecast import forecasts, out_of_date_then

    found = forecasts(workspace, steps)
    following = list(out_of_date_then(workspace, steps))
    if as_json:
        known = {forecast.step: forecast for forecast in found}
        entries = []
        for step in steps:
            entry = {"asset": step.asset.name, "partition": step.partition, "state": step.state, "why": step.why, "asked": step.requested}
            if forecast := known.get(step):
                changes = [{"key": change.key, "old": change.old, "new": change.new} for change in forecast.changes]
                entry |= {"changes": changes, "holds": dict(forecast.figures), "seconds": forecast.seconds}
            entries.append(entry)
        terminal.print_json({"stores": entries, "out_of_date_then": following})
        return
    console = terminal.out()
    if found:
        table = terminal.table("would be built", "because", "holds", "took", numbers=("took",))
        for forecast in found:
            because = [f"{change.key}: {change.old or 'nothing'} → {change.new or 'nothing'}" for change in forecast.changes]
            holds = [
                f"{count:,} {name.replace('_', ' ')}" for name, count in forecast.figures.items() if name in ("rows", "kept", "tokens")
            ]
            took = "" if forecast.seconds is None else f"{forecast.seconds:.1f} s"
            table.add_row(forecast.step.label, "\n".join(because) or forecast.step.why, ", ".join(holds), took)
        console.print(table)
    console.print(f"{terminal.counted(len(found), 'store')} would be built, {len(steps) - len(found):,} up to date")
    if following:
        console.print(f"out of date then: {', '.join(following)}", style="yellow")


def _show_built(built: list[Built], *, as_json: bool) -> None:
    if as_json:
        stores = [
            {
                "asset": store.asset,
                "partition": store.partition,
                "path": store.published.where,
                "content_hash": store.published.manifest.content_hash,
                "reused": store.published.reused,
                "draft": store.draft,
                "overrides": list(store.overrides),
            }
            for store in built
        ]
        terminal.print_json(stores)
        return
    console = terminal.out()
    for store in built:
        if store.draft:
            given = f" with {', '.join(store.overrides)}" if store.overrides else ""
            console.print(f"{store.published.manifest.label}: a draft{given} in {terminal.near_url(store.published.where)}", style="yellow")
    if any(store.draft for store in built):
        console.print(
            "current has not moved. `prep-assets diff ASSET draft` shows what changes, `prep-assets accept ASSET` makes a draft current",
            style="dim",
        )


def accept(asset: terminal.AssetName, partition: terminal.Partition = None) -> None:
    """Make the draft of an asset current, exactly as it is: what `build --review`, or `build --set`, left to be looked at.

    Exit code 1 where it was not checked, is damaged, or the configuration or a source has changed since.
    """
    from prep_assets.engine.execute import accept as make_drafts_current

    for draft in make_drafts_current(terminal.opened(), asset, partition):
        terminal.out().print(f"{draft.manifest.label}: {draft.version} is current now", style="green")


# `prep-assets demo`: from a fresh clone to a packed table and a look inside. `make demo` calls it.

ASSET = "sft_packed"
PREVIEW_TOKENS = 400
NEXT: tuple[tuple[str, str], ...] = (
    (f"prep-assets build {ASSET}", "what a script calls; builds what is missing or out of date, and nothing else"),
    (f"dagster asset materialize --select {ASSET}", "the same, in Dagster's history"),
    ("dagster dev", "the same in the browser: the graph, checks, previews"),
    (f"prep-assets inspect {ASSET} --row 1", "another row, with what is trained in it"),
    ("prep-assets verify", "every check on every store again"),
)


def demo() -> None:
    """Build the packed SFT table from the configured data sets, if it is not there yet, and show what is in it."""
    from prep_assets.cli.look import show_row
    from prep_assets.engine import build

    started, workspace, console = time.monotonic(), terminal.opened(), terminal.out()
    console.print(f"building {ASSET} from {terminal.near(workspace.configs / 'sft.yaml')}", style="dim")
    with terminal.Live(console) as live:
        published = build(workspace, ASSET, tell=live)[0].published
    _summary(console, workspace, published, time.monotonic() - started)
    console.print()
    show_row(console, workspace, published, 0, most=PREVIEW_TOKENS)
    programs, commands = Path(sys.executable).parent, NEXT
    if shutil.which("prep-assets") is None and (programs / "activate").is_file():
        commands = ((f". {terminal.near(programs / 'activate')}", "first, so that the commands below are found"), *NEXT)
    console.print(terminal.table("what to type next", "", rows=[(Text(command, "bold"), why) for command, why in commands]))


def _summary(console: Console, workspace: Workspace, published: Published, seconds: float) -> None:
    from rich.panel import Panel
    from rich.table import Table

    from prep_assets.config.models import Sft
    from prep_assets.explain.report import refused_counts, shares

    manifest = published.manifest
    counts, metrics = manifest.counts, manifest.metrics
    upstream = [workspace.published(asset, domain) for domain in workspace.family(Sft).domains for asset in ("sft_raw", "sft_tokens")]
    reasons = refused_counts(store for store in upstream if store)
    named = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    size = terminal.size(sum(entry["bytes"] for entry in manifest.files.values()))
    grid = Table.grid(padding=(0, 2))
    for key, value in {
        "rows": f"{counts['rows']:,} of {manifest.recipe['packing']['row_len']:,} tokens",
        "tokens": f"{counts['tokens']:,}",
        "trained": f"{counts['trained_tokens']:,} ({metrics['trained_fraction']:.1%})",
        "fill rate": f"{metrics['fill_rate']:.2%}",
        "domains": ", ".join(f"{name} {share:.1%}" for name, share in shares(published)[0].items()),
        "refused": terminal.counted(sum(reasons.values()), "record") + (f" ({named})" if named else ""),
        "store": f"{terminal.near(workspace.place(ASSET).directory / 'current')} ({size})",
        "took": f"{seconds:.1f} s",
    }.items():
        grid.add_row(key, value)
    console.print(Panel(grid, title=ASSET, title_align="left", border_style="green", expand=False))


# `prep-assets status`: the state of every store, and leftovers.

STYLES = {"current": "green", "unchecked": "yellow", "stale": "yellow", "missing": "dim", "failed": "bold red", "broken": "bold red"}
StoreStatus = tuple[str, str, "Status"]
"""(asset, partition, status)."""


def status(as_json: Annotated[bool, typer.Option("--json", help="Print the stores as JSON.")] = False) -> None:
    """Show what every store is: missing, stale, failed or current, its rows and tokens; how to build what is not current; and what is left over.

    Exit code 1 where a store is "broken", because a source or its manifest cannot be read, or fails its checks, published or not.
    """
    from prep_assets.config.models import FAMILIES

    workspace = terminal.opened()
    faults: list[str] = []
    statuses = list(_store_statuses(workspace, faults))
    if as_json:
        terminal.print_json([_as_json(*entry) for entry in statuses])
    else:
        console = terminal.out()
        _show_statuses(console, workspace, statuses)
        absent = [f"{name}.yaml" for name in FAMILIES if not workspace.has(name)]
        if absent:
            console.print(f"no configuration in {terminal.near(workspace.configs)}: {', '.join(absent)}", style="dim")
        for fault in faults:
            console.print(fault, style="bold red")
        _show_leftovers(console, workspace, statuses)
        states = [store_status.state for _, _, store_status in statuses]
        counts = ", ".join(f"{states.count(state):,} {state}" for state in STYLES if state in states)
        console.print(f"{counts or 'no stores'} in {terminal.near_url(workspace.where)}")
    if faults or any(store_status.state in ("broken", "failed") or store_status.refused for _, _, store_status in statuses):
        raise typer.Exit(1)


def _store_statuses(workspace: Workspace, faults: list[str]) -> Iterator[StoreStatus]:
    from prep_assets.engine import Status, Statuses

    statuses = Statuses(workspace)
    stores = [(asset, partition) for asset in terminal.configured(workspace, faults) for partition in asset.partitions(workspace)]
    statuses.ahead(stores)
    for asset, partition in stores:
        try:
            yield asset.name, partition, statuses.at(asset, partition)
        except PrepAssetsError as error:
            yield asset.name, partition, Status("broken", str(error))


def _as_json(asset: str, partition: str, status: Status) -> dict[str, Any]:
    published = status.published
    return {
        "asset": asset,
        "partition": partition,
        "state": status.state,
        "why": status.why,
        "counts": dict(published.manifest.counts) if published else {},
        "path": published.where if published else None,
        "overrides": list(status.overrides),
        "made_from_overridden": list(status.inherited),
        "failed_checks": {name: result.summary for name, result in status.failed.items()},
        "refused_candidate": status.candidate.where if status.candidate else None,
        "draft": status.draft.where if status.draft else None,
    }


def _show_statuses(console: Console, workspace: Workspace, statuses: list[StoreStatus]) -> None:
    from prep_assets.pipeline.workspace import build_command

    shown = terminal.table("asset", "partition", "state", "rows", "tokens", numbers=("rows", "tokens"))
    for asset, partition, status in statuses:
        counts = status.published.manifest.counts if status.published else {}
        rows, tokens = counts.get("rows", counts.get("kept")), counts.get("tokens")
        shown.add_row(asset, partition, Text(_state(status), STYLES[status.state]), terminal.number(rows), terminal.number(tokens))
    console.print(shown)
    # below the table, unfolded, to be copied
    for state in ("missing", "stale", "failed", "unchecked"):
        commands = [build_command(asset, partition) for asset, partition, status in statuses if status.state == state]
        if commands:
            console.print(f"to build what is {state}:", *commands, sep="\n  ")
    for asset, partition, status in statuses:
        for text, style in _remarks(status):
            console.print(Text(f"{workspace.place(asset, partition).label}: {text}", style))


def _state(status: Status) -> str:
    changed = [*status.overrides, *(["what it is made from"] if status.inherited else [])]
    return f"{status.state} (overridden: {', '.join(changed)})" if changed else status.state


def _remarks(status: Status) -> Iterator[tuple[str, str]]:
    if status.state in ("broken", "stale", "unchecked"):
        yield status.why, "red" if status.state == "broken" else "dim"
    for name, result in status.failed.items():
        yield f"{name} does not hold: {result.summary}", "bold red"
    if status.candidate:
        why = f"it fails {', '.join(status.refused)}" if status.refused else "its checks are not complete"
        yield (
            f"a newer store is not published, because {why}: {terminal.near_url(status.candidate.where)}",
            "bold red" if status.refused else "yellow",
        )
    for label in status.inherited:
        yield f"made from a store with options of one run, {label}", "yellow"
    if status.draft:
        yield f"there is a draft, which is not current: {terminal.near_url(status.draft.where)}", "dim"


def _show_leftovers(console: Console, workspace: Workspace, statuses: list[StoreStatus]) -> None:
    """Print stores that are no longer configured, and leftovers of killed builds."""
    from prep_assets.engine.status import forgotten

    removed = forgotten(workspace)
    for place in removed:
        console.print(f"{place.label}: not in the configuration any more, {terminal.size(place.size)}", style="yellow")
    for place in (*removed, *(workspace.place(asset, partition) for asset, partition, _ in statuses)):
        for name in place.leftovers():
            bytes_ = terminal.size(place.backend.size(name))
            text = (
                f"{place.label}: left by a build that was killed, or is under way: {terminal.near(place.backend.versions / name)}, {bytes_}"
            )
            console.print(text, style="yellow")
    if removed:
        console.print("to delete what is not in the configuration any more:\n  prep-assets prune --removed")
