"""Rows of a source file, read a second time: by orjson, the standard library and pyarrow, with none of the code in `records`.

Row numbers are those of record ids: lines of JSONL and text files (blank ones counted, though they are no rows), elements of a JSON list,
rows after the header of a CSV file, rows of a table.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import IO, Any

from prep_assets.errors import CheckFailed
from prep_assets.proofs.json_rows import DEPTH, depth_of, objects_of, value_of
from prep_assets.proofs.message_rows import FEWEST, MessageFields, MessageRows

Row = tuple[int, dict[str, Any] | None]
"""Number and fields of a row; `None` for one that cannot be read."""
Rows = Iterator[Row | MessageRows]
"""Rows, and several at once in columns where these are asked for."""

LINE_BYTES = 32 << 20
"""A longer line is no row."""
LINES, BYTES = 64, 1 << 18
"""Lines of JSON that are looked at together, and about how many bytes of them."""
MESSAGE_BYTES = 1 << 20
"""Bytes of lines that are read into columns together."""
ROWS = 1024
"""Rows of a table that are held at a time."""
_PARQUET: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}
_ONE_THREAD: dict[str, Any] = {"use_threads": False}
_AT_ONCE = 1 << 18
"""Bytes that are decompressed at a time."""
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


class Unsupported(Exception):
    """A file that this reader cannot take apart."""


@dataclass(frozen=True, slots=True)
class Between:
    """Consecutive rows of a file: the bytes of lines, which who reads them compares, the number of the first row, and of the one after the last; `None`
    where they are all that is left."""

    bytes: int | None = None
    first: int = 0
    end: int | None = None


ALL = Between()


def read_rows(
    stream: IO[bytes],
    format: str,
    compression: str | None,
    *,
    whole_file: bool = False,
    between: Between = ALL,
    messages: MessageFields | None = None,
) -> Rows:
    """Rows of an opened file.

    Args:
        format: ``jsonl``, ``json``, ``csv``, ``tsv``, ``txt``, ``parquet`` or ``arrow``.
        compression: ``gzip``, ``bz2``, ``xz``, ``zstd`` or `None`.
        whole_file: a text file is one row.
        between: which rows; those of lines begin where the stream stands.
        messages: how rows of JSON lines are written that shall come in columns.

    Raises:
        CheckFailed: the lines are others than `between` says.
        Unsupported: the file is damaged somewhere, so that other rules than these say which rows it has.
    """
    if format in ("parquet", "arrow"):
        return _tables(stream, format, between)
    opened = decompressed(stream, compression)
    if format == "jsonl" and messages is not None:
        return _message_lines(opened, between, messages)
    if format == "jsonl":
        return _json_lines(opened, between)
    if format == "json":
        return _json_list(opened)
    if format in ("csv", "tsv"):
        return _delimited(opened, "," if format == "csv" else "\t")
    return _text_file(opened) if whole_file else _text_lines(opened, between)


def decompressed(stream: IO[bytes], compression: str | None) -> IO[bytes]:
    """The bytes of an opened file, to be read from any place on."""
    if compression is None:
        return stream
    openers: dict[str, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open, "zstd": _open_zstd}
    return io.BufferedReader(openers[compression](stream), _AT_ONCE)  # by itself it decompresses a few kilobytes at a time


def _open_zstd(stream: IO[bytes]) -> Any:
    zstd = import_module(_ZSTD)
    return zstd.open(stream, options={zstd.DecompressionParameter.window_log_max: 31})


def _lines(stream: IO[bytes], between: Between) -> Iterator[tuple[int, bytes | None]]:
    """Lines that are not blank; `None` for one that is too long."""
    left, number, line = sys.maxsize if between.bytes is None else between.bytes, between.first - 1, b""

    def next_line() -> bytes:
        nonlocal left
        found = stream.readline(min(left, LINE_BYTES + 2))
        left -= len(found)
        return found

    for number, line in enumerate(iter(next_line, b""), between.first):
        text = line.removesuffix(b"\n")
        if number == 0:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if len(text) > LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = next_line()
            yield number, None
        elif text.strip():
            yield number, text
    if between.end is not None and (number + 1 != between.end or not line.endswith(b"\n")):
        raise CheckFailed(f"a file that is read in parts has row {number + 1:,} where its cut says row {between.end:,}")


def _json_lines(stream: IO[bytes], between: Between) -> Rows:
    lines = _lines(stream, between)
    numbers, some, size = list[int](), list[bytes | None](), 0
    for number, line in lines:
        numbers.append(number)
        some.append(line)
        size += len(line or b"")
        if len(some) == LINES or size >= BYTES:
            yield from zip(numbers, objects_of(some), strict=True)
            numbers, some, size = [], [], 0
    yield from zip(numbers, objects_of(some), strict=True)


def _message_lines(stream: IO[bytes], between: Between, fields: MessageFields) -> Rows:
    numbers, some, size = list[int](), list[bytes](), 0
    for number, line in _lines(stream, between):
        if line is None or size + len(line) > MESSAGE_BYTES:
            yield from _in_columns(numbers, some, fields)
            numbers, some, size = [], [], 0
        if line is None:
            yield number, None
            continue
        numbers.append(number)
        some.append(line)
        size += len(line)
    yield from _in_columns(numbers, some, fields)


def _in_columns(numbers: Sequence[int], lines: Sequence[bytes], fields: MessageFields) -> Rows:
    """Lines in columns, where one of them cannot be each half of them."""
    if not lines:
        return
    found = fields.read(numbers, lines)
    if found is not None:
        yield found
    elif len(lines) <= FEWEST:
        yield from zip(numbers, objects_of(lines), strict=True)
    else:
        half = len(lines) // 2
        yield from _in_columns(numbers[:half], lines[:half], fields)
        yield from _in_columns(numbers[half:], lines[half:], fields)


def _json_list(stream: IO[bytes]) -> Rows:
    """The whole list at once, so that nothing is yielded before it is known to be sound."""
    data = stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        value, _ = value_of(data)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"the list as a whole is no JSON: {error}") from error
    elements = value if isinstance(value, list) else [value]
    return (
        (number, element if isinstance(element, dict) and depth_of(element) <= DEPTH else None) for number, element in enumerate(elements)
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


def _text_lines(stream: IO[bytes], between: Between) -> Rows:
    for number, line in _lines(stream, between):
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


def _tables(stream: IO[bytes], format: str, between: Between) -> Rows:
    end = sys.maxsize if between.end is None else between.end
    for first, batch in _batches(stream, format, between.first):
        if first >= end:
            return
        low, high = (min(max(row - first, 0), batch.num_rows) for row in (between.first, end))
        for start in range(low, high, ROWS):
            part = batch.slice(start, min(ROWS, high - start))
            try:
                rows: list[dict[str, Any] | None] = list(part.to_pylist())
            except (ValueError, ArithmeticError):
                rows = [_table_row(part.slice(at, 1)) for at in range(part.num_rows)]
            yield from enumerate((None if row is None else {name: _members(row[name]) for name in row} for row in rows), first + start)


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


def _batches(stream: IO[bytes], format: str, first: int) -> Iterator[tuple[int, Any]]:
    """Batches of a table, each with the number of its first row, from the one that a row is in or before it."""
    begins, batches = _opened_table(stream, format, first)
    for batch in batches:
        yield begins, batch
        begins += batch.num_rows


def _opened_table(stream: IO[bytes], format: str, first: int) -> tuple[int, Iterator[Any]]:
    import pyarrow as pa

    if format == "parquet":
        import pyarrow.parquet as pq

        table = pq.ParquetFile(stream, **_PARQUET)
        begins = list(accumulate((table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)), initial=0))
        group = max(0, bisect_right(begins, first) - 1)
        return begins[group], table.iter_batches(ROWS, row_groups=list(range(group, table.num_row_groups)), **_ONE_THREAD)
    magic = stream.read(6)
    stream.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(stream)
        return 0, (reader.get_batch(number) for number in range(reader.num_record_batches))
    return 0, iter(pa.ipc.open_stream(stream))
