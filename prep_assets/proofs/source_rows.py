"""Rows of a source file, read a second time: by orjson, the standard library and pyarrow, with none of the code in `records`.

Row numbers are those of record ids: lines of JSONL and text files (blank ones counted, though they are no rows), elements of a JSON list,
rows after the header of a CSV file, rows of a table.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import IO, Any, NoReturn

import orjson

Rows = Iterator[tuple[int, dict[str, Any] | None]]
"""Number and fields of each row; `None` for a row that cannot be read."""

LINE_BYTES = 32 << 20
"""A longer line is no row."""
DEPTH = 100
"""A row that is nested deeper is none."""
LINES, BYTES = 64, 1 << 18
"""Lines of JSON that are looked at together, and about how many bytes of them."""
ROWS = 1024
"""Rows of a table that are held at a time."""
_PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
_ONE_THREAD: dict[str, Any] = {"use_threads": False}
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


class Unsupported(Exception):
    """A file that this reader cannot take apart."""


def read_rows(stream: IO[bytes], format: str, compression: str | None, *, whole_file: bool = False) -> Rows:
    """Rows of an opened file.

    Args:
        format: ``jsonl``, ``json``, ``csv``, ``tsv``, ``txt``, ``parquet`` or ``arrow``.
        compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or `None`.
        whole_file: a text file is one row.

    Raises:
        Unsupported: the file is damaged somewhere, so that other rules than these say which rows it has.
    """
    if format in ("parquet", "arrow"):
        return _tables(stream, format)
    opened = _decompressed(stream, compression)
    if format == "jsonl":
        return _json_lines(opened)
    if format == "json":
        return _json_list(opened)
    if format in ("csv", "tsv"):
        return _delimited(opened, "," if format == "csv" else "\t")
    return _text_file(opened) if whole_file else _text_lines(opened)


def _decompressed(stream: IO[bytes], compression: str | None) -> IO[bytes]:
    if compression is None:
        return stream
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": _open_zstd}
    opened: IO[bytes] = openers[compression](stream)
    return opened


def _open_zstd(stream: IO[bytes]) -> Any:
    zstd = import_module(_ZSTD)
    return zstd.open(stream, options={zstd.DecompressionParameter.window_log_max: 31})


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not blank; `None` for one that is too long."""
    for number, line in enumerate(iter(lambda: stream.readline(LINE_BYTES + 2), b"")):
        text = line.removesuffix(b"\n")
        if number == 0:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if len(text) > LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(LINE_BYTES)
            yield number, None
        elif text.strip():
            yield number, text


def _json_lines(stream: IO[bytes]) -> Rows:
    lines = _lines(stream)
    numbers, some, size = list[int](), list[bytes | None](), 0
    for number, line in lines:
        numbers.append(number)
        some.append(line)
        size += len(line or b"")
        if len(some) == LINES or size >= BYTES:
            yield from zip(numbers, _objects(some), strict=True)
            numbers, some, size = [], [], 0
    yield from zip(numbers, _objects(some), strict=True)


def _objects(lines: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
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
            return {*map(type, values)} == {dict} and keys == len(_KEY_END.findall(data))
        if not kinds <= _SURE:
            return False
        objects, lists = ([each for each in waiting if type(each) is kind] for kind in (dict, list))
        keys += sum(map(len, objects))
        waiting = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(lists)]
    return False


_SCALARS = {str, int, bool, type(None)}
_SURE = {*_SCALARS, dict, list}


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value, once = _value(data)
    except (ValueError, RecursionError):
        return None
    shallow = once and data.count(b"[") + data.count(b"{") <= DEPTH
    return value if isinstance(value, dict) and (shallow or _depth(value) <= DEPTH) else None


def _value(data: bytes) -> tuple[Any, bool]:
    """The value of JSON text, and whether no object in it has a key twice for certain: by orjson where it keeps all of the text, by the standard
    library everywhere else."""
    try:
        value = orjson.loads(data)
    except ValueError:
        return _strict(data), False
    keys, fractions = _contents(value)
    # a colon after a quote ends a key, unless it stands in a string: where there are no more of them than keys, no key was there twice
    if keys != data.count(b":") and keys != len(_KEY_END.findall(data)):
        return _strict(data), False
    if fractions and _LONG_NUMBER.search(data):  # an integer of more than 64 bits is a fraction to orjson
        return _strict(data), False
    return value, True


_KEY_END = re.compile(rb'"[ \t\r\n]*:')
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


def _depth(value: Any) -> int:
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


def _json_list(stream: IO[bytes]) -> Rows:
    """The whole list at once, so that nothing is yielded before it is known to be sound."""
    data = stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        value, _ = _value(data)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the list as a whole is no JSON: {error}") from error
    elements = value if isinstance(value, list) else [value]
    return (
        (number, element if isinstance(element, dict) and _depth(element) <= DEPTH else None) for number, element in enumerate(elements)
    )


def _delimited(stream: IO[bytes], delimiter: str) -> Rows:
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES))
    text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="\n")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    parsed = (row for row in _parsed(reader) if row != [])
    header = next(parsed, None)
    if header is None:
        raise Unsupported("no header")
    for number, fields in enumerate(parsed):
        whole = fields is not None and len(fields) == len(header) and all(_is_text(field) for field in fields)
        yield number, dict(zip(header, fields or (), strict=True)) if whole else None


def _parsed(reader: Iterable[list[str]]) -> Iterator[list[str] | None]:
    rows = iter(reader)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise Unsupported(str(error)) from error
            yield None


def _is_text(value: str) -> bool:
    """Whether no byte of it was left over by "surrogateescape"."""
    return value.isascii() or not any("\udc80" <= char <= "\udcff" for char in value)


def _text_lines(stream: IO[bytes]) -> Rows:
    for number, line in _lines(stream):
        yield number, None if line is None else _text(line.removesuffix(b"\r"))


def _text_file(stream: IO[bytes]) -> Rows:
    data = stream.read(LINE_BYTES + 4).removeprefix(b"\xef\xbb\xbf")
    if len(data) > LINE_BYTES:
        yield 0, None
    elif data.strip():
        yield 0, _text(data)


def _text(data: bytes) -> dict[str, Any] | None:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return None


def _tables(stream: IO[bytes], format: str) -> Rows:
    number = 0
    for batch in _batches(stream, format):
        for start in range(0, batch.num_rows, ROWS):
            part = batch.slice(start, ROWS)
            try:
                rows: list[dict[str, Any] | None] = list(part.to_pylist())
            except (ValueError, ArithmeticError):
                rows = [_table_row(part.slice(at, 1)) for at in range(part.num_rows)]
            yield from enumerate((None if row is None else {name: _members(row[name]) for name in row} for row in rows), number)
            number += len(rows)


def _members(value: Any) -> Any:
    """A value with the members of its objects that are not null: a column gives each object the members of all others."""
    if isinstance(value, list):
        return list(map(_members, value))
    return {name: _members(inner) for name, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def _table_row(row: Any) -> dict[str, Any] | None:
    try:
        found: list[dict[str, Any]] = row.to_pylist()
    except (ValueError, ArithmeticError):
        return None
    return found[0]


def _batches(stream: IO[bytes], format: str) -> Iterator[Any]:
    import pyarrow as pa

    if format == "parquet":
        import pyarrow.parquet as pq

        yield from pq.ParquetFile(stream, **_PARQUET).iter_batches(ROWS, **_ONE_THREAD)
        return
    magic = stream.read(6)
    stream.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(stream)
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(stream)
