"""Plain text: one document a line, or one document a file."""

from __future__ import annotations

from collections.abc import Iterator

from prep_assets.records.blocks import Block, Unreadable, invalid_byte, refuse
from prep_assets.records.jsonl import refuse_long
from prep_assets.records.lines import Lines, blocks_of_lines, text_start
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

_SKIPPED = 1 << 20


def read_text_lines(stream: Stream, index: int, block_bytes: int, max_record_bytes: int) -> Iterator[Block]:
    """Payloads `{"text": line}` without `\\n` or `\\r\\n`. `Record.row` is the line's number; blank lines are skipped."""

    def add(lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None:
        for i, line in enumerate(lines.lines):
            row = lines.start + i
            if i in lines.too_long:
                unreadable.append(refuse_long(index, row, line, lines.too_long[i], max_record_bytes))
            elif line.strip():
                _add(records, unreadable, index, row, line.removesuffix(b"\r"))

    return blocks_of_lines(stream, block_bytes, max_record_bytes, add)


def read_text_file(stream: Stream, index: int, max_record_bytes: int) -> Iterator[Block]:
    """One payload `{"text": whole file}`, row 0; no row where the file has white space only."""
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    start = text_start(stream)
    text = start + stream.read_fully(max_record_bytes + 1 - len(start))
    if len(text) > max_record_bytes:
        rest = sum(len(part) for part in iter(lambda: stream.read(_SKIPPED), b""))
        unreadable.append(refuse_long(index, 0, text, len(text) + rest, max_record_bytes))
    elif text.strip():
        _add(records, unreadable, index, 0, text)
    yield Block(records, unreadable, stream.stored)


def _add(records: list[Record], unreadable: list[Unreadable], index: int, row: int, raw: bytes) -> None:
    try:
        records.append(Record(index, row, {"text": raw.decode()}))
    except UnicodeDecodeError as error:
        unreadable.append(refuse(index, row, "invalid_utf8", invalid_byte(error, raw), raw))
