"""Tables: CSV, Parquet and Arrow; and where a source file can be cut for several workers."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any, Literal

from prep_assets.data.blocks import PAYLOAD_CHARACTERS, Block, Unreadable, invalid_byte, refuse
from prep_assets.data.files import WHOLE, Part, SourceFile, file_name, is_remote
from prep_assets.data.stream import Stream, read_lines, seekable
from prep_assets.errors import SourceError
from prep_assets.samples import Record

# Comma- and tab-separated values with a header. Every value is a string, so that `007` stays `007`.

_REMEDY = "Fix the file, or convert it to JSON lines"


def read_delimited(stream: Stream, index: int, delimiter: str, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """Payloads `{column: string}`. `Record.row` counts the rows after the header, zero-based; blank lines are skipped.

    Raises:
        SourceError: no header, or one that names a column twice; a row that is longer than the limit or whose quote is never closed (where
            the next row starts cannot be known then).
    """
    rows = _Rows(stream, delimiter, block_bytes, max_record_bytes)
    header = _header(rows, stream)
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    row, size = 0, 0
    while (parsed := rows.next_row()) is not None:
        fields, error = parsed
        problem = error or _problem(fields, header, rows.raw)
        if problem is None:
            records.append(Record(index, row, dict(zip(header, fields, strict=True))))
        else:
            unreadable.append(refuse(index, row, *problem, rows.raw))
        row += 1
        stream.rows = row
        size += len(rows.raw)
        if size >= block_bytes:
            yield Block(records, unreadable, stream.stored)
            records, unreadable, size = [], [], 0
    yield Block(records, unreadable, stream.stored)


class _Rows:
    """The rows that the `csv` module parses, each with its raw text; a row may span several lines."""

    def __init__(self, stream: Stream, delimiter: str, block_bytes: int, max_record_bytes: int) -> None:
        # The limit belongs to the whole process, so that it is only ever raised.
        csv.field_size_limit(max(csv.field_size_limit(), max_record_bytes))
        self._stream, self._limit = stream, max_record_bytes
        self._lines = read_lines(stream, block_bytes, max_record_bytes)
        self._reader = csv.reader(self._text(), delimiter=delimiter, strict=True)
        self._parts: list[bytes] = []
        self._size = 0
        self._line = 0

    @property
    def raw(self) -> bytes:
        """The text of the last row, without its last newline."""
        return self._parts[0] if len(self._parts) == 1 else b"\n".join(self._parts)

    def next_row(self) -> tuple[list[str], tuple[str, str] | None] | None:
        """`(fields, why it cannot be parsed)` of the next row that is not blank; `None` at the end."""
        while True:
            self._parts, self._size = [], 0
            try:
                fields = next(self._reader, None)
            except csv.Error as error:
                if "unexpected end of data" in str(error):
                    raise self._lost("opens a quote that is never closed") from error
                return [], ("invalid_csv", str(error))
            if fields is None:
                return None
            if fields:
                return fields, None

    def _text(self) -> Iterator[str]:
        for block in self._lines:
            for i, line in enumerate(block.lines):
                if not self._parts:
                    self._line = block.start + i
                self._parts.append(line)
                self._size += len(line)
                if i in block.too_long or self._size > self._limit:
                    raise self._lost(f"is longer than {self._limit:,} bytes (max_record_bytes), or a quote in it is never closed")
                # Invalid bytes survive as lone surrogates, which `_problem` finds again.
                yield line.decode("utf-8", "surrogateescape") + "\n"

    def _lost(self, what: str) -> SourceError:
        return self._stream.broken(f"the row that starts at line {self._line + 1:,} {what}; stopped", _REMEDY)


def _header(rows: _Rows, stream: Stream) -> list[str]:
    parsed = rows.next_row()
    if parsed is None:
        raise stream.broken("no header line; stopped", "The first line must name the columns")
    header, error = parsed
    problem = error or _problem(header, header, rows.raw)
    if problem is not None:
        raise stream.broken(f"the header cannot be read ({problem[1]}); stopped", _REMEDY)
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        raise stream.broken(
            f"the header names the column {twice[0]!r} {header.count(twice[0])} times; stopped", "Give each column its own name"
        )
    return header


def _problem(fields: list[str], header: list[str], raw: bytes) -> tuple[str, str] | None:
    """`(reason, detail)` of a parsed row that is refused."""
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return "invalid_utf8", invalid_byte(error, raw)
    if len(fields) != len(header):
        return "ragged_row", f"{len(fields)} fields, the header has {len(header)}"
    return None


# Parquet and Arrow IPC files. Nested values come as Python lists and dicts.
#
# All structs of a column have all members that any of them has, so a member that is null is one that an object does not have: the parameter of another tool.
# Such members are left out. A null inside JSON text stays.

_MAX_BATCH_ROWS = 8192
_NO_PYTHON_FORM = (ValueError, ArithmeticError)  # UnicodeDecodeError and OverflowError among them
_ARROW_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_parquet(file: SourceFile, index: int, block_bytes: int, part: Part = WHOLE) -> Iterator[Block]:
    """The rows of a Parquet file, or of a part of one, a batch of a row group at a time. `Record.row` is the row's number in the file."""
    import pyarrow.parquet as pq

    with seekable(file) as source:
        rows = 0
        try:
            # Without these two, a whole row group is held in memory before its first batch.
            table = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
            total = table.metadata.num_rows
            _check_columns(file, table.schema_arrow.names)
            groups, rows = _groups(table.metadata, part)
            batches = table.iter_batches(_batch_rows(table.metadata, block_bytes), row_groups=groups, use_threads=False)
            for batch in batches:
                inside, first = _inside(batch, rows, part)
                rows += batch.num_rows
                if inside.num_rows:
                    yield _block(inside, index, first, file.size * (first + inside.num_rows) // max(1, total))
                if part.stop is not None and rows >= part.stop:
                    return
        except _broken_errors() as error:
            raise _broken(file, rows, error) from error
        if rows != total:
            raise _broken(file, rows, ValueError(f"the footer promises {total:,} rows"))


def _groups(metadata: Any, part: Part) -> tuple[list[int], int]:
    """The row groups in which a part has rows, and the number of the first row of the first of them."""
    found: list[int] = []
    begins = row = 0
    for number in range(metadata.num_row_groups):
        begins, row = row, row + metadata.row_group(number).num_rows
        if row > part.start and (part.stop is None or begins < part.stop):
            found.append(number)
    return found, sum(metadata.row_group(number).num_rows for number in range(found[0])) if found else 0


def _inside(batch: Any, row: int, part: Part) -> tuple[Any, int]:
    """The rows of a batch that are in a part, and the number of the first of them; `row` is that of the batch's first."""
    first = max(row, part.start)
    stop = row + batch.num_rows if part.stop is None else min(row + batch.num_rows, part.stop)
    return batch.slice(first - row, max(0, stop - first)), first


def read_arrow(file: SourceFile, index: int, block_bytes: int, part: Part = WHOLE) -> Iterator[Block]:
    """The rows of an Arrow IPC file or stream (which saved Hugging Face data sets are), or of a part. `Record.row` is the row's number in the
    file."""
    with seekable(file) as source:
        rows = 0
        length = source.seek(0, os.SEEK_END)
        try:
            for batch in _arrow_batches(source):
                _check_columns(file, batch.schema.names)
                _check_buffers(batch)
                size = max(1, block_bytes * batch.num_rows // max(1, batch.nbytes))
                inside, first = _inside(batch, rows, part)
                for start in range(0, inside.num_rows, min(size, _MAX_BATCH_ROWS)):
                    piece = inside.slice(start, min(size, _MAX_BATCH_ROWS))
                    yield _block(piece, index, first + start, file.size * source.tell() // length)
                rows += batch.num_rows
                if part.stop is not None and rows >= part.stop:
                    return
            yield Block([], [], file.size)
        except _broken_errors() as error:
            raise _broken(file, rows, error) from error


def stretches(file: SourceFile) -> Iterator[tuple[int, int]]:
    """Rows and bytes of each row group or batch of a sound file on this machine, in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.format == "parquet":
        with pq.ParquetFile(file.url) as table:
            groups = [table.metadata.row_group(number) for number in range(table.metadata.num_row_groups)]
        yield from ((group.num_rows, group.total_byte_size) for group in groups)
    else:
        with pa.memory_map(file.url) as source:  # what is not looked at is not read
            yield from ((batch.num_rows, batch.nbytes) for batch in _arrow_batches(source))


def _check_columns(file: SourceFile, names: list[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise SourceError(f"{file.name}: the column {twice[0]!r} is there {names.count(twice[0])} times. Give each column its own name")


def _batch_rows(metadata: Any, block_bytes: int) -> int:
    """Rows that take about `block_bytes`, judged by the row group whose rows are the largest."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_MAX_BATCH_ROWS, block_bytes // max(1, row_bytes)))


def _arrow_batches(source: IO[bytes]) -> Iterator[Any]:
    from pyarrow import ipc

    source.seek(0)
    if source.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC:
        source.seek(0)
        reader = ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        return
    # The format lets a stream end without its mark, but then one that is cut between two batches looks whole.
    source.seek(-len(_END_OF_STREAM), os.SEEK_END)
    if source.read() != _END_OF_STREAM:
        raise ValueError("no end-of-stream mark")
    source.seek(0)
    yield from ipc.open_stream(source)


def _check_buffers(batch: Any) -> None:
    """Arrow believes what a batch says of its own lengths and offsets, and reads beyond its memory where they are wrong. Texts that are no UTF-8
    are refused row by row.

    Raises:
        ArrowInvalid: they are wrong.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for column in batch.columns:
            column.validate()
            column.view(_without_texts(column.type)).validate(full=True)


def _without_texts(kind: Any) -> Any:
    """An Arrow type with bytes where it has texts, at any depth."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind):
        return pa.binary() if types.is_string(kind) else pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_texts(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        inner = kind.value_field.with_type(_without_texts(kind.value_type))
        return pa.list_(inner) if types.is_list(kind) else pa.large_list(inner)
    return kind


def _block(batch: Any, index: int, start: int, bytes_read: int) -> Block:
    padded = [name for name, kind in zip(batch.schema.names, batch.schema.types, strict=True) if _has_structs(kind)]
    try:
        rows = batch.to_pylist()
    except _NO_PYTHON_FORM:
        return _row_by_row(batch, index, start, bytes_read, padded)
    for row in rows if padded else ():
        row.update((name, _without_padding(row[name])) for name in padded)
    return Block([Record(index, row, payload) for row, payload in enumerate(rows, start)], [], bytes_read)


def _has_structs(kind: Any) -> bool:
    """Whether values of an Arrow type hold structs, at any depth."""
    import pyarrow.types as types

    return bool(types.is_struct(kind)) or any(_has_structs(kind.field(i).type) for i in range(kind.num_fields))


def _without_padding(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_padding(inner) for key, inner in value.items() if inner is not None}
    return [_without_padding(each) for each in value] if type(value) is list else value


def _row_by_row(batch: Any, index: int, start: int, bytes_read: int, padded: list[str]) -> Block:
    """A batch with a value that has no Python form: a string that is no UTF-8, a time outside the calendar."""
    block = Block([], [], bytes_read)
    for i in range(batch.num_rows):
        payload, wrong = _readable_part(batch, i)
        payload.update((name, _without_padding(payload[name])) for name in padded if name in payload)
        if wrong is None:
            block.records.append(Record(index, start + i, payload))
        else:
            reason = "invalid_utf8" if isinstance(wrong, UnicodeDecodeError) else "unreadable_value"
            shown = json.dumps(payload, ensure_ascii=False, default=str)[:PAYLOAD_CHARACTERS]
            block.unreadable.append(Unreadable(index, start + i, reason, str(wrong), shown))
    return block


def _readable_part(batch: Any, i: int) -> tuple[dict[str, Any], Exception | None]:
    """The values of row `i` that have a Python form, and what is wrong with the first that has none."""
    payload: dict[str, Any] = {}
    wrong: Exception | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            payload[name] = column[i].as_py()
        except _NO_PYTHON_FORM as error:
            wrong = wrong or error
    return payload, wrong


def _broken_errors() -> tuple[type[Exception], ...]:
    from pyarrow import ArrowException

    return (ArrowException, OSError, ValueError, EOFError, MemoryError)  # a damaged length asks for more memory than there is


def _broken(file: SourceFile, rows: int, error: Exception) -> SourceError:
    return SourceError(
        f"{file.name}: no readable {file.format} file, after {rows:,} rows, of {file.size:,} bytes ({file_name(file.url)}): "
        f"{str(error) or type(error).__name__}. "
        "The download is incomplete or damaged: fetch it again"
    )


# Where a source file can be cut, so that several processes read it: at rows, about a fixed number of bytes apart, the same for every reader.

SHARD_BYTES = 4 << 20
"""Bytes between two cuts, about: decompressed ones of lines, those of the columns of a table. Cuts are pinned with a source, so that another
number makes raw stores stale."""
LINES = ("jsonl", "txt")
"""Formats with one row a line."""
TABLES = ("parquet", "arrow")
_MOST_OF_ONE = 16
"""Most pieces of one row group or batch, because each piece is read from the beginning of the group."""
_CHUNK = 1 << 20
MOST_SHARDS = 4096
"""Into how many shards a domain is cut at most, unless more are asked for: joining costs some milliseconds for each."""
Cut = tuple[int, int]
"""Where a part begins and the number of its first row. It begins at a decompressed byte of a file of lines, at a row of a table."""


def shard_size(whole: int, count: int | Literal["auto"]) -> int:
    """Bytes of text that a shard should have: what is large is not cut at every place where it could be."""
    return max(SHARD_BYTES, -(-whole // (MOST_SHARDS if count == "auto" else count)))


def parts(cuts: Sequence[Cut]) -> Iterator[Part]:
    """The stretches between cuts, from the beginning of a file to its end."""
    for (start, row), (stop, _) in pairwise([(0, 0), *cuts, (-1, 0)]):
        yield Part(start, None if stop < 0 else stop, row)


@dataclass(slots=True)
class LineCuts:
    """Finds the cuts of a file of lines while its bytes go by: the first line that begins at or after each multiple of `size`.

    Attributes:
        size: bytes between two cuts, about.
        found: the cuts so far.
        seen: bytes so far.
    """

    size: int = SHARD_BYTES
    found: list[Cut] = field(default_factory=list)
    seen: int = 0
    _rows: int = 0

    def __call__(self, data: bytes) -> None:
        """Take the next bytes, however many."""
        counted = 0
        while (newline := data.find(b"\n", max(counted, self._next - 1 - self.seen))) >= 0:
            start = newline + 1
            self._rows += data.count(b"\n", counted, start)
            self.found.append((self.seen + start, self._rows))
            counted = start
        self._rows += data.count(b"\n", counted)
        self.seen += len(data)

    @property
    def cuts(self) -> list[Cut]:
        """The cuts of a file that has ended. Where its last line ends there is nothing to cut off."""
        return [cut for cut in self.found if cut[0] < self.seen]

    @property
    def _next(self) -> int:
        """The line that begins at this byte, or the first one after it, is the next cut."""
        return (self.found[-1][0] // self.size + 1) * self.size if self.found else self.size


def line_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a file of lines, which is read through."""
    lines = LineCuts(size)
    with Stream.of(file, watch=lines) as stream:
        while stream.read(_CHUNK):
            pass
    return lines.cuts


def table_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a sound Parquet or Arrow file. One that must be copied to be read at any place has none."""
    if file.compression is not None or is_remote(file.url):
        return []
    cuts: list[Cut] = []
    row = done = 0
    for rows, count in stretches(file):
        pieces = max(1, min(_MOST_OF_ONE, count // size, rows))
        for piece in range(pieces):
            if done >= size:
                first = row + rows * piece // pieces
                cuts.append((first, first))
                done = 0
            done += count // pieces
        row += rows
    return cuts
