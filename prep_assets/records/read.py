"""Reading a source file: blocks of records in file order, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from prep_assets.errors import ConfigError
from prep_assets.records.blocks import Block
from prep_assets.records.delimited import read_delimited
from prep_assets.records.files import WHOLE, Part, SourceFile
from prep_assets.records.json_list import read_json
from prep_assets.records.jsonl import read_jsonl
from prep_assets.records.lines import read_text_file, read_text_lines
from prep_assets.records.stream import blocks_of
from prep_assets.records.tables import read_arrow, read_parquet


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
