"""What a manifest notices, and what it says about it."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from harness.workloads import FORMATS, publish
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from prep_assets import load
from prep_assets.errors import StoreError
from prep_assets.stores import files as digests
from prep_assets.stores.files import Digests, Kept
from prep_assets.stores.guards import Verify
from prep_assets.stores.manifest import Manifest, Result, Ruled, Worst, digest, parse_results, payload_faults, results_text
from prep_assets.stores.published import Place, open_published
from prep_assets.stores.remote import local_root, remote_of
from prep_assets.stores.version_folders import Published
from prep_assets_tests.peak import peak
from prep_assets_tests.stores.payload import list_payload

FILES = {"a.bin": bytes(range(200)), "sub/b.bin": b"x" * 1234, "sub/manifest.json": b"the payload's own", "empty": b""}


def hash_of(content: bytes | bytearray) -> str:
    return sha256(content).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Manifest]:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    files = {
        name: {"bytes": len(content), "sha256": hash_of(content), "blocks": xxh3_64_hexdigest(content) if content else ""}
        for name, content in FILES.items()
    }
    manifest = Manifest("a", "p", "k", "c", {"x": [1, "é"]}, {"read": 1}, {"fill_rate": 0.5}, files, ("sound",), "")
    manifest.write(tmp_path)
    return tmp_path, manifest


def test_the_payload_is_everything_but_the_manifest_itself(store: tuple[Path, Manifest]) -> None:
    """A payload may have a file of that name further down."""
    directory, manifest = store
    listed = list_payload(directory)
    assert listed == manifest.files
    assert list(listed) == sorted(FILES)


def test_a_manifest_comes_back_as_it_was_written(store: tuple[Path, Manifest]) -> None:
    directory, manifest = store
    assert Manifest.read(directory) == manifest
    again = directory / "again"
    again.mkdir()
    Manifest.read(directory).write(again)
    assert (again / "manifest.json").read_bytes() == (directory / "manifest.json").read_bytes()


FLIPPED = FILES["sub/b.bin"][:1000] + b"y" + FILES["sub/b.bin"][1001:]
ALTERED = "sub/b.bin: content altered in bytes 0 to 1,234: sha256 is {}…, the manifest says {}…"


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (
            lambda folder: (folder / "sub/b.bin").write_bytes(FLIPPED),
            ALTERED.format(hash_of(FLIPPED)[:16], hash_of(FILES["sub/b.bin"])[:16]),
        ),
        (lambda folder: (folder / "sub/b.bin").write_bytes(b"x" * 1233), "sub/b.bin: 1,233 bytes, the manifest says 1,234"),
        (lambda folder: (folder / "sub/b.bin").unlink(), "sub/b.bin: missing; the manifest lists it with 1,234 bytes"),
        (lambda folder: (folder / "sub/.DS_Store").write_bytes(b""), "sub/.DS_Store: not in the manifest"),
        (lambda folder: None, None),
    ],
)
def test_a_fault_of_a_file_is_named(store: tuple[Path, Manifest], harm: Callable[[Path], object], fault: str | None) -> None:
    directory, manifest = store
    harm(directory)
    assert payload_faults(directory, manifest) == ([fault] if fault else [])


def test_every_fault_is_named(store: tuple[Path, Manifest]) -> None:
    directory, manifest = store
    (directory / "a.bin").unlink()
    (directory / "empty").write_bytes(b"1")
    (directory / "z").write_bytes(b"")
    (directory / "sub/manifest.json").write_bytes(b"The payload's own")
    named = [fault.split(":")[0] for fault in payload_faults(directory, manifest)]
    assert named == ["a.bin", "empty", "sub/manifest.json", "z"]
    with pytest.raises(StoreError) as caught:
        Published(directory, manifest).verify()
    assert str(caught.value).count("\n") == 4


@pytest.mark.parametrize("sizes", [(9, 9), (9, 5)], ids=["equally long", "of other lengths"])
def test_two_shards_swapped(tmp_path: Path, sizes: tuple[int, int]) -> None:
    shards = [tmp_path / f"shard_{number:04d}" / "sequence.bin" for number in range(2)]
    for number, (path, size) in enumerate(zip(shards, sizes, strict=True)):
        path.parent.mkdir()
        path.write_bytes(bytes([number]) * size)
    manifest = Manifest("sft_tokens", "", "k", "k", {}, {}, {}, list_payload(tmp_path))
    shards[0].parent.rename(tmp_path / "third")
    shards[1].parent.rename(shards[0].parent)
    (tmp_path / "third").rename(shards[1].parent)
    assert payload_faults(tmp_path, manifest) == [
        "shard_0000/sequence.bin: swapped: it holds what the manifest lists as shard_0001/sequence.bin",
        "shard_0001/sequence.bin: swapped: it holds what the manifest lists as shard_0000/sequence.bin",
    ]


def _changed(value: Any) -> Any:
    match value:
        case dict():
            return {**value, "other": 1}
        case list():
            return [*value, "other"]
        case str():
            return value + "x"
        case _:
            return value + 1


@pytest.mark.parametrize("field", [each.name for each in fields(Manifest)])
def test_an_edited_manifest_says_so(store: tuple[Path, Manifest], field: str) -> None:
    path = store[0] / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, field: _changed(content.get(field, ""))}))
    with pytest.raises(StoreError, match=r"manifest.json cannot be read .*Build the store again"):
        Manifest.read(store[0])


def test_an_edited_seal_says_what_it_is_and_what_it_should_be(store: tuple[Path, Manifest]) -> None:
    path = store[0] / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "seal": "0" * 64}))
    with pytest.raises(StoreError, match=f"has the hash {content['seal'][:16]}…, its seal is {'0' * 16}…"):
        Manifest.read(store[0])


def _without(field: str) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: {name: value for name, value in fields.items() if name != field}


@pytest.mark.parametrize(
    "edit",
    [
        *(lambda fields, content=content: content for content in (b"", b"{", b"\xff\xfe", b'{"asset": "a"')),
        lambda fields: [fields],
        lambda fields: None,
        lambda fields: {**fields, "foreign": 1},
        lambda fields: {**fields, "files": []},
        lambda fields: {**fields, "files": {"a.bin": {}}},
        lambda fields: {**fields, "files": {"a.bin": {"bytes": "200", "sha256": "0"}}},
        lambda fields: {**fields, "files": {"a.bin": "0"}},
        lambda fields: {**fields, "checks": 3},
        _without("checks"),
        _without("files"),
        _without("build_key"),
    ],
)
def test_a_manifest_that_is_none_cannot_be_read(store: tuple[Path, Manifest], edit: Callable[[dict[str, Any]], Any]) -> None:
    path = store[0] / "manifest.json"
    edited = edit(json.loads(path.read_text()))
    path.write_bytes(edited if isinstance(edited, bytes) else json.dumps(edited).encode())
    with pytest.raises(StoreError, match=r"manifest.json cannot be read .*Build the store again"):
        Manifest.read(store[0])


def test_no_manifest_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a store: it has no manifest.json"):
        Manifest.read(tmp_path)


def test_digests_of_different_values_differ() -> None:
    values = [{}, [], "", 0, None, False, {"a": 1}, {"a": "1"}, {"a": [1]}, {"a": 1, "b": None}, [1, 2], [2, 1], "é", "e\u0301"]
    assert len({digest(value) for value in values}) == len(values)


# -- What was found is kept on disk, and a file that cannot be right counts as none -------------------------------------------------------

FOUND = b"0123456789"
KEPT = Kept("some", 3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path))
    return tmp_path / "some"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: b"", lambda data: data.replace(b"45", b"46"), lambda data: b"\xff" + data]
)
def test_a_damaged_file_is_none(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert KEPT.find("a") is None
    KEPT.keep("a", FOUND)
    assert KEPT.find("a") == FOUND
    (folder / "a").write_bytes(damage((folder / "a").read_bytes()))
    assert KEPT.find("a") is None
    KEPT.keep("a", b"")
    assert KEPT.find("a") == b""


def test_one_keys_file_is_not_anothers(folder: Path) -> None:
    KEPT.keep("a", FOUND)
    (folder / "a").rename(folder / "b")
    assert KEPT.find("b") is None


def test_of_many_entries_an_eighth_goes_at_a_time(folder: Path) -> None:
    """Each build looked at every one of 4,096 files, which took longer than a small build."""
    kept = Kept("some", 16)
    for number in range(17):
        kept.keep(f"{number:02}", FOUND)
        os.utime(folder / f"{number:02}", (number, number))
        assert len(list(folder.iterdir())) == (14 if number == 16 else number + 1)
    assert min(path.name for path in folder.iterdir()) == "03"


def test_many_may_write_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Kept("some", 99).keep("a", FOUND), range(50)))
    assert KEPT.find("a") == FOUND and len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for named in (str(tmp_path / "file"), ""):
        monkeypatch.setenv("PREP_ASSETS_CACHE", named)
        KEPT.keep("a", FOUND)
        assert KEPT.find("a") is None


def test_without_a_name_it_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREP_ASSETS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    KEPT.keep("a", FOUND)
    assert (tmp_path / "prep-assets" / "some" / "a").is_file()


# -- Digests that came before, against a plain set; and what they take --------------------------------------------------------------------

HALVES = st.one_of(st.integers(0, 5), st.integers(0, 5).map(lambda n: n << 20), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(HALVES, HALVES), max_size=200))
def test_they_are_a_set(numbers: list[tuple[int, int]]) -> None:
    """Many share a slot; halves of some are 0."""
    found, plain = Digests(), set[bytes]()
    for low, high in numbers:
        digest = struct.pack("<QQ", 2 * low, high)
        assert (digest in found) == (digest in plain)
        assert found.add(digest) == (digest not in plain)
        plain.add(digest)
    assert len(found) == len(plain) and all(digest in found for digest in plain)


@given(st.lists(st.lists(st.tuples(HALVES, HALVES), max_size=60), max_size=6), st.sampled_from([2, 1 << 14]))
def test_many_at_once_are_numbered_as_a_dictionary_does(blocks: list[list[tuple[int, int]]], slots: int) -> None:
    """Of a digest with a number, the upper bits of its second half are gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "IN_MEMORY", slots)
        found, known, number = Digests(numbered=True), dict[tuple[int, int], int](), 0
        for block in blocks:
            expected = []
            for low, high in block:
                first = known.setdefault((max(low, 1), high % 2**24), number)
                expected.append(-1 if first == number else first)
                number += 1
            numbers = np.arange(number - len(block), number)
            assert found.firsts(np.array(block, np.uint64).reshape(-1, 2), numbers).tolist() == expected
        assert len(found) == len(known)


