"""Servers on this machine: some know ranges, some break, one speaks HTTPS."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

LINES = b"".join(b'{"n": %d, "x": "%s"}\n' % (i, b"y" * 50) for i in range(3000))


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break here on purpose."""


def serve(handler: Callable[..., BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[str]:
    with Server(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder; like many servers it knows no ranges."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Ranges(Quiet):
    """Serves a folder, and parts of files where they are asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        type(self).asked.append(wanted)
        if not wanted.startswith("bytes="):
            return super().do_GET()
        data = Path(self.translate_path(self.path)).read_bytes()
        start, _, end = wanted.removeprefix("bytes=").partition("-")
        part = data[int(start) : int(end or len(data)) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {start}-{int(start) + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)
        return None


class Faulty(Quiet):
    """`/cut...` announces more bytes than it sends, `/reset...` breaks the connection, `/error...` fails; others announce no size."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith("/broken") or (self.command == "GET" and self.path.startswith("/error")):
            return self.send_error(503)
        self.send_response(200)
        if self.path.startswith(("/cut", "/reset", "/error")):
            self.send_header("Content-Length", str(2 * len(LINES)))
        self.end_headers()
        if self.command == "GET" and self.path.startswith(("/cut", "/reset")):
            self.wfile.write(LINES)
        if self.command == "GET" and self.path.startswith("/reset"):
            # with nothing lingering, closing sends a reset in place of an end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        return None


def self_signed() -> bytes:
    """A key and a certificate for ``localhost``, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return text + signed.public_bytes(serialization.Encoding.PEM)
