"""What the servers of the tests have in common: an address on this machine, a thread that answers, and a log that stays empty."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Server(ThreadingHTTPServer):
    """Answers as long as its context lasts."""

    daemon_threads = True
    request_queue_size = 64  # clients open many connections at a time, of which Python keeps five waiting

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.one = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a client's system waits 40 ms for more before it says that it has the headers

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
