"""Lines of JSON that are looked at together give what each gives by itself, and what one library is not trusted with another reads."""

from __future__ import annotations

import io
import json
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs import second_reading as json_rows

PLAIN = [
    b'{"a": 1}',
    b'{"messages": [{"role": "user", "content": "b: c"}, {"role": "x", "content": null}], "d": {}, "e": [[], [true]]}',
    b"{}",
    b' {"a" : -9223372036854775808}\r',
    b'{"a": "\\":", "b\\\\": "\\\\\\" :", "\\"": 1}',
]
ODD = [
    b'{"a": 1, "a": 2}',
    b'{"l": [{"b": 1, "b": 1}]}',
    b'{"a": ":"}',
    b'{"a\\\\": "\\":", "a\\\\": 1}',
    b'{"a": 0.5, "b": 123456789012345678901234}',
    b'{"a": 123456789012345678901234}',
    b'{"a": 1e30}',
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b'{"a": 1} {"b": 2}',
    b'{"a": [1',
    b"2]}",
    b"[1]",
    b'"{}"',
    b"null",
    b"\xff",
    b'{"a": ' + b"[" * json_rows.DEPTH + b"]" * json_rows.DEPTH + b"}",
    None,
]


@given(st.lists(st.sampled_from([*PLAIN, *ODD]), max_size=8))
def test_lines_together_are_what_each_is_by_itself(lines: list[bytes | None]) -> None:
    assert json_rows.objects_of(lines) == [None if line is None else json_rows._object(line) for line in lines]


