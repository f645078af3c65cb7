"""`prep-assets sniff`: which schema reads a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prep_assets.cli.console import counted, out, table
from prep_assets.cli.schemas import gives
from prep_assets.cli.tokens import visible
from prep_assets.errors import SourceError

if TYPE_CHECKING:
    from prep_assets.records.files import SourceFile
    from prep_assets.schemas.sniff import Fit


def sniff(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="A file, folder, glob, URL or hub address.")],
    format: Annotated[str | None, typer.Option("--format", help="The format, where the file's name does not say it.")] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="How many records to try.")] = 100,
) -> None:
    """Try every schema on the first records of a file: which fit, and why the others do not. Exit code 1 when none fits."""
    from rich.text import Text

    from prep_assets.records.files import find_files
    from prep_assets.schemas.registry import schemas as registered
    from prep_assets.schemas.sniff import sniff as try_all

    rows, unreadable = _first(find_files([file], Path.cwd(), format=format), count)
    fits = try_all(rows)
    known = registered()
    fitting = [fit for fit in fits if fit.fitting]
    console = out()
    if fitting:
        shown = table("schema", "gives", "records", "fields it does not use", "first refusal", numbers=("records",), title=f"fits {file}")
        for fit in fitting:
            style = "bold green" if fit.fitting == fit.rows else "yellow"
            records = Text(f"{fit.fitting:,} of {fit.rows:,}", style)
            shown.add_row(
                fit.schema, gives(known[fit.schema].gives), records, Text(", ".join((*fit.unread, *fit.passed_over))), Text(_reason(fit))
            )
        console.print(shown)
    others = table("schema", "first reason why not", title="does not fit")
    for fit in fits:
        if not fit.fitting:
            others.add_row(fit.schema, Text(_reason(fit)))
    console.print(others)
    for detail in unreadable[:1]:
        console.print(f"{counted(len(unreadable), 'row')} could not be read; the first: {visible(detail)}", style="yellow", soft_wrap=True)
    if not fitting:
        console.print("no schema fits; write one of your own and name it as package.module:function", style="bold")
        raise typer.Exit(1)
    console.print(f"in the configuration:\n  a_name: {_entry(file, format, fitting[0])}", soft_wrap=True, highlight=False, markup=False)


def _entry(file: str, format: str | None, fit: Fit) -> str:
    """A whole domain, in YAML."""
    from prep_assets.schemas.account import in_one_line

    more = {"format": format, "ignore": list(fit.unread)}
    return in_one_line({"files": [file], "schema": fit.schema, **{key: value for key, value in more.items() if value}})


def _reason(fit: Fit) -> str:
    return visible(fit.refusal[:200] + ("…" if len(fit.refusal) > 200 else ""))


def _first(files: tuple[SourceFile, ...], count: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The first readable rows, and what is wrong with the unreadable ones between them.

    Raises:
        SourceError: there is no readable row.
    """
    from prep_assets.records.read import read_blocks

    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for index, file in enumerate(files):
        for block in read_blocks(file, index, block_bytes=1 << 20):
            rows += [dict(record.payload) for record in block.records[: count - len(rows)]]
            unreadable += [f"{file.name}:{row.row} {row.reason}: {row.detail}" for row in block.unreadable]
            if len(rows) >= count:
                return rows, unreadable
    if not rows:
        why = f"; the first: {unreadable[0]}" if unreadable else ""
        raise SourceError(f"{files[0].url}: no readable record, {counted(len(unreadable), 'unreadable row')}{why}")
    return rows, unreadable
