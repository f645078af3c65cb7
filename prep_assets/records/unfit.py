"""Rows of JSON that can be decoded and are refused all the same: nested too deeply, or with an object that has a key twice, of which readers keep
one and say nothing, and not all the same one.

Looking at each value of each row would cost more than reading it. So brackets and keys are counted in the text, of many rows at a time: a colon
after the quote that closes a string ends a key, and nothing else does. Where the rows as they were decoded have as many keys, none was lost. Only
else rows are looked at by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.strict_json import MOST_NESTED, TOO_DEEP, KeyTwice, is_too_deep, once

Places = npt.NDArray[np.int64]
_COLON, _QUOTE, _BACKSLASH, _SPACE = b':"\\ '
_BRACE = ord("{")
_PART = 1 << 16
_BRACKET_TO_BRACE = _BRACE - ord("[")


def unfit(lines: Sequence[bytes], rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The positions of those that are refused, and why.

    Args:
        lines: what each of `rows` was decoded from.
    """
    if not any(lines):
        return {}
    raw = np.frombuffer(b"\n".join(lines), np.uint8)
    after = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
    brackets = _by_line(_places(lambda part: part | _BRACKET_TO_BRACE == _BRACE, raw), after)
    deep = {at: TOO_DEEP for at in np.flatnonzero(brackets > MOST_NESTED).tolist() if is_too_deep(rows[at])}
    shallow = [{} if at in deep else row for at, row in enumerate(rows)] if deep else rows
    return {**_twice(lines, shallow, raw, after), **deep}


def _places(true: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.bool_]], raw: npt.NDArray[np.uint8]) -> Places:
    """Where something is true of a byte, looked at in parts that the processor's cache holds."""
    parts = range(0, len(raw), _PART)
    return np.concatenate([np.flatnonzero(true(raw[start : start + _PART])) + start for start in parts])


def _by_line(places: Places, after: Places) -> Places:
    """How many of `places`, which ascend, are in each line."""
    return np.diff(np.searchsorted(places, after), prepend=0)


def _twice(lines: Sequence[bytes], rows: Sequence[Mapping[str, Any]], raw: npt.NDArray[np.uint8], after: Places) -> dict[int, str]:
    colons, least = _places(lambda part: part == _COLON, raw), _least_keys(rows)
    if len(colons) == least:
        return {}
    ends = _key_ends(raw, colons)
    if len(ends) == least:
        return {}
    keys = np.fromiter(map(_keys, rows), np.int64, len(rows))
    found = {}
    for position in np.flatnonzero(_by_line(ends, after) != keys).tolist():
        try:
            json.loads(lines[position], object_pairs_hook=once)
        except KeyTwice as error:
            found[position] = str(error)
        except RecursionError:
            found[position] = TOO_DEEP
    return found


def _key_ends(raw: npt.NDArray[np.uint8], colons: Places) -> Places:
    """The colons that end a key of JSON text. Those after two blanks inside a string are among them."""
    before, second = raw[colons - 1], raw[colons - 2]
    spaced = (before <= _SPACE) & ((second == _QUOTE) | (second <= _SPACE))
    escaped = (second == _BACKSLASH) & (raw[colons - 3] != _BACKSLASH)  # a quote inside a string
    found: Places = colons[((before == _QUOTE) & ~escaped) | spaced]
    return found


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
    inner = value.values() if type(value) is dict else value
    kinds = set(map(type, inner))
    count = len(value) if type(value) is dict else 0
    if dict in kinds or list in kinds:
        count += sum([_keys(each) for each in inner if type(each) is dict or type(each) is list])
    return count
