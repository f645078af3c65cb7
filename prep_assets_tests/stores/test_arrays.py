"""Arrays on disk: files that grow are those of NumPy, and columns that wait on disk come back as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import StoreError
from prep_assets.stores import arrays
from prep_assets.stores.arrays import Columns, Spool, in_batches, save_array
from prep_assets.stores.guards import UNGUARDED, load_array
from prep_assets.stores.verification import prove, recording
from prep_assets_tests.peak import peak


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("sizes", [(), (0,), (3,), (1, 0, 5), (150_000, 70_000)])
def test_a_file_that_grows_is_the_file_of_numpy(tmp_path: Path, dtype: str, sizes: tuple[int, ...]) -> None:
    values = np.arange(sum(sizes)).astype(dtype)
    with recording(tmp_path) as expected_files:
        file = Columns(tmp_path, {"ours": dtype})
        for part in np.split(values, np.cumsum(sizes)[:-1]) if sizes else ():
            file.append({"ours": part.tolist()})
        assert len(file) == len(values)
        file.close()
        prove(tmp_path, expected_files)
    np.save(tmp_path / "plain.npy", values)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "plain.npy").read_bytes()


@pytest.mark.parametrize("dtype", ["<i8", "<i4", "<u2", "|u1", "|i1", "<f8", ">i4"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_column_is_read_as_it_was_saved(tmp_path: Path, dtype: str, count: int) -> None:
    values = (np.arange(count) % 120).astype(dtype)
    save_array(tmp_path / "x.npy", values)
    found = load_array(tmp_path / "x.npy", UNGUARDED)
    assert (found.dtype, found.tolist(), found.flags.writeable) == (np.dtype(dtype), values.tolist(), False)


@given(cut=st.integers(0, 200), at=st.integers(0, 139), byte=st.integers(0, 255))
def test_a_damaged_column_is_refused_or_is_one_of_numbers(tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, byte: int) -> None:
    path = tmp_path_factory.mktemp("column") / "x.npy"
    np.save(path, np.arange(9, dtype="<i4"))
    data = bytearray(path.read_bytes())
    data[at] = byte
    path.write_bytes(data[:cut])
    try:
        found = load_array(path, UNGUARDED)
    except StoreError as error:
        assert str(error).startswith(f"{path}") and str(error).endswith("Build the store again")
    else:
        assert found.ndim == 1 and found.dtype.kind in "iuf"


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.zeros(3, bool), np.zeros(3, complex), np.array(1)])
def test_what_is_no_column_of_numbers_is_refused(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(StoreError, match=r"x\.npy: .* of shape .*, expected numbers of one dimension"):
        load_array(tmp_path / "x.npy", UNGUARDED)


def test_a_file_that_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    with recording(tmp_path) as expected_files:
        file = Columns(tmp_path, {"x": "int64"})
        file.append({"x": [1, 2]})
        file.discard()
        prove(tmp_path, expected_files)
    assert not list(tmp_path.iterdir())


def test_an_array_is_written_without_a_second_copy(tmp_path: Path) -> None:
    values = np.arange(1 << 21)
    assert peak(lambda: save_array(tmp_path / "x.npy", values)) < values.nbytes // 4


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_column_comes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: int) -> None:
    monkeypatch.setattr(arrays, "RECENT", block)
    parts = [np.arange(n, dtype=np.int64) * 3 for n in (0, 5, 100, 1, 7)]
    spool = Spool("int64", tmp_path)
    for part in parts:
        spool.append(part)
    assert len(spool) == 113
    assert np.array_equal(spool.array(), np.concatenate(parts))
    assert not list(tmp_path.iterdir())


def test_a_table_comes_back() -> None:
    kind = np.dtype([("row", "i8"), ("of", "i4")])
    spool = Spool(kind)
    spool.append(np.array([(1, 2), (3, 4)], kind))
    assert spool.array().tolist() == [(1, 2), (3, 4)]


def test_a_column_takes_a_megabyte_of_memory_however_long_it_is(tmp_path: Path) -> None:
    part = np.zeros(10_000, np.int64)

    def fill() -> None:
        spool = Spool("int64", tmp_path)
        for _ in range(200):
            spool.append(part)
        assert spool.array()[-1] == 0

    assert peak(fill) < 3 << 20


def test_a_column_that_the_disk_altered_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(arrays, "RECENT", 64)
    spool = Spool("int64", tmp_path)
    spool.append(np.arange(100))
    spool._file.seek(8)
    spool._file.write(b"x")
    with pytest.raises(StoreError, match="does not hold what was written"):
        spool.array()


def test_a_full_disk_is_told_with_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "pwrite", full)
    spool = Spool("int64", tmp_path)
    with pytest.raises(OSError, match=str(tmp_path)):
        spool.append(np.zeros(1 << 18))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([1, 1, 1, 1, 1], [[1, 1, 1], [1, 1]]),
        ([4, 6, 1, 9, 9, 2], [[4, 6], [1, 9], [9, 2]]),
        ([1, 11, 1, 10, 10, 1], [[1], [11], [1, 10], [10], [1]]),
        ([5, 4, 10, 2, 2, 5], [[5, 4, 10], [2, 2, 5]]),
        ([1, 20, 8, 1], [[1], [20], [8, 1]]),
        ([9, 11, 9], [[9], [11], [9]]),
    ],
)
def test_items_in_batches(sizes: list[int], batches: list[list[int]]) -> None:
    """A list ends at ten in all or at three items; what is larger than ten is a list of its own."""
    assert list(in_batches(iter(sizes), int, 10, 3)) == batches
