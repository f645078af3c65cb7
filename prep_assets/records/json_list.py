"""JSON: a list of objects, or one object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from prep_assets.records.blocks import Block, Unreadable, refuse_long
from prep_assets.records.jsonl import UNDECODABLE, decode, fit, no_object, undecodable
from prep_assets.records.lines import text_start
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

MAX_JSON_BYTES = 1 << 30
_TO_JSONL = "Convert it to JSON lines (one object a line), which is read in bounded memory"
_LINES = "Where each line is an object of its own, set `format: jsonl`"
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHITE = b" \t\r\n"
# A string, or a character that says where an element ends; a quote on its own opens a string that nothing closes.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)


def read_json(stream: Stream, index: int, block_bytes: int, max_record_bytes: int, *, sound: bool = False) -> Iterator[Block]:
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
            yield Block(kept if sound else fit(index, kept, texts, unreadable), unreadable, stream.stored)
            kept, texts, unreadable, size = [], [], [], 0
    yield Block(kept if sound else fit(index, kept, texts, unreadable), unreadable, stream.stored)


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
        payload = decode(raw)
    except UNDECODABLE as error:
        return undecodable(index, row, raw, error)
    if type(payload) is not dict:
        return no_object(index, row, raw, payload)
    return payload
