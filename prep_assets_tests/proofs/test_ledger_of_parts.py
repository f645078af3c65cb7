"""Refusals of a part of a domain, and blocks that a ledger looks at row by row."""

from __future__ import annotations

import numpy as np
import pytest

from prep_assets.proofs.held_out import is_held_out
from prep_assets.proofs.ledger import Refusals, places
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
    refusals = Refusals(LINES)
    part = refusals.within(FILES, int(places(*begin)), int(places(*end)))
    assert part.left() == inside and len(part) == len(inside)
    assert [part.reason(at) for at in range(len(part))] == [dict(LINES)[each] for each in inside]
    part.claim(part.of(FILES).which)
    assert part.left() == [] and len(refusals.left()) == len(refusals) == 6, "the others stay what they are"


def test_refusals_that_another_domain_has_claimed_are_of_no_part() -> None:
    refusals = Refusals(LINES)
    refusals.claim(np.array([1, 3]))
    part = refusals.within(FILES, 0, int(places(1, 0)))
    assert part.left() == ["a:9"] and part.of(FILES).place.tolist() == [9]


def test_places_of_duplicates() -> None:
    refusals = Refusals(LINES)
    assert refusals.duplicates(FILES) == {int(places(*each)) for each in ((0, 0), (0, 9), (1, 7))}
    assert refusals.duplicates(["b", "c"]) == {7}
    assert refusals.duplicates(["none"]) == set()
    assert Refusals([("a:0", "schema/x"), ("a:1", "schema/y"), ("a:2", "schema/z")]).duplicates(["a"]) == set()


def test_a_block_without_rows() -> None:
    assert gone_through([block(0, []), block(0, [3]), block(1, [])], stored((0, 3, False, 0))).passed


def test_a_text_that_says_on_which_side_it_belongs_is_believed_before_its_content() -> None:
    inside = [row for row in range(20) if is_held_out(content({"row": row}), 0.5)]
    assert 0 < len(inside) < 20
    rows = [block(0, range(20))]
    found = gone_through(rows, stored(*((0, row, row in inside, 0) for row in range(20))), fraction=0.5)
    assert found.numbers["faults"] == len(inside)
    assert found.worst == Worst(f"{NAMES[0]}:{inside[0]}", "is stored held out, and belongs to what is to train on")
