"""Reading a source file: JSON lines, a JSON list, and the one entry for all formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.data.blocks import Block, Unreadable, invalid_byte, refuse, refuse_long
from prep_assets.data.files import WHOLE, Part, SourceFile
from prep_assets.data.stream import Lines, Places, Stream, blocks_of, blocks_of_lines, places, read_text_file, read_text_lines, text_start
from prep_assets.data.tables import read_arrow, read_delimited, read_parquet
from prep_assets.errors import ConfigError
from prep_assets.samples import Record
from prep_assets.stores.files import MOST_NESTED, TOO_DEEP, KeyTwice, is_too_deep, may_be_too_deep, once

# JSON lines: one object a line.
#
# A row that can be decoded is refused all the same where it is nested too deeply, or where an object has a key twice, of which readers keep one and say
# nothing, and not all the same one. Looking at each value of each row would cost more than reading it. So brackets and keys are counted in the text, of
# many rows at a time: a colon after the quote that closes a string ends a key, and nothing else does. Where the rows as they were decoded have as many
# keys, none was lost. Only else rows are looked at by themselves.

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

decode = msgspec.json.Decoder().decode
"""JSON → value, as msgspec reads it."""
_decode_lines = msgspec.json.Decoder().decode_lines

# One escape of a JSON string: a surrogate pair, a surrogate without its other half (the group), or any other.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_COLON, _QUOTE, _BACKSLASH, _SPACE = b':"\\ '
_BRACE, _CLOSING = b"{}"
_BLANKS = 16
"""White space before a colon that is looked at."""
_A, _LETTERS, _TO_SMALL = ord("a"), 26, 32
_BRACKET_TO_BRACE = _BRACE - ord("[")


def read_jsonl(stream: Stream, index: int, block_bytes: int, max_record_bytes: int, *, sound: bool = False) -> Iterator[Block]:
    """The objects of a JSON lines file. `Record.row` is the zero-based number of the line; blank lines are skipped.

    Args:
        sound: every row is known to be fit.
    """

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        keep, too_long, first = records.append, lines.too_long, len(records)
        if (payloads := None if too_long else _one_a_line(lines.text, lines.ends)) is not None:
            rows = [Record(index, row, payload) for row, payload in enumerate(payloads, lines.start)]
            records += rows if sound else _fit(index, rows, payloads, lines.text, lines.ends, unreadable)
            return
        texts = lines.lines
        for row, line in enumerate(texts, lines.start):
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
        records[first:] = fit(index, fresh, [texts[each.row - lines.start] for each in fresh], unreadable)

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


def _one_a_line(text: bytes, ends: Places) -> list[dict[str, Any]] | None:
    """What lines hold; `None` where one of them is not an object from its first byte to its last.

    No value goes on from a line that ends in a brace to one that begins with a brace: no string has a newline, and between two braces an object or a list
    has a comma. So where there are as many values as lines, each line is one.

    Args:
        ends: where each line ends.
    """
    raw = np.frombuffer(text, np.uint8)
    if not text.startswith(b"{") or (raw[ends[:-1] + 1] != _BRACE).any() or (raw[ends - 1] != _CLOSING).any():
        return None
    try:
        found: list[dict[str, Any]] = _decode_lines(text)
    except UNDECODABLE:
        return None
    return found if len(found) == len(ends) else None


def fit(file: int, rows: list[Record], texts: list[bytes], unreadable: list[Unreadable]) -> list[Record]:
    """Rows that were decoded of these texts, without those that are `unfit`, which are refused."""
    return _fit(file, rows, [row.payload for row in rows], b"\n".join(texts), _ends(texts), unreadable)


def _fit(
    file: int, rows: list[Record], payloads: Sequence[Mapping[str, Any]], text: bytes, ends: Places, unreadable: list[Unreadable]
) -> list[Record]:
    wrong = unfit(text, ends, payloads)
    if not wrong:
        return rows
    for at, why in wrong.items():
        raw = _line(text, ends, at)
        unreadable.append(refuse(file, rows[at].row, "invalid_json", f"{why} ({len(raw):,} bytes)", raw))
    unreadable.sort(key=lambda each: each.row)
    return [row for at, row in enumerate(rows) if at not in wrong]


def _ends(lines: Sequence[bytes]) -> Places:
    """Where each line ends when all are joined."""
    return np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1


def _line(text: bytes, ends: Places, at: int) -> bytes:
    return text[int(ends[at - 1]) + 1 if at else 0 : int(ends[at])]


def undecodable(file: int, row: int, raw: bytes, error: Exception) -> Unreadable:
    """The refusal of a row that is no JSON: what is wrong, and at which byte of it."""
    try:
        raw.decode()
    except UnicodeDecodeError as invalid:
        return refuse(file, row, "invalid_utf8", invalid_byte(invalid, raw), raw)
    if isinstance(error, RecursionError):
        if not may_be_too_deep(raw):  # the caller's stack is too deep, not the row
            raise error
        return refuse(file, row, "invalid_json", f"{TOO_DEEP} ({len(raw):,} bytes)", raw)
    alone = next((match for match in _ESCAPE.finditer(raw) if match[1]), None)
    if alone is not None:
        return refuse(file, row, "invalid_json", f"byte {alone.start()} of {len(raw)}: \\{alone[1].decode()} is half a surrogate pair", raw)
    return refuse(file, row, "invalid_json", _what_is_malformed(raw, error), raw)


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


def unfit(text: bytes, ends: Places, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The positions of those that are refused, and why.

    Args:
        text: what `rows` were decoded from, one after the other, with a byte of white space between them.
        ends: where each ends in it.
    """
    if not len(rows):
        return {}
    raw = np.frombuffer(text, np.uint8)
    brackets = _by_line(places(lambda part: part | _BRACKET_TO_BRACE == _BRACE, raw), ends)
    deep = {at: TOO_DEEP for at in np.flatnonzero(brackets > MOST_NESTED).tolist() if is_too_deep(rows[at])}
    shallow = [{} if at in deep else row for at, row in enumerate(rows)] if deep else rows
    return {**_twice(text, ends, shallow), **deep}


