"""Rows in which an object has a key twice. Readers of JSON keep one of the two and say nothing, and not all the same one.

Looking at each object of each row would cost more than reading it. So the keys that the text has are counted, of many rows at a time: a colon after
the quote that closes a string ends a key, and nothing else does. Where the rows as they were decoded have as many, none was lost. Only else each
row is looked at by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.strict_json import KeyTwice, once

_COLON, _QUOTE, _BACKSLASH, _SPACE = b':"\\ '


def key_twice(lines: Sequence[bytes], rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Of rows that were decoded, those with a key twice: their positions → what is wrong.

    Args:
        lines: what each of `rows` was decoded from.
    """
    if not lines:
        return {}
    raw = np.frombuffer(b"\n".join(lines), np.uint8)
    colons, least = raw == _COLON, _least_keys(rows)
    if np.count_nonzero(colons) == least or _most_keys(raw, colons) == least:
        return {}
    found = {}
    for position, (line, row) in enumerate(zip(lines, rows, strict=True)):
        raw = np.frombuffer(line, np.uint8)
        if _most_keys(raw, raw == _COLON) != _keys(row):
            try:
                json.loads(line, object_pairs_hook=once)
            except KeyTwice as error:
                found[position] = str(error)
    return found


def _most_keys(raw: npt.NDArray[np.uint8], colons: npt.NDArray[np.bool_]) -> int:
    """How many keys JSON text has at most, and nearly always: two blanks and a colon inside a string count as one more."""
    at = np.flatnonzero(colons)
    before, second, third = (raw[np.maximum(at - back, 0)] for back in (1, 2, 3))
    ends = (before == _QUOTE) & ((second != _BACKSLASH) | (third == _BACKSLASH))
    spaced = (before <= _SPACE) & ((second == _QUOTE) | (second <= _SPACE))
    return int(np.count_nonzero(ends | spaced))


def _least_keys(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many keys rows have at least: their own, and those of objects in lists, as messages are."""
    count = sum(map(len, rows))
    for name, value in rows[0].items():
        if type(value) is list and value and type(value[0]) is dict:
            try:
                count += sum(map(dict.__len__, chain.from_iterable([row[name] for row in rows])))
            except (KeyError, TypeError):  # other rows have something else there
                continue
    return count


def _keys(value: Any) -> int:
    """How many keys a JSON value has, at any depth."""
    count, level = 0, [value]
    while level:
        each = level.pop()
        if type(each) is dict:
            count += len(each)
            level += each.values()
        elif type(each) is list:
            level += each
    return count
