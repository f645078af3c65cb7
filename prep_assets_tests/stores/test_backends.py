"""What holds of a store wherever it is kept: on disk, in memory, and behind a server of S3 that fails all the time,
behind one of Google Cloud's protocol, and behind one of Azure where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from harness.workloads import FORMATS
from harness.workloads import publish as publish_payload
from xxhash import xxh3_64_hexdigest

from prep_assets import load, plugins
from prep_assets.errors import StoreError
from prep_assets.extensions.buckets.bucket import Bucket
from prep_assets.extensions.training.opening import payload_folders
from prep_assets.stores.published import Place
from prep_assets.stores.remote import local_root, remote_of
from prep_assets.stores.version_folders import LocalBackend, Published

OLD, NEW = "a" * 64, "b" * 64
Publish = Callable[..., Published]
Contents = Callable[[Path], dict[str, bytes]]


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "disk":
        yield Place(tmp_path / "stores", "sft_tokens", "gsm8k")
        return
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    if request.param != "memory":
        request.getfixturevalue({"s3": "failing_s3", "az": "azure", "gs": "google"}[request.param])
    yield Place(local_root(f"{request.param}://bucket/{sha256(str(tmp_path).encode()).hexdigest()}"), "sft_tokens", "gsm8k")


everywhere = pytest.mark.parametrize("place", ["disk", "memory", "s3", "az", "gs"], indirect=True)


class Kept(Protocol):
    """Files of a place where it is kept."""

    def get(self, key: str) -> bytes: ...
    def put(self, key: str, data: bytes) -> None: ...
    def delete(self, key: str) -> None: ...


class _Disk:
    def __init__(self, folder: Path) -> None:
        self.get = lambda key: (folder / key).read_bytes()
        self.put = lambda key, data: (folder / key).write_bytes(data)
        self.delete = lambda key: (folder / key).unlink()


class _Bucket:
    def __init__(self, bucket: Bucket) -> None:
        self.get = lambda key: b"".join(bucket.read(key))
        self.put, self.delete = bucket.put, bucket.delete


def kept(place: Place) -> Any:
    remote = remote_of(place.directory)
    return _Disk(place.directory) if remote is None else _Bucket(Bucket(remote.url))


def current_of(place: Place) -> Path:
    current = place.current()
    assert current is not None
    return current.directory


@everywhere
def test_every_file_of_a_version_is_kept_as_it_was_built(place: Place, publish: Publish) -> None:
    files = {"sub/x.bin": b"\x00\x01", "y.txt": b"y"}
    published, found = publish(files=files, refused=b"{}\n"), kept(place)
    manifest, version = published.manifest, f"versions/{published.version}"
    assert published.version == f"{OLD[:20]}-{manifest.content_hash[:12]}"
    assert found.get(f"{version}/manifest.json") == manifest.text.encode()
    assert {name: found.get(f"{version}/{name}") for name in manifest.files} == files
    assert manifest.files == {
        name: {"bytes": len(data), "sha256": sha256(data).hexdigest(), "blocks": xxh3_64_hexdigest(data)} for name, data in files.items()
    }
    quarantine = f"{version}.quarantine.jsonl"
    assert (found.get(quarantine), manifest.quarantine) == (b"{}\n", sha256(b"{}\n").hexdigest())
    assert published.quarantine is not None and published.quarantine.name == f"{published.version}.quarantine.jsonl"
    assert (published.quarantine.parent, published.quarantine.read_bytes()) == (published.directory.parent, b"{}\n")
    published.verify()
    found.delete(quarantine)
    with pytest.raises(StoreError, match=r"quarantine.jsonl: missing"):
        published.verify()
    unrefused = publish(NEW)
    assert (unrefused.quarantine, unrefused.manifest.quarantine) == (None, "")


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "no manifest", "quarantine"])
def test_a_damaged_payload_is_rebuilt(place: Place, publish: Publish, contents: Contents, damage: str) -> None:
    published = publish(files={"x.bin": b"12345"}, refused=b"{}\n")
    sound, found, version = contents(published.directory), kept(place), f"versions/{published.version}"
    match damage:
        case "flip":
            found.put(f"{version}/x.bin", b"12344")
        case "truncate":
            found.put(f"{version}/x.bin", b"1234")
        case "remove":
            found.delete(f"{version}/x.bin")
        case "manifest":
            found.put(f"{version}/manifest.json", b'{"files": []}')
        case "no manifest":
            found.delete(f"{version}/manifest.json")
        case "quarantine":
            found.put(f"{version}.quarantine.jsonl", b"{ }\n")
    rebuilt = publish(files={"x.bin": b"12345"}, refused=b"{}\n")
    assert not rebuilt.reused
    assert contents(rebuilt.directory) == sound
    rebuilt.verify()


@everywhere
def test_prune_leaves_what_is_read_readable_and_what_is_pointed_to_alone(place: Place) -> None:
    publish_payload(place, OLD, FORMATS["tokens bin"])
    reader = load(place.directory)
    tokens = reader.fetch(0, 3000, "sequence").tolist()
    publish_payload(place, NEW, FORMATS["lines"])
    candidate = publish_payload(place, "c" * 64, FORMATS["lines"], seed=2, accept=False)
    place.remove_unused()
    assert reader.fetch(0, 3000, "sequence").tolist() == tokens
    del reader
    place.remove_unused()
    assert place.unused() == ()
    assert set(place.backend.names()) == {place.backend.pointers().current, candidate.version}
    current_of(place)


def test_build_keys_with_one_prefix_are_not_confused(publish: Publish) -> None:
    """The folder's name is the first 20 characters of the key; the manifest has all of them."""
    publish("a" * 20 + "1" * 44, {"x": b"1"})
    second = publish("a" * 20 + "2" * 44, {"x": b"2"})
    assert not second.reused
    assert (second.directory / "x").read_bytes() == b"2"


class Shelf(NamedTuple):
    """What another package may add: stores in a folder that an address names."""

    url: str

    @property
    def is_store(self) -> bool:
        return bool(self._local.names())

    def folders(self) -> list[str]:
        return sorted(path.name for path in self._local.directory.glob("[!v]*"))

    def below(self, path: str) -> Shelf:
        return Shelf(f"{self.url}/{path}")

    def backend(self, mirror: LocalBackend) -> LocalBackend:
        return self._local

    @property
    def _local(self) -> LocalBackend:
        return LocalBackend(Path(self.url.removeprefix("shelf:/")))


def test_another_package_adds_a_scheme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(plugins, "_others", lambda: (EntryPoint("shelf", f"{__name__}:Shelf", "prep_assets.backends"),))
    root = local_root(f"shelf:/{tmp_path}/there")
    published = publish_payload(Place(root, "sft_tokens", "gsm8k"), NEW, FORMATS["lines"])
    assert published.directory.is_relative_to(tmp_path / "there" / "sft_tokens" / "gsm8k")
    assert payload_folders(root) == [published.directory]
