"""CSV and TSV: rows, quoting, and what is refused or stops."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import SourceError
from prep_assets.records.files import find_files
from prep_assets.records.read import read_blocks
from prep_assets_tests.effort import examples

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]

CELL = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL), max_size=8), block=st.integers(1, 60), tab=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_any_cells_come_back(rows: list[tuple[str, str]], block: int, tab: bool, end: str) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter="\t" if tab else ",", lineterminator=end).writerows([("left", "right"), *rows])
    name = "a.tsv" if tab else "a.csv"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(out.getvalue().encode())
        blocks = list(read_blocks(find_files([name], Path(folder))[0], 0, block_bytes=block))
    assert not [u for b in blocks for u in b.unreadable]
    found = [(r.row, r.payload) for b in blocks for r in b.records]
    assert found == [(i, {"left": left, "right": right}) for i, (left, right) in enumerate(rows)]


def test_values_stay_strings_and_lines_without_text_are_no_rows(source: Source, read: Read) -> None:
    records, refused = read(source("a.csv", b"\xef\xbb\xbfid,score\n007,1.50\n\n\r\nnull,\n"))
    assert [(r.row, r.payload) for r in records] == [(0, {"id": "007", "score": "1.50"}), (1, {"id": "null", "score": ""})]
    assert not refused


def test_bad_rows_are_refused_and_counted(source: Source, read: Read) -> None:
    data = b'a,b\n1,2\n1\n1,2,3\n"x"y,2\ncaf\xe9,2\n"two\nlines",caf\xe9\n8,9'
    records, refused = read(source("a.csv", data))
    assert [(r.row, r.payload) for r in records] == [(0, {"a": "1", "b": "2"}), (6, {"a": "8", "b": "9"})]
    assert [(u.row, u.reason, u.payload) for u in refused] == [
        (1, "ragged_row", "1"),
        (2, "ragged_row", "1,2,3"),
        (3, "invalid_csv", '"x"y,2'),
        (4, "invalid_utf8", r"caf\xe9,2"),
        (5, "invalid_utf8", '"two\nlines",caf\\xe9'),
    ]
    assert refused[0].detail == "1 fields, the header has 2"


@pytest.mark.parametrize(
    "data, says",
    [
        (b"\n \n"[:1], "no header line"),
        (b"a,b,a\n1,2,3\n", "names the column 'a' 2 times"),
        (b"a,caf\xe9\n1,2\n", r"header cannot be read \(byte 5 of 6"),
        (b'a,b\n1,2\n3,"never closed\n5,6\n', "the row that starts at line 3 opens a quote that is never closed"),
        (b'a,b\n1,2\n3,"never closed\n' + b"5,6\n" * 100, "the row that starts at line 3 is longer than 200 bytes"),
        (b"a,b\n1," + b"x" * 300 + b"\n3,4\n", "the row that starts at line 2 is longer than 200 bytes"),
    ],
)
def test_where_the_next_row_cannot_be_known_reading_stops(source: Source, read: Read, data: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        read(source("a.csv", data), max_record_bytes=200)


def test_a_field_may_be_longer_than_the_csv_module_allows_by_default(source: Source, read: Read) -> None:
    ((record,), _) = read(source("a.csv", b"a\n" + b"x" * 300_000 + b"\n"))
    assert record.payload == {"a": "x" * 300_000}
