"""Readers of JSON lines and JSON lists, and `read_blocks`, the entry for all formats."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np

from prep_assets.array_types import Ints
from prep_assets.data.addresses import file_name
from prep_assets.data.blocks import Block, Unreadable, invalid_byte, reject_long_row, reject_row
from prep_assets.data.files import WHOLE, Part, SourceFile, open_stored
from prep_assets.data.recognize import LFS_POINTER, MOST_OF_POINTER, POINTER, recognized
from prep_assets.data.stream import Lines, Stream, blocks_of, blocks_of_lines, read_text_file, read_text_lines, text_start
from prep_assets.data.tables import read_arrow, read_delimited, read_parquet
from prep_assets.errors import ConfigError, SourceError
from prep_assets.samples import Record, changed
from prep_assets.stores.files import TOO_DEEP, KeyTwice, is_too_deep, may_be_too_deep, once

# JSON lines: one object a line.
#
# Two kinds of rows that can be decoded are rejected: those nested too deeply, and those with a repeated key in an object, of which readers silently keep
# one, and not all of them the same one. A walk through all values would cost more than decoding. So keys are counted in the text of many rows at a time,
# and again in the text that is written from the decoded rows: if they are as many, none was lost. Only otherwise rows are checked one by one.

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode = msgspec.json.Decoder().decode
"""Decodes JSON with msgspec."""
_decode_lines = msgspec.json.Decoder().decode_lines

# One escape of a JSON string: a surrogate pair, a lone surrogate (the group), or any other.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_QUOTE_OR_COLON = re.compile(rb"\\u00(?:22|3[aA])")
_COLON, _QUOTE, _BACKSLASH = b':"\\'
_BRACE, _CLOSING = b"{}"
_EVEN = 16
"""Bytes before a quote in which backslashes are counted. A quote after more of them counts as unescaped, which is safe, as this is even."""


def read_jsonl(stream: Stream, index: int, block_bytes: int, max_record_bytes: int, *, sound: bool = False) -> Iterator[Block]:
    """Read the objects of a JSON lines file. `Record.row` is the zero-based line number; blank lines are skipped.

    Args:
        sound: whether all decodable rows are known to be accepted, so that `unfit` is skipped.
    """

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        add_record, too_long, first_index = records.append, lines.too_long, len(records)
        if (payloads := None if too_long else _decode_object_lines(lines.text, lines.ends)) is not None:
            rows = [Record(index, row, payload) for row, payload in enumerate(payloads, lines.start)]
            records += rows if sound or _are_flat(lines.text, payloads) else drop_unfit(index, rows, lines.lines, unreadable)
            return
        texts = dict(lines.filled)
        for number, line in texts.items():
            row = lines.start + number
            if length := too_long.get(number):
                unreadable.append(reject_long_row(index, row, line, length, max_record_bytes))
                continue
            try:
                payload = decode(line)
            except UNDECODABLE as error:
                unreadable.append(undecodable(index, row, line, error))
                continue
            if type(payload) is not dict:
                unreadable.append(no_object(index, row, line, payload))
            else:
                add_record(Record(index, row, payload))
        new_records = records[first_index:]
        records[first_index:] = drop_unfit(index, new_records, [texts[record.row - lines.start] for record in new_records], unreadable)

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


def _decode_object_lines(text: bytes, ends: Ints) -> list[dict[str, Any]] | None:
    """The objects of `text`, one a line; `None` if a line is not exactly one object.

    No value continues from a line that ends in a brace to a line that begins with one: strings have no newlines, and inside an object or a list a comma
    separates two braces. So if there are as many values as lines, each line is one value.

    Args:
        ends: int64[lines], the offset of the end of each line.
    """
    raw = np.frombuffer(text, np.uint8)
    if not text.startswith(b"{") or (raw[ends[:-1] + 1] != _BRACE).any() or (raw[ends - 1] != _CLOSING).any():
        return None
    try:
        payloads: list[dict[str, Any]] = _decode_lines(text)
    except UNDECODABLE:
        return None
    return payloads if len(payloads) == len(ends) else None


def drop_unfit(file: int, rows: list[Record], texts: Sequence[bytes], unreadable: list[Unreadable]) -> list[Record]:
    """`rows`, decoded from `texts`, without those that are `unfit`, whose rejections go to `unreadable`."""
    reasons = unfit(texts, [row.payload for row in rows])
    for position, reason in reasons.items():
        raw = texts[position]
        unreadable.append(reject_row(file, rows[position].row, "invalid_json", f"{reason} ({len(raw):,} bytes)", raw))
    unreadable.sort(key=lambda rejected: rejected.row)
    return [row for position, row in enumerate(rows) if position not in reasons]


def undecodable(file: int, row: int, raw: bytes, error: Exception) -> Unreadable:
    """The rejection of a row that is not JSON, with the fault and its byte."""
    try:
        raw.decode()
    except UnicodeDecodeError as invalid:
        return reject_row(file, row, "invalid_utf8", invalid_byte(invalid, raw), raw)
    if isinstance(error, RecursionError):
        if not may_be_too_deep(raw):  # the caller's stack is too deep, not the row
            raise error
        return reject_row(file, row, "invalid_json", f"{TOO_DEEP} ({len(raw):,} bytes)", raw)
    lone = next((match for match in _ESCAPE.finditer(raw) if match[1]), None)
    if lone is not None:
        return reject_row(
            file,
            row,
            "invalid_json",
            f"byte {lone.start()} of {len(raw)}: \\{lone[1].decode()} is half a surrogate pair",
            raw,
        )
    return reject_row(file, row, "invalid_json", _json_fault(raw, error), raw)


def _json_fault(raw: bytes, error: Exception) -> str:
    """The error of the standard library, which says what it expected; that of msgspec, which is stricter, if only msgspec fails."""
    text = raw.decode()
    try:
        json.loads(text)
    except json.JSONDecodeError as json_error:
        return f"{json_error.msg.removesuffix(' at')} at byte {len(text[: json_error.pos].encode())} of {len(raw)}"
    except (ValueError, RecursionError):
        pass  # a number of thousands of digits, or deep nesting after the byte at which msgspec stopped
    return f"{error} of {len(raw)} bytes"


def no_object(file: int, row: int, raw: bytes, value: Any) -> Unreadable:
    """The rejection of a row that is JSON but not an object."""
    kind = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
    return reject_row(file, row, "not_an_object", f"needs an object {{...}}, is {kind}", raw)


def unfit(texts: Sequence[bytes], rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Position → reason of the rows, decoded from `texts`, that are rejected although they can be decoded."""
    reasons = {at: TOO_DEEP for at, text in enumerate(texts) if may_be_too_deep(text) and is_too_deep(rows[at])}
    shallow = [at for at in range(len(rows)) if at not in reasons]
    if _keep_all_keys([texts[at] for at in shallow], [rows[at] for at in shallow]):
        return reasons
    for at in shallow:
        try:
            if not _keep_all_keys([texts[at]], [rows[at]]):
                json.loads(texts[at], object_pairs_hook=once)
        except KeyTwice as error:
            reasons[at] = str(error)
    return reasons


