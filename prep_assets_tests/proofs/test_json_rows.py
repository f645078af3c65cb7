"""What stands on a line of JSON by a second reading: no key twice, no integer as a fraction, no half of a character, nothing too deep."""

from __future__ import annotations

import io
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.proofs.second_reading import DEPTH, depth_of, object_of, read_rows


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"messages": [{"role": "user", "content": "b: c"}, {"content": null}], "e": [[], [true]]}', ...),
        (b' {"a" : -9223372036854775808}\r', ...),
        (b'{"a": 0.1234567890123456789, "b": 1e30, "c": 1E-7}', ...),
        (b'{"a": "\\":", "b\\\\": "\\\\\\" :", "\\"": 1}', ...),
        (b'{"a": "\\ud83d\\ude00", "b": "\\":"}', ...),
        (b'{"a": "\xc3\xa9\\u00e9"}', ...),
        (b'{"a": "\\\\ud83d"}', ...),
        (b'{"a": 123456789012345678901234, "b": 0.5}', {"a": 123456789012345678901234, "b": 0.5}),
        (b'{"a": 1, "a": 2}', None),
        (b'{"a": {"b": 1, "b": 1}}', None),
        (b'{"l": [{"b": 1, "b": 1}]}', None),
        (b'{"a\\\\": "\\":", "a\\\\": 1}', None),
        (b'{"a": "\\ud83d", "b": "\\":"}', None),
        (b'{"a": "\\uDE00"}', None),
        (b'{"a": NaN}', None),
        (b'{"a": -Infinity}', None),
        (b'{"a": 1e999}', None),
        (b'{"a": 1} {"b": 2}', None),
        (b'{"a": "\x00"}', None),
        (b"[1]", None),
        (b'"{}"', None),
        (b"null", None),
        (b"\xff", None),
        (b"{broken", None),
        (b"[" * 100_000, None),
    ],
)
def test_what_stands_on_a_line(line: bytes, row: Any) -> None:
    """Where `...` stands, another library reads the same, types included."""
    expected = orjson.loads(line) if row is ... else row
    assert repr(object_of(line)) == repr(expected)


@given(st.dictionaries(st.text('":\\\n ', max_size=5), st.text('":\\\n ', max_size=9), min_size=1), st.sampled_from(["", " ", " \n"]))
def test_a_key_that_stands_twice_is_found_beside_any_quotes(row: dict[str, str], space: str) -> None:
    pairs = [f"{json.dumps(key)}{space}:{json.dumps(value)}" for key, value in row.items()]
    once, twice = f"{{{', '.join(pairs)}}}".encode(), f"{{{', '.join([pairs[-1], *pairs])}}}".encode()
    assert object_of(once) == row and object_of(twice) is None


@pytest.mark.parametrize("levels", [0, 1, DEPTH - 1, DEPTH])
def test_how_deep_a_row_may_be_nested(levels: int) -> None:
    """The object itself is the first level; what stands beside the deepest value changes nothing."""
    deep = b'{"a": ' + b"[" * levels + b"]" * levels + b', "b": [[]], "c": {}}' if levels else b'{"a": 1, "b": [[]], "c": {}}'
    row = orjson.loads(deep)
    assert depth_of(row) == max(levels + 1, 3)
    assert object_of(deep) == (None if levels == DEPTH else row)
    assert depth_of({"a": 1}) == 1 and depth_of([{"a": [1], "b": 2}, 3]) == 3 and depth_of(1) == 0
    mixed = b'{"a": [' * 60 + b"]}" * 60
    assert depth_of(orjson.loads(mixed)) == 120 and object_of(mixed) is None


def test_a_list_is_read_as_a_whole_and_its_elements_are_judged_one_by_one() -> None:
    for text in (b'[{"a": 1}, {"b": [2]}]', b'{"a": 1}'):
        value = orjson.loads(text)
        assert list(read_rows(io.BytesIO(text), "json", None)) == [*enumerate(value if isinstance(value, list) else [value])]
    assert [row for _, row in read_rows(io.BytesIO(b'\xef\xbb\xbf[{"a": 1, "a": 1}, {}, 3]'), "json", None)] == [None, {}, None]
