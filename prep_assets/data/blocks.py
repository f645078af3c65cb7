"""Blocks of records, filters of the configuration on them, and the size of an image."""

from __future__ import annotations

import operator
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, Refused, nearest
from prep_assets.samples import Record

# What readers give: blocks of records, with the rows that could not be read.

PAYLOAD_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that is refused at reading.

    Attributes:
        file: position of the file in its domain's sorted file list.
        row: zero-based row within the file, counted as `Record.row` is.
        reason: slug that is counted: `invalid_json`, `invalid_utf8`, `not_an_object`, `too_long`, `ragged_row`, `invalid_csv`,
            `unreadable_value`, `filtered_by_where`, `where_wrong_type`.
        detail: what exactly is wrong, for a person.
        payload: start of the raw text, at most 2000 characters, invalid bytes as backslash escapes. Empty where a filter refuses the row.
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
    """Some consecutive rows of a file.

    Attributes:
        records: the readable rows, in file order.
        unreadable: the refused rows, in file order.
        bytes_read: bytes of the stored (compressed) file consumed up to the end of this block.
    """

    records: list[Record]
    unreadable: list[Unreadable]
    bytes_read: int


def shown(raw: bytes) -> str:
    """The start of a raw row as text: at most 2000 characters, invalid bytes as backslash escapes."""
    return raw[: 4 * PAYLOAD_CHARACTERS].decode("utf-8", "backslashreplace")[:PAYLOAD_CHARACTERS]


def refuse(file: int, row: int, reason: str, detail: str, raw: bytes) -> Unreadable:
    """The refusal of a row whose raw bytes are known."""
    return Unreadable(file, row, reason, detail, shown(raw), len(raw))


def invalid_byte(error: UnicodeDecodeError, raw: bytes) -> str:
    """Where and how `raw` is no UTF-8."""
    return f"byte {error.start} of {len(raw)} (0x{raw[error.start]:02x}): {error.reason}"


def refuse_long(file: int, row: int, start: bytes, length: int, limit: int) -> Unreadable:
    """The refusal of a row over the size limit; only its start is at hand."""
    return Unreadable(file, row, "too_long", f"{length:,} bytes; the limit is {limit:,} (max_record_bytes)", shown(start), length)


# Filters of the configuration: `where: {language: en, score: {">=": 3}}` keeps the rows for which every condition holds.

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


# Width and height of an image, from the header of its file. No pixel is decoded.

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
FAULTS = (OSError, ValueError, SyntaxError, LookupError, TypeError, ArithmeticError, EOFError, struct.error, zlib.error)
"""What Pillow raises for bytes that are not a picture."""
ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held; from 5 on width and height change places."""


def resolution_of(path: Path) -> tuple[int, int]:
    """Width and height in pixels, turned as its EXIF orientation says, which is how processors see it.

    Raises:
        Refused: ``unreadable_image``.
        ConfigError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError("image_tokens reads the resolution of images with Pillow: pip install 'prep-assets[images]'") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large pictures: none is decoded
            with Image.open(path, formats=FORMATS) as image:
                width, height = image.size
                if min(width, height) < 1:
                    raise ValueError(f"{width} x {height} pixels")
                return (height, width) if _orientation(image) >= 5 else (width, height)
    except (*FAULTS, Image.DecompressionBombError) as error:
        detail = f"{str(path)[:400]}: its header gives no resolution ({str(error)[:100]}); needs one of {', '.join(FORMATS)}"
        raise Refused("unreadable_image", detail, stage="render") from error


def _orientation(image: Any) -> int:
    """What the header says; a PNG's `getexif` would decode its pixels to look behind them."""
    from PIL import Image

    if image.format != "PNG":
        found = image.getexif().get(ORIENTATION, 1)
    else:
        exif = Image.Exif()
        exif.load(image.info.get("exif"))
        found = exif.get(ORIENTATION, 1)
    return found if isinstance(found, int) else 1
