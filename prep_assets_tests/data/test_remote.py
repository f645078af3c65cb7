"""Files behind URLs, from servers on this machine: HTTP, S3 and fsspec's memory file system."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest

from prep_assets.data.files import find_files, fingerprint, stored_sums
from prep_assets.data.pins import Pin, pin_files, verify_pins
from prep_assets.errors import SourceError, SourceUnavailable
from prep_assets.extensions.remote import urls
from prep_assets_tests.data.conftest import table_bytes
from prep_assets_tests.data.servers import LINES, Faulty, Quiet, Ranges, self_signed, serve

Read = Callable[..., tuple[list[Any], list[Any]]]

BASE = Path("/nowhere")


@pytest.fixture
def aiohttp() -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP with aiohttp")


@pytest.fixture
def http(aiohttp: None, tmp_path: Path) -> Iterator[str]:
    yield from serve(partial(Quiet, directory=str(tmp_path)))


@pytest.fixture
def faulty(aiohttp: None) -> Iterator[str]:
    yield from serve(Faulty)


@pytest.fixture
def ranges(aiohttp: None, tmp_path: Path) -> Iterator[str]:
    yield from serve(partial(Ranges, directory=str(tmp_path)))


@pytest.fixture
def https(aiohttp: None, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate of its own making; gives its address and the certificate."""
    pytest.importorskip("cryptography", reason="makes the server's certificate")
    place = tmp_path / "certificate.pem"
    place.write_bytes(self_signed())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place)
    for address in serve(partial(Quiet, directory=str(tmp_path)), context):
        yield address.replace("http://127.0.0.1", "https://localhost"), place


FILES = {"a.jsonl": LINES, "b.jsonl.gz": gzip.compress(LINES), "c.parquet": table_bytes("parquet", [{"n": n} for n in range(3000)])}


@pytest.mark.parametrize("server", ["http", "ranges"])
def test_http_files(request: pytest.FixtureRequest, server: str, tmp_path: Path, read: Read) -> None:
    """A file is read as one stream where the server knows ranges too: a range could be of a newer version than the one before."""
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    Ranges.asked.clear()
    files = find_files([f"{request.getfixturevalue(server)}/{name}" for name in FILES], BASE)
    assert [(file.name, file.size) for file in files] == [(name, len(data)) for name, data in FILES.items()]
    for file in files:
        records, refused = read(file)
        assert [r.payload["n"] for r in records] == list(range(3000))
        assert not refused
        assert stored_sums(file).sha256 == hashlib.sha256(FILES[file.name]).hexdigest()
    assert set(Ranges.asked) == ({""} if server == "ranges" else set())


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


@pytest.mark.parametrize("name", ["reset.jsonl", "reset.jsonl.gz", "reset.parquet", "error.jsonl", "error.parquet", "cut.parquet"])
def test_an_http_transfer_that_fails_stops(faulty: str, read: Read, name: str) -> None:
    """Whatever was read until then is no data set."""
    (file,) = find_files([f"{faulty}/{name}?signature=secret"], BASE)
    for use in (read, stored_sums):
        with pytest.raises(SourceError, match=name.replace(".", r"\.")) as raised:
            use(file)
        assert "secret" not in str(raised.value)


READ_HTTPS = """
import sys
from pathlib import Path
from prep_assets.data.files import find_files
from prep_assets.data.files import stored_sums
from prep_assets.data.read import read_blocks
(file,) = find_files([sys.argv[1]], Path("/nowhere"))
print(sum(len(block.records) for block in read_blocks(file, 0)), stored_sums(file).sha256)
"""


@pytest.mark.cli
def test_https_with_a_certificate_that_is_trusted_and_one_that_is_not(https: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES)
    address, certificate = https

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", READ_HTTPS, f"{address}/a.jsonl"]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)

    trusted = run(SSL_CERT_FILE=str(certificate))
    assert trusted.stdout.split() == ["3000", hashlib.sha256(LINES).hexdigest()], trusted.stderr
    refused = run()
    assert refused.returncode != 0
    assert "SourceError" in refused.stderr
    assert "certificate verify failed" in refused.stderr


def test_a_server_that_is_not_there_is_no_missing_file(faulty: str) -> None:
    port = int(faulty.rpartition(":")[2])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    assert nobody != port
    with pytest.raises(SourceUnavailable, match=r"cannot list .*Client.*[Cc]onnect"):
        find_files([f"http://127.0.0.1:{nobody}/a.jsonl"], BASE)
    with pytest.raises(SourceUnavailable, match=r"cannot list .*503"):
        find_files([f"{faulty}/broken.jsonl"], BASE)


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


class NoCredentialsError(Exception):
    """botocore's errors are no OSError."""


class Locked(fsspec.AbstractFileSystem):
    """A file system that wants credentials."""

    protocol = "locked"

    def isdir(self, path: str, **options: Any) -> bool:
        raise NoCredentialsError("Unable to locate credentials")

    ls = info = find = isdir


def test_a_file_system_without_credentials_stops_and_says_so() -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    for pattern in ("locked://bucket/a.jsonl", "locked://bucket/*.jsonl", "locked://bucket/"):
        with pytest.raises(SourceError, match=r"cannot list .*Unable to locate credentials\. Check the address, the credentials"):
            find_files([pattern], BASE)
    with pytest.raises(SourceError, match=r"cannot look at .*Unable to locate credentials"):
        urls.look("locked://bucket/a.jsonl")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket `bucket` of a local S3 server; gives its boto3 client."""
    s3fs = pytest.importorskip("s3fs", reason="s3:// needs s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # those of another test ask its server
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


class Counted(fsspec.AbstractFileSystem):
    """A bucket of ten thousand objects that counts what it is asked."""

    protocol = "counted"
    asked: ClassVar[list[str]] = []
    cachable = False

    def find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any) -> Any:
        self.asked.append("list")
        names = (f"bucket/set/{number:06d}.jsonl" for number in range(10_000))
        return {name: {"name": name, "size": 7, "ETag": f'"{name}"', "type": "file"} for name in names}

    def isdir(self, path: str) -> bool:
        return True

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self.asked.append(path)
        return {"name": path, "size": 7, "ETag": f'"{path}"', "type": "file"}


def test_ten_thousand_objects_are_looked_at_in_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object was asked for its size, and for its version at every look."""
    fsspec.register_implementation("counted", Counted, clobber=True)
    monkeypatch.setattr(Counted, "asked", [])
    files = find_files(["counted://bucket/set/"], BASE)
    assert (len(files), files[7].size, Counted.asked) == (10_000, 7, ["list"])
    known = [Pin(file.name, 7, "0" * 64, "", fingerprint(file), file.url) for file in files[:2]]
    monkeypatch.setattr(Counted, "asked", [])
    assert pin_files(files[:2], known) == tuple(known)
    assert Counted.asked == []


def test_what_a_list_of_s3_says_of_an_object_is_what_the_object_says(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="only/a.jsonl", Body=LINES)
    for pattern in ("s3://bucket/only", "s3://bucket/only/*"):
        [file] = find_files([pattern], BASE)
        assert file.listed == fingerprint(file) != ""
    s3.put_object(Bucket="bucket", Key="only/b.jsonl", Body=LINES)
    assert len(find_files(["s3://bucket/only"], BASE)) == 2
