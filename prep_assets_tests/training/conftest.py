"""Stores of known content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from prep_assets_tests.stores.payload import write_table

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
    rows = [[(rng.integers(0, 40, length).tolist(), [1] * length) for length in lengths] for lengths in LENGTHS]
    return write_table(tmp_path / "packed", request.param, rows, ROW_LEN)
