"""Data sets: keys, types, shifts and ends of AstrAI's training types, and rows of packed tables."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prep_assets import load
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.training import items as shared
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.version_folders import Published
from prep_assets.training import DatasetFactory, PackedDataset, SequenceDataset, share_memory
from prep_assets_tests.training.conftest import LENGTHS, ROW_LEN


def test_seq(text: Path) -> None:
    dataset = DatasetFactory.load("seq", text, 8, stride=5)
    assert len(dataset) == (50 - 1 - 8) // 5 + 1
    for i in (0, 3, len(dataset) - 1):
        item = dataset[i]
        assert sorted(item) == ["input_ids", "target_ids"]
        assert item["input_ids"].tolist() == list(range(100 + 5 * i, 108 + 5 * i))
        assert item["target_ids"].tolist() == list(range(101 + 5 * i, 109 + 5 * i))
        assert item["input_ids"].dtype == item["target_ids"].dtype == torch.int64


def test_sft(stream: Path) -> None:
    dataset = DatasetFactory.load("sft", stream, window_size=10)
    item = dataset[1]
    assert item["input_ids"].tolist() == list(range(110, 120))
    assert item["position_ids"].tolist() == [at % 7 for at in range(10, 20)]
    assert item["loss_mask"].dtype == torch.bool
    assert item["loss_mask"].tolist() == [at % 3 != 0 and at % 7 != 0 for at in range(11, 21)]


@pytest.mark.parametrize("kind", ["seq", "sft"])
def test_data_sets_end(stream: Path, text: Path, kind: str) -> None:
    dataset = DatasetFactory.load(kind, {"seq": text, "sft": stream}[kind], 16)
    assert len(list(dataset)) == len(dataset) == 3
    assert dataset[-1]["input_ids"].tolist() == dataset[2]["input_ids"].tolist()
    with pytest.raises(IndexError):
        dataset[3]


@pytest.mark.parametrize("offset", [0, 1, 7, 41, 42, 60])
def test_an_offset_moves_every_window(stream: Path, text: Path, offset: int) -> None:
    for kind, path in (("seq", text), ("sft", stream)):
        dataset = DatasetFactory.load(kind, path, 8, stride=4, offset=offset)
        begins = range(offset, 50 - 8, 4)
        assert [item["input_ids"].tolist() for item in dataset] == [list(range(100 + at, 108 + at)) for at in begins]
        assert [item["target_ids"][-1].item() for item in dataset] == [108 + at for at in begins]
        assert len(pickle.loads(pickle.dumps(dataset))) == len(dataset) == len(begins)
    with pytest.raises(ConfigError, match="offset -1 at least 0"):
        DatasetFactory.load("seq", text, 8, offset=-1)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Tokens 0 … 8 in shards of 3, 4 and 2."""
    for number, part in enumerate(np.split(np.arange(9, dtype="int32"), [3, 7])):
        folder = tmp_path / "segments" / f"shard_{number:04d}"
        folder.mkdir(parents=True)
        part.tofile(folder / "sequence.bin")
        (folder / "meta.json").write_text(json.dumps({"sequence": {"shape": [len(part)], "dtype": "int32"}}))
    return tmp_path / "segments"


def test_windows_are_fetched_over_segments(segments: Path) -> None:
    """AstrAI's contract. There (3, 3) on the border of two segments is an error, and an index past the end gives the last window."""
    dataset = DatasetFactory.load("seq", segments, 4, stride=2)
    assert isinstance(dataset, SequenceDataset)
    assert [dataset.get_index(i) for i in range(len(dataset))] == [(0, 4), (2, 6), (4, 8)]
    for i in range(len(dataset)):
        assert dataset.fetch(*dataset.get_index(i), "sequence").tolist() == dataset[i]["input_ids"].tolist()
    assert dataset.fetch(2, 7, ["sequence"])["sequence"].tolist() == [2, 3, 4, 5, 6]
    assert dataset.fetch(3, 3, "sequence").tolist() == dataset.fetch(9, 9, "sequence").tolist() == []
    with pytest.raises(IndexError):
        dataset.get_index(3)
    with pytest.raises(ValueError, match="Index out of bounds: begin=5, end=2, length=9"):
        dataset.fetch(5, 2, "sequence")
    dataset.fetch(0, 9, "sequence").fill_(0)
    assert dataset.fetch(0, 9, "sequence").tolist() == list(range(9)), "what is fetched is the caller's own"