@pytest.mark.parametrize("odd", [None, *ODD])
def test_plain_lines_are_looked_at_together(odd: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one library alone is not trusted with takes all lines beside it to the second look."""
    alone = Mock(side_effect=json_rows._object)
    monkeypatch.setattr(json_rows, "_object", alone)
    found = json_rows.objects_of(PLAIN)
    assert found == list(map(orjson.loads, PLAIN)) and not alone.called
    json_rows.objects_of([*PLAIN, odd])
    assert alone.call_count == len(PLAIN) + (odd is not None)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"a": "\\":"}', {"a": '":'}),
        (b'{"a": "\\ud83d\\ude00", "b": "\\":"}', {"a": "\U0001f600", "b": '":'}),
        (b'{"a": "\\ud83d", "b": "\\":"}', None),
        (b'{"a": "\xc3\xa9\\u00e9"}', {"a": "éé"}),
        (b'{"a": NaN}', None),
        (b'{"a": 1e999}', None),
        (b'{"a": 123456789012345678901234}', {"a": 123456789012345678901234}),
        (b'{"a": {"b": 1, "b": 1}}', None),
        (b"[1]", None),
        (b"{broken", None),
    ],
)
def test_what_stands_on_a_line(line: bytes, row: Any) -> None:
    assert json_rows._object(line) == row and json_rows.objects_of([line]) == [row]


@given(st.dictionaries(st.text('":\\\n ', max_size=5), st.text('":\\\n ', max_size=9), min_size=1), st.sampled_from(["", " ", " \n"]))
def test_a_key_that_stands_twice_is_found_beside_any_quotes(row: dict[str, str], space: str) -> None:
    pairs = [f"{json.dumps(key)}{space}:{json.dumps(value)}" for key, value in row.items()]
    once, twice = f"{{{', '.join(pairs)}}}".encode(), f"{{{', '.join([pairs[-1], *pairs])}}}".encode()
    assert json_rows.objects_of([once, once]) == [row, row] and json_rows.objects_of([once, twice]) == [row, None]


@pytest.mark.parametrize("levels", [0, 1, json_rows.DEPTH - 1, json_rows.DEPTH])
def test_how_deep_a_row_may_be_nested(levels: int) -> None:
    """The object itself is the first level; what stands beside the deepest value changes nothing."""
    deep = b'{"a": ' + b"[" * levels + b"]" * levels + b', "b": [[]], "c": {}}' if levels else b'{"a": 1, "b": [[]], "c": {}}'
    row = orjson.loads(deep)
    assert json_rows.depth_of(row) == max(levels + 1, 3)
    assert json_rows._object(deep) == (None if levels == json_rows.DEPTH else row)
    assert json_rows.depth_of({"a": 1}) == 1 and json_rows.depth_of([{"a": [1], "b": 2}, 3]) == 3
    mixed = b'{"a": [' * 60 + b"]}" * 60
    assert json_rows.depth_of(orjson.loads(mixed)) == 120 and json_rows._object(mixed) is None


@pytest.mark.parametrize("inside", [json_rows.DEPTH - 2, json_rows.DEPTH - 1])
def test_how_deep_lines_may_be_nested_that_are_looked_at_together(inside: int) -> None:
    line = b'{"a": ' + b"[" * inside + b"]" * inside + b"}"
    assert json_rows._lossless([orjson.loads(line)], line) is (inside == json_rows.DEPTH - 2)
    assert json_rows.objects_of([line]) == [orjson.loads(line)]


@pytest.mark.parametrize(
    ("data", "sure"),
    [
        (b'{"a": 1}', True),
        (b'{"a": {"b": 1, "c": 2}, "d": {}}', True),
        (b'{"l": [{"a": 1}, 2, [{"b": 3}]]}', True),
        (b'{"a": "b:c"}', True),
        (b'{"a": "\\":"}', True),
        (b'{"a": "\\\\", "b\\\\": 1}', True),
        (b'{"a" \n\t \r: 1, "b  ": "b :  \\" :"}', True),
        (b'{"a" \n\t \r: 1, "b": " :", "a": 1}', False),
        (b'{"a": 1, "b \\\\": " : ", "a" : 1}', False),
        (b'{"b\\\\": "\\":", "b\\\\": 1}', False),
        (b'{"a": ":"}', False),
        (b'{"a": 1, "a": 2}', False),
        (b'{"a": 0.5}', True),
        (b'{"a": 1234567890123456789}', True),
        (b'{"a": 123456789012345678901234}', False),
        (b'{"a": 0.1234567890123456789}', True),
        (b"[1]", False),
        (b"{}", True),
    ],
)
def test_what_the_quick_reader_is_trusted_with(monkeypatch: pytest.MonkeyPatch, data: bytes, sure: bool) -> None:
    """All but what may have a key twice, or an integer that it makes a fraction: these take the standard library."""
    strict = Mock(side_effect=json_rows._strict)
    monkeypatch.setattr(json_rows, "_strict", strict)
    expected = json.loads(data) if sure or b"3456" in data or data == b'{"a": ":"}' else None
    assert json_rows.objects_of([data]) == [expected] and strict.called is not sure
    [row] = json_rows.objects_of([data])
    assert row is None or [type(each) for each in row.values()] == [type(each) for each in json.loads(data).values()]


def test_what_the_quick_reader_does_not_read_may_have_a_key_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orjson, "loads", Mock(side_effect=ValueError))
    assert json_rows.objects_of([b'{"a": 1}', b'{"a": 1, "a": 2}', b'{"a": {"a": 1}}']) == [{"a": 1}, None, {"a": {"a": 1}}]


def test_a_sound_list_takes_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = Mock(side_effect=json_rows._strict)
    monkeypatch.setattr(json_rows, "_strict", strict)
    for text in (b'[{"a": 1}, {"b": [2]}]', b'{"a": 1}'):
        value = orjson.loads(text)
        assert list(json_rows.read_rows(io.BytesIO(text), "json", None)) == [*enumerate(value if isinstance(value, list) else [value])]
    assert not strict.called
    assert [row for _, row in json_rows.read_rows(io.BytesIO(b'[{"a": 1, "a": 1}, {}, 3]'), "json", None)] == [None, {}, None]
    assert strict.called
