"""Lines asked for in the order of their sources: which one stands where, and which nobody asks for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.checks.sources_again import DomainSource, Rows, StoredLines
from prep_assets.engine.execute import verdicts_of as verdicts
from prep_assets.graph.graph import EVERY
from prep_assets.proofs.verdict import Verdict
from prep_assets.stores.lines import LinesWriter, open_lines
from prep_assets_tests.graph.workspaces import build_all, domain, jsonl, minimal, resealed
from prep_assets_tests.proofs.spoiled_lines import on_row


def lines_of(folder: Path, places: list[int]) -> StoredLines:
    """Lines of these rows of one file."""
    for old in folder.glob("f.*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    with LinesWriter(folder, "f", ("a",)) as writer:
        for number, place in enumerate(places):
            writer.append({"n": number, "\u00e9": "x" * number}, source=0, file=0, at=place)
    return StoredLines(open_lines(folder, "f"))


@given(places=st.lists(st.integers(0, 30)), asked=st.sets(st.integers(0, 30)), size=st.integers(1, 4))
def test_lines_are_found_by_their_rows_as_in_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], asked: set[int], size: int
) -> None:
    """Of two lines of one row the second is missed."""
    found = lines_of(tmp_path_factory.getbasetemp(), places)
    plain = {place: number for number, place in reversed(list(enumerate(places)))}
    ordered = sorted(asked)
    for some in (ordered[first : first + size] for first in range(0, len(ordered), size)):
        assert found.of(Rows(0, some, [])) == [(plain[place], which) for which, place in enumerate(some) if place in plain]
    missed = found.missed()
    assert sorted(missed) == sorted({*range(len(places))} - {plain[place] for place in ordered if place in plain})
    assert [found.origin(line) for line in missed] == [f"0:{places[line]}" for line in missed]
    assert found.of(Rows(1, [0], [])) == [] and len(found) == len(places)


def test_lines_by_number(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, list(range(300)))
    for numbers in ([], [3], [0, 299, 7, 8], [4, 5, 6], [298, 299, 0, 1, 7, 7]):
        assert lines.objects(numbers) == [{"n": number, "\u00e9": "x" * number} for number in numbers]
        assert [json.loads(line) for line in lines.written(numbers)] == lines.objects(numbers)


def test_lines_and_their_rows_come_of_one_reading(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of both files of a split, whatever else is asked for, and whether or not a line differs."""
    rows = [{"prompt": f"P{i}?", "chosen": "yes", "rejected": "no"} for i in range(40)]
    workspace = make(minimal("preference", {"p": domain(jsonl(tmp_path / "p.jsonl", rows), "preference")}, test_fraction=0.3))
    published = build_all(workspace, ["preference"])["preferences_by_domain", "p"]
    readings: list[int] = []
    rows_of = DomainSource.rows
    monkeypatch.setattr(DomainSource, "rows", lambda *of: readings.append(1) or rows_of(*of))

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
