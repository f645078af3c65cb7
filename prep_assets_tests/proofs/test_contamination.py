"""Passages of benchmarks: what counts as one, and where they are looked for."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.selection import FEWEST, Passages, texts

EIGHT = "one two three four five six seven eight"
TEN = EIGHT + " nine ten"


def test_the_shortest_passage() -> None:
    assert FEWEST == 8


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("A b-c, D!", [["a", "b", "c", "d"]]),
        ("", [[]]),
        ({"x": "one", "y": ["two", {"z": "STRASSE Straße"}]}, [["two"], ["one"], ["strasse", "strasse"]]),
        (7, []),
        (None, []),
        ([1, True, ("a",)], [["a"]]),
    ],
)
def test_the_words_of_every_string(value: Any, found: list[list[str]]) -> None:
    assert sorted(texts(value)) == sorted(found)


def test_passages_of_a_benchmark() -> None:
    passages = Passages.of([{"question": TEN}, {"question": "too short to be one"}, EIGHT], 9)
    assert passages == Passages(
        9,
        {
            9: {"one two three four five six seven eight nine", "two three four five six seven eight nine ten"},
            8: {EIGHT},
        },
    )


@pytest.mark.parametrize(
    ("row", "held"),
    [
        ({"text": f"well, {EIGHT.upper()}!"}, True),
        ({"text": "x", "messages": [{"content": EIGHT.replace(" ", "\n")}]}, True),
        ({"text": EIGHT.replace("five", "fifth")}, False),
        ({"a": "one two three four", "b": "five six seven eight"}, False),
        ({"text": EIGHT.removesuffix(" eight")}, False),
        ({}, False),
    ],
)
def test_a_row_that_holds_a_passage(row: dict[str, Any], held: bool) -> None:
    assert Passages.of([EIGHT], 13).holds(row) is held


def test_a_text_of_fewer_words_than_the_shortest_passage_is_none() -> None:
    assert Passages.of(["one two three four five six seven"], 13) == Passages(13, {})
    assert Passages.of([EIGHT, TEN], 8).known == {
        8: {EIGHT, "two three four five six seven eight nine", "three four five six seven eight nine ten"}
    }