def test_positions_that_are_all_0_are_refused(stream: Path) -> None:
    """Every token would begin a document, and none be trained."""
    path = stream / "shard_0000" / "position_ids.bin"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(StoreError, match="position_ids are 0 at each of 50 tokens, so that none would be trained"):
        DatasetFactory.load("sft", stream, 8)


def test_windows_without_a_mask_refuse_a_stream_that_has_one(stream: Path) -> None:
    with pytest.raises(ConfigError, match="has a loss_mask, and these windows would train every token"):
        DatasetFactory.load("seq", stream, 8)
    assert len(SequenceDataset(load(stream, keys=["sequence"]), 8)) == 6


def test_too_short_is_empty(text: Path) -> None:
    assert len(DatasetFactory.load("seq", text, 50)) == 0
    assert len(DatasetFactory.load("seq", text, 49)) == 1


def test_what_is_given_out_cannot_change_the_store(text: Path) -> None:
    dataset = DatasetFactory.load("seq", text, 8)
    dataset[0]["input_ids"].fill_(7)
    assert dataset[0]["input_ids"].tolist() == list(range(100, 108))


def test_missing_keys_and_wrong_words(stream: Path, text: Path) -> None:
    with pytest.raises(KeyError, match="Required: chosen, rejected"):
        DatasetFactory.load("dpo", stream)
    with pytest.raises(ConfigError, match="did you mean 'sft'"):
        DatasetFactory.load("stf", stream, 8)
    with pytest.raises(ConfigError, match="needs window_size"):
        DatasetFactory.load("seq", text)
    with pytest.raises(ConfigError, match="at least 1"):
        DatasetFactory.load("seq", text, 8, stride=0)


