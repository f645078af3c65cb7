"""Packed tables against their records, in the words of the verdict."""

from __future__ import annotations

import re
from functools import partialmethod
from typing import Any

import pytest

from prep_assets.proofs.packed import check_pieces
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.packed import PackedStore
from prep_assets_tests.proofs.tables import MASKS, PAD, TOKENS, store
from prep_assets_tests.proofs.tables import table as rows_table


def proven(**changes: list[Any]) -> Verdict:
    return check_pieces(rows_table(**changes), {"a": store(*TOKENS, masks=MASKS)})


def test_a_sound_table() -> None:
    summary, numbers = "9 packed tokens equal their records, tokens and mask", {"tokens_checked": 9, "rows_checked": 2}
    assert proven() == Verdict(True, summary, numbers)


@pytest.mark.parametrize(
    ("changes", "row", "what", "checked"),
    [
        ({"tokens": [[5, 6, 7, 9, 8], [5, 5, 5, 5, PAD]]}, 0, "tokens differs from a record 1 at place 3 of the row", 3),
        ({"tokens": [[5, 6, 7, 8, 8], [5, 5, 5, 5, PAD]]}, 0, "tokens differs from a record 1 at place 4 of the row", 3),
        (
            {"tokens": [[5, 6, 7, 8, 8], [5, 5, 5, 5, PAD]], "loss_mask": [[0, 1, 1, 1, 1], [1, 0, 0, 1, 0]]},
            0,
            "tokens differs from a record 1 at place 4 of the row",
            3,
        ),
        ({"loss_mask": [[1, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}, 0, "loss_mask differs from a record 0 at place 0 of the row", 0),
        ({"loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 0, 0]]}, 1, "loss_mask differs from a record 2 at place 3 of the row", 5),
        ({"record": [0, 1, 3]}, 1, "a has no record 3", 5),
        ({"record": [0, 1, -1]}, 1, "a has no record -1", 5),
        ({"record": [0, 1, 1], "start": [0, 0, 0]}, 1, "a record 1 is shorter than its piece", 5),
        ({"record": [1, 1, 2], "start": [-3, 0, 0]}, 0, "a piece starts before a record 1", 0),
        ({"start": [0, 0, 1]}, 1, "a record 2 is shorter than its piece", 5),
        ({"row_offset": [0, 4, 0]}, 0, "a piece at 4 leaves its row", 3),
        ({"row_offset": [0, 3, -1]}, 1, "a piece at -1 leaves its row", 5),
        ({"source": [0, 0, 1]}, 1, "domain 1 has no record 2", 5),
        ({"source": [0, -1, 0]}, 0, "domain -1 has no record 1", 3),
    ],
)
def test_pieces_that_are_not_their_records(changes: dict[str, list[Any]], row: int, what: str, checked: int) -> None:
    packed = rows_table(**changes)
    ids, weights = packed.tokens[row].tolist(), packed.loss_mask[row].astype(float).tolist()
    place = re.search(r"at place (\d+)", what)
    worst = Worst(f"row {row}", what, tuple(ids), tuple(weights), int(place[1]) if place else -1)
    assert proven(**changes) == Verdict(False, f"row {row}: {what}", {"tokens_checked": checked}, worst)


def test_pieces_of_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once, with the rows of its own block."""
    monkeypatch.setattr(PackedStore, "blocks", partialmethod(PackedStore.blocks, tokens=1))
    assert proven().numbers == {"tokens_checked": 9, "rows_checked": 2}
    for key, rows, place in (("tokens", [[5, 6, 7, 8, 9], [5, 5, 5, 6, PAD]], 3), ("loss_mask", [[0, 1, 1, 0, 1], [1, 1, 0, 1, 0]], 1)):
        assert proven(**{key: rows}).summary == f"row 1: {key} differs from a record 2 at place {place} of the row"


PIECES = {"row": [3, 3, 4, 4, 4], "row_offset": [0, 3, 0, 2, 3], "length": [3, 2, 2, 1, 2]}
PIECES |= {"source": [0, 1, 0, 1, 0], "record": [0, 0, 2, 1, 1], "start": [0, 0, 2, 0, 0]}
