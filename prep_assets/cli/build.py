"""`prep-assets build`: bring assets up to date, from the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prep_assets.cli.console import Live, counted, err, near_url, out, print_json, table
from prep_assets.cli.find import Partition, configured, opened
from prep_assets.errors import ConfigError

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.engine import Built, Step


def build(
    assets: Annotated[list[str] | None, typer.Argument(metavar="[ASSET]...", show_default=False, help="Assets, e.g. sft_packed.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every asset that the configuration has.")] = False,
    partition: Partition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be built, in which order and why; build nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Build the assets named even where they are current.")] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of this run, e.g. packing.row_len=2048; may be repeated. It makes a draft."
        ),
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="With --set: make the store current instead of a draft.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, show_default=False, help="Processes that work at a time, if not as configured.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the stores as JSON.")] = False,
) -> None:
    """Build assets and whatever they are made from, run the checks, and publish what passes. Exit code 1 when a store is refused.

    What is current is left alone. A domain that fails does not stop the others.
    """
    from prep_assets.engine import build as bring_up_to_date
    from prep_assets.engine import plan
    from prep_assets.engine.building import stores_of

    workspace = replace(opened(), workers=workers)
    names = _names(workspace, assets or [], everything)
    workspace = _with_options(workspace, names, options or [])
    if dry_run:
        _show_plan(plan(workspace, stores_of(workspace, names, partition), force=force), as_json=as_json)
        return
    with Live(err() if as_json else out()) as live:
        built = bring_up_to_date(workspace, *names, partition=partition, force=force, publish=publish, tell=live)
    _show_built(built, as_json=as_json)


def _names(workspace: Workspace, assets: list[str], everything: bool) -> list[str]:
    if everything == bool(assets):
        raise ConfigError("build what? Name assets, e.g. prep-assets build sft_packed, or build all of them with --all")
    return assets or [asset.name for asset in configured(workspace)]


def _with_options(workspace: Workspace, names: list[str], words: list[str]) -> Workspace:
    """The workspace with the options of this run, which are those of the one family that is built."""
    from prep_assets.assets.graph import asset_named

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


def _show_plan(steps: list[Step], *, as_json: bool) -> None:
    if as_json:
        print_json([{"asset": s.asset.name, "partition": s.partition, "state": s.state, "why": s.why, "asked": s.requested} for s in steps])
        return
    wanted = [step for step in steps if step.why]
    if wanted:
        out().print(table("would be built", "because", rows=[(step.label, step.why) for step in wanted]))
    out().print(f"{counted(len(wanted), 'store')} would be built, {len(steps) - len(wanted):,} up to date")


def _show_built(built: list[Built], *, as_json: bool) -> None:
    if as_json:
        found = [
            {
                "asset": each.asset,
                "partition": each.partition,
                "path": each.published.where,
                "content_hash": each.published.manifest.content_hash,
                "reused": each.published.reused,
                "draft": each.draft,
                "overrides": list(each.overrides),
            }
            for each in built
        ]
        print_json(found)
        return
    console = out()
    for each in built:
        if each.draft:
            console.print(
                f"{each.published.manifest.label}: a draft with {', '.join(each.overrides)} in {near_url(each.published.where)}",
                style="yellow",
            )
    if any(each.draft for each in built):
        console.print("current has not moved. Build again with --publish to make a draft current", style="dim")
