"""Blocks of records, and the filters of `where`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from prep_assets.errors import ConfigError, nearest
from prep_assets.samples import Record

# Blocks: the records that a reader gives, and the rows that it rejects.

PAYLOAD_CHARACTERS = 2000


class Unreadable(Struct, frozen=True):
    """A row that is rejected at reading.

    Attributes:
        file: position of the file in its domain's sorted file list.
        row: zero-based row within the file, counted as `Record.row` is.
        reason: counted slug: `invalid_json`, `invalid_utf8`, `nul_byte`, `not_an_object`, `too_long`, `ragged_row`, `invalid_csv`,
            `unreadable_value`, `filtered_by_where`, `where_wrong_type`.
        detail: what exactly is wrong, for a person.
        payload: start of the raw text, at most 2000 characters, invalid bytes as backslash escapes. Empty where a filter rejects the row.
        length: full length of the row in bytes, where it has one.
    """

    file: int
    row: int
    reason: str
    detail: str
    payload: str
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        records: the readable rows, in file order.
        unreadable: the rejected rows, in file order.
        bytes_read: bytes of the stored (compressed) file consumed up to the end of this block.
    """

    records: list[Record]
    unreadable: list[Unreadable]
    bytes_read: int


def shown(raw: bytes) -> str:
    """The start of a raw row as text: at most 2000 characters, invalid bytes as backslash escapes."""
    return raw[: 4 * PAYLOAD_CHARACTERS].decode("utf-8", "backslashreplace")[:PAYLOAD_CHARACTERS]


def reject_row(file: int, row: int, reason: str, detail: str, raw: bytes) -> Unreadable:
    """The rejection of a row with the raw bytes `raw`."""
    return Unreadable(file, row, reason, detail, shown(raw), len(raw))


def invalid_byte(error: UnicodeDecodeError, raw: bytes) -> str:
    """Where and why `raw` is not UTF-8."""
    return f"byte {error.start} of {len(raw)} (0x{raw[error.start]:02x}): {error.reason}"


def nul_byte(raw: bytes) -> str:
    """Where `raw` has a NUL, which text in UTF-8 has not: it is binary data, or text in another encoding."""
    return f"byte {raw.index(0)} of {len(raw)} is NUL: binary data, or text in an encoding other than UTF-8"


def reject_long_row(file: int, row: int, start: bytes, length: int, limit: int) -> Unreadable:
    """The rejection of a row over the size limit, of which only the start is in memory."""
    return Unreadable(file, row, "too_long", f"{length:,} bytes; the limit is {limit:,} (max_record_bytes)", shown(start), length)


# Filters of the configuration: `where: {language: en, score: {">=": 3}}` keeps the rows for which every condition holds.

_ORDER: dict[str, Callable[[Any, Any], bool]] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
OPERATORS = ("==", "!=", "in", "not_in", *_ORDER, "exists")

FILTERED, WRONG_TYPE = "filtered_by_where", "where_wrong_type"
FORGOTTEN = "forgotten"
MISSED = (FILTERED, WRONG_TYPE, FORGOTTEN)
"""Reasons for which filters reject rows."""

ABSENT = object()


class WrongType(Exception):
    """A value that an order operator cannot compare."""


class Condition(Struct, frozen=True):
    """One condition on one field.

    Attributes:
        field: name of the field; `meta.language` reaches into nested objects where no field has that whole name.
        operator: one of `OPERATORS`.
        value: the value to compare with.
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
        value = value_at(payload, self.field)
        if self.operator == "exists":
            return (value is not ABSENT) is self.value
        if self.operator in ("==", "!="):
            return _is_equal(value, self.value) is (self.operator == "==")
        if self.operator in ("in", "not_in"):
            return any(_is_equal(value, candidate) for candidate in self.value) is (self.operator == "in")
        if value is ABSENT or value is None:
            return False
        if _json_type(value) != _json_type(self.value):
            raise WrongType(f"{self} needs a {_json_type(self.value)}, the record has {type(value).__name__} {str(value)[:80]!r}")
        return _ORDER[self.operator](value, self.value)


def conditions(where: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Parse the conditions of a `where` mapping: field -> value (equality) or field -> `{operator: value}`.

    Raises:
        ConfigError: an unknown operator (with the nearest match), or a value that the operator cannot take.
    """
    parsed: list[Condition] = []
    for field, spec in where.items():
        operators = spec if isinstance(spec, Mapping) else {"==": spec}
        if not operators:
            raise ConfigError(f"where: {field!r} has no condition. Operators: {', '.join(OPERATORS)}")
        parsed += [_condition(field, name, value) for name, value in operators.items()]
    return tuple(parsed)


def _condition(field: str, name: Any, value: Any) -> Condition:
    where = f"where: {field!r}"
    if name not in OPERATORS:
        raise ConfigError(f"{where} has no operator {name!r}{nearest(str(name), OPERATORS) or '.'} Operators: {', '.join(OPERATORS)}")
    if name == "exists" and not isinstance(value, bool):
        raise ConfigError(f"{where}: exists takes true or false, not {value!r}")
    if name in ("in", "not_in"):
        if not isinstance(value, list | tuple) or not value:
            raise ConfigError(f"{where}: {name} takes a list of at least one value, not {value!r}")
        return Condition(field, name, tuple(value))
    if name in ("==", "!=") and isinstance(value, list | tuple | Mapping):
        raise ConfigError(f"{where}: {name} takes one value, not {value!r}. For several: {{in: [...]}}")
    if name in _ORDER and _json_type(value) not in ("number", "string"):
        raise ConfigError(f"{where}: {name} takes a number or a string, not {value!r}")
    return Condition(field, name, value)


def value_at(payload: Any, field: str) -> Any:
    """The value of a field, which may reach into nested objects as `Condition.field` does; `ABSENT` where there is none."""
    if field in payload:
        return payload[field]
    value = payload
    for key in field.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def _json_type(value: Any) -> str:
    """The JSON type of a value: as in JSON, `True` is no number."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else type(value).__name__


def _is_equal(value: Any, expected: Any) -> bool:
    return bool(_json_type(value) == _json_type(expected) and value == expected)


def filter_blocks(blocks: Iterator[Block], tests: Sequence[Condition]) -> Iterator[Block]:
    """`blocks` with the records that miss a condition moved to the rejected rows, which stay in file order."""
    for block in blocks:
        passing: list[Record] = []
        missed: list[Unreadable] = []
        for record in block.records:
            if (rejection := _reject_on_miss(record, tests)) is None:
                passing.append(record)
            else:
                missed.append(rejection)
        yield Block(passing, sorted([*block.unreadable, *missed], key=lambda rejected: rejected.row), block.bytes_read)


def _reject_on_miss(record: Record, tests: Sequence[Condition]) -> Unreadable | None:
    for test in tests:
        try:
            if not test.holds(record.payload):
                # No payload: a filter rejects rows by the million, and they are still in the source file.
                return Unreadable(record.file, record.row, FILTERED, str(test), "")
        except WrongType as error:
            return Unreadable(record.file, record.row, WRONG_TYPE, str(error), "")
    return None
