"""The second reader of source files agrees with the first, on files as hostile as they come; and alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from prep_assets.proofs.source_rows import Unsupported, read_rows
from prep_assets.records.files import SourceFile
from prep_assets.records.read import read_blocks


def by_project(folder: Path, data: bytes, format: str, txt: Any = "line") -> list[tuple[int, Any]]:
    path = folder / "x"
    path.write_bytes(data)
    rows: list[tuple[int, Any]] = []
    for block in read_blocks(SourceFile("x", str(path), len(data), format, None), 0, txt=txt):
        rows += [(record.row, record.payload) for record in block.records] + [(bad.row, None) for bad in block.unreadable]
    return sorted(rows, key=lambda row: row[0])


HOSTILE = [
    *(
        b'{"a": 1}',
        b"",
        b"  ",
        b"\t",
        b"[1]",
        b'"x"',
        b"null",
        b"{broken",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
    ),
    *(
        b'{"a": "\\ud800"}',
        b'{"a": "\\ud83d\\ude00"}',
        b'{"a": "\xff"}',
        b'{"a": 1, "a": 2}',
        b' {"a": 1} ',
        b'{"a": 1}\r',
        b"\x0b",
        b'{"a": 1} x',
    ),
    *(b'{"a": "\x01"}', b'{"a": 12345678901234567890123}', b'{"a": -0.0}', b'{"\\ud800": 1}', b'{"a": 01}', b'{"a": .5}', b"[" * 100_000),
]


@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf"])
def test_hostile_lines(tmp_path: Path, first: bytes) -> None:
    for ending in (b"", b"\n"):
        data = first + b"\n".join(HOSTILE) + ending
        assert list(read_rows(io.BytesIO(data), "jsonl", None)) == by_project(tmp_path, data, "jsonl")
        assert list(read_rows(io.BytesIO(data), "txt", None)) == by_project(tmp_path, data, "txt")
        assert list(read_rows(io.BytesIO(data), "txt", None, whole_file=True)) == by_project(tmp_path, data, "txt", "file")


CSVS = [
    "a,b\n1,2\n",
    "a,b\n\n1,2\n3\n4,5,6\n",
    'a,b\n"x\ny",2\n',
    'a,b\n"x""y",\r\n1,2\r\n',
    'a,b\n1,"2"x\n3,4\n',
    "a\n\n\n",
    "\ufeffa,b\né,ü\n",
    "a\nx\ry\nz\n",
]


@pytest.mark.parametrize("text", CSVS)
def test_hostile_tables(tmp_path: Path, text: str) -> None:
    for data in (text.encode(), text.encode() + b"\xff,1\n"):
        assert list(read_rows(io.BytesIO(data), "csv", None)) == by_project(tmp_path, data, "csv")
        tabs = data.replace(b",", b"\t")
        assert list(read_rows(io.BytesIO(tabs), "tsv", None)) == by_project(tmp_path, tabs, "tsv")


@pytest.mark.parametrize("text", ['[{"a": 1}, 2, {"b": []}, null]', '{"a": 1}', "[]", '\ufeff [{"a": "\\u00e9"}]\n'])
def test_lists(tmp_path: Path, text: str) -> None:
    assert list(read_rows(io.BytesIO(text.encode()), "json", None)) == by_project(tmp_path, text.encode(), "json")


@pytest.mark.parametrize("text", ['[{"a": NaN}, {"a": 1}]', '[{"a": "\\ud800"}]', '[{"a": 1e999}]'])
def test_a_damaged_list_is_left_to_the_first_reader(text: str) -> None:
    with pytest.raises(Unsupported):
        read_rows(io.BytesIO(text.encode()), "json", None)


def test_a_table_without_a_header_or_end_is_left_to_the_first_reader() -> None:
    for data in (b"", b'a,b\n"x,1\n'):
        with pytest.raises(Unsupported):
            list(read_rows(io.BytesIO(data), "csv", None))
