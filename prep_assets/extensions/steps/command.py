"""`prep-assets step`: the rows of a training step, the highest loss first, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.extensions.steps.record import Run, Seen, named
from prep_assets.extensions.steps.rows import Step, StepRow, Stretch, items_in, step_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import label_of


@with_json
def step(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that the training loop recorded into.")],
    number: Annotated[int | None, typer.Argument(metavar="STEP", help="Optimizer step, counted from 1, as trainers log it.")] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="How many rows, or steps, to show.")] = 20,
    untraced: Annotated[
        bool, typer.Option("--untraced", help="By number only, without stores and sources, which may have changed since.")
    ] = False,
) -> Answer:
    """Without STEP it reads the whole record, and lists the steps with the highest loss."""
    if number is None:
        return _steps(Run(run), top)
    found = step_of(Workspace.open(), run, number, top=top, sources=not untraced)
    facts = {"run": str(run), **{name: getattr(found, name) for name in ("step", "ranks", "loss", "stores", "items", "count")}}
    facts["loss"] = _plain(found.loss)
    facts["rows"] = [{**row.seen._asdict(), "loss": _plain(row.seen.loss), "stretches": row.stretches} for row in found.rows]
    return Answer(facts, lambda console: _show_step(console, run, found, untraced=untraced))


def _plain(loss: float | None) -> float | str | None:
    """A loss as JSON, which knows neither infinity nor NaN."""
    return loss if loss is None or abs(loss) < float("inf") else str(loss)


def _steps(run: Run, top: int) -> Answer:
    """The steps with the highest loss."""
    found = [(step, rows, loss) for step, rows, loss in run.all_seen()]
    ranked = sorted(found, key=lambda each: (each[2] is None, -(each[2] if each[2] is not None and each[2] == each[2] else float("inf"))))[
        :top
    ]
    heads = [attempt.head for attempt, steps in zip(run.main, run.steps, strict=True) if steps]
    facts = {
        "run": str(run.folder),
        "steps": len(found),
        "attempts": [{"after": head["after"], "ranks": head["ranks"], "stores": head["stores"]} for head in heads],
        "highest": [{"step": step, "loss": _plain(loss), "items": items_in(rows), "count": len(rows)} for step, rows, loss in ranked],
    }

    def show(console: Console) -> None:
        console.print(
            f"{terminal.near(run.folder.absolute())}: {terminal.counted(len(found), 'step')}, every line as it was written", style="bold"
        )
        for head in heads:
            trained_on = ", ".join(map(named, head["stores"]))
            console.print(f"after step {head['after']:,}: {terminal.counted(head['ranks'], 'rank')}, {trained_on}", style="dim")
        headings = "step", "loss", "items", "documents", "highest loss of one"
        worst = [(f"{step:,}", _loss(loss), f"{items_in(rows):,}", f"{len(rows):,}", _worst(rows)) for step, rows, loss in ranked]
        console.print(terminal.table(*headings, rows=worst, numbers=headings))

    return Answer(facts, show)


def _worst(rows: Sequence[Seen]) -> str:
    return _loss(max((row.loss for row in rows if row.loss is not None), default=None, key=lambda loss: (loss != loss, loss)))


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:,.4f}"


def _show_step(console: Console, run: Path, found: Step, *, untraced: bool) -> None:
    """Print the rows of a step."""
    loss = "no loss was given" if found.loss is None else f"loss {_loss(found.loss)}"
    console.print(
        f"step {found.step:,} of {terminal.near(run.absolute())}: {_counted(found)}, {terminal.counted(found.ranks, 'rank')}, {loss}",
        style="bold",
    )
    console.print(f"trained on {', '.join(found.stores)}", style="dim")
    if not any(row.seen.loss is not None for row in found.rows) and found.loss is not None:
        console.print("the loop gave no loss for each row", style="yellow")
    shown = terminal.table(
        "loss", "trained tokens", "rank", "item", "stored in", "record", "source", numbers=("loss", "trained tokens", "rank", "item")
    )
    for row in found.rows:
        for line in _lines(row):
            shown.add_row(*line)
    console.print(shown)
    if found.count > len(found.rows):
        console.print(f"{found.count - len(found.rows):,} more, with lower losses: --top {found.count}", style="dim")
    if not untraced and (first := next((stretch for row in found.rows for stretch in row.stretches), None)) is not None:
        place = first.place
        stream = f" --stream {place.stream}" if place.stream not in ("", place.asset) else ""
        partition = f" -p {place.partition}" if place.partition else ""
        console.print(f"its text and tokens: prep-assets trace {place.asset}{partition}{stream} --row {place.row}", style="dim")


def _counted(found: Step) -> str:
    items = terminal.counted(found.items, "item")
    return items if found.items == found.count else f"{items} with {found.count:,} documents"


def _lines(row: StepRow) -> list[list[str]]:
    """The lines of a row: one a stretch, the first with the figures."""
    seen = row.seen
    figures = [_loss(seen.loss), "" if seen.tokens is None else f"{seen.tokens:,}", str(seen.rank), f"{seen.item:,}"]
    places = [_place(stretch) for stretch in row.stretches] or [["", "", ""]]
    return [(figures if not at else [""] * 4) + place for at, place in enumerate(places)]


def _place(stretch: Stretch) -> list[str]:
    place, source = stretch.place, stretch.source
    tokens = f", tokens {stretch.start:,}–{stretch.end:,}" if stretch.end else ""
    stored = f"{label_of(place.asset, place.partition)} row {place.row:,}{tokens}"
    if source is None:
        return [stored, "generated", ""]
    return [
        stored,
        f"{source.domain}/{source.id}" + (" (held out)" if source.held_out else ""),
        f"{terminal.near_url(source.url)} row {source.row:,}",
    ]
