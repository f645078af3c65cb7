"""The books of a store: each way in which they do not balance, in the words of the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.quarantine import Refusal
from prep_assets.proofs.accounting import SAMPLED, Fields, account
from prep_assets.proofs.verdict import Verdict, Worst

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


def test_tokens_are_counted_again() -> None:
    counts = COUNTS | {"tokens": 7000, "trained_tokens": 3}
    assert verdict(counts, recounted={"tokens": 7000, "trained_tokens": 3, "kept_dev": 9}).passed
    says = "tokens: 7,001 in the store, the manifest says 7,000; trained_tokens: 2 in the store, the manifest says 3"
    assert verdict(counts, recounted={"tokens": 7001, "trained_tokens": 2}).summary == says


ROWS: list[dict[str, Any]] = [
    {"id": "a", "mood": "", "messages": [{"text": "x", "meta": {}}, {"text": "y", "meta": {"n": 0}}]},
    {"id": 0, "mood": None, "messages": [], "a.b": {"c": False}},
    {"id": [], "mood": {}, "turns": {"one": {"at": 1}, "two": {"at": None}}, "a": {"b": {"c": ""}}},
    {"messages": [{"other": None}, {"other": ""}]},
    {"id": [[]], "mood": "so", "turns": {"one": 1}, "a": {"b.c": 1}, "messages": "none"},
]


def reads(*names: str) -> Callable[[Mapping[str, Any]], set[str]]:
    """A schema that passes over all but these fields; it counts no more than that they are there."""
    return lambda row: {name for name, value in row.items() if value not in (None, "", {}, []) and name not in names}


def test_fields_are_counted_again() -> None:
    claimed = {"id": 2, "messages.meta": 1, "turns.*.at": 1, "a.b.c": 2, "messages.text": 1}
    fields = Fields("d", claimed, ["mood"], reads("id", "messages", "turns", "a"))
    fields.add(range(len(ROWS)), ROWS, range(len(ROWS)))
    assert fields.found == {"id": 3, "mood": 1, "messages.meta": 1, "turns.*.at": 1, "a.b.c": 2, "messages.text": 1}


@pytest.mark.parametrize(
    ("claimed", "ignored", "read", "says"),
    [
        ({"id": 3}, [], ["messages"], []),
        ({"id": 4}, [], ["messages"], ["'id' is passed over in 3 rows by a second reading, in 4 as the manifest says"]),
        ({"id": 2}, [], ["messages"], ["'id' is passed over in 3 rows by a second reading, in 2 as the manifest says"]),
        # a field that is read in some rows
        ({"id": 2}, [], ["messages", "one"], []),
        ({"id": 1}, [], ["messages", "one"], ["'id' is passed over in 2 rows by a second reading, in 1 as the manifest says"]),
        ({"id": 2, "mood": 1}, ["mood"], ["messages", "one"], []),
        ({"id": 2}, ["mood"], ["messages", "one"], ["'mood' is passed over in 1 rows by a second reading, in 0 as the manifest says"]),
        ({"id": 3}, ["messages.meta"], ["messages"], []),
        (
            {"messages.other": 1},
            [],
            ["id", "messages"],
            ["'messages.other' is passed over in 0 rows by a second reading, in 1 as the manifest says"],
        ),
        ({}, [], ["id", "messages"], []),
        ({"no": 1}, [], ["id", "messages"], ["'no' is passed over in 0 rows by a second reading, in 1 as the manifest says"]),
    ],
)
def test_fields_that_are_counted_otherwise(claimed: dict[str, int], ignored: list[str], read: list[str], says: list[str]) -> None:
    def passed_over(row: Mapping[str, Any]) -> set[str]:
        skipped = {
            "turns",
            "a",
            "a.b",
            *(["mood"] if "mood" not in {*claimed, *ignored} else []),
            *(["id"] if "one" in read and row.get("id") == 0 else []),
        }
        return reads(*read, *skipped)(row)

    fields = Fields("d", claimed, ignored, passed_over)
    fields.add(range(len(ROWS)), ROWS, range(len(ROWS)))
    assert fields.faults(lambda: ROWS) == [f"of domain d {each}" for each in says]


@pytest.mark.parametrize(("number", "found"), [(0, True), (1, False), (63, False), (64, True)])
def test_a_field_that_the_manifest_does_not_name_is_found_in_sampled_rows(number: int, found: bool) -> None:
    fields = Fields("d", {}, [], reads("text"))
    rows = [{"text": "x", "source": "y" if at == number else None, "id": "z" if at == number else ""} for at in range(100)]
    fields.add(range(100), rows, range(100))
    says = [f"of domain d {name!r} is passed over, which the manifest does not name" for name in ("id", "source")]
    assert fields.faults(list) == (says if found else [])


@given(st.lists(st.lists(st.booleans(), max_size=9), max_size=40), st.sampled_from([{}, {"b": 1}]), st.sampled_from([[], ["c"]]))
def test_rows_of_a_block_are_rows_one_by_one(blocks: list[list[bool]], claimed: dict[str, int], ignored: list[str]) -> None:
    """Those that their schema has read, by their numbers in the file."""
    single, blockwise = [Fields("d", claimed, ignored, lambda row: {f"x{row['a'] % 5}"}) for _ in range(2)]
    number = 0
    for block in blocks:
        rows = [{"a": number + at, "b": "x"} if read else None for at, read in enumerate(block)]
        read = [at for at, row in enumerate(rows) if row is not None]
        for at in read:
            single.add([number + at], [rows[at]], [0])
        blockwise.add(range(number, number + len(rows)), rows, read)
        number += len(rows)
    assert (single.found, single.unnamed) == (blockwise.found, blockwise.unnamed)


def test_one_row_in_so_many_is_converted_once_more() -> None:
    passed_over = Mock(return_value=set())
    fields = Fields("d", {}, [], passed_over)
    fields.add(range(2 * SAMPLED + 1), [{}] * (2 * SAMPLED + 1), range(2 * SAMPLED + 1))
    assert passed_over.call_count == 3
