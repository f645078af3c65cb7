"""What somebody sees who waits for a build: a line for each store, and a bar for the work under way where there is a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from prep_assets.cli.console import counted

if TYPE_CHECKING:
    from rich.console import Console

    from prep_assets.engine.events import Event
    from prep_assets.engine.planning import Step


class Live:
    """Is called with each event of the engine; prints lines, and shows a bar while it is open."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        from prep_assets.engine.tally import Tally

        self._console = console
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None, visible=False)
        self._began = time.monotonic()
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
                self._began = time.monotonic()
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
                elif step.asked:
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
        figures = [f"{rows:,} rows" if "rows" in counts else f"{rows:,} records"] if rows is not None else []
        figures += [f"{counts['tokens']:,} tokens"] if "tokens" in counts else []
        refused = sum(counts.get("refused", {}).values())
        figures += [f"{refused:,} refused"] if refused else []
        what = (
            "draft" if event.draft else "sound as it was" if event.published.reused else f"built in {time.monotonic() - self._began:.1f} s"
        )
        return ", ".join([what, *figures])

    def _show(self, what: str, done: int = 0, total: int | None = None) -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, visible=True)

    def _line(self, mark: str, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((mark, style), f" {text}"), soft_wrap=True)
