"""What a manifest notices, and what it says about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from prep_assets.errors import StoreError
from prep_assets.stores.manifest import Manifest, digest, payload_faults
from prep_assets.stores.version_folders import Published
from prep_assets_tests.effort import examples
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


def test_a_manifest_of_other_files(store: tuple[Path, Manifest]) -> None:
    directory, manifest = store
    files = {"a.bin": {"bytes": 200, "sha256": "0" * 64}, "empty": {"bytes": 7, "sha256": "1" * 64}}
    assert payload_faults(directory, replace(manifest, files=files)) == [
        f"a.bin: content altered: sha256 is {hash_of(FILES['a.bin'])[:16]}…, the manifest says {'0' * 16}…",
        "empty: 0 bytes, the manifest says 7",
        "sub/b.bin: not in the manifest",
        "sub/manifest.json: not in the manifest",
    ]


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


JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)


@settings(max_examples=examples(30))
@given(st.dictionaries(st.text(max_size=5), JSON, min_size=2, max_size=5))
def test_a_digest_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert digest(value) == digest(dict(reversed(value.items())))


def test_digests_of_different_values_differ() -> None:
    values = [{}, [], "", 0, None, False, {"a": 1}, {"a": "1"}, {"a": [1]}, {"a": 1, "b": None}, [1, 2], [2, 1], "é", "e\u0301"]
    assert len({digest(value) for value in values}) == len(values)
