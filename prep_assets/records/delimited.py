"""Comma- and tab-separated values with a header. Every value is a string, so that `007` stays `007`."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from prep_assets.errors import SourceError
from prep_assets.records.blocks import Block, Unreadable, invalid_byte, refuse
from prep_assets.records.lines import read_lines
from prep_assets.records.stream import Stream
from prep_assets.samples import Record

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
