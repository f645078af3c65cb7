"""`prep-assets step`: the rows of a training step, the highest loss first, each with its source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.terminal import Answer, with_json
from prep_assets.extensions.steps.record import Run, Seen, plain, trained_on
from prep_assets.extensions.steps.rows import Step, StepRow, Stretch, rank_of, step_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import label_of


@with_json
def step(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that the training loop recorded into.")],
    number: Annotated[int | None, typer.Argument(metavar="STEP", help="Optimizer step, counted from 1, as trainers log it.")] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="How many rows, or steps, to show.")] = 20,
    untraced: Annotated[bool, typer.Option("--untraced", help="By number only, without stores and sources.")] = False,
) -> Answer:
    """Without STEP it reads the whole record, and lists the steps with the highest loss."""
    if number is None:
        return _steps(Run(run), top)
    found = step_of(None if untraced else Workspace.open(), run, number, top=top)
    rows = [{**row.seen._asdict(), "loss": plain(row.seen.loss), "stretches": row.stretches} for row in found.rows]
    of = {"run": str(run), "step": number, "loss": plain(found.loss), "ranks": found.head["ranks"], "stores": found.head["stores"]}
    facts = {**of, "old": found.old, "items": _items(found.seen), "count": len(found.seen), "rows": rows}
    return Answer(facts, lambda console: _show_step(console, f"step {number:,} of {terminal.near(run.absolute())}", found))


def _items(seen: Sequence[Seen]) -> int:
    """How many items of the data set were seen."""
    return sum(not row.piece for row in seen)


def _steps(run: Run, top: int) -> Answer:
    """The steps with the highest loss."""
    found = [*run.all_seen()]
    ranked = sorted(found, key=lambda each: rank_of(each[2]))[:top]
    heads = [attempt.head for attempt, steps in zip(run.main, run.steps, strict=True) if steps]
    attempts = [{name: head[name] for name in ("after", "ranks", "stores")} for head in heads]
    highest = [{"step": step, "loss": plain(loss), "items": _items(rows), "count": len(rows)} for step, rows, loss in ranked]
    missing = [[steps[0], steps[-1]] for steps in run.missing]

    def show(console: Console) -> None:
        count = f"{terminal.counted(len(found), 'step')}, every line as it was written"
        console.print(f"{terminal.near(run.folder.absolute())}: {count}", style="bold")
        for head in heads:
            console.print(f"after step {head['after']:,}: {terminal.counted(head['ranks'], 'rank')}, {trained_on(head)}", style="dim")
        for first, last in missing:
            console.print(f"nothing of steps {first:,} to {last:,} was recorded", style="yellow")
        headings = "step", "loss", "items", "documents", "highest loss of one"
        losses = [(loss, min((row.loss for row in rows), key=rank_of, default=None)) for _, rows, loss in ranked]
        counts = [(f"{step:,}", f"{_items(rows):,}", f"{len(rows):,}") for step, rows, _ in ranked]
        worst = [(step, _loss(loss), *seen, _loss(most)) for (step, *seen), (loss, most) in zip(counts, losses, strict=True)]
        console.print(terminal.table(*headings, rows=worst, numbers=headings))

    return Answer({"run": str(run.folder), "steps": len(found), "missing": missing, "attempts": attempts, "highest": highest}, show)


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:,.4f}"


def _show_step(console: Console, title: str, found: Step) -> None:
    """Print the rows of a step."""
    items, count = terminal.counted(_items(found.seen), "item"), len(found.seen)
    documents = "" if count == _items(found.seen) else f" with {count:,} documents"
    loss = "no loss was given" if found.loss is None else f"loss {_loss(found.loss)}"
    console.print(f"{title}: {items}{documents}, {terminal.counted(found.head['ranks'], 'rank')}, {loss}", style="bold")
    console.print(f"trained on {trained_on(found.head)}", style="dim")
    if found.loss is not None and all(row.loss is None for row in found.seen):
        console.print("the loop gave no loss for each row", style="yellow")
    headings = ("loss", "trained tokens", "rank", "item", "stored in", "record", "source")
    console.print(terminal.table(*headings, rows=[line for row in found.rows for line in _lines(row)], numbers=headings[:4]))
    if count > len(found.rows):
        console.print(f"{count - len(found.rows):,} more: --top {count}", style="dim")
    for old in found.old:
        console.print(f"{old}: it was built again since, and these are the rows of that version, which is kept", style="yellow")
    if not found.old and (first := next((stretch.place for row in found.rows for stretch in row.stretches), None)):
        stream = f" --stream {first.stream}" if first.stream not in ("", first.asset) else ""
        partition = f" -p {first.partition}" if first.partition else ""
        console.print(f"its text and tokens: prep-assets trace {first.asset}{partition}{stream} --row {first.row}", style="dim")


def _lines(row: StepRow) -> list[list[str]]:
    """The lines of a row: one a stretch, the first with the figures."""
    seen = row.seen
    figures = [_loss(seen.loss), "" if seen.tokens is None else f"{seen.tokens:,}", str(seen.rank), f"{seen.item:,}"]
    return [([""] * 4 if at else figures) + place for at, place in enumerate(map(_place, row.stretches))] or [[*figures, "", "", ""]]


def _place(stretch: Stretch) -> list[str]:
    place, source = stretch.place, stretch.source
    stored = f"{label_of(place.asset, place.partition)} row {place.row:,}"
    stored += f", tokens {stretch.start:,}–{stretch.end:,}" if stretch.end else ""
    if source is None:
        return [stored, "generated", ""]
    url = "not found as it was read" if source.url is None else terminal.near_url(source.url)
    return [stored, f"{source.domain}/{source.id}" + (" (held out)" if source.held_out else ""), f"{url} row {source.row:,}"]
