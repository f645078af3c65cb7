"""Parquet and Arrow IPC files. Nested values come as Python lists and dicts.

All structs of a column have all members that any of them has, so a member that is null is one that an object does not have: the parameter of another
tool. Such members are left out. A null inside JSON text stays."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any

from prep_assets.errors import SourceError
from prep_assets.records.blocks import PAYLOAD_CHARACTERS, Block, Unreadable
from prep_assets.records.files import WHOLE, Part, SourceFile
from prep_assets.records.remote import file_name
from prep_assets.records.stream import seekable
from prep_assets.samples import Record

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
