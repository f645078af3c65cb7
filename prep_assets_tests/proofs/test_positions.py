"""Position ids of a packed table, place by place and block by block."""

from __future__ import annotations

import numpy as np
import pytest

from prep_assets.proofs import rows as positions
from prep_assets.proofs.rows import check_positions
from prep_assets.proofs.verdict import Verdict, Worst

DOCUMENTS = {"row": np.array([0, 0, 1, 2]), "row_offset": np.array([0, 3, 0, 0]), "length": np.array([3, 2, 1, 6])}
RIGHT = np.array([[0, 1, 2, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]], np.int32)


@pytest.mark.parametrize("rows", [1, 2, 4096])
def test_right_positions(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(positions, "BLOCK", rows * 6)
    assert check_positions(RIGHT, DOCUMENTS, 6).passed


@pytest.mark.parametrize("rows", [1, 2, 4096])
@pytest.mark.parametrize(
    ("row", "place", "value", "right"), [(0, 3, 3, 0), (0, 4, 0, 1), (0, 2, 0, 2), (0, 5, 2, 0), (1, 1, 1, 0), (2, 5, 4, 5)]
)
def test_a_wrong_position(monkeypatch: pytest.MonkeyPatch, rows: int, row: int, place: int, value: int, right: int) -> None:
    monkeypatch.setattr(positions, "BLOCK", rows * 6)
    wrong = RIGHT.copy()
    wrong[row, place] = value
    says = f"position id {value} at place {place}, its piece begins {right} before"
    size = wrong[row - row % rows : row - row % rows + rows].size
    assert check_positions(wrong, DOCUMENTS, 6) == Verdict(False, f"row {row}: {says}", {"positions": size}, Worst(f"row {row}", says))


def test_a_table_is_read_in_blocks() -> None:
    assert positions.BLOCK == 1 << 20
    assert check_positions(np.zeros((0, 6), np.int32), {field: np.zeros(0, np.int64) for field in DOCUMENTS}, 6).passed


def test_the_numbers_of_a_sound_table() -> None:
    assert check_positions(RIGHT, DOCUMENTS, 6) == Verdict(True, "18 position ids count from 0 in each piece", {"positions": 18})
    many = {field: np.arange(1000) if field == "row" else np.full(1000, field == "length") * 2 for field in DOCUMENTS}
    assert check_positions(np.tile([0, 1], (1000, 1)), many, 2).summary == "2,000 position ids count from 0 in each piece"
    wrong = np.tile([0, 1], (2000, 1))
    wrong[1000, 1] = 0
    many["row"] = np.arange(1000) * 2
    assert check_positions(wrong[:1001], many, 2).summary.startswith("row 1: ")
