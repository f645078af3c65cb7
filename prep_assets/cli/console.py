"""Where the commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from prep_assets.engine.events import Event
    from prep_assets.engine.planning import Step


PIPED_WIDTH = 160
"""Columns of a table that is written to a file or a pipe, which have no width of their own."""


def out() -> Console:
    """Stdout."""
    return _console(stderr=False)


def err() -> Console:
    """Stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    # what is printed comes from data sets and file names, in which [x] and :x: are plain text
    # a line is never folded, so that a path or a command in it can be copied; tables fold their columns by themselves
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def has_colour(console: Console) -> bool:
    """Whether colour reaches the reader: a terminal that has it, and no ``NO_COLOR``."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def print_json(value: Any) -> None:
    """A value as JSON on stdout."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def complain(message: str) -> None:
    """An error, in red on stderr."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), (message, "red")))


def table(*headings: str, rows: Iterable[Sequence[RenderableType]] = (), numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """A table; the columns named in `numbers` are aligned to the right, and no column is cut short."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def number(value: object) -> str:
    """A figure as a person reads it: thousands separated, fractions to four digits; nothing for `None`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def counted(count: int, thing: str) -> str:
    """``1 store``, ``2 stores``."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def size(count: int) -> str:
    """A number of bytes in the largest unit that leaves a digit before the point."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:,.1f} {units[0]}" if units[0] != "B" else f"{count} B"


def near(path: Path) -> str:
    """A path as seen from the working directory, where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def near_url(url: str) -> str:
    """The place of a file: a path as `near`, any other address as it is."""
    return url if "://" in url else near(Path(url))


def bar(*more: ProgressColumn) -> Progress:
    """A bar on stderr, with columns beside it; nothing where stderr is not a terminal."""
    return _bar(err(), *more)


def _bar(console: Console, *more: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *more, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Live:
    """Is called with each event of the engine; prints lines, and shows a bar while it is open."""

    def __init__(self, console: Console) -> None:
        from rich.progress import TaskProgressColumn

        from prep_assets.engine.events import Tally

        self._console = console
        self._bar = _bar(console, TaskProgressColumn())
        self._task = self._bar.add_task("", total=None, visible=False)
        self._tally = Tally()

    def __enter__(self) -> Live:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
        if str(self._tally) and error is None:
            self._console.print(str(self._tally), style="dim")

    def __call__(self, event: Event) -> None:
        from prep_assets.engine.events import Accepted, Checked, Planned, Progress, Refused, Skipped, Started, Written

        self._tally.add(event)
        match event:
            case Planned(steps):
                self._planned(steps)
            case Started(step):
                self._show(step.label)
            case Progress(what, done, total):
                self._show(what, done, total or None)
            case Written(step, published):
                for note in published.notes:
                    self._line("!", f"{step.label}: {note}", "yellow")
                self._show(f"{step.label} checks")
            case Checked(step, check, verdict):
                self._show(f"{step.label} {check}")
                if not verdict.passed:
                    self._line("  ✗", f"{step.label} {check}", "bold red")
            case Accepted(step, _, verdicts):
                if step.why:
                    self._line("✓", f"{step.label}: {self._accepted(event)}, {counted(len(verdicts), 'check')} hold", "green")
                elif step.requested:
                    self._line("✓", f"{step.label} is up to date: nothing to do", "green")
            case Refused(step):
                self._line("✗", f"{step.label} is not published", "bold red")
            case Skipped(step, because):
                self._line("-", f"{step.label} is not built, because {because.label} is not", "dim")

    def _planned(self, steps: tuple[Step, ...]) -> None:
        wanted = [step for step in steps if step.why]
        if len(wanted) > 1:
            self._console.print(f"{counted(len(wanted), 'store')} to build", style="dim")

    def _accepted(self, event: Event) -> str:
        from prep_assets.engine.events import Accepted

        assert isinstance(event, Accepted)
        counts = event.published.manifest.counts
        rows = counts.get("rows", counts.get("kept"))
        figures = [counted(rows, "row" if "rows" in counts else "record")] if rows is not None else []
        figures += [counted(counts["tokens"], "token")] if "tokens" in counts else []
        refused = sum(counts.get("refused", {}).values())
        figures += [f"{refused:,} refused"] if refused else []
        what = "draft" if event.draft else "sound as it was" if event.published.reused else f"built in {event.seconds:.1f} s"
        return ", ".join([what, *figures])

    def _show(self, what: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, visible=True)

    def _line(self, mark: str, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((mark, style), f" {text}"))
