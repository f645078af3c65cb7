"""How deep JSON may be nested: one limit for every reader, far below what the stack of any caller allows, so that it never depends on who calls."""

from __future__ import annotations

import json
from typing import Any

MOST_NESTED = 100
"""Lists and objects inside one another, the outermost counted."""
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than allowed."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return True


def may_be_too_deep(text: bytes | str) -> bool:
    """Whether JSON text has so many brackets that it is worth a look."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MOST_NESTED
    return text.count(b"[") + text.count(b"{") > MOST_NESTED


def loads(text: str) -> Any:
    """The value of JSON text that stands in a record.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if may_be_too_deep(text) and is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value
