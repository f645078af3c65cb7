"""A row in which an object has a key twice is refused: of two values nobody knows which is meant."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs.source_rows import read_rows
from prep_assets.records import jsonl

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]

ONCE = (
    b'{"text": "a"}',
    b'{"text": "a \\": b \\\\", "n" : 1}',
    b'{"messages": [{"role": "user", "content": "x: y"}, {"role": "a", "content": "\\"k\\": 1"}], "b\\\\": {"c" \t: [{}]}}',
    b'{"t": "two  : three  :", "": ":"}',
    b'{"a": [{"a": 1}, "a"], "b": [[{"a": 1}]]}',
    b'{"a": ": b", "c":": d", "": "::", ": ": ": ", "e\\\\\\": ": 1}',
    b"{}",
)
TWICE = (
    b'{"text": "a", "text": "b"}',
    b'{"text": "a", "n": 1, "te\\u0078t": "b"}',
    b'{"a" : 1, "a": 2}',
    b'{"a\\\\": 1, "a\\\\": 2}',
    b'{"": 1, "" \t : 2}',
    b'{"messages": [{"role": "user", "content": "x"}, {"content": "a", "content": "b"}]}',
    b'{"messages": [{"role": "user", "role": "x"}, "abc"]}',
    b'{"a": [[{"b": {"c": 1, "c": 1}}]]}',
    b'{": ": 1, "a": 1, "a": 2}',
    b'{"a" : ": ", ":":1, "b":":", "b": 2}',
)


def test_a_jsonl_row_with_a_key_twice_is_refused_and_others_are_not(source: Source, read: Read) -> None:
    lines = [*ONCE, *TWICE, b"", b"[1]", *ONCE]
    records, refused = read(source("a.jsonl", b"\n".join(lines)))
    assert [record.row for record in records] == [number for number, line in enumerate(lines) if line in ONCE]
    assert [record.payload for record in records] == [json.loads(line) for line in lines if line in ONCE]
    assert [(each.row, each.reason) for each in refused if "twice" in each.detail] == [
        (len(ONCE) + i, "invalid_json") for i in range(len(TWICE))
    ]
    assert refused[0].detail == "the key 'text' stands twice in an object (26 bytes)"
    assert [each.row for each in refused] == sorted(each.row for each in refused)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_so_is_an_element_of_a_list(source: Source, read: Read, block: int) -> None:
    elements = [*ONCE, *TWICE, b"7", *ONCE]
    records, refused = read(source("a.json", b"[" + b", ".join(elements) + b"]"), block_bytes=block)
    assert [record.row for record in records] == [number for number, each in enumerate(elements) if each in ONCE]
    assert [each.row for each in refused] == [number for number, each in enumerate(elements) if each not in ONCE]


@pytest.mark.parametrize("format", ["jsonl", "json"])
def test_the_second_reader_says_the_same(format: str) -> None:
    rows = [*ONCE, *TWICE]
    data = b"\n".join(rows) if format == "jsonl" else b"[" + b",".join(rows) + b"]"
    found = list(read_rows(io.BytesIO(data), format, None))
    assert [row for _, row in found] == [json.loads(row) if row in ONCE else None for row in rows]


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('":\\ \n{},ab', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(st.text('":\\ a', max_size=3), inner), max_size=4).map(tuple),
    max_leaves=12,
)
"""Objects are tuples of keys and values, so that a key can stand twice."""


def unfit(lines: list[bytes], rows: list[Any]) -> dict[int, str]:
    return jsonl.unfit(b"\n".join(lines), np.cumsum([len(line) + 1 for line in lines], dtype=np.int64) - 1, rows)


def _text(value: Any, space: str) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{json.dumps(key)}{space}:{space}{_text(inner, space)}" for key, inner in value) + "}"
    return "[" + ",".join(_text(each, space) for each in value) + "]" if isinstance(value, list) else json.dumps(value)


def _twice(value: Any) -> bool:
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(map(_twice, value))


@given(
    st.lists(st.lists(st.tuples(st.text('":\\ a', max_size=3), JSON), max_size=4).map(tuple), max_size=5), st.sampled_from(["", " ", "\t "])
)
def test_none_is_missed_and_none_is_made_up(rows: list[Any], space: str) -> None:
    lines = [_text(row, space).encode() for row in rows]
    found = unfit(lines, [msgspec.json.decode(line) for line in lines])
    assert sorted(found) == [number for number, row in enumerate(rows) if _twice(row)]


@pytest.mark.parametrize("depth", [101, 700, 990])
def test_a_row_that_is_nested_too_deeply_is_refused_and_its_neighbours_are_not(depth: int) -> None:
    deep = b'{"a": ' * depth + b"1" + b"}" * depth
    rows: list[Any] = [{"t": "[" * 300}, None, {"a": [[]] * 99}]
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    rows[1] = value
    lines = [json.dumps(rows[0]).encode(), deep, json.dumps(rows[2]).encode()]
    assert unfit(lines, rows) == {1: "nested more than 100 deep"}
