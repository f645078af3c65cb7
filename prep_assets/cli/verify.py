"""`prep-assets verify`, `scrub` and `selftest`: check published stores again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, to_builtins
from rich.console import Console
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.errors import ConfigError, StoreError
from prep_assets.explain.visible import visible

if TYPE_CHECKING:
    from prep_assets.engine.events import Refused
    from prep_assets.pipeline.workspace import Workspace
    from prep_assets.proofs.verdict import Verdict, Worst

MOST_TOKENS = 2048
"""Most tokens of a failing row to show."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


class Outcome(Struct, frozen=True):
    """The verdict of one check on one store."""

    asset: str
    partition: str
    check: str
    verdict: Verdict


def verify(
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset; all that have stores when left out.")
    ] = None,
    partition: terminal.Partition = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Run every check on the published stores again. Exit code 1 when one fails, or when there is no store."""
    workspace = terminal.opened()
    wanted, missing = _stores(workspace, asset, partition)
    outcomes = _run_all(workspace, wanted)
    console, failed = terminal.out(), [outcome for outcome in outcomes if not outcome.verdict.passed]
    if as_json:
        terminal.print_json({"checks": to_builtins(outcomes), "not_built": missing})
        if failed:
            raise typer.Exit(1)
        return
    _show(console, outcomes)
    for name in missing:
        console.print(f"not built, so not checked: {name}", style="dim")
    for outcome in failed:
        _show_failure(console, workspace, outcome)
    if failed:
        console.print(f"{len(failed):,} of {terminal.counted(len(outcomes), 'check')} failed", style="bold red")
        raise typer.Exit(1)
    console.print(f"all {terminal.counted(len(outcomes), 'check')} of {terminal.counted(len(wanted), 'store')} passed", style="bold green")


def _stores(workspace: Workspace, name: str | None, partition: str | None) -> tuple[list[tuple[str, str]], list[str]]:
    """(asset, partition) of existing stores, and the labels of missing ones."""
    stores = terminal.named_stores(workspace, name, partition)
    existing = [(asset, key) for asset, key in stores if workspace.place(asset, key).exists]
    missing = [workspace.place(*store).label for store in stores if store not in existing]
    if not existing:
        of = f" of {', '.join(missing)}" if name else ""
        remedy = terminal.build_commands(stores if name else [("sft_packed", "")])
        raise StoreError(f"there is no store{of} in {workspace.where}, so nothing to verify. Build with:\n{remedy}")
    return existing, missing


def _run_all(workspace: Workspace, stores: list[tuple[str, str]]) -> list[Outcome]:
    from rich.progress import MofNCompleteColumn

    from prep_assets.engine.events import Checked, Refused
    from prep_assets.engine.execute import check as check_store
    from prep_assets.engine.plan import Step
    from prep_assets.graph.graph import asset_named
    from prep_assets.workers.pool import Pool

    outcomes = []
    with Pool() as pool, terminal.bar(MofNCompleteColumn()) as progress:
        workspace = replace(workspace, pool=pool)
        task = progress.add_task("verify", total=sum(len(asset_named(asset, workspace).checks) for asset, _ in stores))
        for asset, partition in stores:
            for event in check_store(workspace, Step(asset_named(asset, workspace), partition, "current", "", requested=True)):
                if isinstance(event, Checked):
                    progress.update(task, description=f"{event.step.label} {event.check}", advance=1)
                    outcomes.append(Outcome(asset, partition, event.check, event.verdict))
                elif isinstance(event, Refused) and not event.verdicts:
                    outcomes += [
                        Outcome(asset, partition, check.name, _unreadable(event)) for check in asset_named(asset, workspace).checks
                    ]
    return outcomes


def _unreadable(refused: Refused) -> Verdict:
    """The failed verdict, for every check, on a store whose manifest cannot be read."""
    from prep_assets.pipeline.workspace import build_command
    from prep_assets.proofs.verdict import Verdict, Worst

    detail = f"{refused.reason}\nBuild it again: {build_command(refused.step.asset.name, refused.step.partition)}"
    return Verdict(False, detail, {}, Worst(refused.step.label, detail))


def _show(console: Console, outcomes: list[Outcome]) -> None:
    shown = terminal.table("asset", "partition", "check", "verdict", "summary")
    for outcome in outcomes:
        passed = Text("warns", "yellow") if outcome.verdict.warns else Text("passed", "green")
        verdict = passed if outcome.verdict.passed else Text("FAILED", "bold red")
        summary, rest, _ = outcome.verdict.summary.partition("\n")
        shown.add_row(outcome.asset, outcome.partition, outcome.check, verdict, Text(visible(summary + (" …" if rest else ""))))
    console.print(shown)


def _show_failure(console: Console, workspace: Workspace, outcome: Outcome) -> None:
    name = workspace.place(outcome.asset, outcome.partition).label
    console.print(Text.assemble(("✗ ", "bold red"), (f"{name} {outcome.check}", "bold")))
    for line in _paragraphs(outcome.verdict):
        console.print(Text("  " + visible(line)))
    worst = outcome.verdict.worst
    if worst is not None and worst.ids:
        console.print(_row(workspace, outcome.asset, worst, colour=terminal.has_colour(console)))
    else:
        console.print()


def _paragraphs(verdict: Verdict) -> Iterator[str]:
    """The lines of the summary, and of the worst row's note unless the summary contains it."""
    yield from verdict.summary.splitlines()
    worst = verdict.worst
    if worst is not None and worst.note not in verdict.summary:
        yield from f"{worst.where}: {worst.note}".splitlines()


