"""A packed table that another program wrote: HDF5 of (rows, row length) without the folder that says where documents stand."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from prep_assets import load
from prep_assets.training import DatasetFactory

ROWS, LENGTH = 5, 8


@pytest.fixture(params=[{}, {"chunks": (2, LENGTH)}, {"chunks": (1, LENGTH), "compression": "gzip"}], ids=["whole", "chunks", "gzip"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Tokens 0 … 39; the mask is 1 on even ones, so also on the first of each row."""
    tokens = np.arange(ROWS * LENGTH, dtype="int32").reshape(ROWS, LENGTH)
    with h5py.File(tmp_path / "sft_packed.h5", "w") as h5:
        h5.create_dataset("tokens", data=tokens, **request.param)
        h5.create_dataset("loss_mask", data=(tokens % 2 == 0).astype("int8"), **request.param)
    return tmp_path / "sft_packed.h5"


def test_each_row_once_as_its_own_trainer_takes_them(file: Path) -> None:
    """``tokens[:, :-1]``, ``tokens[:, 1:]`` and ``loss_mask[:, 1:]``: windows of one token less than a row, one for each row."""
    dataset = DatasetFactory.load("sft", file, window_size=LENGTH - 1, stride=LENGTH)
    with h5py.File(file) as h5:
        tokens, mask = torch.from_numpy(h5["tokens"][:]).long(), torch.from_numpy(h5["loss_mask"][:]).bool()
    items = list(dataset)
    assert torch.stack([item["input_ids"] for item in items]).equal(tokens[:, :-1])
    assert torch.stack([item["target_ids"] for item in items]).equal(tokens[:, 1:])
    assert torch.stack([item["loss_mask"] for item in items]).equal(mask[:, 1:])
    assert [item["position_ids"].tolist() for item in items] == [list(range(LENGTH - 1))] * ROWS


def test_a_window_over_two_rows_does_not_train_the_first_token_of_the_second(file: Path) -> None:
    item = DatasetFactory.load("sft", file, window_size=2 * LENGTH)[0]
    assert item["position_ids"].tolist() == [*range(LENGTH), *range(LENGTH)]
    expected = [at % LENGTH != 0 and at % 2 == 0 for at in range(1, 2 * LENGTH + 1)]
    assert item["loss_mask"].tolist() == expected


def test_the_folder_that_it_is_in(file: Path) -> None:
    store = load(file.parent)
    assert store.keys == ("loss_mask", "position_ids", "sequence")
    assert store.fetch_record(3, "position_ids").tolist() == list(range(LENGTH))


def test_a_flat_file_has_no_positions(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "pile.h5", "w") as h5:
        h5["tokens"], h5["loss_mask"] = np.arange(9, dtype="int32"), np.ones(9, "int8")
    with pytest.raises(KeyError, match=r"no key 'position_ids'.*--position-ids doc_reset"):
        DatasetFactory.load("sft", tmp_path, 3)
