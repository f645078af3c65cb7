"""Several arrays read as one, against the one that `np.concatenate` makes of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.stores.segments import Segmented

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
EDGE = st.none() | st.integers(-40, 40)


def parts(lengths: list[int]) -> list[npt.NDArray[Any]]:
    bounds = np.cumsum([0, *lengths])
    return [np.arange(low, high, dtype=np.uint16) for low, high in pairwise(bounds)]


@given(LENGTHS, EDGE, EDGE)
def test_slices_are_those_of_the_joined_array(lengths: list[int], start: int | None, stop: int | None) -> None:
    arrays = parts(lengths)
    joined = np.concatenate(arrays)
    segmented = Segmented(arrays)
    found = segmented[start:stop]
    assert found.tolist() == joined[start:stop].tolist()
    assert found.dtype == segmented.dtype == np.uint16
    assert len(segmented) == len(joined)


@given(st.lists(LENGTHS, min_size=1, max_size=4), EDGE, EDGE)
def test_segmented_arrays_nest(nested: list[list[int]], start: int | None, stop: int | None) -> None:
    flat = parts([length for lengths in nested for length in lengths])
    pieces: list[Any] = []
    at = 0
    for lengths in nested:
        pieces.append(Segmented(flat[at : at + len(lengths)]))
        at += len(lengths)
    assert Segmented(pieces)[start:stop].tolist() == np.concatenate(flat)[start:stop].tolist()


def test_a_slice_inside_one_part_is_a_view() -> None:
    """Memory-mapped shards are read in place."""
    arrays = parts([4, 4])
    assert np.shares_memory(Segmented(arrays)[5:7], arrays[1])


def test_steps_are_refused() -> None:
    with pytest.raises(IndexError, match="steps of 1"):
        Segmented(parts([3, 3]))[::2]
