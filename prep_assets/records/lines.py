"""Lines of a byte stream, in pieces of bounded size, the blocks of records that they become, and plain text: one document a line, or one a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.records.blocks import PAYLOAD_CHARACTERS, Block, Unreadable, invalid_byte, refuse, refuse_long
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

Places = npt.NDArray[np.int64]
_NEWLINE = ord("\n")
_PART = 1 << 16
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


@dataclass(frozen=True, slots=True)
class Lines:
    """Some consecutive lines.

    Attributes:
        start: zero-based number of the first line.
        text: the lines, blank ones too, with a newline between each and the next. A line that is too long is cut to its start.
        ends: int64[lines], where each line ends in `text`: at a newline, the last one maybe at the end.
        size: their bytes, about.
        too_long: number among these lines -> full length in bytes, of the lines over the limit.
    """

    start: int
    text: bytes
    ends: Places
    size: int
    too_long: Mapping[int, int]

    @property
    def lines(self) -> list[bytes]:
        """Each line without its newline."""
        return self.text.split(b"\n")[: len(self.ends)]


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
    unfinished: list[bytes | memoryview] = []  # the last line so far in parts, so that a long one is joined once
    length = 0
    for chunk in chain([text_start(stream)], stream.pieces(min(block_bytes, _PIECE))):
        if end := chunk.rfind(b"\n") + 1:
            first, text = length + chunk.find(b"\n"), b"".join([*unfinished, memoryview(chunk)[:end]])
            unfinished, length = [chunk[end:]], len(chunk) - end
            lines = _lines(number, text, len(chunk), first, max_line_bytes)
            del text
            yield lines
            number += len(lines.ends)
        else:
            unfinished.append(chunk)
            length += len(chunk)
        if length > max_line_bytes:
            unfinished = [b"".join(unfinished)[:_KEPT]]
    if length:
        yield _lines(number, b"".join(unfinished), length, length, max_line_bytes)


def _lines(start: int, text: bytes, size: int, first_length: int, limit: int) -> Lines:
    """The lines of a text, those over the limit cut. The first may have lost bytes already, so that its length is given."""
    ends = _ends(text)
    lengths = np.diff(ends, prepend=-1) - 1
    lengths[0] = first_length
    if lengths.max() <= limit:
        return Lines(start, text, ends, size, {})
    too_long = {at: int(lengths[at]) for at in np.flatnonzero(lengths > limit).tolist()}
    lines = text.split(b"\n")
    for at in too_long:
        lines[at] = lines[at][:_KEPT]
    text = b"\n".join(lines)
    return Lines(start, text, _ends(text), size, too_long)


def _ends(text: bytes) -> Places:
    newlines = places(lambda part: part == _NEWLINE, np.frombuffer(text, np.uint8))
    return newlines if text.endswith(b"\n") else np.append(newlines, len(text))


def places(true: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.bool_]], raw: npt.NDArray[np.uint8]) -> Places:
    """Where something is true of a byte, looked at in parts that the processor's cache holds."""
    parts = range(0, len(raw), _PART)
    return np.concatenate([np.flatnonzero(true(raw[start : start + _PART])) + start for start in parts])


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
