"""Filters of the configuration: `where: {language: en, score: {">=": 3}}` keeps the rows for which every condition holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import ConfigError, nearest
from prep_assets.records.blocks import Block, Unreadable
from prep_assets.samples import Record

_ORDER: dict[str, Callable[[Any, Any], bool]] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
OPERATORS = ("==", "!=", "in", "not_in", *_ORDER, "exists")

FILTERED, WRONG_TYPE = "filtered_by_where", "where_wrong_type"
FORGOTTEN = "forgotten"
MISSED = (FILTERED, WRONG_TYPE, FORGOTTEN)
"""Reasons of rows that do not pass."""

_ABSENT = object()


class WrongType(Exception):
    """A value that an order operator cannot compare."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one field.

    Attributes:
        field: name of the field; `meta.language` reaches into nested objects where no field has that whole name.
        operator: one of `OPERATORS`.
        value: what the field is compared with.
    """

    field: str
    operator: str
    value: Any

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {self.value!r}"

    def holds(self, payload: Mapping[str, Any]) -> bool:
        """Whether `payload` satisfies the condition. A field that is absent or null satisfies `!=`, `not_in` and `exists: false` only.

        Raises:
            WrongType: an order operator meets a value of another type, e.g. the string of a CSV column against a number.
        """
        value = _lookup(payload, self.field)
        if self.operator == "exists":
            return (value is not _ABSENT) is self.value
        if self.operator in ("==", "!="):
            return _same(value, self.value) is (self.operator == "==")
        if self.operator in ("in", "not_in"):
            return any(_same(value, one) for one in self.value) is (self.operator == "in")
        if value is _ABSENT or value is None:
            return False
        if _kind(value) != _kind(self.value):
            raise WrongType(f"{self} needs a {_kind(self.value)}, the record has {type(value).__name__} {str(value)[:80]!r}")
        return _ORDER[self.operator](value, self.value)


def conditions(where: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions of a `where` mapping: field -> value (equality) or field -> `{operator: value}`.

    Raises:
        ConfigError: an unknown operator (with the nearest match), or a value that the operator cannot take.
    """
    found: list[Condition] = []
    for field, spec in where.items():
        tests = spec if isinstance(spec, Mapping) else {"==": spec}
        if not tests:
            raise ConfigError(f"where: {field!r} has no condition. Operators: {', '.join(OPERATORS)}")
        found += [_condition(field, word, value) for word, value in tests.items()]
    return tuple(found)


def _condition(field: str, word: Any, value: Any) -> Condition:
    where = f"where: {field!r}"
    if word not in OPERATORS:
        raise ConfigError(f"{where} has no operator {word!r}{nearest(str(word), OPERATORS) or '.'} Operators: {', '.join(OPERATORS)}")
    if word == "exists" and not isinstance(value, bool):
        raise ConfigError(f"{where}: exists takes true or false, not {value!r}")
    if word in ("in", "not_in"):
        if not isinstance(value, list | tuple) or not value:
            raise ConfigError(f"{where}: {word} takes a list of at least one value, not {value!r}")
        return Condition(field, word, tuple(value))
    if word in ("==", "!=") and isinstance(value, list | tuple | Mapping):
        raise ConfigError(f"{where}: {word} takes one value, not {value!r}. For several: {{in: [...]}}")
    if word in _ORDER and _kind(value) not in ("number", "string"):
        raise ConfigError(f"{where}: {word} takes a number or a string, not {value!r}")
    return Condition(field, word, value)


def _lookup(payload: Any, field: str) -> Any:
    if field in payload:
        return payload[field]
    value = payload
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _kind(value: Any) -> str:
    """True is no 1, as in JSON."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else type(value).__name__


def _same(value: Any, other: Any) -> bool:
    return bool(_kind(value) == _kind(other) and value == other)


def filter_blocks(blocks: Iterator[Block], tests: Sequence[Condition]) -> Iterator[Block]:
    """`blocks` with the records that miss a condition moved to the refused rows, which stay in file order."""
    for block in blocks:
        kept: list[Record] = []
        missed: list[Unreadable] = []
        for record in block.records:
            if (refusal := _first_miss(record, tests)) is None:
                kept.append(record)
            else:
                missed.append(refusal)
        yield Block(kept, sorted([*block.unreadable, *missed], key=lambda each: each.row), block.bytes_read)


def _first_miss(record: Record, tests: Sequence[Condition]) -> Unreadable | None:
    for test in tests:
        try:
            if not test.holds(record.payload):
                # No payload: a filter refuses rows by the million, and they are still in the source file.
                return Unreadable(record.file, record.row, FILTERED, str(test), "")
        except WrongType as error:
            return Unreadable(record.file, record.row, WRONG_TYPE, str(error), "")
    return None
