"""Parts of a source file have the rows that the whole file has there, and nothing else of it is read."""

from __future__ import annotations

import io
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.second_reading import Between, read_rows
from prep_assets_tests.effort import SOAK
from prep_assets_tests.proofs.test_source_rows import TABLE, arrow, parquet


@pytest.mark.parametrize("format", ["jsonl", "txt"])
def test_lines_of_a_part(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    """Every stretch between two lines has the rows that the whole file has there, and no line more or less than it must have."""
    monkeypatch.setattr(source_rows, "LINE_BYTES", 20)
    data = b'\xef\xbb\xbf{"a": 1}\n\n \n{"a": 2}\nno json\n{"a": "' + b"x" * 70 + b'"}\n\n{"a": 3}\n{"a": 4}'
    whole, starts = list(read_rows(io.BytesIO(data), format, None)), [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    for first, start in enumerate(starts):
        last = Between(None, first)
        assert list(read_rows(io.BytesIO(data[start:]), format, None, between=last)) == [row for row in whole if row[0] >= first]
        for end, stop in enumerate(starts[first + 1 :], first + 1):
            wanted = [row for row in whole if first <= row[0] < end]
            assert list(read_rows(io.BytesIO(data[start:]), format, None, between=Between(stop - start, first, end))) == wanted
            for size, wrong in (
                (stop - start, end + 1),
                (stop - start, end - 1),
                (stop - start - 1, end),
                (len(data) - start, len(starts)),
            ):
                with pytest.raises(CheckFailed, match="a file that is read in parts has row"):
                    list(read_rows(io.BytesIO(data[start:]), format, None, between=Between(size, first, wrong)))


@pytest.mark.parametrize(
    ("data", "between", "has"),
    [
        (b'{"a": 1}\n', Between(8, 7, 8), "8"),
        (b'{"a": 1}\n', Between(9, 1999, 2500), "2,000"),
        (b'{"a": 1}\n{"a": 2}\n', Between(18, 1, 2), "3"),
        (b"", Between(0, 1500, 1500), "1,500"),
        (b"", Between(None, 1500, 1501), "1,500"),
    ],
)
def test_a_part_has_the_lines_that_its_cut_says_each_with_its_end(data: bytes, between: Between, has: str) -> None:
    says = f"a file that is read in parts has row {has} where its cut says row {between.end:,}"
    with pytest.raises(CheckFailed, match=f"^{re.escape(says)}$"):
        list(read_rows(io.BytesIO(data), "jsonl", None, between=between))


ROWS = [(number, {"n": number, "o": {"x": number}, "l": [{}]}) for number in range(2500)]


@pytest.mark.parametrize("size", [1024, 300])
@pytest.mark.parametrize(
    ("format", "data"),
    [("parquet", parquet()), ("arrow", arrow(pa.ipc.new_file)), ("arrow", arrow(pa.ipc.new_stream))],
    ids=["parquet", "file", "stream"],
)
def test_rows_of_a_part_of_a_table(monkeypatch: pytest.MonkeyPatch, format: str, data: bytes, size: int) -> None:
    """In `make test` every other pair of borders, each of which begins and ends a part."""
    monkeypatch.setattr(source_rows, "ROWS", size)
    borders = [0, 1, 699, 700, 899, 900, 901, 1900, 2500]
    for at, first in enumerate(borders):
        for end in (*borders, 3000, None) if SOAK else (*borders, 3000, None)[at % 2 :: 2]:
            found = list(read_rows(io.BytesIO(data), format, None, between=Between(None, first, end)))
            assert found == ROWS[first:end], (first, end)


def test_groups_of_rows_before_a_part_are_not_read() -> None:
    sink = io.BytesIO()
    pq.write_table(TABLE.select(["n"]), sink, row_group_size=900, use_dictionary=False, compression="NONE")
    first = pq.ParquetFile(sink).metadata.row_group(0).column(0)
    data = bytearray(sink.getvalue())
    data[first.data_page_offset : first.data_page_offset + first.total_compressed_size] = b"\xff" * first.total_compressed_size

    def rows(between: Between) -> list[tuple[int, Any]]:
        return list(read_rows(io.BytesIO(bytes(data)), "parquet", None, between=between))

    assert rows(Between(None, 900, 1000)) == [(number, {"n": number}) for number in range(900, 1000)]
    assert rows(Between(None, 2499)) == [(2499, {"n": 2499})]
    with pytest.raises(OSError):
        rows(Between(None, 899, 1000))
