"""Readers of CSV, Parquet and Arrow files, and the cuts of source files for several workers."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import IO, Any, Literal

import numpy as np
from msgspec import Struct, field

from prep_assets.data.addresses import file_name, is_remote
from prep_assets.data.blocks import PAYLOAD_CHARACTERS, Block, Unreadable, invalid_byte, nul_byte, reject_row
from prep_assets.data.files import WHOLE, Part, SourceFile
from prep_assets.data.stream import Stream, read_lines, seekable
from prep_assets.errors import SourceError
from prep_assets.samples import Record

# Comma- and tab-separated values with a header. Every value is a string, so that `007` stays `007`.

_REMEDY = "Fix the file, or convert it to JSON lines"


def read_delimited(stream: Stream, index: int, delimiter: str, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """Read payloads `{column: string}`. `Record.row` counts the rows after the header, zero-based; blank lines are skipped.

    Raises:
        SourceError: no header, or one with a repeated column; a row that is longer than the limit or has an unclosed quote, after which the next
            row cannot be located.
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
            unreadable.append(reject_row(index, row, *problem, rows.raw))
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
        # The limit is global to the process, so it is only ever raised.
        csv.field_size_limit(max(csv.field_size_limit(), max_record_bytes))
        self._stream, self._limit = stream, max_record_bytes
        self._lines = read_lines(stream, block_bytes, max_record_bytes)
        self._reader = csv.reader(self._decoded_lines(), delimiter=delimiter, strict=True)
        self._parts: list[bytes] = []
        self._size = 0
        self._line = 0

    @property
    def raw(self) -> bytes:
        """The text of the last row, without its last newline."""
        return self._parts[0] if len(self._parts) == 1 else b"\n".join(self._parts)

    def next_row(self) -> tuple[list[str], tuple[str, str] | None] | None:
        """`(fields, parse error as reason and detail)` of the next row that is not blank; `None` at the end."""
        while True:
            self._parts, self._size = [], 0
            try:
                fields = next(self._reader, None)
            except csv.Error as error:
                if "unexpected end of data" in str(error):
                    raise self._row_error("opens a quote that is never closed") from error
                return [], ("invalid_csv", str(error))
            if fields is None:
                return None
            if fields:
                return fields, None

    def _decoded_lines(self) -> Iterator[str]:
        for block in self._lines:
            for number, line in enumerate(block.lines):
                if not self._parts:
                    self._line = block.start + number
                self._parts.append(line)
                self._size += len(line)
                if number in block.too_long or self._size > self._limit:
                    raise self._row_error(f"is longer than {self._limit:,} bytes (max_record_bytes), or a quote in it is never closed")
                # Invalid bytes survive as lone surrogates; `_problem` rejects their row.
                yield line.decode("utf-8", "surrogateescape") + "\n"

    def _row_error(self, problem: str) -> SourceError:
        return self._stream.broken(f"the row that starts at line {self._line + 1:,} {problem}; stopped", _REMEDY)


def _header(rows: _Rows, stream: Stream) -> list[str]:
    parsed = rows.next_row()
    if parsed is None:
        raise stream.broken("no header line; stopped", "The first line must name the columns")
    header, error = parsed
    problem = error or _problem(header, header, rows.raw)
    if problem is not None:
        raise stream.broken(f"the header cannot be read ({problem[1]}); stopped", _REMEDY)
    repeated = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if repeated:
        raise stream.broken(
            f"the header names the column {repeated[0]!r} {header.count(repeated[0])} times; stopped", "Give each column its own name"
        )
    return header


def _problem(fields: list[str], header: list[str], raw: bytes) -> tuple[str, str] | None:
    """`(reason, detail)` for which a parsed row is rejected; `None` for a valid one."""
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            return "invalid_utf8", invalid_byte(error, raw)
    if b"\0" in raw:
        return "nul_byte", nul_byte(raw)
    if len(fields) != len(header):
        return "ragged_row", f"{len(fields)} fields, the header has {len(header)}"
    return None


