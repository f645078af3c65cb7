"""`prep-assets view`: pages of all stores in the browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from prep_assets.cli.console import err
from prep_assets.cli.find import every_store
from prep_assets.errors import ConfigError
from prep_assets.reports.address import HOST, PORT

if TYPE_CHECKING:
    from prep_assets.assets.workspace import Workspace

COLUMNS = 140
"""Width of a trace on its page."""


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


def _trace(workspace: Workspace, asset: str, partition: str, asked: Mapping[str, str]) -> str:
    """What `prep-assets trace` prints, as text."""
    import io

    from rich.console import Console

    from prep_assets.cli.trace import show_trace
    from prep_assets.lineage.trace import trace

    numbers = {key: asked.get(key, "0" if key == "row" else "") for key in ("row", "token")}
    if any(value and not value.isdecimal() for value in numbers.values()):
        raise ConfigError(f"a row and a token are numbers, counted from 0: {numbers}")
    found = trace(workspace, asset, int(numbers["row"]), partition=partition or None, stream=asked.get("stream") or None)
    console = Console(file=io.StringIO(), record=True, width=COLUMNS)
    show_trace(console, found, int(numbers["token"]) if numbers["token"] else None)
    return console.export_text()
