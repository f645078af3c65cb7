"""Columns of an index are what NumPy reads of their files, whichever way they are read."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, save_array
from prep_assets.stores.guards import UNGUARDED, load_array

DTYPES = ("<i8", "<i4", "<u2", "|u1", "|i1", "<f8", ">i4", "|b1", "<c16")
WHOLE = ("<i8", "<i4", "<u2", "|u1", "|i1")


def read(path: Path) -> Any:
    """What NumPy reads of a file; the message of a refusal where it reads none, or no column of numbers."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        return f"{path} is missing or damaged ({type(error).__name__}: {str(error)[:200]}). Build the store again"
    fits = found.ndim == 1 and found.dtype.kind in "iuf"
    return found if fits else f"{path}: {found.dtype.name} of shape {found.shape}, expected numbers of one dimension. Build the store again"


def without_addresses(message: str) -> str:
    """A message without addresses of objects, which NumPy names for some headers and which differ from call to call."""
    return re.sub("0x[0-9a-f]+", "0x", message)


def same(path: Path) -> None:
    expected = read(path)
    if isinstance(expected, str):
        with pytest.raises(StoreError) as caught:
            load_array(path, UNGUARDED)
        assert without_addresses(str(caught.value)) == without_addresses(expected)
    else:
        found = load_array(path, UNGUARDED)
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
        assert not found.flags.writeable


def saved(shape: tuple[int, ...], dtype: str, fortran: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(np.arange(np.prod(shape)).reshape(shape), dtype, order="F" if fortran else "C"))
    return file.getvalue()


@pytest.mark.parametrize("dtype", WHOLE)
def test_a_column_is_read_without_the_reader_of_other_headers(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 1, 1000):
        save_array(tmp_path / "saved.npy", np.arange(count, dtype=dtype) if dtype[1:] != "1" else np.zeros(count, dtype))
        grown = Columns(tmp_path, {"grown": dtype})
        grown.append({"grown": np.zeros(count, dtype)})
        grown.close()
        expected = [np.load(tmp_path / name) for name in ("saved.npy", "grown.npy")]
        with monkeypatch.context() as patch:
            patch.delattr(np, "load")
            found = [load_array(tmp_path / name, UNGUARDED) for name in ("saved.npy", "grown.npy")]
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    dtype=st.sampled_from(DTYPES),
    fortran=st.booleans(),
    cut=st.integers(-20, 20),
    change=st.none() | st.tuples(st.integers(0, 139), st.integers(0, 255)),
)
@example((5,), "<i4", False, 4, None)  # an element more than the header says
@example((5,), "<i4", False, -4, None)
@example((5,), "<i4", False, -200, None)  # nothing at all
@example((2, 3), "<i4", True, 0, None)
@example((5,), "<i4", False, 0, (21, ord(">")))
@example((10,), "<i4", False, 0, (61, ord("0")))  # (00,) is no number
def test_it_is_what_numpy_reads_of_it(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, fortran: bool, cut: int, change: tuple[int, int] | None
) -> None:
    data = bytearray(saved(shape, dtype, fortran))
    data = data[:cut] if cut < 0 else data + bytes(cut)
    if change is not None and change[0] < len(data):
        data[change[0]] = change[1]
    path = tmp_path / "column.npy"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    same(path)
