"""The books of a store: each way in which they do not balance, in the words of the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.accounting import account
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import Refusal

COUNTS: dict[str, Any] = {"read": 5000, "kept": 4998, "refused": {"schema/x": 2}}
NUMBERS = {"read": 5000, "kept": 4998, "refused": 2}


def refusal(reason: str, stage: str = "schema") -> Refusal:
    return Refusal("a:0", stage, reason, "why", "{}", 2)


def verdict(counts: dict[str, Any] = COUNTS, stored: int = 4998, available: int | None = 5000, **fields: Any) -> Verdict:
    return account(counts, [refusal("x"), refusal("x")], stored=stored, available=available, **fields)


@pytest.mark.parametrize("available", [5000, None])
def test_books_that_balance(available: int | None) -> None:
    assert verdict(available=available) == Verdict(True, "5,000 read = 4,998 kept + 2 refused", NUMBERS)
    assert account({"read": 0, "kept": 0}, [], stored=0, available=0).passed


@pytest.mark.parametrize(
    ("counts", "stored", "available", "says"),
    [
        ({}, 4998, 6000, "5,000 read, the stage before offers 6,000"),
        ({"kept": 4999}, 4998, 5000, "4,998 records are stored, the manifest says 4,999"),
        ({"read": 6000}, 4998, 6000, "6,000 read, but 4,998 kept + 2 refused = 5,000"),
        (
            {"refused": {"schema/y": 2, "schema/x": 1}},
            4998,
            5000,
            "the quarantine file lists {'schema/x': 2}, the manifest says {'schema/y': 2, 'schema/x': 1}",
        ),
        ({"refused": {}}, 4998, 5000, "the quarantine file lists {'schema/x': 2}, the manifest says {}"),
        (
            {},
            4997,
            None,
            "4,997 records are stored, the manifest says 4,998; 5,000 read, but 4,997 kept + 2 refused = 4,999",
        ),
    ],
)
def test_books_that_do_not_balance(counts: dict[str, Any], stored: int, available: int | None, says: str) -> None:
    counts = COUNTS | counts
    numbers = {"read": counts["read"], "kept": stored, "refused": 2}
    assert verdict(counts, stored, available) == Verdict(False, says, numbers, Worst("manifest", says))


def test_fields_that_are_passed_over_are_counted() -> None:
    counts = COUNTS | {"fields_passed_over": {"a": {"id": 5000, "messages[].ID": 1}, "b": {"own": 3}}}
    found = verdict(counts, neutral={"id"}, ignored={"b/own"})
    passed_over = {"passed over: a/id": 5000, "passed over: a/messages[].ID": 1, "passed over: b/own": 3}
    assert found == Verdict(
        True,
        "5,000 read = 4,998 kept + 2 refused; fields left unread: a/id in 5,000, a/messages[].ID in 1, b/own in 3",
        NUMBERS | passed_over,
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"a": {"own": 3, "other": 1}}, "fields that nobody listed were passed over: a/own, a/other"),
        ({"a": {"id.own": 3}}, "fields that nobody listed were passed over: a/id.own"),
        ({"a": {"id": 5001, "x.id": 0}}, "fields were passed over in more rows than were read: id in 5,001, x.id in 0"),
    ],
)
def test_fields_that_may_not_be_passed_over(fields: dict[str, dict[str, int]], says: str) -> None:
    found = verdict(COUNTS | {"fields_passed_over": fields}, neutral={"id"})
    assert not found.passed
    assert found.summary.replace(" a/id in", " id in").replace(" a/x.id", " x.id") == says
