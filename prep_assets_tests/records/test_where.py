"""Filters: every operator, null and absent fields, nested fields, wrong types, and bad configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.records.read import read_blocks
from prep_assets.records.where import OPERATORS, conditions, filter_blocks

Source = Callable[..., Any]


@pytest.mark.parametrize(
    "spec, value, holds",
    [
        ("en", "en", True),
        ("en", "de", False),
        ({"==": 1}, 1.0, True),
        ({"==": 1}, True, False),
        ({"==": None}, None, True),
        ({"!=": "en"}, "de", True),
        ({"!=": "en"}, "en", False),
        ({"!=": 1}, "1", True),
        ({"in": ["en", "de"]}, "de", True),
        ({"in": ["en", "de"]}, "fr", False),
        ({"in": [1]}, True, False),
        ({"not_in": ["en", "de"]}, "fr", True),
        ({"not_in": ["en", "de"]}, "en", False),
        ({">": 3}, 3, False),
        ({">": 3}, 3.5, True),
        ({">=": 3}, 3, True),
        ({"<": 3}, 3, False),
        ({"<=": 3}, 3, True),
        ({">=": "2024-01"}, "2024-06-01", True),
        ({">": 3}, None, False),
        ({">": 1, "<": 3}, 2, True),
        ({">": 1, "<": 3}, 3, False),
        ({"exists": True}, None, True),
        ({"exists": False}, None, False),
    ],
)
def test_operators(spec: Any, value: Any, holds: bool) -> None:
    assert all(test.holds({"field": value, "other": 1}) for test in conditions({"field": spec})) is holds


@pytest.mark.parametrize(
    "spec, holds",
    [
        ("en", False),
        ({"!=": "en"}, True),
        ({"in": ["en"]}, False),
        ({"not_in": ["en"]}, True),
        ({"<": 3}, False),
        ({"exists": False}, True),
    ],
)
def test_a_field_that_is_absent(spec: Any, holds: bool) -> None:
    (test,) = conditions({"field": spec})
    assert test.holds({"other": 1}) is holds


def test_a_point_reaches_into_nested_objects_unless_a_field_has_that_name() -> None:
    (test,) = conditions({"meta.language": "en"})
    assert test.holds({"meta": {"language": "en"}})
    assert not test.holds({"meta": {"language": "de"}})
    assert not test.holds({"meta": "language"})
    assert test.holds({"meta.language": "en", "meta": {"language": "de"}})


def test_rows_that_miss_are_counted_in_file_order_with_the_unreadable_ones(source: Source) -> None:
    data = b'{"n": 1, "l": "en"}\n{"n": 5, "l": "en"}\n{bad\n{"n": 5, "l": "de"}\n{"n": "5", "l": "en"}\n{"n": 9, "l": "en"}\n'
    [block] = filter_blocks(read_blocks(source("a.jsonl", data), 0), conditions({"n": {">=": 3}, "l": "en"}))
    records, refused = block.records, block.unreadable
    assert [r.row for r in records] == [1, 5]
    assert [(u.row, u.reason, u.payload) for u in refused] == [
        (0, "filtered_by_where", ""),
        (2, "invalid_json", "{bad"),
        (3, "filtered_by_where", ""),
        (4, "where_wrong_type", ""),
    ]
    assert refused[0].detail == "n >= 3"
    assert refused[2].detail == "l == 'en'"
    assert refused[3].detail == "n >= 3 needs a number, the record has str '5'"


@pytest.mark.parametrize(
    "where, says",
    [
        ({"a": {"notin": [1]}}, "no operator 'notin'; did you mean 'not_in'"),
        ({"a": {"=<": 1}}, "no operator '=<'"),
        ({"a": {}}, "has no condition"),
        ({"a": {"in": "en"}}, "takes a list"),
        ({"a": {"in": []}}, "at least one value"),
        ({"a": ["en", "de"]}, r"takes one value.*\{in: \[\.\.\.\]\}"),
        ({"a": {"exists": "yes"}}, "true or false"),
        ({"a": {">": None}}, "takes a number or a string"),
        ({"a": {">": True}}, "takes a number or a string"),
    ],
)
def test_bad_configuration_is_named(where: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        conditions(where)


def test_the_operators_are_these() -> None:
    assert sorted(OPERATORS) == ["!=", "<", "<=", "==", ">", ">=", "exists", "in", "not_in"]