def _by_line(found: Places, ends: Places) -> Places:
    """How many of some places, which ascend, are in each line."""
    return np.diff(np.searchsorted(found, ends), prepend=0)


def _twice(text: bytes, ends: Places, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    raw, least, found = np.frombuffer(text, np.uint8), _least_keys(rows), {}
    colons = places(lambda part: part == _COLON, raw)
    if len(colons) == least.sum():
        return {}
    in_line = _by_line(_may_end_keys(raw, colons), ends)
    for at in np.flatnonzero(in_line != least).tolist():
        if in_line[at] == _keys(rows[at]):
            continue
        try:
            json.loads(_line(text, ends, at), object_pairs_hook=once)
        except KeyTwice as error:
            found[at] = str(error)
        except RecursionError:
            found[at] = TOO_DEEP
    return found


def _may_end_keys(raw: npt.NDArray[np.uint8], colons: Places) -> Places:
    """The colons that end a key of JSON text. A few inside of strings are among them: those after many blanks, some after quotes."""
    at = colons - 1
    for _ in range(_BLANKS):
        if not (blank := raw[at] <= _SPACE).any():
            break
        at -= blank
    escaped = (raw[at - 1] == _BACKSLASH) & (raw[at - 2] != _BACKSLASH)  # a quote inside a string
    found: Places = colons[((raw[at] == _QUOTE) & ~escaped & ~_opens_value(raw, at)) | (raw[at] <= _SPACE)]
    return found


def _opens_value(raw: npt.NDArray[np.uint8], quotes: Places) -> npt.NDArray[np.bool_]:
    """Whether a quote comes after a colon, maybe with a space, after a quote after a letter. That one closes a string, as outside of strings no quote
    comes after a letter; so the colon ends a key, and the quote opens its value."""
    before = quotes - 1
    before = before - (raw[before] == _SPACE)
    letter = (raw[before - 2] | _TO_SMALL) - np.uint8(_A) < _LETTERS
    found: npt.NDArray[np.bool_] = (raw[before] == _COLON) & (raw[before - 1] == _QUOTE) & letter
    return found


def _least_keys(rows: Sequence[Mapping[str, Any]]) -> Places:
    """How many keys each row has at least: its own, and those of objects in its lists, as messages are: int64[rows]."""
    count = np.fromiter(map(len, rows), np.int64, len(rows))
    for name, value in rows[0].items():
        if type(value) is list and value and type(value[0]) is dict:
            try:
                lists = [row[name] for row in rows]
                lengths = np.fromiter(map(list.__len__, lists), np.int64, len(rows))
                inside = np.fromiter(map(dict.__len__, chain.from_iterable(lists)), np.int64, int(lengths.sum()))
            except (KeyError, TypeError):  # other rows have something else there
                continue
            count += np.diff(np.append(0, np.cumsum(inside))[np.cumsum(lengths)], prepend=0)
    return count


def _keys(value: Any) -> int:
    """How many keys a JSON value has, at any depth."""
    inner = value.values() if type(value) is dict else value
    kinds = set(map(type, inner))
    count = len(value) if type(value) is dict else 0
    if dict in kinds or list in kinds:
        count += sum([_keys(each) for each in inner if type(each) is dict or type(each) is list])
    return count


# JSON: a list of objects, or one object.

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


# Reading a source file: blocks of records in file order, in memory that does not grow with the file.


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
    """The rows of `file` in file order.

    Args:
        index: position of the file in its domain's file list; it goes into `Record.file`.
        block_bytes: about how many decompressed bytes a block has. It changes neither the rows nor their numbers.
        max_record_bytes: a longer row is refused as `too_long`; rows of Parquet and Arrow files have no such limit.
        txt: whether a line or the whole file is a record, for the format `txt`.
        part: only the rows of this stretch, of a format that can be cut (see `prep_assets.data.tables`).
        watch: is given the decompressed bytes of any file but tables, as they are read.

    Raises:
        SourceError: while iterating, where the file is cut short, damaged, or is not of its format at all.
        ConfigError: an argument that makes no sense; at once.
    """
    if block_bytes < 1 or max_record_bytes < 1:
        raise ConfigError(f"block_bytes ({block_bytes}) and max_record_bytes ({max_record_bytes}) must be at least 1")
    if txt not in ("line", "file"):
        raise ConfigError(f"txt is 'line' or 'file', not {txt!r}")
    if file.format == "parquet":
        return read_parquet(file, index, block_bytes, part)
    if file.format == "arrow":
        return read_arrow(file, index, block_bytes, part)
    if file.format == "txt" and txt == "file":
        return blocks_of(partial(read_text_file, index=index, max_record_bytes=max_record_bytes), file, part, watch)
    more: dict[str, Any] = {"sound": file.sound} if file.format in ("jsonl", "json") else {}
    read = partial(_BY_BLOCK[file.format], index=index, block_bytes=block_bytes, max_record_bytes=max_record_bytes, **more)
    return blocks_of(read, file, part, watch)


_BY_BLOCK: dict[str, Callable[..., Iterator[Block]]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": partial(read_delimited, delimiter=","),
    "tsv": partial(read_delimited, delimiter="\t"),
    "txt": read_text_lines,
}
