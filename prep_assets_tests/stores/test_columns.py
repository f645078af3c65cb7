from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.stores import arrays as columns
from prep_assets.stores.arrays import in_arrow
from prep_assets_tests.peak import peak


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


@pytest.mark.parametrize("kind", ["u2", "<u4", "i8"])
def test_numbers_as_pyarrow_takes_them(kind: str) -> None:
    numbers = np.arange(10, dtype=kind)
    for some in (numbers, numbers[:0], numbers[1::3]):
        assert in_arrow(some).equals(pa.array(some))


def test_no_masked_arrays_are_loaded() -> None:
    code = "import sys, numpy as np; from prep_assets.stores.arrays import in_arrow; in_arrow(np.arange(3)); sys.exit('numpy.ma' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
