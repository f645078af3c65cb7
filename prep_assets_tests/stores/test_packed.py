"""Packed tables in both layouts."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets import load
from prep_assets.errors import StoreError
from prep_assets.stores.packed import DOCUMENT_FIELDS, _check_places, write_documents
from prep_assets.stores.shards import StorageFormat
from prep_assets.stores.table import PACKED, open_stream
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.effort import examples
from prep_assets_tests.stored import packed_rows
from prep_assets_tests.stores.payload import packed_dtypes

STORAGE: list[StorageFormat] = ["bin", "h5"]
Table = dict[str, npt.NDArray[Any]]


def table(rows: int, row_len: int, loss_dtype: str = "int8") -> Table:
    draw = np.random.default_rng(7)
    loss = draw.integers(0, 2, (rows, row_len)) if loss_dtype == "int8" else draw.random((rows, row_len))
    positions = np.tile(np.arange(row_len), (rows, 1))
    return {"tokens": draw.integers(0, 50_000, (rows, row_len)), "loss_mask": loss.astype(loss_dtype), "position_ids": positions}


def pieces(rows: int, row_len: int) -> Table:
    """Two documents in every row but the first, which is one; rows of one token are one each."""
    where = [
        (row, at, length)
        for row in range(rows)
        for at, length in ([(0, row_len)] if not row or row_len == 1 else [(0, 1), (1, row_len - 1)])
    ]
    fields = np.array(where, np.int64).reshape(-1, 3)
    count = np.arange(len(fields))
    return dict(zip(DOCUMENT_FIELDS, [*fields.T, count % 2, count, count * 0], strict=True))


def write(
    directory: Path, storage: StorageFormat, rows: int = 5, row_len: int = 4, *, sizes: tuple[int, ...] = (), loss_dtype: str = "int8"
) -> Table:
    made, at = table(rows, row_len, loss_dtype), 0
    with TableWriter(directory, "sft_packed", PACKED, packed_dtypes(storage, loss_dtype), storage=storage, rows=(rows, row_len)) as writer:
        for size in (*sizes, rows):
            writer.append({key: array[at : at + size] for key, array in made.items()})
            at = min(rows, at + size)
    write_documents(directory, "sft_packed", pieces(rows, row_len), ("gsm8k", "alpaca"), row_len)
    return made


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 5),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(STORAGE),
    st.sampled_from(["int8", "float32"]),
)
def test_rows_come_back(rows: int, row_len: int, sizes: list[int], storage: StorageFormat, loss_dtype: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        written = write(Path(name), storage, rows, row_len, sizes=tuple(sizes), loss_dtype=loss_dtype)
        store = open_stream(Path(name), "sft_packed")
        assert (len(store), store.width, store.pieces.domains) == (rows, row_len, ("gsm8k", "alpaca"))
        found = {key: packed_rows(store, key) for key in ("tokens", "loss_mask")}
        assert (found["tokens"].shape, found["tokens"].dtype, found["loss_mask"].dtype) == ((rows, row_len), np.int32, np.dtype(loss_dtype))
        assert all(np.array_equal(found[key], written[key]) for key in found)
        for field, values in pieces(rows, row_len).items():
            assert store.pieces.fields[field].tolist() == values.tolist()
            assert store.pieces.fields[field].dtype == DOCUMENT_FIELDS[field]


def test_h5_is_the_layout_of_train_llm_from_scratch(tmp_path: Path) -> None:
    """Two contiguous data sets, no attributes, nothing else."""
    import h5py

    write(tmp_path, "h5")
    with h5py.File(tmp_path / "sft_packed.h5", "r") as file:
        assert {key: (file[key].dtype.name, file[key].shape, file[key].chunks) for key in file} == {
            "tokens": ("int32", (5, 4), None),
            "loss_mask": ("int8", (5, 4), None),
        }
        assert [dict(item.attrs) for item in (file, file["tokens"], file["loss_mask"])] == [{}, {}, {}]


def test_bin_is_the_layout_of_astrai(tmp_path: Path) -> None:
    written = write(tmp_path, "bin")
    shard = tmp_path / "sft_packed" / "shard_0000"
    assert (shard / "meta.json").read_bytes() == (
        b'{"sequence": {"shape": [20], "dtype": "int32"}, "loss_mask": {"shape": [20], "dtype": "int8"}, '
        b'"position_ids": {"shape": [20], "dtype": "int32"}}'
    )
    assert sorted(path.name for path in shard.iterdir()) == ["loss_mask.bin", "meta.json", "position_ids.bin", "sequence.bin"]
    assert np.fromfile(shard / "sequence.bin", "<i4").tolist() == written["tokens"].ravel().tolist()
    assert np.fromfile(shard / "loss_mask.bin", "i1").tolist() == written["loss_mask"].ravel().tolist()
    assert np.fromfile(shard / "position_ids.bin", "<i4").tolist() == [0, 1, 2, 3] * 5


def test_fewer_rows_than_planned_are_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="sft_packed: 2 rows written, 3 planned"),
        TableWriter(tmp_path, "sft_packed", PACKED, packed_dtypes("bin"), rows=(3, 4)) as writer,
    ):
        writer.append({key: array[:2] for key, array in table(3, 4).items()})


def altered(path: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    """Change a file of a table: its array, its JSON or its bytes; `None` removes it."""

    def apply(folder: Path) -> None:
        file = folder / path
        before = np.load(file) if file.suffix == ".npy" else json.loads(file.read_text()) if file.suffix == ".json" else file.read_bytes()
        after = change(before)
        if after is None:
            file.unlink()
        elif isinstance(after, bytes):
            file.write_bytes(after)
        else:
            np.save(file, after) if file.suffix == ".npy" else file.write_text(json.dumps(after))

    return apply


def fewer_rows(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "sft_packed.h5", "a") as file:
        mask = file["loss_mask"][:-1]
        del file["loss_mask"]
        file["loss_mask"] = mask


def swapped(folder: Path) -> None:
    row, offset = (folder / "sft_packed.documents" / f"{name}.npy" for name in ("row", "row_offset"))
    both = row.read_bytes(), offset.read_bytes()
    offset.write_bytes(both[0])
    row.write_bytes(both[1])


SHARD, ABOUT, LENGTH = "sft_packed/shard_0000", "sft_packed.documents/sources.json", "sft_packed.documents/length.npy"
AGAIN = r".*Build the store again"
FAULTS: list[tuple[tuple[StorageFormat, ...], Callable[[Path], object], str]] = [
    (
        ("bin",),
        lambda folder: shutil.rmtree(folder / "sft_packed.documents"),
        "no token stream 'sft_packed': neither sft_packed.index nor sft_packed.documents is there",
    ),
    (("bin",), altered(f"{SHARD}/loss_mask.bin", lambda data: data[:-1]), "loss_mask.bin: 19 bytes, meta.json says 20: 20 of int8"),
    (("bin",), altered(f"{SHARD}/loss_mask.bin", lambda data: data + b"\0"), "loss_mask.bin: 21 bytes, meta.json says 20: 20 of int8"),
    (("bin", "h5"), altered(ABOUT, lambda about: {**about, "row_len": 3}), "do not fit together|rows of 3"),
    (("h5",), fewer_rows, r"tokens \(5, 4\), loss_mask \(4, 4\)"),
    *(
        (("h5",), altered(f"sft_packed.documents/{field}.npy", lambda column: column[:-1]), rf"sft_packed.documents.*{field}.*8")
        for field in sorted(DOCUMENT_FIELDS)
    ),
    (("bin", "h5"), altered(LENGTH, lambda column: column.tobytes()[:-3]), r"length\.npy" + AGAIN),
    (("bin", "h5"), altered(LENGTH, lambda column: b""), r"length\.npy" + AGAIN),
    (("bin", "h5"), altered(LENGTH, lambda column: None), r"length\.npy" + AGAIN),
    (("bin", "h5"), altered(LENGTH, lambda column: column.astype("float64")), r"length\.npy" + AGAIN),
    *((("bin",), altered(ABOUT, lambda about, new=new: new), r"sources\.json" + AGAIN) for new in (None, b"", [], {"sources": ["a"]})),
    (("h5",), swapped, "documents stand one after another"),
    (("h5",), altered("sft_packed.documents/row.npy", lambda column: column + 1), "in row 5 of a table of 5 rows"),
    (("h5",), altered("sft_packed.h5", lambda data: data[:20]), r"sft_packed.*(damaged|cut short).*Build (the store|it) again"),
    (
        ("bin",),
        altered(f"{SHARD}/meta.json", lambda meta: b'{"sequence": {"shap'),
        r"sft_packed.*(damaged|cut short).*Build (the store|it) again",
    ),
]


@pytest.mark.parametrize(("storage", "harm", "said"), [(storage, harm, said) for storages, harm, said in FAULTS for storage in storages])
def test_what_does_not_fit_together_is_found_at_open(
    tmp_path: Path, storage: StorageFormat, harm: Callable[[Path], object], said: str
) -> None:
    write(tmp_path, storage)
    harm(tmp_path)
    with pytest.raises(StoreError, match=said):
        open_stream(tmp_path, "sft_packed")
    if "length" in said:
        with pytest.raises(StoreError, match=said):
            load(tmp_path)


@pytest.mark.parametrize("block", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("field", "values", "entry"),
    [
        ("row", [0, 2, 2, 1, 1, 3, 3, 4, 4], "3 of 9"),
        ("row", [-1, 1, 1, 2, 2, 3, 3, 4, 4], "0 of 9"),
        ("row_offset", [0, 0, 2, 0, 1, 0, 1, 0, 1], "2 of 9"),
        ("row_offset", [1, 0, 1, 0, 1, 0, 1, 0, 1], "0 of 9"),
        ("length", [4, 1, 3, 1, 3, 1, 3, 1, 4], "8 of 9"),
        ("length", [4, 1, 3, 0, 3, 1, 3, 1, 3], "3 of 9"),
    ],
)
def test_documents_stand_one_after_another(tmp_path: Path, block: int, field: str, values: list[int], entry: str) -> None:
    folder, fields = tmp_path / "x.documents", {name: array.astype(np.int64) for name, array in pieces(5, 4).items()}
    _check_places(folder, fields, 4, block)
    with pytest.raises(StoreError, match=rf"x.documents: entry {entry}.*in rows of 4 tokens"):
        _check_places(folder, fields | {field: np.array(values)}, 4, block)
