"""`prep-assets selftest`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import to_builtins
from rich.console import Console
from rich.table import Table

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.errors import StoreError
from prep_assets.extensions.selftest.stores import TESTED
from prep_assets.extensions.selftest.stores import selftest as run_selftest
from prep_assets.extensions.selftest.trials import Trial
from prep_assets.graph.graph import asset_and_partitions, assets_of
from prep_assets.pipeline.workspace import Workspace


@with_json
def selftest(asset: terminal.AnyAsset = None, partition: terminal.Partition = None) -> Answer:
    """The stores themselves are only read. Assets without tokens, lines or verdicts have none to be changed."""
    workspace = Workspace.open()
    found: dict[str, list[Trial]] = {}
    for name in (asset,) if asset else [name for name in TESTED if name in assets_of(workspace)]:
        node, partitions = asset_and_partitions(workspace, name, partition)
        for published in filter(None, (workspace.published(node.name, key) for key in partitions)):
            found[published.manifest.label] = run_selftest(workspace, published)
    if not found:
        raise StoreError("no store with tokens or lines is built. Build one with:\n  prep-assets build sft_packed")
    trials = [trial for each in found.values() for trial in each]
    uncaught = sum(bool(trial.mutation) and not trial.passed for trial in trials)
    failing = sum(not trial.mutation and not trial.passed for trial in trials)

    def show(console: Console) -> None:
        for label, each in found.items():
            console.print(_trials(label, each))
        if uncaught or failing:
            said = [f"{uncaught} corruptions were not caught"] * bool(uncaught) + ["clean rows do not pass"] * bool(failing)
            console.print("; ".join(said), style="bold red")
            return
        tried = sum(bool(trial.mutation and trial.tried) for trial in trials)
        console.print(f"each of {tried:,} corruptions was caught by its check, and the clean rows pass", style="bold green")

    facts = {label: [{**to_builtins(trial), "passed": trial.passed} for trial in each] for label, each in found.items()}
    return Answer(facts, show, int(bool(uncaught or failing)))


def _trials(label: str, trials: Sequence[Trial]) -> Table:
    shown = terminal.table("corruption", "must be caught by", "caught", "what the check says", title=label)
    for trial in trials:
        style = "bold red" if not trial.passed else None if trial.tried else "dim"
        caught = f"{trial.caught} of {trial.tried}" if trial.mutation else "passes" if trial.passed else "fails"
        caught = caught if trial.tried else "no row fits"
        shown.add_row(trial.mutation or "none (the clean rows)", trial.check, caught, trial.shown[:72], style=style)
    return shown
