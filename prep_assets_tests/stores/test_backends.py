"""What holds of a store wherever it is kept: on disk, in memory, and behind a server of S3 that fails all the time,
behind one of Google Cloud's protocol, and behind one of Azure where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import pytest

from prep_assets.errors import CheckFailed, StoreError
from prep_assets.stores.bucket import Bucket, bucket_of, local_root
from prep_assets.stores.manifest import Result
from prep_assets.stores.open import open_store
from prep_assets.stores.published import Place, open_published
from prep_assets.stores.version_folders import Published
from prep_assets_tests.harness.workloads import FORMATS
from prep_assets_tests.harness.workloads import publish as publish_payload

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
    bucket = bucket_of(place.directory)
    return _Disk(place.directory) if bucket is None else _Bucket(bucket)


def current_of(place: Place) -> Path:
    current = place.current()
    assert current is not None
    return current.directory


def versioned(place: Place, published: Published) -> Published:
    return place.backend.published(published.version)


@everywhere
def test_every_file_of_a_version_is_kept_as_it_was_built(place: Place, publish: Publish) -> None:
    published = publish(files={"sub/x.bin": b"\x00\x01", "y.txt": b"y"}, refused=b"{}\n")
    found = kept(place)
    assert found.get(f"versions/{published.version}/sub/x.bin") == b"\x00\x01"
    assert found.get(f"versions/{published.version}/manifest.json") == published.manifest.text.encode()
    assert found.get(f"versions/{published.version}.quarantine.jsonl") == b"{}\n"
    assert published.version == f"{OLD[:20]}-{published.manifest.content_hash[:12]}"


def test_a_new_key_moves_current_and_leaves_the_old_version(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"})
    assert (current_of(place) / "x").read_bytes() == b"new"
    assert (old.directory / "x").read_bytes() == b"old"
    versioned(place, old).verify()
    assert place.current() == new


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
def test_a_damaged_current_store_is_replaced_only_when_its_successor_is_accepted(place: Place, publish: Publish) -> None:
    """The repair used to go live before its checks, and a kill between two renames left `current` pointing nowhere."""
    damaged = publish(files={"x.bin": b"12345"})
    kept(place).put(f"versions/{damaged.version}/x.bin", b"1234")
    rebuilt = publish(files={"x.bin": b"12345"}, accept=False)
    current, candidate = place.current(), place.candidate()
    assert current is not None and current.version == damaged.version
    assert candidate is not None and candidate.version == rebuilt.version
    place.accept(rebuilt, {})
    assert (current_of(place) / "x.bin").read_bytes() == b"12345"
    assert publish(files={"x.bin": b"never"}).version == rebuilt.version
    version = damaged.version
    del current, candidate, damaged
    assert place.remove_unused() == (version,)
    assert publish(files={"x.bin": b"never"}).reused


@everywhere
def test_prune_leaves_what_is_read_readable_and_what_is_pointed_to_alone(place: Place) -> None:
    publish_payload(place, OLD, FORMATS["tokens bin"])
    reader = open_store(place.directory)
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


def test_two_builds_of_one_key_that_differ_are_told(publish: Publish) -> None:
    publish(OLD, {"x": b"1"})
    assert "two builds of one key differ, in x" in publish(OLD, {"x": b"2"}, again=True).notes[0]


def test_going_back_to_an_earlier_key_points_to_it_again(place: Place, publish: Publish) -> None:
    publish(OLD, {"x": b"old"})
    publish(NEW, {"x": b"new"})
    assert publish(OLD).reused
    assert current_of(place).joinpath("x").read_bytes() == b"old"


def test_a_store_that_is_sound_and_wrong_can_be_built_again(place: Place, publish: Publish) -> None:
    """A failed write that published zeros was reused for ever."""
    publish(files={"x": b"000"})
    assert publish(files={"x": b"123"}).reused
    again = publish(files={"x": b"123"}, again=True)
    assert not again.reused
    assert current_of(place).joinpath("x").read_bytes() == b"123"
    assert publish(files={"x": b"123"}).directory.resolve() == again.directory.resolve()


@everywhere
def test_a_draft_moves_nothing_but_the_draft(place: Place, publish: Publish) -> None:
    current, candidate = publish(OLD, {"x": b"old"}), publish("c" * 64, accept=False)
    draft = publish(NEW, {"x": b"new"}, draft=True, accept=False)
    assert place.draft() == draft
    assert place.current() == current
    assert place.candidate() == candidate
    assert place.unused() == ()


def test_a_draft_does_not_say_of_a_store_that_the_configuration_asks_for_it(place: Place, publish: Publish) -> None:
    """The options of a run may give the very store that an older configuration asked for; it stays out of date."""
    old = publish(OLD, config_key=OLD)
    publish(OLD, config_key=NEW, draft=True, accept=False)
    assert versioned(place, old).manifest.config_key == OLD


def test_a_store_that_fails_a_check_is_not_accepted(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"}, accept=False)
    with pytest.raises(StoreError, match=r"is not published: it fails mask_alignment"):
        place.accept(new, {"file_hashes": Result(True, ""), "mask_alignment": Result(False, "3 rows")})
    assert place.current() == old


@everywhere
def test_what_checks_said_is_remembered_of_the_content_that_they_looked_at(place: Place, publish: Publish) -> None:
    published = publish(accept=False)
    assert published.results is None
    place.record(published, {"file_hashes": Result(True, "3 files")})
    place.record(published, {"row_integrity": Result(False, "row 7")})
    assert published.results == {"file_hashes": Result(True, "3 files"), "row_integrity": Result(False, "row 7")}
    assert publish(files={"x": b"other"}, again=True, accept=False).results is None


@everywhere
def test_a_candidate_is_not_current_before_it_is_accepted(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"old"})
    new = publish(NEW, {"x": b"new"}, accept=False)
    assert place.current() == old
    assert place.candidate() == new
    again = publish(NEW, {"x": b"never written"}, accept=False)
    assert again == replace(new, reused=True)
    place.accept(again, {})
    assert place.current() == new
    assert place.candidate() is None


def test_a_candidate_is_forgotten_when_what_is_current_is_asked_for_again(place: Place, publish: Publish) -> None:
    old = publish(OLD)
    publish(NEW, accept=False)
    assert publish(OLD, accept=False).reused
    assert place.candidate() is None
    assert place.current() == old


def test_accepting_one_store_leaves_the_candidate_of_another_build(place: Place, publish: Publish) -> None:
    first = publish(OLD, accept=False)
    second = publish(NEW, accept=False)
    place.accept(first, {})
    assert place.current() == first
    assert place.candidate() == second


def test_a_failing_first_build_leaves_no_store(place: Place, publish: Publish) -> None:
    def audit(payload: Path) -> None:
        raise CheckFailed("no")

    with pytest.raises(CheckFailed):
        publish(audit=audit)
    assert place.current() is None
    with pytest.raises(StoreError, match=r"(?s)sft_tokens\[gsm8k\]: no store in .*Build it with:\n  make it"):
        open_published(place.root, "sft_tokens", "gsm8k", remedy="make it")


def test_content_hash_is_of_the_payload_alone(tmp_path: Path, publish: Publish) -> None:
    one = publish(OLD, {"x": b"1"}).manifest.content_hash
    assert publish(NEW, {"x": b"1"}).manifest.content_hash == one
    assert publish("c" * 64, {"x": b"2"}).manifest.content_hash != one
    assert publish("d" * 64, {"y": b"1"}).manifest.content_hash != one


@everywhere
def test_a_sound_store_that_other_options_ask_for_keeps_its_payload(place: Place, publish: Publish) -> None:
    """The build key decides the bytes; which configuration asks for them is only noted."""
    first = publish(OLD, config_key=OLD)
    payload = first.directory / "notes.txt"
    inode = payload.stat().st_ino

    def never(payload: Path) -> None:
        raise AssertionError("the payload is written again")

    again = publish(OLD, config_key=NEW, audit=never)
    assert again.reused
    assert again.manifest == versioned(place, first).manifest
    assert (again.manifest.config_key, first.manifest.config_key) == (NEW, OLD)
    assert payload.stat().st_ino == inode
    again.verify()


def test_build_keys_with_one_prefix_are_not_confused(publish: Publish) -> None:
    """The folder's name is the first 20 characters of the key; the manifest has all of them."""
    publish("a" * 20 + "1" * 44, {"x": b"1"})
    second = publish("a" * 20 + "2" * 44, {"x": b"2"})
    assert not second.reused
    assert (second.directory / "x").read_bytes() == b"2"


