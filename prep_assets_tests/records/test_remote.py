"""Files behind URLs, from servers on this machine: HTTP, S3 and fsspec's memory file system."""

from __future__ import annotations

import gzip
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets.errors import SourceError
from prep_assets.records.files import content_hash, find_files, fingerprint
from prep_assets.records.pin import pin_files, verify_pins

Read = Callable[..., tuple[list[Any], list[Any]]]

BASE = Path("/nowhere")
LINES = b"".join(b'{"n": %d, "x": "%s"}\n' % (i, b"y" * 50) for i in range(3000))


def serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder; like many servers it knows no ranges."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Faulty(Quiet):
    """`/cut...` announces more bytes than it sends; anything else announces no size."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path.startswith("/cut"):
            self.send_header("Content-Length", str(2 * len(LINES)))
        self.end_headers()
        if self.command == "GET" and self.path.startswith("/cut"):
            self.wfile.write(LINES)


@pytest.fixture
def http(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP with aiohttp")
    yield from serve(partial(Quiet, directory=str(tmp_path)))


@pytest.fixture
def faulty() -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP with aiohttp")
    yield from serve(Faulty)


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"n": list(range(3000))}), out)
    return out.getvalue()


FILES = {"a.jsonl": LINES, "b.jsonl.gz": gzip.compress(LINES), "c.parquet": parquet()}


def test_http_files(http: str, tmp_path: Path, read: Read) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    files = find_files([f"{http}/{name}" for name in FILES], BASE)
    assert [(file.name, file.size) for file in files] == [(name, len(data)) for name, data in FILES.items()]
    for file in files:
        records, refused = read(file)
        assert [r.payload["n"] for r in records] == list(range(3000))
        assert not refused
        assert content_hash(file) == hashlib.sha256(FILES[file.name]).hexdigest()


def test_a_large_file_of_an_http_server_without_ranges(http: str, tmp_path: Path, read: Read) -> None:
    """fsspec's own reading of HTTP asks for ranges of 5 MiB, which this server does not know."""
    (tmp_path / "a.jsonl").write_bytes(LINES * 40)
    (file,) = find_files([f"{http}/a.jsonl"], BASE)
    assert file.size > 5 << 20
    records, refused = read(file)
    assert [r.row for r in records] == list(range(40 * 3000))
    assert not refused


def test_an_http_query_is_no_part_of_the_name(http: str, tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (file,) = find_files([f"{http}/a.jsonl?download=true&signature=secret"], BASE)
    assert (file.name, file.format) == ("a.jsonl", "jsonl")
    assert len(read(file)[0]) == 3000
    assert pin_files([file])[0].url_hint == f"{http}/a.jsonl"


def test_two_queries_of_one_http_file_are_no_two_names(http: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    with pytest.raises(SourceError, match=r"same name 'a\.jsonl'"):
        find_files([f"{http}/a.jsonl?v=1", f"{http}/a.jsonl?v=2"], BASE)


def test_an_http_file_that_changes_has_another_fingerprint(http: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (file,) = find_files([f"{http}/a.jsonl"], BASE)
    pins = pin_files([file])
    verify_pins([file], pins)
    (tmp_path / "a.jsonl").write_bytes(LINES + b"{}\n")
    assert fingerprint(file) != pins[0].fingerprint
    with pytest.raises(SourceError, match=f"expected {len(LINES):,} bytes"):
        verify_pins([file], pins)


def test_an_http_file_that_is_not_there(http: str) -> None:
    with pytest.raises(SourceError, match="matches no file"):
        find_files([f"{http}/missing.jsonl"], BASE)


def test_an_http_transfer_that_ends_early_stops(faulty: str, read: Read) -> None:
    (file,) = find_files([f"{faulty}/cut.jsonl?signature=secret"], BASE)
    with pytest.raises(SourceError, match=r"cut\.jsonl: (reading failed|the file ends early).*fetch it again") as raised:
        read(file)
    assert "secret" not in str(raised.value)


def test_an_http_server_without_sizes_stops(faulty: str) -> None:
    with pytest.raises(SourceError, match="states no size"):
        find_files([f"{faulty}/nosize.jsonl"], BASE)


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def test_memory_files_folders_and_globs(memory: Any, read: Read) -> None:
    for name, data in FILES.items():
        memory.pipe(f"/set/deep/{name}", data)
    memory.pipe("/set/deep/.hidden.jsonl", LINES)
    memory.pipe("/set/deep/d.jsonl.part", LINES)
    for pattern in ("memory://set", "memory://set/", "memory://set/deep/*", "memory://set/**"):
        files = find_files([pattern], BASE)
        assert [file.name for file in files] == list(FILES), pattern
        assert [len(read(file)[0]) for file in files] == [3000] * 3
    assert [file.name for file in find_files(["memory://set/deep/a.jsonl"], BASE)] == ["a.jsonl"]


def test_a_memory_file_that_is_empty_or_missing(memory: Any) -> None:
    memory.pipe("/set/a.jsonl", b"")
    with pytest.raises(SourceError, match="is empty"):
        find_files(["memory://set/a.jsonl"], BASE)
    with pytest.raises(SourceError, match="matches no file"):
        find_files(["memory://set/*.csv"], BASE)


def test_an_unknown_scheme_stops() -> None:
    with pytest.raises(SourceError, match=r"cannot list 'nosuch://a/b\.jsonl'"):
        find_files(["nosuch://a/b.jsonl"], BASE)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket `bucket` of a local S3 server; gives its boto3 client."""
    pytest.importorskip("s3fs", reason="s3:// needs s3fs")
    moto = pytest.importorskip("moto.server", reason="the local S3 server is moto's", exc_type=ImportError)
    import boto3

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in {
        "ACCESS_KEY_ID": "test",
        "SECRET_ACCESS_KEY": "test",
        "DEFAULT_REGION": "us-east-1",
        "ENDPOINT_URL": endpoint,
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    yield client
    server.stop()


def test_s3_files_folders_and_globs(s3: Any, read: Read) -> None:
    for name, data in FILES.items():
        s3.put_object(Bucket="bucket", Key=f"set/{name}", Body=data)
    for pattern in ("s3://bucket/set", "s3://bucket/set/*"):
        files = find_files([pattern], BASE)
        assert [file.name for file in files] == list(FILES)
        assert [len(read(file)[0]) for file in files] == [3000] * 3
    pins = pin_files(files)
    verify_pins(files, pins)
    assert [pin.sha256 for pin in pins] == [hashlib.sha256(data).hexdigest() for data in FILES.values()]
    assert pins[0].url_hint == "s3://bucket/set/a.jsonl"
    s3.put_object(Bucket="bucket", Key="set/a.jsonl", Body=LINES.replace(b"y", b"z"))
    with pytest.raises(SourceError, match=r"a\.jsonl: expected"):
        verify_pins(files, pins)