def test_numbers_take_forty_bits() -> None:
    found, digest = Digests(numbered=True), np.array([[7, 9]], np.uint64)
    assert found.firsts(digest, np.array([2**40 - 1])).tolist() == [-1]
    assert found.firsts(digest, np.array([0])).tolist() == [2**40 - 1]


def many(count: int) -> Digests:
    found = Digests()
    for number in range(count):
        assert found.add(blake2b(number.to_bytes(8, "little"), digest_size=16).digest())
    return found


@pytest.mark.parametrize("slots", [2, 1 << 14])
def test_a_table_grows_into_a_file(monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    monkeypatch.setattr(digests, "IN_MEMORY", slots)
    found = many(15_000)
    assert len(found) == 15_000
    assert not any(found.add(blake2b(number.to_bytes(8, "little"), digest_size=16).digest()) for number in range(0, 15_000, 7))
    assert blake2b(b"else", digest_size=16).digest() not in found


def test_memory_does_not_grow_with_their_number() -> None:
    """A set takes a hundred bytes for each."""
    assert peak(lambda: many(40_000)) < 2 * 16 * digests.IN_MEMORY


def test_a_full_disk_is_told_and_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"No space left on device: '.+'"):
        many(15_000)


# -- A store in which damage was found: nothing reads it any more, whatever it compares, until another one is published -------------------

