"""Lines asked for in the order of their sources: which one stands where, and which nobody asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.assets.checks.lines_again import LineByNumber, Wanted
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.graph import EVERY
from prep_assets.engine.checking import verdicts
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.lines import LinesWriter, open_lines
from prep_assets_tests.assets.workspaces import build_all, domain, jsonl, minimal, resealed
from prep_assets_tests.proofs.spoiled_lines import on_row


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
    for numbers in ([], [3], [4, 5, 6], [298, 299, 0, 1, 7, 7]):
        assert line.some(numbers) == [rows[number] for number in numbers]


def test_lines_and_their_rows_come_of_one_reading(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both files of a split, whatever else is asked for, and whether or not a line differs."""
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(40)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    readings: list[int] = []
    rows_of = Second.rows
    monkeypatch.setattr(Second, "rows", lambda *of: readings.append(1) or rows_of(*of))

    def found(*names: str) -> tuple[dict[str, Verdict], int]:
        readings.clear()
        checks = [check for check in EVERY["preferences_by_domain"].checks if check.name in names]
        return dict(verdicts(workspace, EVERY["preferences_by_domain"], published, checks)), len(readings)

    alone = {**found("source_match")[0], **found("selection")[0]}
    assert found("source_match")[1] == 1
    assert found("source_match", "selection") == (alone, 1)
    assert all(verdict.passed for verdict in alone.values())
    on_row("preferences", 4, chosen="maybe")(published)
    published = resealed(published)
    wrong, count = found("source_match", "selection")
    assert wrong == {**found("source_match")[0], "selection": alone["selection"]} and count == 1
    assert not wrong["source_match"].passed
