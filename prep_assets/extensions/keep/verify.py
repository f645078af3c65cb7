"""`prep-assets verify` and `scrub`: check published stores again."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Annotated, Any

import typer
from msgspec import Struct
from rich.console import Console
from rich.progress import MofNCompleteColumn
from rich.table import Table
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.stores import Live, build_commands, named_stores, working
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.engine import build
from prep_assets.engine.events import Blocked, Checked
from prep_assets.engine.execute import check as check_store
from prep_assets.engine.plan import Step
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.keep.scrub import scrub as read_again
from prep_assets.graph.graph import asset_named, family_of
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.text.visible import token_texts, visible
from prep_assets.workers.pool import Pool

MOST_TOKENS = 2048
"""Most tokens of a failing row to show."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


class Outcome(Struct, frozen=True):
    """The verdict of one check on one store."""

    asset: str
    partition: str
    check: str
    verdict: Verdict


@with_json
def verify(asset: terminal.AnyAsset = None, partition: terminal.Partition = None) -> Answer:
    workspace = Workspace.open()
    wanted, missing = _stores(workspace, asset, partition)
    outcomes = _run_all(workspace, wanted)
    failed, checks = [outcome for outcome in outcomes if not outcome.verdict.passed], terminal.counted(len(outcomes), "check")

    def show(console: Console) -> None:
        console.print(_table(outcomes))
        for name in missing:
            console.print(f"not built, so not checked: {name}", style="dim")
        for outcome in failed:
            _show_failure(console, workspace, outcome)
        if failed:
            console.print(f"{len(failed):,} of {checks} failed", style="bold red")
        else:
            console.print(f"all {checks} of {terminal.counted(len(wanted), 'store')} passed", style="bold green")

    return Answer({"checks": list(map(_facts, outcomes)), "not_built": missing}, show, int(bool(failed)))


def _facts(outcome: Outcome) -> dict[str, Any]:
    """An outcome as ``--json`` prints it: without the function that joins verdicts."""
    verdict = {field.name: getattr(outcome.verdict, field.name) for field in fields(outcome.verdict) if field.name != "say"}
    return {"asset": outcome.asset, "partition": outcome.partition, "check": outcome.check, "verdict": verdict}


def _stores(workspace: Workspace, name: str | None, partition: str | None) -> tuple[list[tuple[str, str]], list[str]]:
    """(asset, partition) of existing stores, and the labels of missing ones."""
    stores = named_stores(workspace, name, partition)
    existing = [(asset, key) for asset, key in stores if workspace.place(asset, key).exists]
    missing = [workspace.place(*store).label for store in stores if store not in existing]
    if not existing:
        of = f" of {', '.join(missing)}" if name else ""
        remedy = build_commands(stores if name else [("sft_packed", "")])
        raise StoreError(f"there is no store{of} in {workspace.where}, so nothing to verify. Build with:\n{remedy}")
    return existing, missing


def _run_all(workspace: Workspace, stores: list[tuple[str, str]]) -> list[Outcome]:
    outcomes = []
    with Pool() as pool, terminal.bar(MofNCompleteColumn()) as progress:
        workspace = replace(workspace, pool=pool)
        task = progress.add_task("verify", total=sum(len(asset_named(asset, workspace).checks) for asset, _ in stores))
        for asset, partition in stores:
            for event in check_store(workspace, Step(asset_named(asset, workspace), partition, "current", "", requested=True)):
                if isinstance(event, Checked):
                    progress.update(task, description=f"{event.step.label} {event.check}", advance=1)
                    outcomes.append(Outcome(asset, partition, event.check, event.verdict))
                elif isinstance(event, Blocked) and not event.verdicts:
                    outcomes += [
                        Outcome(asset, partition, check.name, _unreadable(event)) for check in asset_named(asset, workspace).checks
                    ]
    return outcomes


