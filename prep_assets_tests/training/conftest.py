"""Stores of known content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from prep_assets.stores.packed import PackedWriter, write_documents

ROW_LEN = 12
LENGTHS = [[5, 4], [12], [3, 2, 6], [1, 7]]
"""Document lengths of each row of the packed table."""


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A bin store of 50 tokens: sequence 100 …, every third one masked, documents of 7 tokens."""
    folder = tmp_path / "stream" / "shard_0000"
    folder.mkdir(parents=True)
    at = np.arange(50, dtype="int32")
    arrays = {"sequence": at + 100, "loss_mask": (at % 3 != 0).astype("int32"), "position_ids": at % 7}
    for key, array in arrays.items():
        (folder / f"{key}.bin").write_bytes(array.tobytes())
    (folder / "meta.json").write_text(json.dumps({key: {"shape": [50], "dtype": "int32"} for key in arrays}))
    return folder.parent


@pytest.fixture
def text(stream: Path) -> Path:
    """The same tokens without mask and positions: a pretraining stream."""
    folder = stream.with_name("text") / "shard_0000"
    folder.mkdir(parents=True)
    shutil.copy(stream / "shard_0000" / "sequence.bin", folder)
    (folder / "meta.json").write_text(json.dumps({"sequence": {"shape": [50], "dtype": "int32"}}))
    return folder.parent


@pytest.fixture(params=["h5", "bin"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A packed table of `LENGTHS`; token ids from 1 on, 0 in the padding, every token trained."""
    rng = np.random.default_rng(0)
    tokens = np.zeros((len(LENGTHS), ROW_LEN), "int32")
    fields: dict[str, list[int]] = {"row": [], "row_offset": [], "length": []}
    for row, lengths in enumerate(LENGTHS):
        tokens[row, : sum(lengths)] = rng.integers(0, 40, sum(lengths))
        for number, length in enumerate(lengths):
            for field, value in (("row", row), ("row_offset", sum(lengths[:number])), ("length", length)):
                fields[field].append(value)
    folder = tmp_path / "packed"
    folder.mkdir()
    with PackedWriter(request.param, folder, "sft_packed", len(LENGTHS), ROW_LEN) as writer:
        used = np.arange(ROW_LEN) < np.array([sum(lengths) for lengths in LENGTHS])[:, None]
        positions = np.zeros_like(tokens)
        for row, lengths in enumerate(LENGTHS):
            positions[row, : sum(lengths)] = np.concatenate([np.arange(length) for length in lengths])
        writer.append({"tokens": tokens, "loss_mask": used.astype("int8"), "position_ids": positions})
    count = len(fields["row"])
    extra = {"source": np.zeros(count), "record": np.arange(count), "start": np.zeros(count)}
    write_documents(folder, "sft_packed", {**{key: np.array(value) for key, value in fields.items()}, **extra}, ("d",), ROW_LEN)
    return folder
