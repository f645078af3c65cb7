"""Rows that come in columns are selected as those that come one by one, together with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prep_assets.proofs import selection
from prep_assets.proofs.second_reading import MessageFields, MessageRows
from prep_assets.proofs.selection import Rules, select

FIELDS = MessageFields(("messages",), "role", "content")
RULES = Rules()


def row(text: str, **more: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, **more}]}


def columns(numbers: list[int], *texts: str) -> MessageRows:
    found = FIELDS.read(numbers, [json.dumps(row(text)).encode() for text in texts])
    assert found is not None
    return found


def selected(rows: list[Any], rules: Rules = RULES, file: int = 0) -> list[tuple[int, list[int], list[str]]]:
    return [(block.file, list(block.rows), list(block.fates)) for block in select([(file, False, iter(rows))], rules)]


def test_duplicates_are_found_across_rows_and_columns() -> None:
    rows = [
        columns([0, 1, 2], "a", "b", "a"),
        *((number, row(text)) for number, text in enumerate("ba", 3)),
        (5, row("c", name="n")),
        columns([6, 7, 8], "z", "b", "c"),
        (9, row("z")),
    ]
    assert selected(rows, file=4) == [
        (4, [0, 1, 2], ["good", "good", "duplicate"]),
        (4, [3, 4, 5], ["duplicate", "duplicate", "good"]),
        (4, [6, 7, 8], ["good", "duplicate", "good"]),
        (4, [9], ["duplicate"]),
    ]
    kept = selected(rows, Rules(deduplicate=False))
    assert [fates for *_, fates in kept] == [["good"] * 3, ["good"] * 3, ["good"] * 3, ["good"]]


def test_columns_stay_what_they_are() -> None:
    both = columns([0, 1], "a", "b"), columns([3], "c")
    blocks = list(select([(0, False, iter([both[0], (2, row("x")), both[1]]))], RULES))
    assert blocks[0].payloads is both[0] and list(blocks[1].payloads) == [row("x")] and blocks[2].payloads is both[1]


def test_rows_before_columns_are_a_block_and_their_size_is_not_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [(0, row("a")), columns([1], "b"), (2, row("c")), (3, row("d")), (4, row("e"))]
    monkeypatch.setattr(selection, "MOST", len('{"messages":[{"content":"c","role":"user"}]}') + 1)
    assert [numbers for _, numbers, _ in selected(rows)] == [[0], [1], [2, 3], [4]]


def test_who_tells_what_came_before_is_asked_about_each_row_in_order() -> None:
    asked: list[tuple[int, int]] = []

    def first(file: int, number: int, digest: bytes) -> bool:
        asked.append((file, number))
        return number != 7

    rows: list[Any] = [columns([5, 7], "a", "b"), (8, row("c"))]
    blocks = list(select([(3, False, iter(rows))], RULES, first))
    assert asked == [(3, 5), (3, 7), (3, 8)]
    assert [list(block.fates) for block in blocks] == [["good", "duplicate"], ["good"]]


def test_rules_that_leave_out_more_than_duplicates() -> None:
    assert Rules(deduplicate=False).every
    for rules in (Rules(key="d"), Rules(where={"a": 1}), Rules(limit=1), Rules(forgotten=frozenset("a")), Rules(passages=object())):  # type: ignore[arg-type]
        assert not rules.every