def _unreadable(refused: Blocked) -> Verdict:
    """The failed verdict, for every check, on a store whose manifest cannot be read."""
    detail = f"{refused.reason}\nBuild it again: {build_command(refused.step.asset.name, refused.step.partition)}"
    return Verdict(False, detail, {}, Worst(refused.step.label, detail))


def _table(outcomes: list[Outcome]) -> Table:
    shown = terminal.table("asset", "partition", "check", "verdict", "summary")
    for outcome in outcomes:
        passed = Text("warns", "yellow") if outcome.verdict.warns else Text("passed", "green")
        verdict = passed if outcome.verdict.passed else Text("FAILED", "bold red")
        summary, rest, _ = outcome.verdict.summary.partition("\n")
        shown.add_row(outcome.asset, outcome.partition, outcome.check, verdict, Text(visible(summary + (" …" if rest else ""))))
    return shown


def _show_failure(console: Console, workspace: Workspace, outcome: Outcome) -> None:
    name = workspace.place(outcome.asset, outcome.partition).label
    console.print(Text.assemble(("✗ ", "bold red"), (f"{name} {outcome.check}", "bold")))
    worst, lines = outcome.verdict.worst, outcome.verdict.summary.splitlines()
    if worst is not None and worst.note not in outcome.verdict.summary:
        lines += f"{worst.where}: {worst.note}".splitlines()
    for line in lines:
        console.print(Text("  " + visible(line)))
    if worst is not None and worst.ids:
        console.print(_row(workspace, outcome.asset, worst, colour=terminal.has_colour(console)))
    else:
        console.print()


def _row(workspace: Workspace, asset: str, worst: Worst, *, colour: bool) -> Text:
    vocabulary = workspace.vocabulary(family_of(workspace, asset))
    tokens = token_texts(vocabulary, worst.ids[:MOST_TOKENS])
    more = len(worst.ids) - len(tokens)
    border = {0: f"{worst.where}: {len(worst.ids):,} tokens, trained ones {'green' if colour else 'in ⟦ ⟧'}"}
    text = terminal.flowing(tokens, worst.weights[:MOST_TOKENS], border, colour=colour)
    if more:
        text.append(f"… and {more:,} tokens more")
    text.rstrip()
    text.append("\n")
    return text


@with_json
def scrub(
    budget: Annotated[str, typer.Option("--bytes", metavar="SIZE", help="How much to read, e.g. 500MB, 20GiB or all.")] = "1GiB",
    remote: Annotated[bool, typer.Option("--remote", help="Read remote sources too, each again as a whole.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build damaged stores and those made from them again.")] = False,
    as_json: bool = False,
) -> Answer:
    """Nothing reads a damaged store from then on, and those made from it are checked again. A damaged source is named; no build repairs it."""
    with working() as workspace:
        result = read_again(workspace, _bytes(budget), remote=remote)
    console = terminal.err() if as_json else terminal.out()
    read, total = terminal.size(result.read), terminal.size(result.total)
    console.print(f"read {read} of {total}, {terminal.counted(len(result.damaged), 'file')} damaged")
    for why in result.unreached:
        console.print(f"not looked at: {why}", style="yellow")
    for damage in result.damaged:
        console.print(f"✗ {workspace.place(damage.asset, damage.partition).label}: {damage.what}", style="red")
        if damage.built:
            console.print(f"  made from it, to be built again: {', '.join(damage.built)}")
    rotten = [damage for damage in result.damaged if not damage.source]
    if rebuild and rotten:
        stores = dict.fromkeys((damage.asset, damage.partition) for damage in rotten)
        below = (label.rstrip("]").partition("[") for damage in rotten for label in damage.built)
        with Live(terminal.err()) as live:
            for asset, partition in dict.fromkeys((*stores, *((asset, partition) for asset, _, partition in below))):
                build(workspace, asset, partition=partition or None, tell=live)
    left = len(result.damaged) > len(rotten) or (rotten and not rebuild)
    return Answer(result, lambda _: None, int(bool(left)))


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
