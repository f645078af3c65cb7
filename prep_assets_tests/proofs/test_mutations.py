"""A corruption changes what it says of one row, and none where that is nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.mutations import mutate_alone, mutate_field, mutate_one


@dataclass(frozen=True)
class Row:
    ids: Any
    note: Any = "so"
    size: Any = 2


def test_one_row_of_several_is_corrupted_or_shown_alone() -> None:
    one, alone = (
        mutate_one(lambda row, *more: None if row == "b" else (row, *more)),
        mutate_alone(lambda row: None if row == "b" else row + "!"),
    )
    assert one(["a", "b", "c", "d"], 2, 7, 8) == ["a", "b", ("c", 7, 8), "d"] and one(["a"], 0) == [("a",)]
    assert alone(["a", "b", "c"], 2) == ["c!"]
    assert one(["a", "b"], 1) is None and alone(["a", "b"], 1) is None


@pytest.mark.parametrize(
    ("name", "value", "new", "changed"),
    [
        ("note", "so", "no", True),
        ("note", "so", "so", False),
        ("note", "so", None, False),
        ("note", None, "no", False),
        ("note", 1, True, True),
        ("note", 1, 1, False),
        ("ids", np.array([1, 2], np.uint16), np.array([2, 1]), True),
        ("ids", np.array([1, 2], np.uint16), np.array([1.5, 2]), False),
        ("ids", np.array([1, 2], np.uint16), np.array([1]), True),
    ],
)
def test_a_field_is_corrupted_where_that_changes_it(name: str, value: Any, new: Any, changed: bool) -> None:
    """By what becomes of it and of other fields; an array keeps its type."""
    row, asked = Row(**{"ids": None, name: value}), list[Any]()
    found = mutate_field(name, lambda *given: (asked.append(given), new)[1], "size", "note")(row, "further arguments")
    assert asked == ([] if value is None else [(value, 2, row.note)])
    if not changed:
        assert found is None
    elif name == "ids":
        assert (found.ids.tolist(), found.ids.dtype, found.note) == (new.tolist(), value.dtype, "so")
    else:
        assert (found.note, type(found.note), found.size) == (new, type(new), 2)
