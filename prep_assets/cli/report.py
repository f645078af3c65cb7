"""`prep-assets report`: a page about stores, in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from prep_assets.cli.console import err, near, size
from prep_assets.cli.find import Partition, built, every_store, reading, stores_of
from prep_assets.errors import ConfigError, StoreError
from prep_assets.reports.address import HOST, PORT

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace
    from prep_assets.stores.published import Published


PAGES = Path("reports")
"""Default folder of the pages."""
COLUMNS = 140
"""Width of a trace on its page."""


def report(
    asset: Annotated[
        str | None, typer.Argument(metavar="[ASSET]", show_default=False, help="An asset, e.g. sft_packed; all, if left out.")
    ] = None,
    partition: Partition = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="The file to write, or with no asset the folder. [default: reports/]", show_default=False
        ),
    ] = None,
    candidate: Annotated[
        bool, typer.Option("--candidate", help="The store that was built last and is not published, because a check fails.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
) -> None:
    """Write a page about an asset's stores: what they hold, rows with masks and both derivations, what was refused, lineage.

    Each page is one file that needs no network. Without ASSET: a page for every asset that has a store, and index.html.
    """
    from prep_assets.assets.workspace import Workspace
    from prep_assets.reports.report import report as page
    from prep_assets.reports.server import INDEX, write_page, write_site

    workspace = Workspace.open()
    if asset is None:
        if candidate:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --candidate", param_hint="--candidate")
        if partition is not None:
            raise typer.BadParameter("say of which asset: prep-assets report ASSET --partition P", param_hint="--partition")
        folder = out or PAGES
        write_site(workspace, built(workspace), folder, rows=rows, written=_print_place)
        typer.echo(near(folder.absolute() / INDEX))
        return
    stores, missing = (_candidates if candidate else stores_of)(workspace, asset, partition)
    path = out or PAGES / f"{asset}{f'-{partition}' if partition else ''}.html"
    path = path / f"{asset}.html" if path.is_dir() else path
    with reading(stores[0]):
        write_page(path, page(workspace, stores, rows=rows, candidate=candidate))
    for name in missing:
        err().print(f"not built, and not on the page: {name}", style="yellow")
    _print_place(path)
    typer.echo(near(path.absolute()))


def _candidates(workspace: Workspace, asset: str, partition: str | None) -> tuple[list[Published], list[str]]:
    from prep_assets.assets.graph import asset_and_partitions

    found, partitions = asset_and_partitions(workspace, asset, partition)
    places = [workspace.place(found.name, each) for each in partitions]
    stores = [store for store in (place.candidate() for place in places) if store is not None]
    if not stores:
        raise StoreError(f"{asset} has no store that waits for its checks: what was built last is published, or nothing was built")
    return stores, []


def _print_place(path: Path) -> None:
    err().print(f"✓ {path} ({size(path.stat().st_size)})", style="dim")


def view(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where it listens, on this machine only; 0 takes a free one.")
    ] = PORT,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve the pages of `report` for all stores, with a search over whole stores, until Ctrl-C. It writes nothing."""
    from prep_assets.assets.workspace import Workspace
    from prep_assets.reports.server import server

    serving = server(Workspace.open, every_store, port, rows=rows, trace=_trace)
    address = f"http://{HOST}:{serving.server_port}/"
    typer.echo(address)
    err().print("Ctrl-C stops it", style="dim")
    if browser:
        typer.launch(address)
    try:
        serving.serve_forever()
    finally:
        serving.server_close()


def _trace(workspace: Workspace, asset: str, partition: str, query: Mapping[str, str]) -> str:
    """What `prep-assets trace` prints, as text."""
    import io

    from prep_assets.cli.trace import show_trace
    from prep_assets.lineage.trace import trace

    numbers = {key: query.get(key, "0" if key == "row" else "") for key in ("row", "token")}
    if any(value and not value.isdecimal() for value in numbers.values()):
        raise ConfigError(f"a row and a token are numbers, counted from 0: {numbers}")
    found = trace(workspace, asset, int(numbers["row"]), partition=partition or None, stream=query.get("stream") or None)
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, soft_wrap=True)
    show_trace(console, found, int(numbers["token"]) if numbers["token"] else None)
    return console.export_text()
