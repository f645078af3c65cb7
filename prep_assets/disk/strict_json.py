"""JSON that means one thing: no key twice in an object, of which readers keep another one each, and a fixed limit of nesting, far below what the
stack of any caller allows, so that it never depends on who calls."""

from __future__ import annotations

import json
from typing import Any

MOST_NESTED = 100
"""Lists and objects inside one another, the outermost counted."""
dumps = json.JSONEncoder(ensure_ascii=False).encode
"""A value as JSON, every character as itself."""
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


class KeyTwice(ValueError):
    """An object has a key twice."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values, as `json.loads` asks its `object_pairs_hook` for it.

    Raises:
        KeyTwice: a key stands twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise KeyTwice(f"the key {key[:60]!r} stands twice in an object")
    return found


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


def loads(text: bytes | str) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: it is no UTF-8 or no JSON, is nested too deeply, or has a key twice.
    """
    try:
        value = json.loads(text.decode() if isinstance(text, bytes) else text, object_pairs_hook=once)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if may_be_too_deep(text) and is_too_deep(value):
        raise ValueError(TOO_DEEP)
    return value
