"""A server of S3 on this machine: moto's, with each request as one step, and with the faults of a network and of a busy service."""

from __future__ import annotations

import io
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest

from prep_assets_tests.stores.served import Handler, Server

Fault = Literal["500", "503", "409", "403", "lost", "reset", ""]
"""``lost``: carried out, and answered with 500. ``reset``: the connection breaks in the middle of the answer."""
_SLOW = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>injected</Message></Error>'
_CODES = {"500": b"InternalError", "503": b"SlowDown", "409": b"ConditionalRequestConflict", "403": b"AccessDenied"}


class S3(Server):
    """The server.

    Attributes:
        plan: decides on the fault of a request, by method, path and headers.
        deny: requests with this in their address, query and all, are answered with 403.
        asked: how many requests there were, by method and path.
        ranges: the ranges that were asked for.
    """

    plan: Callable[[str, str, Any], Fault]

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        super().__init__(_Handler)
        self.app = DomainDispatcherApplication(create_backend_app)
        self.asked, self.ranges = Counter[tuple[str, str]](), list[str]()
        self.calm()

    def calm(self) -> None:
        """No faults, nothing counted."""
        self.deny = ""
        self.plan = lambda method, path, headers: ""
        self.asked.clear()
        self.ranges.clear()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break here on purpose."""


class _Handler(Handler):
    server: S3

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        self.server.asked[self.command, path] += 1
        if wanted := self.headers.get("Range"):
            self.server.ranges.append(wanted)
        denied = self.server.deny and self.server.deny in self.path
        fault = "403" if denied else self.server.plan(self.command, path, self.headers)
        if fault in _CODES:
            self._answer(int(fault), [], _SLOW % _CODES[fault])
            return
        status, headers, data = self._carried_out(body)
        if fault == "lost":
            self._answer(500, [], _SLOW % b"InternalError")
        else:
            self._answer(status, headers, data, broken=fault == "reset")

    def _carried_out(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        from werkzeug.test import EnvironBuilder, run_wsgi_app

        environ = EnvironBuilder(
            self.path, self.server.url, method=self.command, headers=list(self.headers.items()), data=body
        ).get_environ()
        environ["wsgi.input"] = io.BytesIO(body)
        with self.server.one:  # moto looks, and then writes
            found, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
            return int(status.split()[0]), list(headers), b"".join(found)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, broken: bool = False) -> None:
        self.send_response(status)
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if broken:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            # with nothing lingering, closing sends a reset in place of an end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        self.wfile.write(data)


@contextmanager
def serving() -> Iterator[S3]:
    """The server, with an empty bucket ``bucket``."""
    pytest.importorskip("moto.server", reason="the local S3 server is moto's", exc_type=ImportError)
    with S3() as server:
        import urllib.request

        urllib.request.urlopen(urllib.request.Request(f"{server.url}/bucket", method="PUT"))
        yield server
