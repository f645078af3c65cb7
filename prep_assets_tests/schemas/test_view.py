"""A view is the row itself, and notes what is taken of it."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import Sample
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets.schemas.view import View, unread, view_of, whole

ROW: dict[str, Any] = {
    "id": 1,
    "blank": "",
    "none": None,
    "empty": [{}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q", "cache": True}]},
        {"role": "assistant", "calls": [{"name": "f"}]},
    ],
    "turns": {"turn_1": {"human": "a", "thought": "b"}, "turn_2": {"human": "c", "thought": "d"}},
    "zero": 0,
    "no": False,
}


def paths(row: View) -> list[str]:
    return list(dict(unread(row)))


def test_what_nobody_takes_is_unread_unless_it_holds_nothing() -> None:
    assert paths(view_of(ROW)) == ["id", "empty", "messages", "turns", "zero", "no"]


def test_it_is_noted_at_every_level() -> None:
    row = view_of(ROW)
    for key in ("id", "empty", "zero", "no"):
        row[key]
    for message in row["messages"]:
        for part in message.get("content") or ():
            assert part["text"] == "q"
    assert [turn["human"] for turn in row["turns"].values()] == ["a", "c"]
    assert paths(row) == ["messages.role", "messages", "messages.content.type", "messages.content.cache", "turns.*.thought"]


def test_an_element_that_nobody_looks_into_is_unread() -> None:
    """Only the second of three messages is taken; the others are not passed over with it."""
    row = view_of({"messages": [{"content": "a"}, {"content": "b"}, {"content": "c"}]})
    assert row["messages"][1]["content"] == "b"
    assert unread(row) == [("messages", {"content": "a"}), ("messages", {"content": "c"})]


TAKES: dict[str, Callable[[View], object]] = {
    "json.dumps": json.dumps,
    "repr": repr,
    "an f-string": lambda row: f"{row}",
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "whole": whole,
    "keywords": lambda row: json.dumps((lambda **fields: fields)(**row)),
    "unpacking": lambda row: json.dumps({**row}),
    "dict": lambda row: json.dumps(dict(row)),
    "copy": lambda row: json.dumps(copy.copy(row)),
    ".copy": lambda row: json.dumps(row.copy()),
    "or": lambda row: json.dumps(row | {"more": 1}),
    "ror": lambda row: json.dumps({"more": 1} | row),
    "items": lambda row: [json.dumps(value) for _, value in row.items()],
    "values": lambda row: [json.dumps(value) for value in row.values()],
    "pop": lambda row: [json.dumps(row.pop(key)) for key in list(row)],
    "del": lambda row: [row.__delitem__(key) for key in list(row)],
}


@pytest.mark.parametrize("way", TAKES)
def test_whatever_takes_all_fields_reads_them_all(way: str) -> None:
    row = view_of(ROW)
    TAKES[way](row)
    assert unread(row) == []


def test_looking_for_a_key_takes_nothing() -> None:
    row = view_of({"a": 1, "b": 2})
    assert "a" in row and list(row) == ["a", "b"] and len(row) == 2 and row.get("c") is None
    assert paths(row) == ["a", "b"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=12,
)
ROWS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def said(value: Any) -> bool:
    """Whether a field holds something, worked out in the plain way."""
    return value not in (None, "", [], {})


@given(ROWS)
def test_a_view_is_equal_to_its_row_and_leaves_it_alone(value: dict[str, Any]) -> None:
    before = copy.deepcopy(value)
    row = view_of(value)
    assert row == value and isinstance(row, dict)
    assert json.dumps(row) == json.dumps(value) and whole(row) == value
    row.clear()
    assert value == before


@given(ROWS, st.data())
def test_no_field_with_content_is_missed(value: dict[str, Any], data: st.DataObject) -> None:
    """Fields are taken at random, some of them with all that they hold; the others must be named, and nothing else."""
    row = view_of(value)
    expected = set()
    for key in value:
        how = data.draw(st.sampled_from(["leave", "take", "whole"]))
        if how == "whole":
            whole(row[key])
        elif how == "take" and isinstance(value[key], dict) and value[key]:
            first = next(iter(value[key]))
            whole(row[key][first])
            expected |= {f"{key}.{inner}" for inner in value[key] if inner != first and said(value[key][inner])}
        elif how == "take" and not isinstance(value[key], dict | list):
            row[key]
        elif said(value[key]):
            expected.add(key)
    assert set(dict(unread(row))) == expected


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": 1},
        {"messages": [{"role": "user", "content": 1}]},
    ],
)
def test_a_converted_row_leaves_no_garbage(row: dict[str, Any]) -> None:
    """Rows are read with few searches for garbage: a text of each row in 64 stayed in memory as long as its check lasted."""
    reader = Reader(convert_with("messages", {}, gives=Sample), Account())

    def read() -> None:
        with suppress(Refused):
            apply(reader, row)

    read()
    gc.collect()
    gc.disable()
    try:
        read()
        assert gc.collect() == 0
    finally:
        gc.enable()
