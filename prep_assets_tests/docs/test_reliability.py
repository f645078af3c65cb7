"""What attacks found: each row of the table in harness/findings.md names files of the package and tests that are there."""

from __future__ import annotations

import re

import pytest

from prep_assets_tests.conftest import ROOT

PAGE = (ROOT / "prep_assets_tests" / "harness" / "findings.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in PAGE.splitlines() if re.match(r"\| (F|R|Design )\d", line)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split(" ")[0] + row[0].split(" ")[1])
def test_a_finding_has_its_mechanism_and_its_test(row: list[str]) -> None:
    found, held_by, tests = row
    for path in re.findall(r"`([a-z_/]+(?:\.py|\.yaml|/))`", held_by):
        assert (ROOT / "prep_assets" / path).exists() or (ROOT / path).exists(), f"{found}: {path}"
    named = re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", tests)
    assert named, found
    for file, test in named:
        assert f"def {test}(" in (ROOT / "prep_assets_tests" / file).read_text("utf-8"), f"{found}: {file}::{test}"


def test_none_is_left_out() -> None:
    findings = " ".join(row[0] for row in ROWS)
    assert re.findall(r"\bF\d+", findings) == [f"F{number}" for number in range(1, 20)]
    assert re.findall(r"\bR\d", findings) == [f"R{number}" for number in range(1, 7)]
    assert re.findall(r"Design (\d)", findings) == list("345678")
