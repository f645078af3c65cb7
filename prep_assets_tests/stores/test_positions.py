"""Positions worked out when they are read, against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.stores.segments import Positions

DOCUMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=6)
"""Of each document the gap before it and its length."""


def counted(documents: list[tuple[int, int]], after: int) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and all positions."""
    starts, ends, positions = [], [], list[int]()
    for gap, length in documents:
        positions += [0] * gap
        starts.append(len(positions))
        positions += range(length)
        ends.append(len(positions))
    return starts, ends, positions + [0] * after


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 40), st.integers(0, 40))
def test_every_slice(documents: list[tuple[int, int]], after: int, begin: int, end: int) -> None:
    starts, ends, expected = counted(documents, after)
    positions = Positions(np.array(starts, np.int64), np.array(ends, np.int64), len(expected))
    assert positions[begin:end].tolist() == expected[begin:end]
    assert positions[:].tolist() == expected
    assert positions[begin:end].dtype == positions.dtype == np.int32


def test_a_document_longer_than_what_is_counted_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.stores.segments._LONGEST_RAMP", 4)
    starts, ends, expected = counted([(0, 3), (2, 9), (1, 4)], 2)
    positions = Positions(np.array(starts), np.array(ends), len(expected))
    assert [positions[begin : begin + 6].tolist() for begin in range(21)] == [expected[begin : begin + 6] for begin in range(21)]


def test_steps_are_refused() -> None:
    with pytest.raises(IndexError, match="steps of 1"):
        Positions(np.zeros(1, np.int64), np.ones(1, np.int64), 1)[::2]
