"""A server that speaks as much of the Hugging Face Hub's protocol as uploading a data set takes."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Repository:
    """A data set: its latest commit, and what it holds."""

    private: bool
    head: str = "0" * 40
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    commits: list[dict[str, Any]] = field(default_factory=list)

    def advance(self) -> None:
        self.head = hashlib.sha1(f"{self.head}{sorted(self.files)}".encode()).hexdigest()


@dataclass
class FakeHub:
    """Its state, and what was asked with which token."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    before_commit: Callable[[Repository], None] = lambda repository: None
    refuse: int = 0

    def answer(self, method: str, address: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON or bytes, headers."""
        parts = urlsplit(address).path.strip("/").split("/")
        if self.refuse:
            return self.refuse, {"error": "no"}, {}
        match parts:
            case ["api", "repos", "create"]:
                return self._create(json.loads(body))
            case ["api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}, {}
            case ["objects", oid]:
                self.objects[oid] = body
                return 200, {}, {}
            case ["datasets", owner, name, "info", "lfs", "objects", "batch"]:
                return self._batch(json.loads(body))
            case ["api", "datasets", owner, name, *rest]:
                return self._dataset(f"{owner}/{name}", rest, body)
            case ["datasets", owner, name, "resolve", revision, *path]:
                content = self.repositories[f"{owner}/{name}"].files["/".join(path)]
                return 200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": revision}
        return 404, {"error": address}, {}

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.repositories:
            return 409, {"error": "exists", "url": f"{self.url}/datasets/{name}"}, {}
        assert asked["type"] == "dataset"
        self.repositories[name] = Repository(bool(asked.get("private")) or asked.get("visibility") == "private")
        return 200, {"url": f"{self.url}/datasets/{name}", "id": name}, {}

    def _batch(self, asked: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        found = [{**each, "actions": {"upload": {"href": f"{self.url}/objects/{each['oid']}"}}} for each in asked["objects"]]
        return 200, {"transfer": "basic", "objects": found}, {}

    def _dataset(self, name: str, rest: list[str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        if name.removesuffix(".git") not in self.repositories:
            return 404, {"error": "no repository"}, {"X-Error-Code": "RepoNotFound"}
        repository = self.repositories[name]
        match rest:
            case [] | ["revision", _]:
                return 200, {"id": name, "sha": repository.head, "private": repository.private, "siblings": []}, {}
            case ["tree", _]:
                tree = [{"type": "file", "path": each, "size": len(content), "oid": ""} for each, content in repository.files.items()]
                return 200, tree, {}
            case ["preupload", _]:
                asked = [each["path"] for each in json.loads(body)["files"]]
                modes = [{"path": each, "uploadMode": "lfs" if each.endswith(".parquet") else "regular"} for each in asked]
                return 200, {"files": [{**each, "shouldIgnore": False, "oid": None} for each in modes]}, {}
            case ["commit", _]:
                return self._commit(name, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": rest}, {}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any, dict[str, str]]:
        repository = self.repositories[name]
        self.before_commit(repository)
        header, *changes = lines
        if header["value"].get("parentCommit") != repository.head:
            return 412, {"error": "A commit has happened since. Please refresh and try again."}, {}
        for change in changes:
            match change["key"], change["value"]:
                case "file", value:
                    repository.files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile", value:
                    repository.files[value["path"]] = self.objects[value["oid"]]
                case "deletedFile", value:
                    del repository.files[value["path"]]
        repository.commits.append(header["value"])
        repository.advance()
        url = f"{self.url}/datasets/{name}/commit/{repository.head}"
        return 200, {"success": True, "commitOid": repository.head, "commitUrl": url}, {}


@contextmanager
def serving() -> Iterator[FakeHub]:
    """A running hub."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.tokens.add(self.headers.get("Authorization", ""))
            status, content, headers = hub.answer(self.command, self.path, body)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_HEAD = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