def test_dpo(tmp_path: Path) -> None:
    rows = [
        {"chosen": [1, 2, 3], "rejected": [4], "chosen_mask": [0, 1, 1], "rejected_mask": [1]},
        {"chosen": [5, 0], "rejected": [6, 7], "chosen_mask": [0, 1], "rejected_mask": [0, 1]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = DatasetFactory.load("dpo", tmp_path)
    assert [{key: value.int().tolist() for key, value in item.items()} for item in dataset] == rows
    assert {key: value.dtype for key, value in dataset[0].items()} == {
        "chosen": torch.int64,
        "rejected": torch.int64,
        "chosen_mask": torch.bool,
        "rejected_mask": torch.bool,
    }


def test_dpo_without_borders_is_refused(tmp_path: Path) -> None:
    meta = {}
    for key in ("chosen", "rejected", "chosen_mask", "rejected_mask"):
        (tmp_path / f"{key}.bin").write_bytes(np.arange(4, dtype="int32").tobytes())
        meta[key] = {"shape": [4], "dtype": "int32"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(StoreError, match="offsets"):
        DatasetFactory.load("dpo", tmp_path)


GROUPS: list[dict[str, Any]] = [
    {"prompts": [1, 2], "responses": [[3], [4, 5]], "masks": [[1], [1, 0]], "rewards": [0.8, -0.3]},
    {"prompts": [6], "responses": [[7, 8]], "masks": [[1, 1]], "rewards": [1]},
]


def test_grpo_from_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GROUPS))
    dataset = DatasetFactory.load("grpo", tmp_path)
    item = dataset[0]
    assert [part.tolist() for part in item["responses"]] == [[3], [4, 5]]
    assert [part.tolist() for part in item["masks"]] == [[True], [True, False]]
    assert (item["rewards"].dtype, item["rewards"].tolist()) == (torch.float32, pytest.approx([0.8, -0.3]))
    assert dataset[1]["prompts"].tolist() == [6]


def test_grpo_from_bin_by_its_element_offsets(tmp_path: Path) -> None:
    flat: dict[str, list[list[Any]]] = {
        "prompts": [row["prompts"] for row in GROUPS],
        "responses": [[*chain(*row["responses"])] for row in GROUPS],
        "masks": [[*chain(*row["masks"])] for row in GROUPS],
        "rewards": [row["rewards"] for row in GROUPS],
    }
    meta: dict[str, dict[str, Any]] = {}
    for key, records in flat.items():
        array = np.array([*chain(*records)], "float32" if key == "rewards" else "int32")
        (tmp_path / f"{key}.bin").write_bytes(array.tobytes())
        meta[key] = {"shape": [len(array)], "dtype": array.dtype.name, "offsets": [0, len(records[0]), len(array)]}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(StoreError, match=r"record 0: responses is one flat list.*`element_offsets`"):
        DatasetFactory.load("grpo", tmp_path)[0]
    for key in ("responses", "masks"):
        meta[key]["element_offsets"] = [0, 1, 3, 5]
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    item = DatasetFactory.load("grpo", tmp_path)[0]
    assert [part.tolist() for part in item["responses"]] == [[3], [4, 5]]
    assert [part.tolist() for part in item["masks"]] == [[True], [True, False]]


def test_packed_rows(table: Path) -> None:
    dataset = PackedDataset(table)
    stored = load(table)
    assert len(dataset) == len(LENGTHS)
    for row, (item, lengths) in enumerate(zip(dataset, LENGTHS, strict=True)):
        tokens = stored.fetch_record(row, "sequence").tolist()
        positions, labels = [0] * ROW_LEN, [-100] * ROW_LEN
        at = 0
        for length in lengths:
            for place in range(length):
                positions[at + place] = place
                labels[at + place] = tokens[at + place] if place else -100
            at += length
        assert item["input_ids"].tolist() == tokens
        assert item["labels"].tolist() == labels
        assert item["position_ids"].tolist() == positions
        assert item["seq_lengths"].tolist() == lengths
        assert item["cu_seqlens"].tolist() == [sum(lengths[:k]) for k in range(len(lengths) + 1)]
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    assert dataset[-1]["seq_lengths"].tolist() == LENGTHS[-1]


def test_packed_table_by_name(table: Path) -> None:
    assert len(PackedDataset(table, "sft_packed")) == len(LENGTHS)
    with pytest.raises(StoreError, match=r"no packed table 'sft_dev_packed'.*; found sft_packed"):
        PackedDataset(table, "sft_dev_packed")


@pytest.mark.parametrize("place", ["sft_packed", "sft_packed/current"])
def test_a_packed_table_that_is_not_built_comes_with_its_command(tmp_path: Path, place: str) -> None:
    with pytest.raises(StoreError, match=r"prep-assets build sft_packed$"):
        PackedDataset(tmp_path / place)


def test_packed_data_set_travels_as_its_path(table: Path) -> None:
    data = pickle.dumps(PackedDataset(table))
    assert len(data) < 500
    assert pickle.loads(data)[2]["seq_lengths"].tolist() == LENGTHS[2]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_workers(stream: Path, method: str) -> None:
    dataset = DatasetFactory.load("sft", stream, 16)
    loader = DataLoader(dataset, batch_size=1, num_workers=1, multiprocessing_context=multiprocessing.get_context(method))
    assert [batch["input_ids"][0].tolist() for batch in loader] == [item["input_ids"].tolist() for item in dataset]


def _write(store: Any) -> None:
    store.data.arrays["sequence"][:][0] = 7


def test_shared_memory_is_one_memory(stream: Path) -> None:
    store = share_memory(load(stream))
    assert store.fetch(0, 50, "sequence").tolist() == list(range(100, 150))
    child = torch.multiprocessing.get_context("spawn").Process(target=_write, args=(store,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert store.fetch(0, 2, "sequence").tolist() == [7, 101]
    assert load(stream).fetch(0, 1, "sequence").tolist() == [100]


def test_more_than_there_is_of_shared_memory_is_told_before_it_is_copied(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that do not fit end the process with a signal."""
    monkeypatch.setattr(shared, "SHARED", stream)
    monkeypatch.setattr(shared, "free_bytes", lambda folder: 3)
    with pytest.raises(ConfigError, match=r"of shared memory are free at .*Open it without share_memory"):
        share_memory(load(stream))


def test_text_cannot_be_shared(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(ConfigError, match="prompt"):
        share_memory(load(tmp_path))


def test_weights_are_weights_in_every_window(tmp_path: Path) -> None:
    """Also in windows where all happen to be 0 or 1: a batch has one type."""
    weights = np.array([0, 1, 1, 1, 0.5, 0.25, 1, 0, 1], "float32")
    arrays = {"sequence": np.arange(9, dtype="int32"), "loss_mask": weights, "position_ids": np.array([0, 1, 2, 3, 4, 5, 0, 1, 2], "int32")}
    for key, array in arrays.items():
        (tmp_path / f"{key}.bin").write_bytes(array.tobytes())
    (tmp_path / "meta.json").write_text(json.dumps({key: {"shape": [9], "dtype": array.dtype.name} for key, array in arrays.items()}))
    dataset = DatasetFactory.load("sft", tmp_path, 2)
    assert [item["loss_mask"].tolist() for item in dataset] == [[1, 1], [1, 0.5], [0.25, 0], [0, 1]]
    assert {item["loss_mask"].dtype for item in dataset} == {torch.float32}


@pytest.mark.parametrize("kind", ["seq", "sft"])
def test_windows_travel_as_their_path(stream: Path, text: Path, kind: str) -> None:
    dataset = DatasetFactory.load(kind, {"seq": text, "sft": stream}[kind], 8, stride=3)
    data = pickle.dumps(dataset)
    assert len(data) < 500
    assert len(pickle.loads(data)) == len(dataset)
    assert pickle.loads(data)[2]["input_ids"].tolist() == dataset[2]["input_ids"].tolist() == list(range(106, 114))


def _published(root: Path, partition: str, table: Path, key: str, *, accept: bool = True) -> Published:
    def write(payload: Path, quarantine: Path) -> Draft:
        shutil.copytree(table, payload, dirs_exist_ok=True)
        return Draft({}, {}, ())

    place = Place(root, "sft_packed", partition)
    found = place.propose(key * 20, write, config_key=key, recipe={})
    if accept:
        place.accept(found, {})
    return found


@pytest.mark.parametrize("opened", ["sft_packed", "sft_packed/current"])
def test_workers_read_the_version_that_was_opened(table: Path, tmp_path: Path, opened: str) -> None:
    first = _published(tmp_path, "", table, "a")
    dataset = PackedDataset(tmp_path / opened)
    sent, rows = pickle.dumps(dataset), [item["input_ids"].tolist() for item in dataset]
    for path in table.rglob("*"):
        if path.suffix == ".h5":
            with h5py.File(path, "a") as file:
                file["tokens"][...] = 7
        elif path.name == "sequence.bin":
            path.write_bytes(np.full(len(LENGTHS) * ROW_LEN, 7, "int32").tobytes())
    second = _published(tmp_path, "", table, "b")
    assert first.directory != second.directory
    assert [item["input_ids"].tolist() for item in pickle.loads(sent)] == rows
    assert PackedDataset(tmp_path / opened)[0]["input_ids"].tolist() == [7] * ROW_LEN


def test_a_packed_table_that_was_rejected_is_not_read(table: Path, tmp_path: Path) -> None:
    _published(tmp_path, "", table, "a", accept=False)
    for load in (PackedDataset, lambda path: DatasetFactory.load("sft", path, 4)):
        with pytest.raises(StoreError, match=r"no published store in .*sft_packed"):
            load(tmp_path / "sft_packed")


def test_a_packed_table_under_an_edited_manifest_is_not_read(table: Path, tmp_path: Path) -> None:
    found = _published(tmp_path, "", table, "a")
    PackedDataset(tmp_path / "sft_packed")
    (found.directory / "manifest.json").write_text("{}")
    for path in ("sft_packed", "sft_packed/current"):
        with pytest.raises(StoreError, match=r"manifest\.json cannot be read"):
            PackedDataset(tmp_path / path)


def test_tables_of_one_name_are_not_mixed_up(table: Path, tmp_path: Path) -> None:
    for partition in ("one", "two"):
        _published(tmp_path, partition, table, "a")
    with pytest.raises(StoreError, match="several stores have a packed table"):
        PackedDataset(tmp_path / "sft_packed")


def test_a_damaged_packed_table_names_its_file(table: Path) -> None:
    path = table / "sft_packed.documents" / "length.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"length\.npy.*Build the store again"):
        PackedDataset(table)


def test_windows_that_take_each_row_of_a_table_once(table: Path) -> None:
    """A window has one token after it, so windows of a whole row lack the last row."""
    whole = DatasetFactory.load("sft", table, ROW_LEN)
    rows = DatasetFactory.load("sft", table, ROW_LEN - 1, stride=ROW_LEN)
    tokens = [item["input_ids"].tolist() for item in PackedDataset(table)]
    assert (len(whole), len(rows)) == (len(LENGTHS) - 1, len(LENGTHS))
    assert [item["input_ids"].tolist() for item in rows] == [row[:-1] for row in tokens]
    assert [item["target_ids"].tolist() for item in rows] == [row[1:] for row in tokens]
