"""JSON lines: one object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from prep_assets.disk.strict_json import TOO_DEEP, may_be_too_deep
from prep_assets.records.blocks import Block, Unreadable, invalid_byte, refuse, shown
from prep_assets.records.lines import Lines, blocks_of_lines, text_start
from prep_assets.records.stream import Stream
from prep_assets.records.unfit import unfit
from prep_assets.samples import Record

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder().decode

# One escape of a JSON string: a surrogate pair, a surrogate without its other half (the group), or any other.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
MAX_JSON_BYTES = 1 << 30
_TO_JSONL = "Convert it to JSON lines (one object a line), which is read in bounded memory"
_LINES = "Where each line is an object of its own, set `format: jsonl`"
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHITE = b" \t\r\n"
# A string, or a character that says where an element ends; a quote on its own opens a string that nothing closes.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)


def read_jsonl(stream: Stream, index: int, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """The objects of a JSON lines file. `Record.row` is the zero-based number of the line; blank lines are skipped."""

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        decode, keep, too_long, first = _decode, records.append, lines.too_long, len(records)
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
        texts = lines.lines if len(fresh) == len(lines.lines) else [lines.lines[each.row - lines.start] for each in fresh]
        records[first:] = fit(index, fresh, texts, unreadable)

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


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
        if not may_be_too_deep(raw):  # it is whoever calls that is too deep
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


def refuse_long(file: int, row: int, start: bytes, length: int, limit: int) -> Unreadable:
    """The refusal of a row over the size limit; only its start is at hand."""
    return Unreadable(file, row, "too_long", f"{length:,} bytes; the limit is {limit:,} (max_record_bytes)", shown(start), length)


def read_json(stream: Stream, index: int, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """The elements of the list, decoded one by one, so that a bad one is a refused row. `Record.row` is the position in the list.

    Raises:
        SourceError: the file is over `MAX_JSON_BYTES` (decompressed), or is neither a list nor one object; with the position.
    """
    start = text_start(stream)
    data = start + stream.read_fully(MAX_JSON_BYTES + 1 - len(start))
    if len(data) > MAX_JSON_BYTES:
        raise stream.broken(f"a JSON file of more than {MAX_JSON_BYTES:,} bytes is not read whole; stopped", _TO_JSONL)
    kept, texts, unreadable, size = list[Record](), list[bytes](), list[Unreadable](), 0
    for row, raw in enumerate(_elements(stream, data)):
        element = bytes(raw)
        payload = _object(element, index, row, max_record_bytes)
        if isinstance(payload, Unreadable):
            unreadable.append(payload)
        else:
            kept.append(Record(index, row, payload))
            texts.append(element)
        size += len(raw)
        if size >= block_bytes:
            yield Block(fit(index, kept, texts, unreadable), unreadable, stream.stored)
            kept, texts, unreadable, size = [], [], [], 0
    yield Block(fit(index, kept, texts, unreadable), unreadable, stream.stored)


def _elements(stream: Stream, data: bytes) -> Iterable[bytes | msgspec.Raw]:
    start = len(data) - len(data.lstrip(_WHITE))
    opening = data[start : start + 1]
    if opening not in (b"[", b"{"):
        what = f"starts with {opening!r}" if opening else "holds white space only"
        raise stream.broken(f"the file {what} at byte {start}; needs a list [...] of objects or one object; stopped", _TO_JSONL)
    try:
        return _decode_list(data) if opening == b"[" else [_decode_raw(data)]
    except UNDECODABLE as error:
        return _split(stream, data, start, str(error))


def _split(stream: Stream, data: bytes, start: int, why: str) -> list[bytes]:
    """The elements of JSON that is malformed somewhere, as far as quotes and brackets prove where each ends."""
    elements: list[bytes] = []
    depth, begin = 0, start if data[start : start + 1] == b"{" else start + 1
    end = None
    for token in _TOKEN.finditer(data, start):
        kind = token[0]
        if kind == b'"':
            break
        depth += (kind in b"[{") - (kind in b"]}")
        if depth == 0:
            end = token.end()
            break
        if depth == 1 and kind == b"," and begin > start:
            elements.append(data[begin : token.start()].strip(_WHITE))
            begin = token.end()
    if end is None:
        raise stream.broken(f"the JSON is cut short or a quote is missing ({why}); stopped")
    rest = data[end:].lstrip(_WHITE)
    if rest:
        raise stream.broken(f"more follows the first JSON value at byte {len(data) - len(rest):,}; stopped", _LINES)
    elements.append(data[begin : end - 1].strip(_WHITE) if begin > start else data[start:end])
    return elements


def _object(raw: bytes, index: int, row: int, limit: int) -> dict[str, Any] | Unreadable:
    """The fields of an element, or why it is refused."""
    if len(raw) > limit:
        return refuse_long(index, row, raw, len(raw), limit)
    try:
        payload = _decode(raw)
    except UNDECODABLE as error:
        return undecodable(index, row, raw, error)
    if type(payload) is not dict:
        return no_object(index, row, raw, payload)
    return payload
