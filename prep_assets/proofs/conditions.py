"""`where` and `domain_key`, evaluated a second time."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

_NOTHING = object()
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def belongs(row: Mapping[str, Any], key: str | None, value: str) -> bool:
    """Whether a row of a shared source is of the domain that takes `value`."""
    return key is None or ("(missing)" if row.get(key) is None else str(row[key])) == value


def matches(row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a row satisfies every condition; an order between values of different types holds for none."""
    return all(
        _holds(_found(row, field), word, value)
        for field, test in where.items()
        for word, value in (test.items() if isinstance(test, Mapping) else [("==", test)])
    )


def _found(row: Mapping[str, Any], field: str) -> Any:
    if field in row:
        return row[field]
    value: Any = row
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _NOTHING
        value = value[part]
    return value


def _type(value: Any) -> type:
    """Types as JSON has them: true is not 1, 1 and 1.0 are both numbers."""
    return float if type(value) is int else type(value)


def _holds(found: Any, word: str, value: Any) -> bool:
    alike = _type(found) == _type(value)
    if word == "exists":
        return (found is not _NOTHING) is bool(value)
    if word in ("==", "!="):
        return (alike and bool(found == value)) == (word == "==")
    if word in ("in", "not_in"):
        return any(_type(found) == _type(one) and found == one for one in value) == (word == "in")
    if not alike:
        return False
    return bool(_ORDER[word](found, value))
