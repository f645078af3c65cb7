"""`prep-assets selftest`: corrupt copies of the user's own rows and see that the checks notice."""

from __future__ import annotations

from typing import Annotated

import typer

from prep_assets.cli.console import out, table
from prep_assets.cli.find import Partition, asset_and_partitions
from prep_assets.errors import StoreError


def selftest(
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset with tokens or lines; all when left out.")
    ] = None,
    partition: Partition = None,
) -> None:
    """Shift masks, swap pairs, leak test rows … on copies of your rows: each must be caught by its check. Exit code 1 when one is not.

    The stores themselves are only read.
    """
    from prep_assets.assets.graph import assets_of
    from prep_assets.assets.selftest.run import TESTED
    from prep_assets.assets.selftest.run import selftest as tried
    from prep_assets.assets.workspace import Workspace

    workspace = Workspace.open()
    console = out()
    missed = stores = done = 0
    for name in (asset,) if asset else [name for name in TESTED if name in assets_of(workspace)]:
        node, partitions = asset_and_partitions(workspace, name, partition)
        for key in partitions:
            published = workspace.published(node.name, key)
            if published is None:
                continue
            stores += 1
            trials = tried(workspace, published)
            shown = table("corruption", "must be caught by", "caught", "what the check says", title=f"{name}[{key}]" if key else name)
            for trial in trials:
                missed += not trial.passed
                done += bool(trial.mutation and trial.tried)
                style = "bold red" if not trial.passed else None if trial.tried else "dim"
                label = trial.mutation or "none (the clean rows)"
                caught = f"{trial.caught} of {trial.tried}" if trial.mutation else "passes" if trial.passed else "fails"
                caught = caught if trial.tried else "no row fits"
                shown.add_row(label, trial.check, caught, trial.shown[:72], style=style)
            console.print(shown)
    if not stores:
        raise StoreError("no store with tokens or lines is built. Build one with:\n  prep-assets build sft_packed")
    if missed:
        console.print(f"{missed} corruptions were not caught", style="bold red")
        raise typer.Exit(1)
    console.print(f"each of {done:,} corruptions was caught by its check, and the clean rows pass", style="bold green")
