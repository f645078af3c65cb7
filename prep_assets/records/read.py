"""Reading a source file: blocks of records in file order, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from prep_assets.errors import ConfigError
from prep_assets.records.blocks import Block, Unreadable
from prep_assets.records.delimited import read_delimited
from prep_assets.records.files import WHOLE, Part, SourceFile
from prep_assets.records.json_list import read_json
from prep_assets.records.jsonl import read_jsonl
from prep_assets.records.lines import read_text_file, read_text_lines
from prep_assets.records.stream import Stream, stream_of
from prep_assets.records.tables import read_arrow, read_parquet
from prep_assets.records.where import conditions, filter_blocks

__all__ = ["Block", "Unreadable", "read_blocks"]


def read_blocks(
    file: SourceFile,
    index: int,
    *,
    block_bytes: int = 1 << 20,
    max_record_bytes: int = 32 << 20,
    txt: Literal["line", "file"] = "line",
    where: Mapping[str, Any] | None = None,
    part: Part = WHOLE,
    watch: Callable[[bytes], None] | None = None,
) -> Iterator[Block]:
    """The rows of `file` in file order.

    Args:
        index: position of the file in its domain's file list; it goes into `Record.file`.
        block_bytes: about how many decompressed bytes a block has. It changes neither the rows nor their numbers.
        max_record_bytes: a longer row is refused as `too_long`; rows of Parquet and Arrow files have no such limit.
        txt: whether a line or the whole file is a record, for the format `txt`.
        where: only rows that satisfy these conditions are records, see `conditions`; the others are refused as `filtered_by_where`.
        part: only the rows of this stretch, of a format that can be cut (see `prep_assets.records.cuts`).
        watch: is given the decompressed bytes of any file but tables, as they are read.

    Raises:
        SourceError: while iterating, where the file is cut short, damaged, or is not of its format at all.
        ConfigError: an argument that makes no sense; at once.
    """
    if block_bytes < 1 or max_record_bytes < 1:
        raise ConfigError(f"block_bytes ({block_bytes}) and max_record_bytes ({max_record_bytes}) must be at least 1")
    if txt not in ("line", "file"):
        raise ConfigError(f"txt is 'line' or 'file', not {txt!r}")
    blocks = _blocks(file, index, block_bytes, max_record_bytes, txt, part, watch)
    return filter_blocks(blocks, conditions(where)) if where else blocks


def _blocks(
    file: SourceFile, index: int, block_bytes: int, max_record_bytes: int, txt: str, part: Part, watch: Callable[[bytes], None] | None
) -> Iterator[Block]:
    if file.format == "parquet":
        yield from read_parquet(file, index, block_bytes, part)
    elif file.format == "arrow":
        yield from read_arrow(file, index, block_bytes, part)
    else:
        with stream_of(file, part, watch) as stream:
            yield from _text_blocks(stream, file, index, block_bytes, max_record_bytes, txt)


def _text_blocks(stream: Stream, file: SourceFile, index: int, block_bytes: int, max_record_bytes: int, txt: str) -> Iterator[Block]:
    if file.format == "jsonl":
        return read_jsonl(stream, index, block_bytes, max_record_bytes, sound=file.sound)
    if file.format == "json":
        return read_json(stream, index, block_bytes, max_record_bytes, sound=file.sound)
    if file.format == "csv":
        return read_delimited(stream, index, ",", block_bytes, max_record_bytes)
    if file.format == "tsv":
        return read_delimited(stream, index, "\t", block_bytes, max_record_bytes)
    if txt == "file":
        return read_text_file(stream, index, max_record_bytes)
    return read_text_lines(stream, index, block_bytes, max_record_bytes)
