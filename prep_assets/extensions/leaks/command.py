"""`prep-assets leaks`."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import typer
from rich.console import Console
from rich.prompt import Prompt
from rich.text import Text

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.config.models import TRAINED, Eval
from prep_assets.errors import ConfigError, require_known
from prep_assets.extensions.leaks.shown import shown_leaks
from prep_assets.graph.graph import asset_and_partitions
from prep_assets.pipeline.verdicts import uncovered
from prep_assets.pipeline.workspace import Workspace
from prep_assets.text.visible import visible


@with_json
def leaks(
    family: Annotated[str | None, typer.Argument(metavar="FAMILY", help="A family, e.g. sft. Default: all.")] = None,
    partition: terminal.Partition = None,
    count: Annotated[int, typer.Option("-n", min=0, help="How many leaks of each domain to show with their texts.")] = 3,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Draw this many of each domain at random, for review.")] = 0,
    ask: Annotated[bool, typer.Option("--ask", help="Ask of each that was drawn whether it is a copy, and say how many are.")] = False,
    as_json: bool = False,
) -> Answer:
    if ask and (as_json or not sample):
        raise ConfigError("--ask puts hits that were drawn at random to a person. Add --sample 50, and leave out --json")
    workspace = Workspace.open()
    workspace.family(Eval)
    if family is not None:
        require_known("no family", family, TRAINED)
    if partition and family is None:
        raise ConfigError(f"--partition {partition} needs a family: prep-assets leaks FAMILY --partition {partition}")
    stores, missing = [], []
    for name in [family] if family else [name for name in TRAINED if workspace.has(name)]:
        asset, partitions = asset_and_partitions(workspace, f"{name}_leaks", partition)
        for place in (workspace.place(asset.name, key) for key in partitions):
            if store := place.candidate() or place.current():  # a candidate is what leaks keep from being published
                stores.append((name, store))
            else:
                missing.append(place.label)
    shown = {
        store.manifest.label: list(shown_leaks(workspace, store, name, sample or count, drawn=bool(sample)))
        for name, store in stores
        if sample or count
    }

    def show(console: Console) -> None:
        rows = [
            (store.manifest.label, held, f"{found:,}", f"{store.manifest.counts['examples']:,}")
            for _, store in stores
            for held, found in (store.manifest.counts["by_set"] or {"–": 0}).items()
        ]
        console.print(terminal.table("store", "held out", "leaks", "examples", rows=rows, numbers=("leaks", "examples")))
        for short in filter(None, dict.fromkeys(uncovered(store.manifest.counts) for _, store in stores)):
            console.print(short, style="yellow")
        are_copies = defaultdict[str, list[bool]](list)
        for label, leak in ((label, leak) for label, found in shown.items() for leak in found):
            console.print(Text.assemble((f"{label} {leak.example}", "bold"), f" {leak.detail}"))
            sides = [
                Text.assemble(*((visible(part), style) for part, style in zip(text, ("dim", "bold", "dim"), strict=True)))
                for text in (leak.training, leak.held_out)
            ]
            console.print(terminal.table(leak.example, f"{leak.held} {leak.record}", rows=[sides]))
            if ask and (answer := _asked(console)) == "stop":
                break
            if ask:
                are_copies[leak.held].append(answer == "y")
        for held, copies in sorted(are_copies.items()):
            console.print(f"{held}: {sum(copies):,} of {len(copies):,} hits are copies, precision {sum(copies) / len(copies):.2f}")
        for name in missing:
            console.print(f"not built: {name}", style="dim")

    facts = [{"store": store.manifest.label, **store.manifest.counts, "policy": store.manifest.recipe["policy"]} for _, store in stores]
    return Answer({"stores": facts, "leaks": shown, "not_built": missing}, show)


def _asked(console: Console) -> str:
    try:
        return Prompt.ask("a copy?", choices=["y", "n", "stop"], console=console)
    except (EOFError, KeyboardInterrupt):  # what was answered so far counts
        return "stop"