OLD, NEW = "a" * 64, "b" * 64
DAMAGED_FOUND = {"file_hashes": Result(False, "scrub: bytes 0 to 9 of train.bin are not what they were")}
SAID = r"is damaged, so nothing reads it: scrub: bytes 0 to 9 of train\.bin are not what they were\. Build"


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    bucket = f"memory://bucket/{sha256(str(tmp_path).encode()).hexdigest()}"
    yield Place(tmp_path / "stores" if request.param == "disk" else local_root(bucket), "t", "part")


def made(place: Place, key: str = OLD, *, accept: bool = True) -> Published:
    return publish(place, key, FORMATS["tokens bin"], accept=accept)


def test_no_way_leads_to_it(place: Place) -> None:
    old = made(place)
    reader = load(place.directory, verify="off")
    before, sent, folder = reader.fetch(0, 9, "sequence").tolist(), pickle.dumps(reader), old.directory
    assert place.set_aside(old, DAMAGED_FOUND)
    for verify in get_args(Verify):
        for path in (place.directory, place.root / "t"):
            with pytest.raises(StoreError, match=SAID):
                load(path, verify=verify)
    with pytest.raises(StoreError, match=SAID + r" it again:\n  build it"):
        open_published(place.root, "t", "part", remedy="build it")
    if remote_of(place.directory) is None:
        for again in (lambda: load(folder, verify="off"), lambda: load(folder / "train"), lambda: pickle.loads(sent)):
            with pytest.raises(StoreError, match=SAID + r" it again:\n  prep-assets build t --partition part"):
                again()
        assert not (place.directory / "current").exists()
    assert reader.fetch(0, 9, "sequence").tolist() == before  # what is open stays open


