"""JSONL payloads, their order and their index."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.loading import read_tombstones
from prep_assets.data.files import find
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.extensions.buckets.backend import Catalog
from prep_assets.extensions.preprocess.dataset_info import read_dataset_info
from prep_assets.stores import arrays
from prep_assets.stores import writer as writer_of
from prep_assets.stores.files import MOST_NESTED, KeyTwice, loads
from prep_assets.stores.guards import UNGUARDED, load_json
from prep_assets.stores.manifest import Manifest, parse_results
from prep_assets.stores.shards import read_bin
from prep_assets.stores.table import LINES, open_stream
from prep_assets.stores.writer import TableWriter
from prep_assets.text.tokenizer_files import read_object
from prep_assets_tests.effort import examples
from prep_assets_tests.peak import peak

Rows = list[dict[str, Any]]
ROWS = st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.integers() | st.none(), max_size=3), max_size=30)


def write(directory: Path, rows: Rows, seed: int | None = None) -> None:
    with TableWriter(directory, "pairs", LINES, domains=("hh", "ultra"), shuffle_seed=seed) as writer:
        for number, row in enumerate(rows):
            writer.append_object(row, number // 7, 1000 + number, number % 2)
        assert len(writer) == len(rows)


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.none() | st.integers(0, 2**40))
def test_lines_and_index_have_the_order_that_random_gives(rows: Rows, seed: int | None) -> None:
    """The reference shuffles the lines themselves, with their origin."""
    expected = [(json.dumps(row), number % 2, number // 7, 1000 + number) for number, row in enumerate(rows)]
    if seed is not None:
        random.Random(seed).shuffle(expected)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), rows, seed)
        text = (Path(name) / "pairs.jsonl").read_bytes().decode("ascii")
        assert text == "".join(f"{line}\n" for line, *_ in expected)
        lines = open_stream(Path(name), "pairs")
        index = zip(*(getattr(lines.origins, field).tolist() for field in ("domain", "file", "row")), strict=True)
        assert list(index) == [tuple(origin) for _, *origin in expected]
        assert list(lines) == [json.loads(line) for line, *_ in expected]
        assert (len(lines), lines.origins.domains) == (len(rows), ("hh", "ultra"))


def test_lines_left_by_an_exception_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TableWriter(tmp_path, "pairs", LINES, domains=()) as writer:
        writer.append_object({}, 0, 0)
        raise KeyboardInterrupt
    with pytest.raises(StoreError, match="has no lines 'pairs'"):
        open_stream(tmp_path, "pairs")


@pytest.mark.parametrize("change", ["one less", "one more"])
def test_another_number_of_lines_is_found_at_open(tmp_path: Path, change: str) -> None:
    write(tmp_path, [{"a": 1}, {"a": 2}])
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n" if change == "one more" else b'{"a": 1}\n')
    with pytest.raises(StoreError, match=rf"pairs.jsonl: {3 if change == 'one more' else 1} lines, .* 2"):
        open_stream(tmp_path, "pairs")


@pytest.mark.parametrize("field", ["source", "file", "row"])
def test_an_index_cut_short_is_found_at_open(tmp_path: Path, field: str) -> None:
    write(tmp_path, [{"a": 1}, {"a": 2}])
    path = tmp_path / "pairs.index" / f"{field}.npy"
    np.save(path, np.load(path)[:-1])
    with pytest.raises(StoreError, match=rf"fields of different lengths: .*'{field}': 1"):
        open_stream(tmp_path, "pairs")


@pytest.mark.parametrize("seed", [pytest.param(None, marks=pytest.mark.soak), 5])
def test_memory_does_not_grow_with_the_number_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None) -> None:
    """Five numbers and a place in the order were held for each line: 50 bytes, and as many again at the end."""
    monkeypatch.setattr(arrays, "RECENT", 1 << 14)
    monkeypatch.setattr(writer_of, "AT_ONCE", 256)

    def lines(name: str, count: int) -> None:
        with TableWriter(tmp_path, name, LINES, domains=("a",), shuffle_seed=seed) as writer:
            for number in range(count):
                writer.append_line(b"{}\n", 0, number)

    lines("warm", 500)
    one, other = peak(lambda: lines("few", 2_000)), peak(lambda: lines("pairs", 12_000))
    assert other - one < 30 * 10_000  # files gather a MiB each: 3 bytes of a line, 16 of its index
    order = list(range(12_000))
    if seed is not None:
        random.Random(seed).shuffle(order)
    assert open_stream(tmp_path, "pairs").origins.row.tolist() == order


# -- JSON that could mean two things, or that nobody can read, is refused wherever a file holds JSON --------------------------------------

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
    "meta.json": _file("meta.json", lambda folder: read_bin(folder / "meta.json", UNGUARDED)),
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
