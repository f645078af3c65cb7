"""`prep-assets view`: pages of all stores in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from prep_assets.cli.console import err
from prep_assets.cli.find import built


def view(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where it listens, on this machine only; 0 takes a free one.")
    ] = 8899,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="How many rows a page holds at most.")] = 1000,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve the pages of `report` for all stores, with a search over whole stores, until Ctrl-C. It writes nothing."""
    from prep_assets.assets.workspace import Workspace
    from prep_assets.reports.server import HOST, server

    built(Workspace.open())  # where there is no store, say so at once
    serving = server(Workspace.open, built, port, rows=rows)
    address = f"http://{HOST}:{serving.server_port}/"
    typer.echo(address)
    err().print("Ctrl-C stops it", style="dim")
    if browser:
        typer.launch(address)
    try:
        serving.serve_forever()
    finally:
        serving.server_close()
