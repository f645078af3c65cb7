"""Where the commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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

    # what is printed comes from data sets and file names, in which [x] and :x: are no markup
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    return console


def has_colour(console: Console) -> bool:
    """Whether colour reaches the reader: a terminal that has it, and no ``NO_COLOR``."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def complain(message: str) -> None:
    """An error, in red on stderr. Lines are not folded, so that a command in it can be copied."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def table(*headings: str, numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """An empty table; the columns named in `numbers` are aligned to the right, and no column is cut short."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
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
