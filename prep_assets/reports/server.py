"""Pages of all stores from a server on this machine. It answers GET from this machine only, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from prep_assets.assets.workspace import Workspace
from prep_assets.errors import PrepAssetsError
from prep_assets.reports.filter import Filter
from prep_assets.reports.page import first_page
from prep_assets.reports.report import report
from prep_assets.stores.published import Published

HOST = "127.0.0.1"
PREFIX = "/stores/"
Stores = Callable[[Workspace], Mapping[str, Sequence[Published]]]
"""What can be shown at this moment: the stores of each asset."""


def server(open_workspace: Callable[[], Workspace], stores: Stores, port: int, *, rows: int) -> ThreadingHTTPServer:
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
                return _answer(workspace, stores(workspace), self.path, rows)
            except (PrepAssetsError, OSError, ValueError, LookupError) as error:  # a store may be damaged, or replaced while it is read
                return HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal has the address, and the browser shows errors."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise PrepAssetsError(f"cannot listen on {HOST}:{port}: {error}. Choose another: --port N") from error


def _answer(workspace: Workspace, stores: Mapping[str, Sequence[Published]], address: str, rows: int) -> tuple[HTTPStatus, str]:
    parts = urlsplit(address)
    if parts.path == "/":
        return HTTPStatus.OK, first_page(stores, PREFIX + "{}")
    name = unquote(parts.path.removeprefix(PREFIX))
    if not parts.path.startswith(PREFIX) or name not in stores:
        return HTTPStatus.NOT_FOUND, f"no store at {parts.path}"
    asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    wanted = Filter(asked.get("find", "").strip(), "id" if asked.get("in") == "id" else "text", asked.get("domain", "").strip())
    return HTTPStatus.OK, report(workspace, stores[name], rows=rows, served=wanted)
