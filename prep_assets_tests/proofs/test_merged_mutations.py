"""Each corruption of a merged store does what its name says, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.merged import MergedRows
from prep_assets.proofs.mutations import LINE_MUTATIONS, RECORD_MUTATIONS, Records

SHELF = MergedRows(np.array([[0, 0, 1], [0, 0, 2], [1, 0, 1]]), [b'{"a": {"b": 1}}', b"{}", b'{"c": 2}'])


def as_lists(store: MergedRows | None) -> tuple[Any, Any] | None:
    return None if store is None else (store.origin.tolist(), list(store.lines))


@pytest.mark.parametrize(
    ("name", "at", "order", "origin"),
    [
        ("a line lost", 1, [0, 2], [0, 2]),
        ("a line twice", 1, [0, 1, 2, 1], [0, 1, 2, 1]),
        ("two lines exchanged", 2, [2, 1, 0], [0, 1, 2]),
        ("another order", 2, [2, 1, 0], [2, 1, 0]),
    ],
)
def test_lines_moved(name: str, at: int, order: list[int], origin: list[int]) -> None:
    [mutation] = (each for each in LINE_MUTATIONS if each.name == name)
    lines = list(SHELF.lines)
    assert as_lists(mutation.change(SHELF, at)) == (SHELF.origin[origin].tolist(), [lines[each] for each in order])


def test_lines_changed() -> None:
    by_name = {each.name: each.change for each in LINE_MUTATIONS}
    lines = list(SHELF.lines)
    assert len(by_name) == 6
    assert as_lists(by_name["a space more in a line"](SHELF, 0)) == (SHELF.origin.tolist(), [b'{"a": {"b": 1 }}', *lines[1:]])
    assert as_lists(by_name["a line of another domain"](SHELF, 1)) == ([[0, 0, 1], [1, 0, 2], [1, 0, 1]], lines)
    assert as_lists(by_name["a line of another domain"](SHELF, 2)) == ([[0, 0, 1], [0, 0, 2], [2, 0, 1]], lines)
    one, same = MergedRows(SHELF.origin[:1], [b"{}"]), MergedRows(SHELF.origin[:2], [b"{}", b"{}"])
    assert by_name["another order"](one, 0) is None and by_name["two lines exchanged"](same, 0) is None
    assert as_lists(by_name["another order"](same, 0)) == ([[0, 0, 2], [0, 0, 1]], [b"{}", b"{}"])
    assert SHELF.origin.tolist() == [[0, 0, 1], [0, 0, 2], [1, 0, 1]]


FOUND = Records(
    {"tokens": np.array([5, 6, 7, 8]), "loss_mask": np.array([0, 1, 1, 1])}, np.array([2, 3, 4]), np.array([0, 0, 1]), np.array([4, 6, 9])
)


def plain(found: Records | None) -> Any:
    return (
        None
        if found is None
        else ({key: each.tolist() for key, each in found.arrays.items()}, found.ends.tolist(), found.file.tolist(), found.row.tolist())
    )


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("a record lost", 0, ({"tokens": [7, 8], "loss_mask": [1, 1]}, [1, 2], [0, 1], [6, 9])),
        ("a record twice", 1, ({"tokens": [5, 6, 7, 8, 7], "loss_mask": [0, 1, 1, 1, 1]}, [2, 3, 4, 5], [0, 0, 1, 0], [4, 6, 9, 6])),
        ("two records exchanged", 2, ({"tokens": [8, 7, 5, 6], "loss_mask": [1, 1, 0, 1]}, [1, 2, 4], [0, 0, 1], [4, 6, 9])),
        ("a record of another line", 1, ({"tokens": [5, 6, 7, 8], "loss_mask": [0, 1, 1, 1]}, [2, 3, 4], [0, 0, 1], [4, 7, 9])),
        ("another token", 0, ({"tokens": [5, 7, 7, 8], "loss_mask": [0, 1, 1, 1]}, [2, 3, 4], [0, 0, 1], [4, 6, 9])),
        ("a loss mask turned round", 0, ({"tokens": [5, 6, 7, 8], "loss_mask": [0, 0, 1, 1]}, [2, 3, 4], [0, 0, 1], [4, 6, 9])),
        ("another reward", 0, None),
        ("another log-probability", 0, None),
        ("a border moved", 0, ({"tokens": [5, 6, 7, 8], "loss_mask": [0, 1, 1, 1]}, [1, 3, 4], [0, 0, 1], [4, 6, 9])),
        ("a border moved", 1, ({"tokens": [5, 6, 7, 8], "loss_mask": [0, 1, 1, 1]}, [2, 2, 4], [0, 0, 1], [4, 6, 9])),
        ("a border moved", 2, None),
    ],
)
def test_records(name: str, at: int, expected: Any) -> None:
    before = plain(FOUND)
    [mutation] = (each for each in RECORD_MUTATIONS if each.name == name)
    assert plain(mutation.change(FOUND, at)) == expected and plain(FOUND) == before


def test_what_does_not_lend_itself() -> None:
    same = Records({"tokens": np.array([5, 5])}, np.array([1, 2]), np.array([0, 0]), np.array([1, 2]))
    assert kit._records_exchanged(same, 0) is None
    rewards = Records({"rewards": np.array([0.5, 1.0], np.float32)}, np.array([2]), np.array([0]), np.array([1]))
    assert plain(kit._value("rewards")(rewards, 0)) == ({"rewards": [0.5, 2.0]}, [2], [0], [1])
    masked = {"tokens": [5, 6, 7, 8], "loss_mask": [0, 1, 0, 1]}
    assert plain(kit._value("loss_mask")(FOUND, 1)) == (masked, [2, 3, 4], [0, 0, 1], [4, 6, 9])
    masked = {"tokens": [5, 6, 7, 8], "loss_mask": [0, 0, 1, 1]}
    assert plain(kit._value("loss_mask")(FOUND, 0)) == (masked, [2, 3, 4], [0, 0, 1], [4, 6, 9])
    assert kit._value("rewards")(FOUND, 0) is None
    alone = Records({"tokens": np.array([5])}, np.array([1]), np.array([0]), np.array([1]))
    assert plain(kit._record_lost(alone, 0)) == ({"tokens": []}, [], [], [])
