"""HDF5 read through the mapped file, against h5py."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from prep_assets.stores.files import map_file
from prep_assets.stores.open import open_store
from prep_assets.stores.readers import map_dataset
from prep_assets.stores.segments import Segmented


def mapped(path: Path, name: str = "tokens") -> Any:
    with h5py.File(path) as file:
        return map_dataset(map_file(path), file[name])


@pytest.mark.parametrize("dtype", ["int32", "uint16", "bool", "float32", ">i4", "int64"])
@pytest.mark.parametrize("chunk", [None, 1, 4, 7, 23])
def test_every_slice_of_a_flat_dataset(tmp_path: Path, dtype: str, chunk: int | None) -> None:
    values = (np.arange(23) * 300 % 701).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["first"] = np.arange(5, dtype="int8")
        file.create_dataset("tokens", data=values, chunks=chunk and (chunk,))
        file["last"] = np.arange(5, dtype="int8")
    found = mapped(tmp_path / "a.h5")
    assert (len(found), found.dtype) == (23, np.dtype(dtype))
    for begin, end in product(range(25), range(25)):
        assert found[begin:end].tolist() == values[begin:end].tolist()


def test_a_dataset_that_grew_beside_another(tmp_path: Path) -> None:
    """Chunks of both lie between each other in the file."""
    rng = np.random.default_rng(0)
    blocks = [rng.integers(0, 1000, size).astype("int32") for size in (3, 100, 7, 64, 1)]
    with h5py.File(tmp_path / "a.h5", "w", libver="v108") as file:
        for key in ("tokens", "loss_mask"):
            file.create_dataset(key, (0,), "int32", maxshape=(None,), chunks=(8,))
        for block in blocks:
            for sign, key in ((1, "tokens"), (-1, "loss_mask")):
                file[key].resize(len(file[key]) + len(block), axis=0)
                file[key][-len(block) :] = sign * block
    expected = np.concatenate(blocks)
    assert isinstance(mapped(tmp_path / "a.h5"), Segmented)
    assert mapped(tmp_path / "a.h5")[:].tolist() == expected.tolist()
    assert mapped(tmp_path / "a.h5", "loss_mask")[5:90].tolist() == (-expected[5:90]).tolist()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_table_in_chunks_of_whole_rows(tmp_path: Path, rows: int) -> None:
    table = np.arange(35, dtype="int32").reshape(7, 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=table, chunks=(rows, 5))
    assert [mapped(tmp_path / "a.h5")[b:e].tolist() for b, e in ((0, 35), (4, 16), (34, 35))] == [
        list(range(35)),
        list(range(4, 16)),
        [34],
    ]


@pytest.mark.parametrize(
    "layout",
    [{"chunks": (4,), "compression": "gzip"}, {"chunks": (4,), "shuffle": True}, {"chunks": (4,), "fletcher32": True}],
    ids=lambda layout: next(reversed(layout)),
)
def test_filters_are_left_to_hdf5(tmp_path: Path, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), **layout)
    assert mapped(tmp_path / "a.h5") is None
    assert open_store(tmp_path).fetch(2, 9, "sequence").tolist() == list(range(2, 9))


def test_what_lies_nowhere_in_the_file_is_left_to_hdf5(tmp_path: Path) -> None:
    """Chunks that were never written, chunks of part of a row, a user block, an empty dataset."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", (10,), "int32", chunks=(4,), fillvalue=7)[:2] = 1
    assert mapped(tmp_path / "a.h5") is None
    assert open_store(tmp_path / "a.h5").fetch(0, 10, "sequence").tolist() == [1, 1, 7, 7, 7, 7, 7, 7, 7, 7]
    with h5py.File(tmp_path / "b.h5", "w", userblock_size=512) as file:
        file["tokens"] = np.arange(4, dtype="int32")
        file.create_dataset("wide", data=np.arange(6).reshape(2, 3), chunks=(1, 2))
        file["empty"] = np.zeros(0, "int32")
    assert [mapped(tmp_path / "b.h5", name) for name in ("tokens", "wide", "empty")] == [None] * 3
    assert open_store(tmp_path / "b.h5", keys=["tokens"]).fetch(0, 4, "sequence").tolist() == [0, 1, 2, 3]
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(6, dtype="int32").reshape(2, 3), chunks=(1, 2))
    assert mapped(tmp_path / "c.h5") is None
    assert open_store(tmp_path / "c.h5").fetch(1, 5, "sequence").tolist() == [1, 2, 3, 4]


def test_what_is_read_cannot_be_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), chunks=(4,))
    with pytest.raises(ValueError, match="read-only"):
        mapped(tmp_path / "a.h5")[0:2][0] = 5