def test_killed_between_the_two_pointers_it_is_not_read_either(tmp_path: Path) -> None:
    place = Place(tmp_path, "t", "part")
    old = made(place)
    place.set_aside(old, DAMAGED_FOUND)
    (place.directory / "current").symlink_to(f"versions/{old.version}")
    assert (place.pointers.current, place.pointers.damaged) == ("", old.version)
    with pytest.raises(StoreError, match=SAID):
        load(place.directory, verify="off")


def test_killed_before_the_pointer_is_removed_the_new_store_is_read(tmp_path: Path) -> None:
    place = Place(tmp_path, "t", "part")
    old = made(place)
    place.set_aside(old, DAMAGED_FOUND)
    new = made(place, NEW)
    (place.directory / "damaged").symlink_to(f"versions/{old.version}")
    assert (place.pointers.current, place.pointers.damaged, place.unused()) == (new.version, "", (old.version,))
    assert load(place.directory).fetch(0, 9, "sequence").tolist() == load(new.directory).fetch(0, 9, "sequence").tolist()
    made(place, NEW)
    assert not (place.directory / "damaged").is_symlink()


# -- what checks said -------------------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(), max_size=9) | st.just("\ud800")
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False)
WORST = st.builds(
    Worst, TEXTS, TEXTS, st.lists(st.integers(0, 2**31)).map(tuple), st.lists(st.floats(0, 1)).map(tuple), st.integers(-1, 9),
    st.lists(st.tuples(TEXTS, TEXTS)).map(tuple),
)  # fmt: skip
RULED = st.none() | st.builds(Ruled, TEXTS, TEXTS, st.dictionaries(TEXTS, NUMBERS))
RESULTS = st.builds(Result, st.booleans(), TEXTS, st.dictionaries(TEXTS, NUMBERS), st.none() | WORST, st.booleans(), RULED)


@given(st.dictionaries(TEXTS, RESULTS))
def test_results_are_read_as_they_were_written(results: dict[str, Result]) -> None:
    assert parse_results(results_text(OLD, results).encode(), OLD) == results
    assert parse_results(results_text(OLD, results).encode(), NEW) is None


def test_results_of_earlier_versions_and_figures_of_numpy_are_read() -> None:
    assert parse_results(b'{"content_hash": "a", "checks": {"sound": [false, "3 rows"]}}', "a") == {"sound": Result(False, "3 rows")}
    worst = Worst("row 1", "wrong", (np.uint16(3), 4), (np.float32(0.5),), np.int64(0))  # type: ignore[arg-type]
    result = Result(False, "", {"rows": np.int64(7)}, worst)  # type: ignore[dict-item]
    assert parse_results(results_text("a", {"sound": result}).encode(), "a") == {"sound": result}


@pytest.mark.parametrize("checks", ["[]", "3", '{"a": 1}', '{"a": []}', '{"a": [1, ""]}', '{"a": [true, "", {}, {"where": 3}]}'])
def test_results_that_are_damaged_are_none(checks: str) -> None:
    assert parse_results(f'{{"content_hash": "a", "checks": {checks}}}'.encode(), "a") is None