# Parquet and Arrow IPC files. Nested values become Python lists and dicts.
#
# All structs of a column have the union of their members, so a null member is one that the object did not have, such as the parameter of another tool.
# Null members are left out. A null inside JSON text stays.

_MAX_BATCH_ROWS = 8192
_NO_PYTHON_FORM = (ValueError, ArithmeticError)  # includes UnicodeDecodeError and OverflowError
_ARROW_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_parquet(file: SourceFile, index: int, block_bytes: int, part: Part = WHOLE) -> Iterator[Block]:
    """Read the rows of a Parquet file or a part of it, a batch of a row group at a time. `Record.row` is the row's number in the file."""
    import pyarrow.parquet as pq

    with seekable(file) as source:
        rows = 0
        try:
            # Without these two, a whole row group is held in memory before its first batch.
            table = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
            total = table.metadata.num_rows
            _check_columns(file, table.schema_arrow.names)
            groups, rows = _groups_in_part(table.metadata, part)
            at_once = min(_batch_rows(table.metadata, block_bytes), rows_at_once(source, file.format, part))
            for batch in table.iter_batches(at_once, row_groups=groups, use_threads=False):
                rows_in_part, first = _rows_in_part(batch, rows, part)
                rows += batch.num_rows
                if rows_in_part.num_rows:
                    yield _block_of(rows_in_part, index, first, file.size * (first + rows_in_part.num_rows) // max(1, total))
                if part.stop is not None and rows >= part.stop:
                    return
        except _broken_errors() as error:
            raise _broken(file, rows, error) from error
        if rows != total:
            raise _broken(file, rows, ValueError(f"the footer promises {total:,} rows"))


def _groups_in_part(metadata: Any, part: Part) -> tuple[list[int], int]:
    """The numbers of the row groups with rows of `part`, and the first row of the first of them."""
    numbers: list[int] = []
    start = row = 0
    for number in range(metadata.num_row_groups):
        start, row = row, row + metadata.row_group(number).num_rows
        if row > part.start and (part.stop is None or start < part.stop):
            numbers.append(number)
    return numbers, sum(metadata.row_group(number).num_rows for number in range(numbers[0])) if numbers else 0


def _rows_in_part(batch: Any, row: int, part: Part) -> tuple[Any, int]:
    """The rows of `batch`, which starts at `row`, that are in `part`, and the number of the first of them."""
    first = max(row, part.start)
    stop = row + batch.num_rows if part.stop is None else min(row + batch.num_rows, part.stop)
    return batch.slice(first - row, max(0, stop - first)), first


def read_arrow(file: SourceFile, index: int, block_bytes: int, part: Part = WHOLE) -> Iterator[Block]:
    """Read the rows of an Arrow IPC file or stream (the format of saved Hugging Face data sets), or of a part. `Record.row` is the row's number in
    the file."""
    with seekable(file) as source:
        rows = 0
        length = source.seek(0, os.SEEK_END)
        try:
            for batch in _arrow_batches(source):
                _check_columns(file, batch.schema.names)
                _check_buffers(batch)
                size = max(1, min(block_bytes * batch.num_rows // max(1, batch.nbytes), _MOST_BYTES // _longest_values(batch.columns)))
                rows_in_part, first = _rows_in_part(batch, rows, part)
                for start in range(0, rows_in_part.num_rows, min(size, _MAX_BATCH_ROWS)):
                    piece = rows_in_part.slice(start, min(size, _MAX_BATCH_ROWS))
                    yield _block_of(piece, index, first + start, file.size * source.tell() // length)
                rows += batch.num_rows
                if part.stop is not None and rows >= part.stop:
                    return
            yield Block([], [], file.size)
        except _broken_errors() as error:
            raise _broken(file, rows, error) from error


def group_sizes(file: SourceFile) -> Iterator[tuple[int, int]]:
    """`(rows, bytes)` of each row group or batch of a sound local file, in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.format == "parquet":
        with pq.ParquetFile(file.url) as table:
            groups = [table.metadata.row_group(number) for number in range(table.metadata.num_row_groups)]
        yield from ((group.num_rows, group.total_byte_size) for group in groups)
    else:
        with pa.memory_map(file.url) as source:  # only the accessed pages are read
            yield from ((batch.num_rows, batch.nbytes) for batch in _arrow_batches(source))


def _check_columns(file: SourceFile, names: list[str]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise SourceError(
            f"{file.name}: the column {repeated[0]!r} is there {names.count(repeated[0])} times. Give each column its own name"
        )


def _batch_rows(metadata: Any, block_bytes: int) -> int:
    """The number of rows that take about `block_bytes`, by the row group with the largest rows."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    row_bytes = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return max(1, min(_MAX_BATCH_ROWS, block_bytes // max(1, row_bytes)))


_MOST_BYTES = 64 << 20
"""Bytes of a batch, if a file stores values once that many rows repeat."""


def rows_at_once(source: IO[bytes], format: str, part: Part = WHOLE) -> int:
    """The number of rows of a table, or of a part of it, that certainly fit into memory: a batch can take a thousand times its bytes in the file where rows
    repeat long values, such as the same system prompt or tools."""
    if format == "arrow":
        has_dictionaries = any(_holds(kind, "dictionary") for kind in _arrow_schema(source).types)
        batches = _arrow_batches(source) if has_dictionaries else ()
        longest = max((_longest_values(batch.columns) for batch in batches), default=1)
    else:
        import pyarrow.parquet as pq

        metadata = pq.ParquetFile(source).metadata
        longest = max((_longest_row(source, metadata.row_group(group), group) for group in _groups_in_part(metadata, part)[0]), default=1)
    source.seek(0)
    return max(1, min(_MAX_BATCH_ROWS, _MOST_BYTES // longest))


def _longest_row(source: IO[bytes], group: Any, number: int) -> int:
    """Bytes of a row of a row group that repeats the longest repeated value of each column, about."""
    longest = 1
    for column in map(group.column, range(group.num_columns)):
        if column.physical_type == "BYTE_ARRAY" and column.num_values * column.total_uncompressed_size > _MOST_BYTES:
            longest += -(-int(column.num_values) // max(1, int(group.num_rows))) * _longest_repeated(source, column, number)
    return longest


def _longest_repeated(source: IO[bytes], column: Any, group: int) -> int:
    """Bytes of the longest value of a column chunk that may be stored once for several rows, or a bound of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not column.has_dictionary_page and "DELTA_BYTE_ARRAY" not in column.encodings:
        return 0
    path, bound = column.path_in_schema, int(column.total_uncompressed_size)
    if not column.has_dictionary_page:
        return bound
    try:
        table = pq.ParquetFile(source, read_dictionary=[path], buffer_size=1 << 20, pre_buffer=False)
        batch = next(table.iter_batches(ROWS_LOOKED_AT, row_groups=[group], columns=[path], use_threads=False))
        return _longest_values(batch.columns) if any(map(_dictionaries, batch.columns)) else bound
    except (pa.ArrowException, StopIteration):
        return bound


ROWS_LOOKED_AT = 256
"""Rows of a row group that are read to see its dictionaries, which are whole from the first row on."""


def _longest_values(columns: Sequence[Any]) -> int:
    """The bytes of the longest value of each dictionary in columns, at any depth, added; at least 1."""
    import pyarrow.compute as pc

    dictionaries = [array.dictionary for column in columns for array in _dictionaries(column)]
    texts = [dictionary for dictionary in dictionaries if _is_text(dictionary.type)]
    return 1 + sum(int(pc.max(pc.binary_length(text)).as_py() or 0) for text in texts)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _dictionaries(array: Any) -> list[Any]:
    """The dictionary arrays in an array, at any depth."""
    from pyarrow import types

    if not _holds(array.type, "dictionary"):
        return []
    if types.is_dictionary(array.type):
        return [array]
    inner_arrays = array.flatten()  # the members of a struct, or the elements of lists
    return [inner for member in (inner_arrays if types.is_struct(array.type) else [inner_arrays]) for inner in _dictionaries(member)]


def _arrow_schema(source: IO[bytes]) -> Any:
    """The schema of an Arrow file or stream."""
    from pyarrow import ipc

    source.seek(0)
    is_file = source.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    source.seek(0)
    return (ipc.open_file if is_file else ipc.open_stream)(source).schema


def _arrow_batches(source: IO[bytes]) -> Iterator[Any]:
    from pyarrow import ipc

    source.seek(0)
    if source.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC:
        source.seek(0)
        reader = ipc.open_file(source)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        return
    # The format allows a stream without an end mark, but then one that is cut between two batches looks complete.
    source.seek(-len(_END_OF_STREAM), os.SEEK_END)
    if source.read() != _END_OF_STREAM:
        raise ValueError("no end-of-stream mark")
    source.seek(0)
    yield from ipc.open_stream(source)


def _check_buffers(batch: Any) -> None:
    """Check the lengths and offsets of a batch, which Arrow trusts: wrong ones would read beyond its memory. Strings that are not UTF-8 pass; their
    rows are rejected one by one.

    Raises:
        ArrowInvalid: a wrong length or offset.
    """
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for column in batch.columns:
            column.validate()
            column.view(_without_texts(column.type)).validate(full=True)


def _without_texts(kind: Any) -> Any:
    """An Arrow type with binary in place of strings, at any depth."""
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


def _block_of(batch: Any, index: int, start: int, bytes_read: int) -> Block:
    padded = [name for name, kind in zip(batch.schema.names, batch.schema.types, strict=True) if _holds(kind, "struct")]
    try:
        rows = batch.to_pylist()
    except _NO_PYTHON_FORM:
        return _block_row_by_row(batch, index, start, bytes_read, padded)
    for row in rows if padded else ():
        row.update((name, _without_padding(row[name])) for name in padded)
    return Block([Record(index, row, payload) for row, payload in enumerate(rows, start)], [], bytes_read)


def _holds(kind: Any, name: Literal["struct", "dictionary"]) -> bool:
    """Whether an Arrow type is of this sort, or contains such a type, at any depth."""
    from pyarrow import types

    is_kind = types.is_struct if name == "struct" else types.is_dictionary
    return bool(is_kind(kind)) or any(_holds(kind.field(i).type, name) for i in range(kind.num_fields))


def _without_padding(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_padding(inner) for key, inner in value.items() if inner is not None}
    return [_without_padding(element) for element in value] if type(value) is list else value


def _block_row_by_row(batch: Any, index: int, start: int, bytes_read: int, padded: list[str]) -> Block:
    """The block of a batch with a value that Python cannot represent: a string that is not UTF-8, a time outside the calendar."""
    block = Block([], [], bytes_read)
    for number in range(batch.num_rows):
        payload, error = _readable_fields(batch, number)
        payload.update((name, _without_padding(payload[name])) for name in padded if name in payload)
        if error is None:
            block.records.append(Record(index, start + number, payload))
        else:
            reason = "invalid_utf8" if isinstance(error, UnicodeDecodeError) else "unreadable_value"
            payload_text = json.dumps(payload, ensure_ascii=False, default=str)[:PAYLOAD_CHARACTERS]
            block.unreadable.append(Unreadable(index, start + number, reason, str(error), payload_text))
    return block


def _readable_fields(batch: Any, row: int) -> tuple[dict[str, Any], Exception | None]:
    """The values of `row` that Python can represent, and the error of the first that it cannot."""
    payload: dict[str, Any] = {}
    first_error: Exception | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            payload[name] = column[row].as_py()
        except _NO_PYTHON_FORM as error:
            first_error = first_error or error
    return payload, first_error


def _broken_errors() -> tuple[type[Exception], ...]:
    from pyarrow import ArrowException

    return (ArrowException, OSError, ValueError, EOFError, MemoryError)  # MemoryError: a damaged length


def _broken(file: SourceFile, rows: int, error: Exception) -> SourceError:
    unsupported = isinstance(error, NotImplementedError)
    remedy = (
        "pyarrow does not support this: write the file again" if unsupported else "The download is incomplete or damaged: fetch it again"
    )
    return SourceError(
        f"{file.name}: no readable {file.format} file, after {rows:,} rows, of {file.size:,} bytes ({file_name(file.url)}): "
        f"{str(error) or type(error).__name__}. {remedy}"
    )


# Cuts of a source file, so that several processes can read it: at rows, about a fixed number of bytes apart, the same for every reader.

SHARD_BYTES = 4 << 20
"""Approximate bytes between two cuts: decompressed bytes of lines, column bytes of tables. Cuts are pinned with a source, so changing this number
makes raw stores stale."""
LINES = ("jsonl", "txt")
"""Formats with one row a line."""
TABLES = ("parquet", "arrow")
_MOST_PIECES = 16
"""Most pieces of one row group or batch. It is bounded because each piece is read from the beginning of the group."""
_CHUNK = 1 << 20
MOST_SHARDS = 4096
"""Most shards of a domain unless the configuration sets more: joining costs some milliseconds for each."""
Cut = tuple[int, int]
"""`(start of a part, number of its first row)`. The start is a decompressed byte in a file of lines, a row in a table."""


def shard_size(total: int, count: int | Literal["auto"]) -> int:
    """The bytes that a shard should have: a large domain is not cut at every possible place."""
    return max(SHARD_BYTES, -(-total // (MOST_SHARDS if count == "auto" else count)))


def parts(cuts: Sequence[Cut]) -> Iterator[Part]:
    """The parts between cuts, from the beginning of a file to its end."""
    for (start, row), (stop, _) in pairwise([(0, 0), *cuts, (-1, 0)]):
        yield Part(start, None if stop < 0 else stop, row)


class LineCuts(Struct):
    """Finds the cuts of a file of lines while it is read: the first line that begins at or after each multiple of `size`.

    Attributes:
        size: approximate bytes between two cuts.
        found_cuts: the cuts so far.
        seen: the bytes so far.
    """

    size: int = SHARD_BYTES
    found_cuts: list[Cut] = field(default_factory=list)
    seen: int = 0
    _rows: int = 0

    def __call__(self, data: bytes) -> None:
        """Scan the next bytes, any number of them."""
        newlines, scanned = np.frombuffer(data, np.uint8) == ord("\n"), 0
        while True:
            # the byte at or after which the next cut begins
            cut_from = (self.found_cuts[-1][0] // self.size + 1) * self.size if self.found_cuts else self.size
            if not (start := data.find(b"\n", max(scanned, cut_from - 1 - self.seen)) + 1):
                break
            self._rows += int(np.count_nonzero(newlines[scanned:start]))
            self.found_cuts.append((self.seen + start, self._rows))
            scanned = start
        self._rows += int(np.count_nonzero(newlines[scanned:]))
        self.seen += len(data)

    @property
    def cuts(self) -> list[Cut]:
        """The cuts of a complete file. The end of its last line is no cut."""
        return [cut for cut in self.found_cuts if cut[0] < self.seen]


def line_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a file of lines. Reads the whole file."""
    lines = LineCuts(size)
    with Stream.of(file, watch=lines) as stream:
        while stream.read(_CHUNK):
            pass
    return lines.cuts


def table_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a sound Parquet or Arrow file; none for a remote or compressed one, which must be copied to be read."""
    if file.compression is not None or is_remote(file.url):
        return []
    cuts: list[Cut] = []
    row = since_cut = 0
    for rows, count in group_sizes(file):
        pieces = max(1, min(_MOST_PIECES, count // size, rows))
        for piece in range(pieces):
            if since_cut >= size:
                first = row + rows * piece // pieces
                cuts.append((first, first))
                since_cut = 0
            since_cut += count // pieces
        row += rows
    return cuts
