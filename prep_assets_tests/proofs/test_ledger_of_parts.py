"""Refusals of a part of a domain, and blocks that a ledger looks at row by row."""

from __future__ import annotations

import pytest

from prep_assets.proofs.accounting import Refusals, places
from prep_assets.proofs.second_reading import is_held_out
from prep_assets.proofs.verdict import Worst
from prep_assets_tests.proofs.test_ledger import NAMES, block, content, gone_through, stored

pytestmark = pytest.mark.usefixtures("short_stretches")
FILES = ["a", "b"]
LINES = [
    ("b:7", "deduplicate/duplicate"),
    ("a:4", "schema/x"),
    ("other:1", "deduplicate/duplicate"),
    ("a:0", "deduplicate/duplicate"),
    ("b:2", "schema/y"),
    ("a:9", "deduplicate/duplicate"),
]


@pytest.mark.parametrize(
    ("begin", "end", "inside"),
    [
        ((0, 0), (2, 0), ["a:0", "a:4", "a:9", "b:2", "b:7"]),
        ((0, 0), (0, 4), ["a:0"]),
        ((0, 4), (0, 9), ["a:4"]),
        ((0, 5), (1, 3), ["a:9", "b:2"]),
        ((1, 7), (1, 8), ["b:7"]),
        ((1, 8), (2, 0), []),
    ],
)
def test_refusals_of_a_part(begin: tuple[int, int], end: tuple[int, int], inside: list[str]) -> None:
    refusals = Refusals(LINES, FILES)
    part = refusals.within(int(places(*begin)), int(places(*end)))
    assert sorted(part.left()) == inside
    assert [part.reason(int(at)) for at in part.which] == [dict(LINES)[each] for each in inside]
    part.claim(part.which)
    assert part.left() == [] and len(refusals.left()) == len(refusals) == 6, "the others stay what they are"


@pytest.mark.parametrize(
    ("files", "found"), [(FILES, [(0, 0), (0, 9), (1, 7)]), (["b", "c"], [(0, 7)]), (["none"], [])], ids=["both", "one", "none"]
)
def test_places_of_duplicates(files: list[str], found: list[tuple[int, int]]) -> None:
    assert Refusals(LINES, files).duplicates() == {int(places(*each)) for each in found}
    assert Refusals([("a:0", "schema/x"), ("a:1", "schema/y"), ("a:2", "schema/z")], files).duplicates() == set()


def test_a_block_without_rows() -> None:
    assert gone_through([block(0, []), block(0, [3]), block(1, [])], stored((0, 3, False, 0))).passed


def test_a_text_that_says_on_which_side_it_belongs_is_believed_before_its_content() -> None:
    inside = [row for row in range(20) if is_held_out(content({"row": row}), 0.5)]
    assert 0 < len(inside) < 20
    rows = [block(0, range(20))]
    found = gone_through(rows, stored(*((0, row, row in inside, 0) for row in range(20))), fraction=0.5)
    assert found.numbers["faults"] == len(inside)
    assert found.worst == Worst(f"{NAMES[0]}:{inside[0]}", "is stored held out, and belongs to what is to train on")
