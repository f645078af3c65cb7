"""JSON lines: one object a line.

A row that can be decoded is refused all the same where it is nested too deeply, or where an object has a key twice, of which readers keep one and say
nothing, and not all the same one. Looking at each value of each row would cost more than reading it. So brackets and keys are counted in the text, of
many rows at a time: a colon after the quote that closes a string ends a key, and nothing else does. Where the rows as they were decoded have as many
keys, none was lost. Only else rows are looked at by themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.disk.strict_json import MOST_NESTED, TOO_DEEP, KeyTwice, is_too_deep, may_be_too_deep, once
from prep_assets.records.blocks import Block, Unreadable, invalid_byte, refuse, refuse_long
from prep_assets.records.lines import Lines, blocks_of_lines
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode = msgspec.json.Decoder().decode
"""JSON → value, as msgspec reads it."""

# One escape of a JSON string: a surrogate pair, a surrogate without its other half (the group), or any other.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
Places = npt.NDArray[np.int64]
_COLON, _QUOTE, _BACKSLASH, _SPACE = b':"\\ '
_BRACE = ord("{")
_PART = 1 << 16
_BRACKET_TO_BRACE = _BRACE - ord("[")


def read_jsonl(stream: Stream, index: int, block_bytes: int, max_record_bytes: int, *, sound: bool = False) -> Iterator[Block]:
    """The objects of a JSON lines file. `Record.row` is the zero-based number of the line; blank lines are skipped.

    Args:
        sound: every row is known to be fit.
    """

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        keep, too_long, first = records.append, lines.too_long, len(records)
        if (payloads := None if too_long else _all_objects(lines.lines)) is not None:
            rows = [Record(index, row, payload) for row, payload in enumerate(payloads, lines.start)]
            records += rows if sound else fit(index, rows, lines.lines, unreadable)
            return
        for row, line in enumerate(lines.lines, lines.start):
            if too_long and (length := too_long.get(row - lines.start)):
                unreadable.append(refuse_long(index, row, line, length, max_record_bytes))
                continue
            try:
                payload = decode(line)
            except UNDECODABLE as error:
                if line.strip():
                    unreadable.append(undecodable(index, row, line, error))
                continue
            if type(payload) is not dict:
                unreadable.append(no_object(index, row, line, payload))
            else:
                keep(Record(index, row, payload))
        fresh = records[first:]
        records[first:] = fit(index, fresh, [lines.lines[each.row - lines.start] for each in fresh], unreadable)

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


def _all_objects(lines: list[bytes]) -> list[dict[str, Any]] | None:
    """What lines hold; `None` where one of them holds no object."""
    try:
        found = list(map(decode, lines))
    except UNDECODABLE:
        return None
    return found if {*map(type, found)} <= {dict} else None


def fit(file: int, rows: list[Record], texts: list[bytes], unreadable: list[Unreadable]) -> list[Record]:
    """Rows that were decoded of these texts, without those that are `unfit`, which are refused."""
    wrong = unfit(texts, [row.payload for row in rows])
    if wrong:
        unreadable += [
            refuse(file, rows[at].row, "invalid_json", f"{why} ({len(texts[at]):,} bytes)", texts[at]) for at, why in wrong.items()
        ]
        unreadable.sort(key=lambda each: each.row)
    return [row for at, row in enumerate(rows) if at not in wrong] if wrong else rows


def undecodable(file: int, row: int, raw: bytes, error: Exception) -> Unreadable:
    """The refusal of a row that is no JSON: what is wrong, and at which byte of it."""
    try:
        raw.decode()
    except UnicodeDecodeError as invalid:
        return refuse(file, row, "invalid_utf8", invalid_byte(invalid, raw), raw)
    if isinstance(error, RecursionError):
        if not may_be_too_deep(raw):  # the caller's stack is too deep, not the row
            raise error
        return too_deep(file, row, raw)
    alone = next((match for match in _ESCAPE.finditer(raw) if match[1]), None)
    if alone is not None:
        return refuse(file, row, "invalid_json", f"byte {alone.start()} of {len(raw)}: \\{alone[1].decode()} is half a surrogate pair", raw)
    return refuse(file, row, "invalid_json", _what_is_malformed(raw, error), raw)


def too_deep(file: int, row: int, raw: bytes) -> Unreadable:
    """The refusal of a row that is nested too deeply."""
    return refuse(file, row, "invalid_json", f"{TOO_DEEP} ({len(raw):,} bytes)", raw)


def _what_is_malformed(raw: bytes, error: Exception) -> str:
    """The standard library's complaint, which says what it expected; msgspec's where only msgspec, which is stricter, complains."""
    text = raw.decode()
    try:
        json.loads(text)
    except json.JSONDecodeError as malformed:
        return f"{malformed.msg.removesuffix(' at')} at byte {len(text[: malformed.pos].encode())} of {len(raw)}"
    except (ValueError, RecursionError):
        pass  # a number of thousands of digits, or deep nesting after the place that msgspec stopped at
    return f"{error} of {len(raw)} bytes"


def no_object(file: int, row: int, raw: bytes, value: Any) -> Unreadable:
    """The refusal of a row that is JSON but has no fields."""
    kind = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
    return refuse(file, row, "not_an_object", f"needs an object {{...}}, is {kind}", raw)


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
    in_line, found = _by_line(ends, after), {}
    open_ = np.flatnonzero(in_line != np.fromiter((_least_keys([row]) for row in rows), np.int64, len(rows)))
    for position in open_.tolist():
        if in_line[position] == _keys(rows[position]):
            continue
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
