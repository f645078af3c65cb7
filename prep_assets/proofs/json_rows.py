"""Rows of JSON text, read a second time: by orjson where it keeps all of the text, by the standard library everywhere else."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import orjson

DEPTH = 100
"""A row that is nested deeper is none."""


def objects_of(lines: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
    """The object on each line; `None` for one that is too long or holds none. They are looked at together where nothing in them takes a second look."""
    whole = [line for line in lines if line is not None]
    try:
        values = list(map(orjson.loads, whole))
    except ValueError:
        values = []
    if len(whole) == len(lines) == len(values) and _are_sure(values, b"\n".join(whole)):
        return values
    return [None if line is None else _object(line) for line in lines]


def _are_sure(values: Sequence[Any], data: bytes) -> bool:
    """Whether values are objects that are not nested too deep, in which no key stands twice and all numbers are integers; `data`: their text."""
    keys, waiting = 0, values
    for _ in range(DEPTH):
        kinds = {*map(type, waiting)}
        if not kinds - _SCALARS:
            return {*map(type, values)} == {dict} and keys == _key_ends(data)
        if not kinds <= _SURE:
            return False
        objects = [each for each in waiting if type(each) is dict]
        keys += sum(map(len, objects))
        waiting = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(each for each in waiting if type(each) is list)]
    return False


_SCALARS = {str, int, bool, type(None)}
_SURE = {*_SCALARS, dict, list}


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value, once = value_of(data)
    except (ValueError, RecursionError):
        return None
    shallow = once and data.count(b"[") + data.count(b"{") <= DEPTH
    return value if isinstance(value, dict) and (shallow or depth_of(value) <= DEPTH) else None


def value_of(data: bytes) -> tuple[Any, bool]:
    """The value of JSON text, and whether no object in it has a key twice for certain: by orjson where it keeps all of the text, by the standard
    library everywhere else."""
    try:
        value = orjson.loads(data)
    except ValueError:
        return _strict(data), False
    keys, fractions = _contents(value)
    # where there are no more of them than keys, no key was there twice
    if keys != data.count(b":") and keys != _key_ends(data):
        return _strict(data), False
    if fractions and _LONG_NUMBER.search(data):  # an integer of more than 64 bits is a fraction to orjson
        return _strict(data), False
    return value, True


def _key_ends(data: bytes) -> int:
    """How many keys JSON text has, or more: a colon after a quote ends a key, unless it stands in a string, as an escaped quote does."""
    return sum(not _is_escaped(data, match.start()) for match in _KEY_END.finditer(data))


def _is_escaped(data: bytes, quote: int) -> bool:
    """Whether the backslashes before a quote are odd in number."""
    first = quote
    while first and data[first - 1] == _BACKSLASH:
        first -= 1
    return (quote - first) % 2 == 1


_KEY_END, _BACKSLASH = re.compile(rb'"[ \t\r\n]*:'), ord("\\")
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def _contents(value: Any) -> tuple[int, bool]:
    """How many keys the objects of a value have together, and whether there is a number that is no integer."""
    keys, fractions, waiting = 0, False, [value]
    for each in waiting:
        kind = type(each)
        if kind is dict:
            keys += len(each)
            waiting += each.values()
        elif kind is list:
            waiting += each
        elif kind is float:
            fractions = True
    return keys, fractions


def _strict(data: bytes) -> Any:
    """By the standard library; `_Ambiguous` where an object has a key twice."""
    value = json.loads(data.decode(), parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_pairs)
    if b"\\u" in data:
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    return value


class _Ambiguous(dict[str, Any]):
    """An object that has a key twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Ambiguous(found)


def depth_of(value: Any) -> int:
    """How many lists and objects are inside one another; more than any number where one has a key twice, so that it is never a row."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if type(each) is _Ambiguous:
            return sys.maxsize
        if isinstance(each, list | dict):
            deepest = max(deepest, depth)
            waiting += [(inner, depth + 1) for inner in (each if isinstance(each, list) else each.values())]
    return deepest


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is beyond every float")
    return value