def _keep_all_keys(texts: Sequence[bytes], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows certainly have every key of their texts, which would have more keys than the text that is written from the rows."""
    text, written = msgspec.json.format(b"[%s]" % b",".join(texts), indent=-1), msgspec.json.encode(rows)
    if text == written:
        return True
    spelled = _QUOTE_OR_COLON.sub(lambda escape: b'\\"' if escape[0].endswith(b"2") else b":", text)
    return _count_key_ends(spelled) == _count_key_ends(written)


def _count_key_ends(text: bytes) -> int:
    """The number of colons after a quote in JSON without spaces: one for each key, and those in strings, whose quotes have a backslash."""
    raw = np.frombuffer(text, np.uint8)
    return int(np.count_nonzero(raw[np.flatnonzero(raw == _COLON) - 1] == _QUOTE))


def _are_flat(text: bytes, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows certainly have no inner object or list, and no repeated key: each key and each string has two quotes that no backslash escapes, so `text`
    has more of them than `rows` account for where a key is repeated. Faster than `unfit`."""
    kinds = Counter(map(type, chain.from_iterable(row.values() for row in rows)))
    if kinds[dict] or kinds[list]:
        return False
    raw = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(raw == _QUOTE)
    after_one = quotes[raw[quotes - 1] == _BACKSLASH]
    after_more = after_one[raw[after_one - 2] == _BACKSLASH].tolist()
    before = [text[max(0, quote - _EVEN) : quote] for quote in after_more]
    escaped = len(after_one) - sum((len(part) - len(part.rstrip(b"\\"))) % 2 == 0 for part in before)
    return len(quotes) - escaped == 2 * (sum(map(len, rows)) + kinds[str])


def read_jsonl_file(stream: Stream, index: int, max_record_bytes: int) -> Iterator[Block]:
    """Read one payload `{"lines": [object, …]}`, row 0, of a whole JSON lines file; no row if it is only white space. A line that is no object rejects it."""
    for block in read_text_file(stream, index, max_record_bytes):
        records, unreadable = [], [*block.unreadable]
        for record in block.records:
            whole = record.payload["text"].encode()
            texts = [(number, line) for number, line in enumerate(whole.split(b"\n")) if line and not line.isspace()]
            lines = [_decode_object(line, index, number, max_record_bytes) for number, line in texts]
            wrong = [line for line in lines if isinstance(line, Unreadable)]
            rows = [Record(index, number, line) for (number, _), line in zip(texts, lines, strict=True) if isinstance(line, dict)]
            if not wrong:
                drop_unfit(index, rows, [line for _, line in texts], wrong)
            if wrong:
                unreadable.append(
                    reject_row(index, 0, wrong[0].reason, f"line {wrong[0].row + 1} of {texts[-1][0] + 1}: {wrong[0].detail}", whole)
                )
            else:
                records.append(Record(index, 0, {"lines": [row.payload for row in rows]}))
        yield Block(records, unreadable, block.bytes_read)


# JSON: a list of objects, or one object.

MAX_JSON_BYTES = 1 << 30
_TO_JSONL = "Convert it to JSON lines (one object a line), which is read in bounded memory"
_LINES = "If each line is one object, set `format: jsonl`"
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_WHITE = b" \t\r\n"
# A string, or a character that delimits elements; a single quote character opens a string that is never closed.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)


def read_json(stream: Stream, index: int, block_bytes: int, max_record_bytes: int, *, sound: bool = False) -> Iterator[Block]:
    """Read the elements of a JSON list, decoded one by one, so that a bad one is a rejected row. `Record.row` is the position in the list.

    Raises:
        SourceError: the file is over `MAX_JSON_BYTES` (decompressed), or is neither a list nor one object; with the position.
    """
    start = text_start(stream)
    data = start + stream.read(MAX_JSON_BYTES + 1 - len(start))
    if len(data) > MAX_JSON_BYTES:
        raise stream.broken(f"a JSON file of more than {MAX_JSON_BYTES:,} bytes is not read whole; stopped", _TO_JSONL)
    records, texts, unreadable, size = list[Record](), list[bytes](), list[Unreadable](), 0
    for row, raw in enumerate(_elements(stream, data)):
        element = bytes(raw)
        payload = _decode_object(element, index, row, max_record_bytes)
        if isinstance(payload, Unreadable):
            unreadable.append(payload)
        else:
            records.append(Record(index, row, payload))
            texts.append(element)
        size += len(raw)
        if size >= block_bytes:
            yield Block(records if sound else drop_unfit(index, records, texts, unreadable), unreadable, stream.stored)
            records, texts, unreadable, size = [], [], [], 0
    yield Block(records if sound else drop_unfit(index, records, texts, unreadable), unreadable, stream.stored)


def _elements(stream: Stream, data: bytes) -> Iterable[bytes | msgspec.Raw]:
    start = len(data) - len(data.lstrip(_WHITE))
    opening = data[start : start + 1]
    if opening not in (b"[", b"{"):
        if found := recognized(data[start : start + 1024], "json", whole=False):
            raise stream.broken(*found)
        beginning = f"starts with {opening!r}" if opening else "holds white space only"
        raise stream.broken(f"the file {beginning} at byte {start}; needs a list [...] of objects or one object; stopped", _TO_JSONL)
    try:
        return _decode_list(data) if opening == b"[" else [_decode_raw(data)]
    except UNDECODABLE as error:
        return _split_malformed(stream, data, start, str(error))


def _split_malformed(stream: Stream, data: bytes, start: int, reason: str) -> list[bytes]:
    """The elements of malformed JSON, if quotes and brackets prove where each ends."""
    elements: list[bytes] = []
    depth, begin = 0, start if data[start : start + 1] == b"{" else start + 1
    end = None
    for token in _TOKEN.finditer(data, start):
        symbol = token[0]
        if symbol == b'"':
            break
        depth += (symbol in b"[{") - (symbol in b"]}")
        if depth == 0:
            end = token.end()
            break
        if depth == 1 and symbol == b"," and begin > start:
            elements.append(data[begin : token.start()].strip(_WHITE))
            begin = token.end()
    if end is None:
        raise stream.broken(f"the JSON is cut short or a quote is missing ({reason}); stopped")
    leftover = data[end:].lstrip(_WHITE)
    if leftover:
        raise stream.broken(f"more follows the first JSON value at byte {len(data) - len(leftover):,}; stopped", _LINES)
    elements.append(data[begin : end - 1].strip(_WHITE) if begin > start else data[start:end])
    return elements


def _decode_object(raw: bytes, index: int, row: int, limit: int) -> dict[str, Any] | Unreadable:
    """The fields of an element, or its rejection."""
    if len(raw) > limit:
        return reject_long_row(index, row, raw, len(raw), limit)
    try:
        payload = decode(raw)
    except UNDECODABLE as error:
        return undecodable(index, row, raw, error)
    if type(payload) is not dict:
        return no_object(index, row, raw, payload)
    return payload


# Reading any source file: blocks of records in file order, in bounded memory.


def read_blocks(
    file: SourceFile,
    index: int,
    *,
    block_bytes: int = 1 << 20,
    max_record_bytes: int = 32 << 20,
    txt: Literal["line", "file"] = "line",
    part: Part = WHOLE,
    watch: Callable[[bytes], None] | None = None,
) -> Iterator[Block]:
    """The rows of `file` in file order, without the private data that its `redact` takes out.

    Args:
        index: position of the file in its domain's file list; it goes into `Record.file`.
        block_bytes: approximate decompressed bytes of a block. It changes neither the rows nor their numbers.
        max_record_bytes: a longer row is rejected as `too_long`; rows of Parquet and Arrow files have no such limit.
        txt: whether a line or the whole file is a record, for the formats `txt` and `jsonl`.
        part: read only the rows of this part, for formats that can be cut (see `prep_assets.data.tables`).
        watch: called with the decompressed bytes as they are read, except for tables.

    Raises:
        SourceError: while iterating, if the file is cut short, damaged, or not of its format; at once, if it is a Git LFS pointer.
        ConfigError: at once, for an invalid argument.
    """
    if block_bytes < 1 or max_record_bytes < 1:
        raise ConfigError(f"block_bytes ({block_bytes}) and max_record_bytes ({max_record_bytes}) must be at least 1")
    if txt not in ("line", "file"):
        raise ConfigError(f"txt is 'line' or 'file', not {txt!r}")
    if file.size <= MOST_OF_POINTER and not part.start and not file.sound:
        _reject_pointer(file)
    if file.format == "parquet":
        blocks = read_parquet(file, index, block_bytes, part)
    elif file.format == "arrow":
        blocks = read_arrow(file, index, block_bytes, part)
    elif file.format in _WHOLE and txt == "file":
        blocks = blocks_of(partial(_WHOLE[file.format], index=index, max_record_bytes=max_record_bytes), file, part, watch)
    else:
        extra_options: dict[str, Any] = {"sound": file.sound} if file.format in ("jsonl", "json") else {}
        read = partial(_BY_BLOCK[file.format], index=index, block_bytes=block_bytes, max_record_bytes=max_record_bytes, **extra_options)
        blocks = blocks_of(read, file, part, watch)
    return blocks if file.redact is None else map(partial(_redacted, file.redact), blocks)


def _reject_pointer(file: SourceFile) -> None:
    with open_stored(file) as stored:
        if stored.read(len(LFS_POINTER)) == LFS_POINTER:
            raise SourceError(f"{file.name}: {POINTER[0]} ({file_name(file.url)}). {POINTER[1]}")


def _redacted(redact: Callable[[Any], Any], block: Block) -> Block:
    records = [changed(record, payload=redact(record.payload)) for record in block.records]
    return Block(records, [changed(row, payload=redact(row.payload)) for row in block.unreadable], block.bytes_read)


_BY_BLOCK: dict[str, Callable[..., Iterator[Block]]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": partial(read_delimited, delimiter=","),
    "tsv": partial(read_delimited, delimiter="\t"),
    "txt": read_text_lines,
}
_WHOLE: dict[str, Callable[..., Iterator[Block]]] = {"jsonl": read_jsonl_file, "txt": read_text_file}
"""Readers of files that are one record."""