def test_the_quarantine_is_beside_the_store(place: Place, publish: Publish) -> None:
    published = publish(refused=b'{"id": "a"}\n')
    assert published.quarantine == published.directory.parent / f"{published.directory.name}.quarantine.jsonl"
    assert published.quarantine is not None
    assert published.quarantine.read_bytes() == b'{"id": "a"}\n'
    assert published.manifest.quarantine == sha256(b'{"id": "a"}\n').hexdigest()
    assert "quarantine" not in " ".join(published.manifest.files)
    kept(place).delete(f"versions/{published.version}.quarantine.jsonl")
    with pytest.raises(StoreError, match=r"quarantine.jsonl: missing"):
        published.verify()


def test_nothing_refused_is_no_quarantine(publish: Publish) -> None:
    published = publish()
    assert (published.quarantine, published.manifest.quarantine) == (None, "")


@everywhere
def test_a_store_that_was_pruned_is_not_accepted(place: Place, publish: Publish) -> None:
    old = publish("c" * 64)
    first = publish(OLD, accept=False)
    publish(NEW, accept=False)
    place.remove_unused()
    with pytest.raises(StoreError, match=r"sft_tokens\[gsm8k\]: .*aaaa-\w+ cannot be published.*Materialize the asset again"):
        place.accept(first, {})
    found = place.current()
    assert found is not None
    assert found.version == old.version
    candidate = place.candidate()
    assert candidate is not None and candidate.version.startswith(NEW[:20])
