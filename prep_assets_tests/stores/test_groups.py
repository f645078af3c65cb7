"""Scored groups on disk: whatever is written is read again, by our reader, by `load` and from every export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets import export, load
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.rl.scored import Scored, group_columns, group_dtypes
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.table import GROUPS, open_table
from prep_assets.stores.writer import TableWriter
from prep_assets.training import DatasetFactory
from prep_assets_tests.stored import StoredGroups

tokens = st.lists(st.integers(0, 40_000), min_size=1, max_size=5)
reward = st.floats(width=32, allow_nan=False, allow_infinity=False)
groups = st.lists(
    st.tuples(tokens, st.lists(st.tuples(tokens, st.integers(0, 31), reward), min_size=1, max_size=4)), min_size=1, max_size=8
)
storages = st.sampled_from(["bin", "h5"])


def written(folder: Path, rows: list[Any], storage: Any, *, limit: int = 100, blocks: int = 3) -> Path:
    """Groups in blocks of so many; the mask of a response is the bits of a number."""
    scored = []
    for number, (prompt, answers) in enumerate(rows):
        ids = tuple(np.array(each, np.int32) for each, _, _ in answers)
        masks = tuple(np.array([bits >> i & 1 for i in range(len(each))], np.uint8) for each, bits, _ in answers)
        rewards = np.array([each for _, _, each in answers], np.float32)
        scored.append(Scored(np.array(prompt, np.int32), ids, masks, rewards, number % 2, 3, 100 + number))
    with TableWriter(folder, "", GROUPS, group_dtypes("int32"), storage=storage, domains=["a", "b"], max_tokens_per_shard=limit) as writer:
        for first in range(0, len(scored), blocks):
            writer.append(*group_columns(scored[first : first + blocks]))
    return folder


def expected(rows: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "prompts": prompt,
            "responses": [ids for ids, _, _ in answers],
            "masks": [[bits >> i & 1 for i in range(len(ids))] for ids, bits, _ in answers],
            "rewards": [each for _, _, each in answers],
        }
        for prompt, answers in rows
    ]


def lists(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [part.astype(int).tolist() for part in value] if isinstance(value, list) else value.tolist() for key, value in record.items()
    }


KEYS = ("prompts", "responses", "masks", "rewards")


@given(groups, storages, st.integers(1, 12), st.integers(1, 4))
def test_whatever_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], storage: str, limit: int, blocks: int
) -> None:
    folder = written(tmp_path_factory.mktemp("groups") / "g", rows, storage, limit=limit, blocks=blocks)
    found = StoredGroups(folder)
    origins = found.table.origins
    assert len(found.table) == len(rows)
    assert (origins.domain.tolist(), origins.domains) == ([i % 2 for i in range(len(rows))], ("a", "b"))
    assert origins.row.tolist() == [100 + i for i in range(len(rows))]
    store = load(folder)
    assert [lists(store.fetch_record(i, KEYS)) for i in range(store.num_records)] == expected(rows)
    table = open_table(folder)
    out = export(table, "astrai", folder / "astrai")
    data = DatasetFactory.load("grpo", out)
    assert [{key: lists_of(item[key]) for key in KEYS} for item in data] == expected(rows)
    arrow = pa.ipc.open_stream(next(export(table, "hf_arrow", folder / "hf").glob("*.arrow"))).read_all()
    as_written = [{key.replace("prompt_ids", "prompts"): value for key, value in row.items()} for row in arrow.to_pylist()]
    assert as_written == expected(rows)
    for format, options in (("astrai", {}), ("hf_arrow", {"layout": "trl", "split": "train"})):
        assert compare(folder / format.removesuffix("_arrow"), table, format, options).passed
    shutil.rmtree(folder)


def lists_of(value: Any) -> Any:
    return [part.int().tolist() for part in value] if isinstance(value, list) else value.tolist()


ROWS: list[Any] = [([1, 2], [([3], 1, 0.5), ([4, 5], 3, -0.25)]), ([6], [([7, 8], 2, 1.0)])]


@pytest.fixture(params=["bin", "h5"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(tmp_path / "g", ROWS, request.param)


def test_the_first_token_of_a_response_keeps_its_mask(folder: Path) -> None:
    """A document's first token is never trained; a response's is, because its prompt predicts it."""
    meta = json.loads((export(folder, "astrai", folder / "a") / "shard_0000" / "meta.json").read_text())
    assert meta["masks"] == {"shape": [5], "dtype": "int32", "offsets": [0, 3, 5], "element_offsets": [0, 1, 3, 5]}
    assert meta["rewards"] == {"shape": [3], "dtype": "float32", "offsets": [0, 2, 3]}
    assert np.fromfile(folder / "a" / "shard_0000" / "masks.bin", "<i4").tolist() == [1, 1, 1, 0, 1]


def test_an_export_that_differs_is_seen(folder: Path) -> None:
    store = open_table(folder)
    out = export(store, "astrai", folder / "a")
    for key in KEYS:
        path = out / "shard_0000" / f"{key}.bin"
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1, *whole[1:]]))
        assert not compare(out, store, "astrai", {}).passed, key
        path.write_bytes(whole)
    assert compare(out, store, "astrai", {}).passed


@pytest.mark.parametrize(
    ("stream", "ends", "said"),
    [
        ("rewards", [2, 2], "rewards has 3 elements, its index says 2"),
        ("rewards", [1, 2, 3], "2 prompts and 3 responses, but 3 groups of 3 rewards"),
        ("responses", [1, 5], "2 prompts and 2 responses, but 2 groups of 3 rewards"),
    ],
)
def test_streams_that_do_not_fit_together(folder: Path, stream: str, ends: list[int], said: str) -> None:
    index = folder / f"{stream}.index"
    for name, dtype in (("ends", np.int64), ("file", np.int32), ("row", np.int64)):
        np.save(index / f"{name}.npy", np.array(ends if name == "ends" else [0] * len(ends), dtype))
    with pytest.raises(StoreError, match=said):
        StoredGroups(folder)
    with pytest.raises(StoreError):
        load(folder)


def test_responses_that_end_before_they_begin(folder: Path) -> None:
    np.save(folder / "rewards.index" / "ends.npy", np.array([4, 3]))
    for opened in (open_table, load):
        with pytest.raises(StoreError, match="responses of group 1 end at 3, before they begin"):
            opened(folder)


def publish(root: Path, storage: Any, domain: str, logprobs: list[float] | None) -> None:
    def write(directory: Path, quarantine: Path) -> Draft:
        ids, sampled = np.array([3, 4]), None if logprobs is None else (np.array(logprobs, np.float32),)
        with TableWriter(
            directory, "", GROUPS, group_dtypes("int32", ["logprobs"] if sampled else []), storage=storage, domains=[domain]
        ) as writer:
            writer.append(*group_columns([Scored(ids, (ids,), (np.ones(2, np.uint8),), np.array([1], np.float32), 0, 0, 0, sampled)]))
        quarantine.write_text("{}\n")
        return Draft({}, {}, ())

    place = Place(root, "rl_groups_by_domain", domain)
    place.accept(place.propose("0" * 20, write, config_key="0" * 20, recipe={}), {})


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_domains_with_and_without_log_probabilities_are_read_together(tmp_path: Path, storage: Any) -> None:
    publish(tmp_path, storage, "a", None)
    publish(tmp_path, storage, "b", [-1.0, -2.0])
    store = load(tmp_path / "rl_groups_by_domain")
    assert store.keys == tuple(sorted(KEYS))
    assert [lists(store.fetch_record(i, KEYS))["responses"] for i in range(store.num_records)] == [[[3, 4]], [[3, 4]]]


def test_what_an_exception_leaves_behind_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TableWriter(tmp_path / "g", "", GROUPS, group_dtypes("int32"), domains=["a"]):
        raise RuntimeError
    with pytest.raises(StoreError, match="found none of ours"):
        StoredGroups(tmp_path / "g")


def test_other_layouts_have_no_groups(folder: Path) -> None:
    with pytest.raises(ConfigError, match="layout 'axolotl' has no scored groups"):
        export(folder, "hf_arrow", folder / "out", layout="axolotl")


def test_domains_that_are_not_named(folder: Path) -> None:
    np.save(folder / "prompts.index" / "source.npy", np.array([0, 2], np.int32))
    with pytest.raises(StoreError, match="2 domain numbers of 2 groups, which must be below 2"):
        StoredGroups(folder)
