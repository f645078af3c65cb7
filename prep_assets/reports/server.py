"""Pages of all stores from a server on this machine. It answers GET from this machine only, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from prep_assets.assets.graph import asset_named
from prep_assets.assets.workspace import Workspace
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.reports.address import CANDIDATES, HOST, STORES, TRACES
from prep_assets.reports.chunks import Filter
from prep_assets.reports.page import first_page, trace_page
from prep_assets.reports.report import ROWS, report
from prep_assets.stores.published import Published

Stores = Callable[[Workspace], Mapping[str, Sequence[Published]]]
"""What can be shown at this moment: the stores of each asset."""
Trace = Callable[[Workspace, str, str, Mapping[str, str]], str]
"""The trace of a row or a token, as text: given an asset, a partition, and ``row``, ``token`` and ``stream`` as they were asked for."""
INDEX = "index.html"


def server(open_workspace: Callable[[], Workspace], stores: Stores, port: int, *, rows: int, trace: Trace) -> ThreadingHTTPServer:
    """A server that is ready to run; `port` 0 takes one that is free.

    Raises:
        PrepAssetsError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, page = self._page()
            body = page.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8" if status == HTTPStatus.OK else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _page(self) -> tuple[HTTPStatus, str]:
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in (HOST, "localhost"):  # a foreign name that points here would let its pages read these
                return HTTPStatus.FORBIDDEN, f"this server answers to {HOST} and localhost"
            try:
                workspace = open_workspace()
                return _answer(workspace, stores(workspace), urlsplit(self.path), rows, trace)
            except (PrepAssetsError, OSError, ValueError, LookupError) as error:  # a store may be damaged, or replaced while it is read
                return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal has the address, and the browser shows errors."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise PrepAssetsError(f"cannot listen on {HOST}:{port}: {error}. Choose another: --port N") from error


def _answer(
    workspace: Workspace, stores: Mapping[str, Sequence[Published]], address: SplitResult, rows: int, trace: Trace
) -> tuple[HTTPStatus, str]:
    if address.path == "/":
        return HTTPStatus.OK, first_page(stores, STORES + "{}")
    prefix = next((each for each in (STORES, CANDIDATES, TRACES) if address.path.startswith(each)), "")
    asset, _, partition = unquote(address.path.removeprefix(prefix)).partition("/")
    every = (_candidates(workspace, asset) if prefix == CANDIDATES else stores.get(asset, ())) if prefix else ()
    chosen = [each for each in every if partition in ("", each.manifest.partition)]
    if not chosen:
        return HTTPStatus.NOT_FOUND, f"no store at {address.path}" + (", so none fails its checks" if prefix == CANDIDATES else "")
    query = {key: values[-1].strip() for key, values in parse_qs(address.query).items()}
    if prefix == TRACES:
        return HTTPStatus.OK, trace_page(chosen[0].manifest.label, trace(workspace, asset, partition, query))
    wanted = Filter(query.get("find", ""), "id" if query.get("in") == "id" else "text", query.get("domain", ""))
    return HTTPStatus.OK, report(workspace, chosen, rows=rows, served=wanted, candidate=prefix == CANDIDATES)


def _candidates(workspace: Workspace, name: str) -> list[Published]:
    """Stores that were built and are not published, because a check fails."""
    try:
        places = [workspace.place(name, each) for each in asset_named(name, workspace).partitions(workspace)]
    except ConfigError:
        return []
    return [each for each in (place.candidate() for place in places) if each is not None]


def write_site(
    workspace: Workspace,
    assets: Mapping[str, Sequence[Published]],
    folder: Path,
    *,
    rows: int = ROWS,
    written: Callable[[Path], None] = lambda path: None,
) -> None:
    """Write ``<asset>.html`` for the stores of each asset, and ``index.html``.

    Args:
        rows: how many rows each page holds at most.
        written: told about each page.

    Raises:
        StoreError: a payload cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, stores in assets.items():
        write_page(folder / f"{name}.html", report(workspace, stores, rows=rows))
        written(folder / f"{name}.html")
    write_page(folder / INDEX, first_page(assets))


def write_page(path: Path, html: str) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(html, "utf-8")
    temporary.replace(path)
