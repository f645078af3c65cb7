"""`prep-assets build`, `accept`, `status` and `path`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from prep_assets.checks.bounds import judged_anew
from prep_assets.cli import terminal
from prep_assets.cli.stores import Live, configured, one_store
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.models import FAMILIES
from prep_assets.engine import Built, Status, Statuses, Step, plan
from prep_assets.engine import build as bring_up_to_date
from prep_assets.engine.execute import accept as make_drafts_current
from prep_assets.engine.execute import stores_of
from prep_assets.engine.plan import Forecast, forecasts, out_of_date_then
from prep_assets.engine.status import forgotten
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError
from prep_assets.graph.graph import asset_named, assets_of, one_partition
from prep_assets.pipeline.workspace import Workspace, build_command

WOULD_BUILD = 2
"""Exit code of a dry run with something to build, if it is asked for; as `terraform plan -detailed-exitcode`."""


@with_json
def build(
    assets: Annotated[list[str] | None, typer.Argument(metavar="[ASSET]...", help="Assets, e.g. sft_packed.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All configured assets.")] = False,
    partition: terminal.Partition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be built, in which order and why; build nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Build the named assets even if they are current.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[FAMILY.]KEY=VALUE",
            help="An option of this run, e.g. packing.row_len=2048; may be repeated. It makes a draft.",
        ),
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="With --set: make the store current instead of a draft.")] = False,
    review: Annotated[bool, typer.Option("--review", help="Leave the named assets as drafts for `prep-assets accept`.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of worker processes, instead of the configured one.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="With --dry-run: exit code 2 if something would be built.")] = False,
    as_json: bool = False,
) -> Answer:
    """Current stores are left alone. A domain that fails does not stop the others."""
    workspace = replace(Workspace.open(), workers=workers)
    names = _names(workspace, assets or [], everything)
    workspace = _with_options(workspace, names, options or [])
    if exit_code and not dry_run:
        raise ConfigError("--exit-code needs --dry-run: it reports what a dry run found")
    if dry_run:
        steps = plan(workspace, stores_of(workspace, names, partition), force=force)
        found, following = forecasts(workspace, steps), list(out_of_date_then(workspace, steps))
        facts = {"stores": list(_planned(steps, found)), "out_of_date_then": following}
        would_build = exit_code and any(step.why for step in steps)
        return Answer(facts, partial(_show_plan, steps, found, following), WOULD_BUILD if would_build else 0)
    if not workspace.stores.exists() and "://" not in workspace.where:  # a disk may not be mounted
        terminal.err().print(f"{terminal.near(workspace.stores)} is new: stores are written there", style="yellow")
    with Live(terminal.err() if as_json else terminal.out()) as live:
        built = bring_up_to_date(workspace, *names, partition=partition, force=force, publish=publish, review=review, tell=live)
    return Answer([_built(store) for store in built], partial(_show_drafts, [store for store in built if store.draft]))


def _names(workspace: Workspace, assets: list[str], everything: bool) -> list[str]:
    if everything and assets:
        raise ConfigError(f"--all builds every asset. Leave it out, or leave out {', '.join(assets)}")
    if not everything and not assets:
        raise ConfigError("No assets given. Name some, e.g. prep-assets build sft_packed, or build all with --all")
    return assets or [asset.name for asset in configured(workspace)]


def _with_options(workspace: Workspace, names: list[str], words: list[str]) -> Workspace:
    """The workspace with the options of this run, for the one family that is built."""
    if not words:
        return workspace
    families = list(dict.fromkeys(asset_named(name, workspace).family for name in names))
    if len(families) > 1:
        raise ConfigError(f"--set is for assets of one family; these are of {', '.join(families)}")
    return workspace.overriding(families[0], terminal.options_of_run(words, families)[families[0]])


def _planned(steps: Sequence[Step], forecasts: Sequence[Forecast]) -> Iterator[dict[str, Any]]:
    by_step = {forecast.step: forecast for forecast in forecasts}
    for step in steps:
        entry = {"asset": step.asset.name, "partition": step.partition, "state": step.state, "why": step.why, "asked": step.requested}
        if forecast := by_step.get(step):
            entry |= {"changes": forecast.changes, "holds": forecast.figures, "seconds": forecast.seconds}
        yield entry


def _show_plan(steps: Sequence[Step], found: Sequence[Forecast], following: Sequence[str], console: Console) -> None:
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


def _built(store: Built) -> dict[str, Any]:
    published = store.published
    facts = {"asset": store.asset, "partition": store.partition, "path": published.where, "content_hash": published.manifest.content_hash}
    return {**facts, "reused": published.reused, "draft": store.draft, "overrides": store.overrides}


def _show_drafts(drafts: Sequence[Built], console: Console) -> None:
    for store in drafts:
        given = f" with {', '.join(store.overrides)}" if store.overrides else ""
        console.print(f"{store.published.manifest.label}: a draft{given} in {terminal.near_url(store.published.where)}", style="yellow")
    if drafts:
        console.print(
            "current has not moved. `prep-assets diff ASSET draft` shows what changes, `prep-assets accept ASSET` makes a draft current",
            style="dim",
        )


def accept(asset: terminal.AssetName, partition: terminal.Partition = None) -> None:
    """Exit code 1 if it was not checked, is damaged, or the configuration or a source has changed since."""
    for draft in make_drafts_current(Workspace.open(), asset, partition):
        terminal.out().print(f"{draft.manifest.label}: {draft.version} is current now", style="green")


STYLES = {"current": "green", "unchecked": "yellow", "stale": "yellow", "missing": "dim", "failed": "bold red", "broken": "bold red"}
StoreStatus = tuple[str, str, Status]
"""(asset, partition, status)."""


@with_json
def status() -> Answer:
    """Exit code 1 if a store is "broken" (a source or its manifest cannot be read) or fails its checks, published or not."""
    workspace = Workspace.open()
    faults: list[str] = []
    statuses = list(_store_statuses(workspace, faults))
    failed = faults or any(each.state in ("broken", "failed") or each.refused for _, _, each in statuses)
    return Answer([_facts(*entry) for entry in statuses], partial(_show_statuses, workspace, statuses, faults), int(bool(failed)))


def _store_statuses(workspace: Workspace, faults: list[str]) -> Iterator[StoreStatus]:
    statuses = Statuses(workspace)
    stores = [(asset, partition) for asset in configured(workspace, faults) for partition in asset.partitions(workspace)]
    statuses.ahead(stores)
    for asset, partition in stores:
        try:
            yield asset.name, partition, statuses.at(asset, partition)
        except PrepAssetsError as error:
            yield asset.name, partition, Status("broken", str(error))


def _facts(asset: str, partition: str, status: Status) -> dict[str, Any]:
    published = status.published
    return {
        "asset": asset,
        "partition": partition,
        "state": status.state,
        "why": status.why,
        "counts": published.manifest.counts if published else {},
        "path": published.where if published else None,
        "overrides": status.overrides,
        "made_from_overridden": status.inherited,
        "failed_checks": {name: result.summary for name, result in status.failed.items()},
        "refused_candidate": status.candidate.where if status.candidate else None,
        "draft": status.draft.where if status.draft else None,
    }


def _show_statuses(workspace: Workspace, statuses: list[StoreStatus], faults: Sequence[str], console: Console) -> None:
    shown = terminal.table("asset", "partition", "state", "rows", "tokens", numbers=("rows", "tokens"))
    for asset, partition, status in statuses:
        counts = status.published.manifest.counts if status.published else {}
        rows, tokens = counts.get("rows", counts.get("kept")), counts.get("tokens")
        shown.add_row(asset, partition, Text(_state(status), STYLES[status.state]), terminal.number(rows), terminal.number(tokens))
    console.print(shown)
    states = [status.state for _, _, status in statuses]
    # below the table, unfolded, to be copied
    if waiting := [state for state in ("missing", "stale", "failed", "unchecked") if state in states]:
        names = _last_of(workspace, dict.fromkeys(asset for asset, _, status in statuses if status.state in waiting))
        console.print(f"to build what is {' or '.join(waiting)}:\n  {build_command(' '.join(names))}", soft_wrap=True)
    labels: dict[tuple[str, str], list[str]] = {}  # of each remark: a file that is gone is said once
    for asset, partition, status in statuses:
        for remark in _remarks(status):
            labels.setdefault(remark, []).append(workspace.place(asset, partition).label)
    for (text, style), of in labels.items():
        console.print(Text(f"{', '.join(of)}: {text}", style))
    if absent := [f"{name}.yaml" for name in FAMILIES if not workspace.has(name)]:
        console.print(f"no configuration in {terminal.near(workspace.configs)}: {', '.join(absent)}", style="dim")
    for fault in faults:
        console.print(fault, style="bold red")
    _show_leftovers(console, workspace, statuses)
    counted = ", ".join(f"{states.count(state):,} {state}" for state in STYLES if state in states)
    console.print(f"{counted or 'no stores'} in {terminal.near_url(workspace.where)}")


def _last_of(workspace: Workspace, names: Collection[str]) -> list[str]:
    """The assets of which none of the others is made: building these builds all."""
    assets = assets_of(workspace)

    def above(name: str) -> Iterator[str]:
        for upstream in assets[name].upstream(workspace):
            yield upstream
            yield from above(upstream)

    made = {upstream for name in names for upstream in above(name)}
    return [name for name in names if name not in made]


def _state(status: Status) -> str:
    changed = [*status.overrides, *(["what it is made from"] if status.inherited else [])]
    return f"{status.state} (overridden: {', '.join(changed)})" if changed else status.state


def _remarks(status: Status) -> Iterator[tuple[str, str]]:
    if status.state in ("broken", "stale", "unchecked"):
        yield status.why, "red" if status.state == "broken" else "dim"
    for name, result in status.failed.items():
        yield f"{name} does not hold: {result.summary}", "bold red"
    for name, result in status.results.items():
        if result.warns:
            yield f"{name}: {result.summary}", "yellow"
    if status.candidate:
        why = f"it fails {', '.join(status.refused)}" if status.refused else "its checks are not complete"
        text = f"a newer store is not published, because {why}: {terminal.near_url(status.candidate.where)}"
        yield text, "bold red" if status.refused else "yellow"
    for label in status.inherited:
        yield f"made from a store with options of one run, {label}", "yellow"
    if status.draft:
        yield f"there is a draft, which is not current: {terminal.near_url(status.draft.where)}", "dim"


def _show_leftovers(console: Console, workspace: Workspace, statuses: list[StoreStatus]) -> None:
    """Print stores that are no longer configured, and leftovers of killed builds."""
    removed = forgotten(workspace)
    for place in removed:
        console.print(f"{place.label}: not in the configuration any more, {terminal.size(place.size)}", style="yellow")
    for place in (*removed, *(workspace.place(asset, partition) for asset, partition, _ in statuses)):
        for name in place.leftovers():
            what = f"{terminal.near(place.backend.versions / name)}, {terminal.size(place.backend.size(name))}"
            console.print(f"{place.label}: left by a build that was killed, or is under way: {what}", style="yellow")
    if removed:
        console.print("to delete what is not in the configuration any more:\n  prep-assets prune --removed")


def path(
    asset: terminal.AssetName,
    partition: terminal.Partition = None,
    draft: terminal.Draft = False,
    even_if_failed: Annotated[bool, typer.Option("--even-if-failed", help="Print it even if its checks fail.")] = False,
) -> None:
    """Notes about the store, e.g. that it is out of date or has options of one run, go to stderr."""
    workspace = Workspace.open()
    definition, partition_key = one_partition(workspace, asset, partition)
    place = workspace.place(definition.name, partition_key)
    if draft:
        store = place.draft()
        if store is None:
            raise StoreError(f"{place.label} has no draft. Options of one run make one, e.g. prep-assets build {asset} --set KEY=VALUE")
        results = judged_anew(workspace, definition, store, store.results or {})
        _raise_for(
            f"the draft of {place.label} fails", {name: each.summary for name, each in results.items() if not each.passed}, even_if_failed
        )
        typer.echo(store.directory)
        return
    published = one_store(workspace, asset, partition)
    status = (statuses := Statuses(workspace)).at(definition, partition_key)
    faults = {name.removeprefix(f"{place.label} "): said for name, said in statuses.faults.items()}
    _raise_for(f"{place.label} {'fails' if status.failed else 'is made from what fails'}", faults, even_if_failed)
    for note in (status.why, *(f"it has options of one run: {key}" for key in (*status.overrides, *status.inherited))):
        if note:
            terminal.err().print(f"{place.label}: {note}", style="yellow")
    # a file system without links has a pointer file there
    typer.echo(place.directory / "current" if (place.directory / "current").is_dir() else published.directory)


def _raise_for(subject: str, faults: Mapping[str, str], even_if_failed: bool) -> None:
    if faults and not even_if_failed:
        reasons = "\n".join(f"  {name}: {said}" for name, said in faults.items())
        raise StoreError(f"{subject} its checks. Build it again, or add --even-if-failed\n{reasons}")