def _row(workspace: Workspace, asset: str, worst: Worst, *, colour: bool) -> Text:
    from prep_assets.explain.streams import family_of

    vocabulary = workspace.vocabulary(family_of(workspace, asset))
    tokens = terminal.texts_of(vocabulary, worst.ids[:MOST_TOKENS])
    more = len(worst.ids) - len(tokens)
    border = {0: f"{worst.where}: {len(worst.ids):,} tokens, trained ones {'green' if colour else 'in ⟦ ⟧'}"}
    text = terminal.flowing(tokens, worst.weights[:MOST_TOKENS], border, colour=colour)
    if more:
        text.append(f"… and {more:,} tokens more")
    text.rstrip()
    text.append("\n")
    return text


def scrub(
    budget: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="How much to read, e.g. 500MB or 20GiB; 'all': everything once.")
    ] = "1GiB",
    remote: Annotated[bool, typer.Option("--remote", help="Read remote sources too, each again as a whole.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build damaged stores and those made from them again.")] = False,
    as_json: terminal.AsJson = False,
) -> None:
    """Read stores and sources again, from where the last scrub stopped, and compare them with their hashes. Exit code 1 where something is damaged.

    Nothing reads a damaged store from then on, and those made from it are checked again. A damaged source is named; no build repairs it.
    """
    from prep_assets.engine import build
    from prep_assets.engine.scrub import scrub as read_again

    with terminal.working() as workspace:
        result = read_again(workspace, _bytes(budget), remote=remote)
    console = terminal.err() if as_json else terminal.out()
    if as_json:
        terminal.print_json(to_builtins(result))
    console.print(
        f"read {terminal.size(result.read)} of {terminal.size(result.total)}, {terminal.counted(len(result.damaged), 'file')} damaged"
    )
    for why in result.unreached:
        console.print(f"not looked at: {why}", style="yellow")
    for damage in result.damaged:
        console.print(f"✗ {workspace.place(damage.asset, damage.partition).label}: {damage.what}", style="red")
        if damage.built:
            console.print(f"  made from it, to be built again: {', '.join(damage.built)}")
    stores = dict.fromkeys((damage.asset, damage.partition) for damage in result.damaged if not damage.source)
    if rebuild and stores:
        with terminal.Live(terminal.err()) as live:
            for asset, partition in stores:
                build(workspace, asset, partition=partition or None, tell=live)
            for label in dict.fromkeys(label for damage in result.damaged if not damage.source for label in damage.built):
                asset, _, partition = label.rstrip("]").partition("[")
                build(workspace, asset, partition=partition or None, tell=live)
    if any(damage.source for damage in result.damaged) or (stores and not rebuild):
        raise typer.Exit(1)


def _bytes(text: str) -> int:
    """Raises:
    ConfigError: `text` is not a size.
    """
    if text == "all":
        return 1 << 62
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?)B?", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"--bytes {text}: needs a number and a unit, e.g. 500MB or 20GiB, or 'all'")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def selftest(
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset with tokens or lines; all when left out.")
    ] = None,
    partition: terminal.Partition = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Shift masks, swap pairs, leak test rows … on copies of your rows: each must be caught by its check. Exit code 1 when one is not.

    The stores themselves are only read.
    """
    from prep_assets.graph.graph import asset_and_partitions, assets_of
    from prep_assets.graph.selftest import TESTED
    from prep_assets.graph.selftest import selftest as run_selftest

    workspace = terminal.opened()
    console = terminal.out()
    uncaught = stores = tried = 0
    found = dict[str, Any]()
    for name in (asset,) if asset else [name for name in TESTED if name in assets_of(workspace)]:
        node, partitions = asset_and_partitions(workspace, name, partition)
        for key in partitions:
            published = workspace.published(node.name, key)
            if published is None:
                continue
            stores += 1
            trials = run_selftest(workspace, published)
            found[published.manifest.label] = [{**to_builtins(trial), "passed": trial.passed} for trial in trials]
            shown = terminal.table("corruption", "must be caught by", "caught", "what the check says", title=published.manifest.label)
            for trial in trials:
                uncaught += not trial.passed
                tried += bool(trial.mutation and trial.tried)
                style = "bold red" if not trial.passed else None if trial.tried else "dim"
                label = trial.mutation or "none (the clean rows)"
                caught = f"{trial.caught} of {trial.tried}" if trial.mutation else "passes" if trial.passed else "fails"
                caught = caught if trial.tried else "no row fits"
                shown.add_row(label, trial.check, caught, trial.shown[:72], style=style)
            if not as_json:
                console.print(shown)
    if not stores:
        raise StoreError("no store with tokens or lines is built. Build one with:\n  prep-assets build sft_packed")
    if as_json:
        terminal.print_json(found)
        if uncaught:
            raise typer.Exit(1)
        return
    if uncaught:
        console.print(f"{uncaught} corruptions were not caught", style="bold red")
        raise typer.Exit(1)
    console.print(f"each of {tried:,} corruptions was caught by its check, and the clean rows pass", style="bold green")
