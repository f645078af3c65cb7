"""`open_store` on stores as the pipelines write and publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from prep_assets.errors import StoreError
from prep_assets.stores.lines import LinesWriter
from prep_assets.stores.open import open_store
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.tokens import record_writer
from prep_assets_tests.stores.payload import write_table

Storage = Literal["bin", "h5"]
DOCUMENTS = [[11, 12, 13], [21], [31, 32, 33, 34]]


def write_stream(folder: Path, storage: Storage, name: str, documents: list[list[int]], shard: int = 4) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with record_writer(storage, folder, name, {"tokens": "int32", "loss_mask": "uint8"}, max_tokens_per_shard=shard) as writer:
        for number, document in enumerate(documents):
            tokens = np.array(document, "int32")
            writer.append({"tokens": tokens, "loss_mask": tokens % 2}, np.array([len(document)]), [0], [number])


def publish(root: Path, asset: str, partition: str, key: str, storage: Storage, documents: list[list[int]]) -> None:
    def write(payload: Path, quarantine: Path) -> Draft:
        write_stream(payload, storage, "train", documents)
        quarantine.write_text("{}\n")
        return Draft({}, {}, ())

    place = Place(root, asset, partition)
    place.accept(place.propose(key * 20, write, config_key=key * 20, recipe={}, audit=lambda payload: None), {})


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_stream(tmp_path: Path, storage: Storage) -> None:
    write_stream(tmp_path, storage, "train", DOCUMENTS)
    named = tmp_path / ("train.h5" if storage == "h5" else "train")
    for path in (tmp_path, named):
        store = open_store(path)
        assert store.keys == ("loss_mask", "position_ids", "sequence")
        assert [store.fetch_record(i, "sequence").tolist() for i in range(store.num_records)] == DOCUMENTS
        assert store.fetch(2, 6, "position_ids").tolist() == [2, 0, 0, 1]
        assert store.fetch(0, 8, "loss_mask").tolist() == [token % 2 for document in DOCUMENTS for token in document]


def test_two_streams_are_not_mixed(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        write_stream(tmp_path, "h5", name, DOCUMENTS)
    with pytest.raises(StoreError, match="several streams: dev, train"):
        open_store(tmp_path)
    assert open_store(tmp_path / "dev.h5").num_records == 3


def test_two_files_of_lines_are_not_mixed(tmp_path: Path) -> None:
    for name in ("rl_prompts_train", "rl_prompts_test"):
        with LinesWriter(tmp_path, name, ("d",)) as lines:
            lines.append({"prompt": name, "gold": 1.0}, source=0, file=0, at=0)
    with pytest.raises(StoreError, match="several streams"):
        open_store(tmp_path)
    assert open_store(tmp_path / "rl_prompts_test.jsonl").fetch_record(0, "prompt") == "rl_prompts_test"


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_published_domains_current_versions_only(tmp_path: Path, storage: Storage) -> None:
    publish(tmp_path, "sft_tokens", "b", "old", storage, [[9, 9, 9]])
    publish(tmp_path, "sft_tokens", "b", "new", storage, DOCUMENTS[1:])
    publish(tmp_path, "sft_tokens", "a", "new", storage, DOCUMENTS[:1])
    store = open_store(tmp_path / "sft_tokens")
    assert [store.fetch_record(i, "sequence").tolist() for i in range(store.num_records)] == DOCUMENTS
    assert store.fetch(0, 8, "position_ids").tolist() == [0, 1, 2, 0, 0, 1, 2, 3]


def test_pairs(tmp_path: Path) -> None:
    write_stream(tmp_path, "h5", "chosen", DOCUMENTS)
    write_stream(tmp_path, "h5", "rejected", DOCUMENTS[::-1])
    store = open_store(tmp_path)
    assert store.keys == ("chosen", "chosen_mask", "rejected", "rejected_mask")
    assert store.fetch_record(0, "chosen").tolist() == DOCUMENTS[0]
    assert store.fetch_record(0, "rejected_mask").tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_packed_table(tmp_path: Path, storage: Storage) -> None:
    write_table(tmp_path, storage, [[([1, 2, 3], [1, 0, 1]), ([4], [0])], [([5, 6], [1, 0]), ([7, 8, 9], [1, 0, 1])]], 5)
    store = open_store(tmp_path)
    assert (len(store), store.num_records) == (10, 2)
    assert store.fetch(0, 10, "position_ids").tolist() == [0, 1, 2, 0, 0, 0, 1, 0, 1, 2]
    assert store.fetch_record(1, "sequence").tolist() == [5, 6, 7, 8, 9]
