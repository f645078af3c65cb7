"""JSON that could mean two things, or that nobody can read, is refused wherever a file holds JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from prep_assets.config.loading import read_tombstones
from prep_assets.data.files import find
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import PrepAssetsError
from prep_assets.schemas.sniff import read_dataset_info
from prep_assets.stores.bucket_backend import Catalog
from prep_assets.stores.files import MOST_NESTED, KeyTwice, loads
from prep_assets.stores.guards import UNGUARDED, load_json
from prep_assets.stores.manifest import Manifest, parse_results
from prep_assets.stores.readers import read_bin
from prep_assets.text.tokenizer_files import read_object, templates_by_name

DEEP = b'{"a":' * 30_000
TWICE = b'{"a": 1, "b": {"c": 1, "c": 2}}'


def test_json_is_what_the_library_reads() -> None:
    assert loads(b'{"a": [1, 1.5, null, "\xc3\xa9"], "b": {"a": {}}}') == {"a": [1, 1.5, None, "é"], "b": {"a": {}}}
    deepest = "[" * MOST_NESTED + "]" * MOST_NESTED
    assert loads(deepest) == json.loads(deepest)
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        loads(f"[{deepest}]")


@pytest.mark.parametrize("text", [TWICE, b'{"a": 1, "\\u0061": 2}', b'[{"": 1, "": 1}]'])
def test_a_key_that_stands_twice_is_refused(text: bytes) -> None:
    with pytest.raises(KeyTwice, match="stands twice"):
        loads(text)


def _file(name: str, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    def feed(folder: Path, data: bytes) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    return feed


READERS: dict[str, Callable[[Path, bytes], object]] = {
    "manifest": lambda _, data: Manifest.parse(data, "manifest.json"),
    "catalog": lambda _, data: Catalog.parse(data, "s3://b/s"),
    "dataset_info": lambda _, data: read_dataset_info(data.decode("utf-8", "replace"), "dataset_info.json"),
    "tombstones": _file("forgotten.jsonl", read_tombstones),
    "saved data set": _file("state.json", lambda folder: list(find(str(folder), folder))),
    "meta.json": _file("meta.json", lambda folder: read_bin(folder / "meta.json")),
    "sources.json": _file("sources.json", lambda folder: load_json(folder / "sources.json", UNGUARDED)),
    "tokenizer_config.json": _file("tokenizer_config.json", lambda folder: read_object(folder / "tokenizer_config.json")),
}


OBJECT, NUMBER = b'{"generation": 1e999, "versions": [], "done": []}', b"7"
UNREADABLE = [DEEP, TWICE, b"\xff", b"[" * 600, OBJECT, NUMBER]
ANY_JSON = {("sources.json", OBJECT), ("sources.json", NUMBER), ("tokenizer_config.json", OBJECT)}
"""What these readers take, because they ask for no more than JSON, or an object."""


@pytest.mark.parametrize(("name", "data"), [each for each in product(READERS, UNREADABLE) if each not in ANY_JSON])
def test_what_nobody_can_read_is_told_in_words(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(PrepAssetsError):
        READERS[name](tmp_path, data)


def test_what_is_only_remembered_is_made_again(tmp_path: Path) -> None:
    assert parse_results(DEEP, "a") is None
    assert parse_results(b'{"content_hash": "a", "content_hash": "a", "checks": {}}', "a") is None
    (tmp_path / "q.jsonl").write_bytes(DEEP)
    with pytest.raises(PrepAssetsError):
        list(read_quarantine(tmp_path / "q.jsonl"))


@pytest.mark.parametrize("value", [1.5, True, ["a"], [{"name": ["a"], "template": "b"}], {"a": 1}])
def test_templates_of_a_strange_kind_are_none(value: object) -> None:
    assert templates_by_name(value) == {}
