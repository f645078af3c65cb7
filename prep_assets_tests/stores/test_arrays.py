"""Arrays on disk: files that grow are those of NumPy, and columns that wait on disk come back as they were, or not at all."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import SourceError, StoreError
from prep_assets.stores import arrays
from prep_assets.stores import arrays as columns
from prep_assets.stores.arrays import Columns, Spool, in_batches, prefetch, save_array
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


# -- columns ------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def on_disk(short_stretches: None) -> Iterator[None]:
    """Every column is on disk that has two elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "IN_MEMORY", 8)
        yield


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.sampled_from([0, 2**16, 2**32, 2**48]), max_size=40))
def test_the_order_is_that_of_a_stable_sort(keys: list[int]) -> None:
    column = np.array(keys, np.uint64)
    ordered = np.argsort(column, kind="stable").tolist()
    assert columns.argsort(column).tolist() == ordered
    stretches = [places.tolist() for places in columns.sorted_groups(column)]
    assert list(chain.from_iterable(stretches)) == ordered
    assert all(keys[one[-1]] != keys[other[0]] for one, other in pairwise(stretches))


@given(st.lists(st.integers(0, 2**40), max_size=40))
def test_columns_are_what_numpy_makes_at_once(values: list[int]) -> None:
    column = np.array(values, np.int64)
    holds = column % 3 == 0
    assert columns.cumulative_sums(column).tolist() == np.cumsum(column).tolist()
    assert columns.sizes(np.cumsum(column)).tolist() == values
    assert columns.compress(holds).tolist() == np.flatnonzero(holds).tolist()
    assert columns.compress(holds, column).tolist() == column[holds].tolist()
    assert columns.concatenate([column, column[:5], column]).tolist() == [*values, *values[:5], *values]
    assert columns.equals(column, 3).tolist() == [value == 3 for value in values]
    assert columns.equals_previous(column // 2).tolist() == [
        at > 0 and values[at - 1] // 2 == value // 2 for at, value in enumerate(values)
    ]
    turned = columns.argsort(column)[::-1].copy()
    assert columns.take(column, turned).tolist() == column[turned].tolist()


def test_an_order_takes_no_more_memory_for_more_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "STRETCH", 1 << 14)
    monkeypatch.setattr(columns, "IN_MEMORY", 1 << 16)
    few, many = (np.random.PCG64(0).random_raw(count) for count in (1 << 15, 1 << 18))
    assert peak(lambda: columns.argsort(many)) < 1.1 * peak(lambda: columns.argsort(few))


def test_a_disk_without_room_is_named_before_a_page_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match=tempfile.gettempdir()):
        columns.zeros(1 << 20)


# -- Reading ahead: the same items in the same order, errors with their message, and no thread left behind --------------------------------


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"reads ahead"}


@given(st.lists(st.one_of(st.none(), st.integers())), st.integers(1, 4))
def test_the_same_items_in_the_same_order(items: list[int | None], depth: int) -> None:
    assert list(prefetch(iter(items), depth=depth)) == items
    assert list(prefetch(prefetch(iter(items), depth=depth))) == items
    assert threads() == set()


def test_an_error_comes_after_the_items_before_it_with_its_message() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise SourceError("a.jsonl: the file ends early")

    items = prefetch(prefetch(broken()))
    assert next(items) == 1
    with pytest.raises(SourceError, match=r"^a\.jsonl: the file ends early$"):
        next(items)
    assert threads() == set()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_whoever_stops_using_it_ends_the_threads_and_closes_the_source(stop: type[BaseException]) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with pytest.raises(stop), closing(prefetch(prefetch(endless()))) as items:
        for _ in items:
            raise stop
    assert closed.is_set()
    assert threads() == set()


def test_it_makes_only_a_few_items_ahead() -> None:
    made: list[int] = []

    def counting() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            yield i

    with closing(prefetch(counting(), depth=2)) as items:
        assert next(items) == 0
        time.sleep(0.3)
        assert len(made) <= 4  # one used, two queued, one in hand
