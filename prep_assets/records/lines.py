"""Lines of a byte stream, in pieces of bounded size, the blocks of records that they become, and plain text: one document a line, or one a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from prep_assets.records.blocks import PAYLOAD_CHARACTERS, Block, Unreadable, invalid_byte, refuse, refuse_long
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

_BOM = b"\xef\xbb\xbf"
_HEAD = 8
# Lines are split and decoded this much at a time, which the processor's cache can hold, however large the blocks are.
_PIECE = 1 << 20
_KEPT = 4 * PAYLOAD_CHARACTERS  # of a line that is too long: enough for the text that a refusal shows

# How files start whose name promises text but whose content is something else.
_NO_UTF8_TEXT = {
    b"\xff\xfe": ("is UTF-16 text", "Convert it to UTF-8"),
    b"\xfe\xff": ("is UTF-16 text", "Convert it to UTF-8"),
    b"\x1f\x8b": ("is compressed with gzip, but its name says otherwise", "Give it the suffix .gz"),
    b"\x28\xb5\x2f\xfd": ("is compressed with zstd, but its name says otherwise", "Give it the suffix .zst"),
    b"\xfd7zXZ\x00": ("is compressed with xz, but its name says otherwise", "Give it the suffix .xz"),
    b"BZh": ("is compressed with bzip2, but its name says otherwise", "Give it the suffix .bz2"),
    b"PAR1": ("is a Parquet file, but its name says otherwise", "Set `format: parquet`"),
}


@dataclass(slots=True)
class Lines:
    """Some consecutive lines.

    Attributes:
        start: zero-based number of the first line.
        lines: the lines without their newline, blank ones too. A line that is too long is cut to its start.
        size: their bytes, about.
        too_long: index into `lines` -> full length in bytes, of the lines over the limit.
    """

    start: int
    lines: list[bytes]
    size: int
    too_long: dict[int, int] = field(default_factory=dict)


def text_start(stream: Stream) -> bytes:
    """The first bytes of a text file, without a byte order mark, or of a part of one.

    Raises:
        SourceError: the file is no UTF-8 text at all, but UTF-16 or compressed.
    """
    head = stream.read_fully(_HEAD)
    if stream.part.start:
        return head
    for magic, (what, remedy) in _NO_UTF8_TEXT.items():
        if head.startswith(magic):
            raise stream.broken(what, remedy)
    return head.removeprefix(_BOM)


def read_lines(stream: Stream, block_bytes: int, max_line_bytes: int) -> Iterator[Lines]:
    """The lines of a text file, split at newlines (`\\n`), at most about `block_bytes` at a time.

    Holds at most one piece and one line of `max_line_bytes`; a longer line is passed over up to its newline without being kept. The size of
    pieces changes neither which lines there are nor which of them are too long.
    """
    number = stream.part.row
    chunk = text_start(stream)
    unfinished: list[bytes] = []  # the last line so far in parts, so that a long one is joined once
    length = 0
    while chunk:
        lines = chunk.split(b"\n")
        unfinished.append(lines[0])
        length += len(lines[0])
        if len(lines) > 1:
            lines[0] = b"".join(unfinished)
            unfinished = [lines.pop()]
            yield _cut(Lines(number, lines, len(chunk)), length, max_line_bytes)
            length = len(unfinished[0])
            number += len(lines)
        if length > max_line_bytes:
            unfinished = [b"".join(unfinished)[:_KEPT]]
        chunk = stream.read_fully(min(block_bytes, _PIECE))
    if length:
        yield _cut(Lines(number, [b"".join(unfinished)], length), length, max_line_bytes)


def _cut(lines: Lines, first_length: int, limit: int) -> Lines:
    """Cut the lines over the limit. The first may have lost bytes already, so that its length is given."""
    if first_length > limit:
        lines.too_long[0] = first_length
    lines.too_long |= {i: len(line) for i, line in enumerate(lines.lines) if len(line) > limit and i}
    for i in lines.too_long:
        lines.lines[i] = lines.lines[i][:_KEPT]
    return lines


class AddLines(Protocol):
    """What a format does with lines: each becomes a record, a refused row, or, where it is blank, nothing."""

    def __call__(self, lines: Lines, records: list[Record], unreadable: list[Unreadable]) -> None: ...


def blocks_of_lines(stream: Stream, block_bytes: int, max_line_bytes: int, add: AddLines) -> Iterator[Block]:
    """The lines of a text file as blocks of about `block_bytes`."""
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    size = 0
    for lines in read_lines(stream, block_bytes, max_line_bytes):
        before = len(records) + len(unreadable)
        add(lines, records, unreadable)
        stream.rows += len(records) + len(unreadable) - before
        size += lines.size
        if size >= block_bytes:
            yield Block(records, unreadable, stream.stored)
            records, unreadable, size = [], [], 0
    yield Block(records, unreadable, stream.stored)


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
