"""`prep-assets report` and `view`: HTML pages about stores."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prep_assets.cli import terminal
from prep_assets.cli.stores import every_store, reading, stores_of, working
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.explain.html import write_page
from prep_assets.extensions.explain.report import report as page
from prep_assets.extensions.explain.serve import INDEX, server, write_site
from prep_assets.extensions.explain.trace import trace
from prep_assets.extensions.explain.trace_command import show_trace
from prep_assets.graph.graph import asset_and_partitions
from prep_assets.pipeline.workspace import HOST, PORT, Workspace
from prep_assets.stores.version_folders import Published

PAGES = Path("reports")
"""Default folder of the pages."""
COLUMNS = 140
"""Width of a trace on its page."""


def report(
    asset: Annotated[str | None, typer.Argument(metavar="[ASSET]", help="An asset, e.g. sft_packed. Default: all.")] = None,
    partition: terminal.Partition = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="The file to write, or with no asset the folder. [default: reports/]"),
    ] = None,
    candidate: Annotated[bool, typer.Option("--candidate", help="The last build, if it was not published because a check fails.")] = False,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
) -> None:
    """Each page is one file that needs no network. Without ASSET: a page for every asset that has a store, and index.html."""
    if asset is None:
        if candidate:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --candidate", param_hint="--candidate")
        if partition is not None:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --partition P", param_hint="--partition")
        folder, pages = out or PAGES, list[Path]()
        with working() as workspace:
            if not (assets := every_store(workspace)):
                raise StoreError(f"no store in {workspace.where}. Build with:\n  prep-assets build --all")
            write_site(workspace, assets, folder, rows=rows, written=pages.append)
        for written in pages:
            _print_place(written)
        typer.echo(terminal.near(folder.absolute() / INDEX))
        return
    path = out or PAGES / f"{asset}{f'-{partition}' if partition else ''}.html"
    path = path / f"{asset}.html" if path.is_dir() else path
    with working() as workspace:
        stores, missing = (_candidates if candidate else stores_of)(workspace, asset, partition)
        with reading(stores[0]):
            write_page(path, page(workspace, stores, rows=rows, candidate=candidate))
    for name in missing:
        terminal.err().print(f"not built, and not on the page: {name}", style="yellow")
    _print_place(path)
    typer.echo(terminal.near(path.absolute()))


def _candidates(workspace: Workspace, asset: str, partition: str | None) -> tuple[list[Published], list[str]]:
    definition, partitions = asset_and_partitions(workspace, asset, partition)
    places = [workspace.place(definition.name, key) for key in partitions]
    stores = [store for store in (place.candidate() for place in places) if store is not None]
    if not stores:
        raise StoreError(f"{asset} has no unpublished build: its last build is published, or there is none")
    return stores, []


def _print_place(path: Path) -> None:
    terminal.err().print(f"✓ {path} ({terminal.size(path.stat().st_size)})", style="dim")


def view(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = PORT,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    serving = server(Workspace.open, port, rows=rows, trace=_trace)
    address = f"http://{HOST}:{serving.server_port}/"
    typer.echo(address)
    terminal.err().print("Ctrl-C stops it", style="dim")
    if browser:
        typer.launch(address)
    try:
        serving.serve_forever()
    finally:
        serving.server_close()


def _trace(workspace: Workspace, asset: str, partition: str, query: Mapping[str, str]) -> str:
    """The output of `prep-assets trace`, as text."""
    numbers = {key: query.get(key, "0" if key == "row" else "") for key in ("row", "token")}
    if any(value and not value.isdecimal() for value in numbers.values()):
        raise ConfigError(f"a row and a token are numbers, counted from 0: {numbers}")
    row_trace = trace(workspace, asset, int(numbers["row"]), partition=partition or None, stream=query.get("stream") or None)
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, soft_wrap=True)
    show_trace(console, row_trace, int(numbers["token"]) if numbers["token"] else None)
    return console.export_text()
