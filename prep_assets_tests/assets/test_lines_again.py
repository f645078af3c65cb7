"""Lines asked for in the order of their sources: which one stands where, and which nobody asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.assets.checks.lines_again import LineByNumber, Wanted
from prep_assets.stores.lines import LinesWriter, open_lines


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30), unique=True))
def test_it_says_what_a_dictionary_says(places: list[int], asked: list[int]) -> None:
    wanted, plain = Wanted(np.array(places, np.int64)), {place: number for number, place in enumerate(places)}
    assert [wanted.take(place) for place in sorted(asked)] == [plain.pop(place, None) for place in sorted(asked)]
    assert sorted(wanted.rest()) == sorted(plain.values())


def test_numbers_may_be_given() -> None:
    wanted = Wanted(np.array([7, 3]), np.array([70, 30]))
    assert [wanted.take(place) for place in (3, 5, 7)] == [30, None, 70]


def test_of_lines_with_one_place_the_second_is_missed() -> None:
    wanted = Wanted(np.array([3, 3]))
    assert wanted.take(3) == 0
    assert list(wanted.rest()) == [1]


def test_lines_by_number(tmp_path: Path) -> None:
    rows = [{"a": number, "é": "x" * number} for number in range(300)]
    with LinesWriter(tmp_path, "f", ("a",)) as writer:
        for row in rows:
            writer.append(row, source=0, file=0, at=row["a"])  # type: ignore[arg-type]
    line = LineByNumber(open_lines(tmp_path, "f"))
    assert [line(number) for number in (0, 299, 7, 8)] == [rows[number] for number in (0, 299, 7, 8)]
