"""Objects as Google Cloud Storage gives them in its XML interface, as far as stores ask for it: whole objects, generations as conditions, lists."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from prep_assets_tests.stores.served import Handler, Server


class GoogleStorage(Server):
    """The server: data and generation by key, of one bucket."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.generation = 0


class _Handler(Handler):
    server: GoogleStorage

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        key = unquote(asked.path).removeprefix("/bucket").removeprefix("/")
        if not key:
            self._answer(200, self._listed(parse_qs(asked.query)).encode())
        elif found := self.server.objects.get(key):
            self._answer(200, *found)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key, wanted = unquote(urlsplit(self.path).path).removeprefix("/bucket/"), self.headers.get("x-goog-if-generation-match")
        with self.server.one:
            there = self.server.objects.get(key, (b"", 0))[1]
            if sound := wanted is None or int(wanted) == there:
                self.server.generation += 1
                self.server.objects[key] = data, self.server.generation
        self._answer(200, b"", self.server.generation) if sound else self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    def do_DELETE(self) -> None:
        gone = self.server.objects.pop(unquote(urlsplit(self.path).path).removeprefix("/bucket/"), None)
        self._answer(404 if gone is None else 204, b"")

    def _listed(self, query: dict[str, list[str]]) -> str:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        entries, folders = [], set[str]()
        for key, (data, generation) in sorted(self.server.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix) or key <= after:
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            about = f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{generation}</ETag><Size>{len(data)}</Size>"
            entries.append(f"<Contents><Key>{escape(key)}</Key>{about}</Contents>")
        common = "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        return f"<ListBucketResult>{''.join(entries)}{common}</ListBucketResult>"

    def _answer(self, status: int, data: bytes, generation: int | None = None) -> None:
        self.send_response(status)
        headers: dict[str, Any] = {"Content-Length": len(data), "Last-Modified": formatdate(usegmt=True)}
        if generation is not None:
            headers |= {"x-goog-generation": generation, "ETag": f'"{generation}"'}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)
