"""Values of a raw row, each with the type that a schema needs.

Rows are arbitrary JSON. Every function here returns a value of the type that its name says, or refuses the record with ``missing_field`` or
``wrong_type`` and the place where the value stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from prep_assets.errors import Refused

_JSON_TYPES = (
    (bool, "true or false"),
    (int, "an integer"),
    (float, "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    (list | tuple, "an array"),
)
"""Types of Python in the words of JSON. A bool is an int too, so it comes first."""


def wrong_type(value: object, where: str, needed: str) -> NoReturn:
    """Refuse `value`, which stands at `where` and is not what is `needed`."""
    found = next((words for kind, words in _JSON_TYPES if isinstance(value, kind)), "null" if value is None else type(value).__name__)
    raise Refused("wrong_type", f"{where!r} is {found}, needs {needed}")


def inside(where: str, key: str) -> str:
    """The place of field `key` of what stands at `where`; ``""`` is the row itself."""
    return f"{where}.{key}" if where else key


def value_at(row: Mapping[str, Any], key: str, where: str = "") -> Any:
    """What stands under `key`; absent and null are refused alike."""
    value = row.get(key)
    if value is None:
        place = f"{where} " if where else ""
        raise Refused("missing_field", f"{place}needs {key!r}; it has {', '.join(map(repr, row)) or 'no fields'}")
    return value


def as_text(value: object, where: str) -> str:
    """`value` as a string."""
    return value if isinstance(value, str) else wrong_type(value, where, "a string")


def as_mapping(value: object, where: str) -> Mapping[str, Any]:
    """`value` as a JSON object."""
    return value if isinstance(value, Mapping) else wrong_type(value, where, "an object")


def as_list(value: object, where: str, needed: str = "an array") -> Sequence[Any]:
    """`value` as a JSON array. `needed` says what else the place may hold, for the error."""
    return value if isinstance(value, list | tuple) else wrong_type(value, where, needed)


def as_integer(value: object, where: str) -> int:
    """`value` as an integer. Booleans are refused."""
    return value if isinstance(value, int) and not isinstance(value, bool) else wrong_type(value, where, "an integer")


def as_number(value: object, where: str) -> float:
    """`value` as a finite float. Booleans are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong_type(value, where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused("wrong_type", f"{where!r} is not a finite number")
    return number


def text_of(row: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    """The string under `key`. Refuses a missing key, null, or a value that is not a string; an optional one gives ``""``."""
    return "" if not required and row.get(key) is None else as_text(value_at(row, key), key)


def texts_of(row: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """The strings under `keys`, all of them required."""
    return tuple(text_of(row, key) for key in keys)


def needed(text: str, reason: str, where: str) -> str:
    """`text`, refused with `reason` where it is empty or only whitespace."""
    if not text.strip():
        raise Refused(reason, f"{where!r} is {'empty' if not text else 'only whitespace'}")
    return text
