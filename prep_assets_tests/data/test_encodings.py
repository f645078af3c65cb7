"""Text in other encodings than UTF-8, and NULs in text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, open_stored
from prep_assets.errors import SourceError
from prep_assets.proofs.second_reading import read_rows
from prep_assets.samples import Record

Source = Callable[..., SourceFile]
Read = Callable[..., tuple[list[Record], list[Unreadable]]]

SCRIPTS = {
    "English": "A line of text,\nand another.\n",
    "Russian": "Первая строка,\nвторая строка.\n",
    "Chinese": "第一行文字。\n第二行文字，还有 text。\n",
    "Japanese": "さいしょの行です。\nカタカナの行。\n",
    "Korean": "첫 번째 줄\n두 번째 줄\n",
    "Arabic": "السطر الأول\nالسطر الثاني\n",
    "Hindi": "पहली पंक्ति\nदूसरी पंक्ति\n",
    "Thai": "บรรทัดแรก\nบรรทัดที่สอง\n",
    "Greek": "Πρώτη γραμμή\nΔεύτερη γραμμή\n",
    "emoji": "yes 😀😀 – “no” … €5\n",
}
WIDE = ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")


@pytest.mark.parametrize("times", [1, 300])
@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("script", SCRIPTS)
def test_wide_text_without_a_mark_stops_and_is_named(source: Source, read: Read, script: str, encoding: str, times: int) -> None:
    file = source("a.txt", (SCRIPTS[script] * times).encode(encoding))
    with pytest.raises(SourceError, match=f"is {encoding} text without a byte order mark .*iconv -f {encoding} -t UTF-8"):
        read(file)


SOLID = {"Chinese": "第一行文字，第二行文字。", "Japanese": "さいしょの行です。カタカナの行。"}
"""Texts whose letters have no byte below 32 in UTF-16: nothing in them is ASCII, not even a line feed."""


@pytest.mark.parametrize("times", [1, 300])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("script", SOLID)
def test_wide_text_without_ascii_is_named(source: Source, read: Read, script: str, encoding: str, times: int) -> None:
    with pytest.raises(SourceError, match=f"is {encoding} text without a byte order mark"):
        read(source("a.txt", (SOLID[script] * times).encode(encoding)))


@pytest.mark.parametrize("encoding", ["gb18030", "big5", "euc-jp", "shift-jis", "iso-2022-jp"])
@pytest.mark.parametrize("script", SOLID)
def test_other_encodings_of_the_same_text_are_not_called_wide(source: Source, read: Read, script: str, encoding: str) -> None:
    text = SOLID["Chinese" if encoding == "big5" else script]
    records, refused = read(source("a.txt", (text * 300).encode(encoding)))
    assert records or len(refused) == 1


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"text": "one"}\n'), ("a.json", '[{"text": "one"}]'), ("a.csv", "text,n\none,1\n"), ("a.tsv", "a\tb\n1\t2\n")],
)
def test_wide_text_of_every_format_is_named(source: Source, read: Read, name: str, text: str, encoding: str) -> None:
    with pytest.raises(SourceError, match=f"is {encoding} text"):
        read(source(name, text.encode(encoding)))


@pytest.mark.parametrize(("mark", "encoding"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32")])
def test_wide_text_with_a_mark_is_named(source: Source, read: Read, mark: str, encoding: str) -> None:
    for data in ("one\n".encode(mark), "\ufeffone\n".encode(f"{mark}-be")):
        with pytest.raises(SourceError, match=f"is {encoding} text .*iconv -f {encoding} "):
            read(source("a.txt", data))


@pytest.mark.parametrize("script", SCRIPTS)
def test_text_in_utf_8_is_read(source: Source, read: Read, script: str) -> None:
    text = SCRIPTS[script] * 300
    records, refused = read(source("a.txt", text.encode()))
    assert [record.payload["text"] for record in records] == text.splitlines() and not refused


LINES = ["one line", "with\0a NUL", "another line", "\0" * 700, "the last"]
"""NULs as programs leave them: in a text, and at the end of a file whose writer was killed."""


@pytest.mark.parametrize("more", [0, 600])
def test_lines_with_nuls_are_refused_by_both_readers(source: Source, read: Read, more: int) -> None:
    text = "\n".join([*(f"line {number} of text" for number in range(more)), *LINES]) + "\n"
    file = source("a.txt", text.encode())
    records, refused = read(file)
    kept = [number for number, line in enumerate(text.splitlines()) if "\0" not in line]
    assert [record.row for record in records] == kept
    assert [(row.row, row.reason) for row in refused] == [(more + 1, "nul_byte"), (more + 3, "nul_byte")]
    assert refused[0].detail == "byte 4 of 10 is NUL: binary data, or text in an encoding other than UTF-8"
    with open_stored(file) as stream:
        assert [number for number, row in read_rows(stream, "txt", None) if row is not None] == kept


def test_csv_rows_with_nuls_are_refused_by_both_readers(source: Source, read: Read) -> None:
    file = source("a.csv", b'text,n\none,1\n"t\0wo",2\n"three\nlines",3\n')
    records, refused = read(file)
    assert [record.payload["n"] for record in records] == ["1", "3"]
    assert [(row.row, row.reason) for row in refused] == [(1, "nul_byte")]
    with open_stored(file) as stream:
        assert [number for number, row in read_rows(stream, "csv", None) if row is not None] == [0, 2]


def test_a_whole_file_with_a_nul_is_refused(source: Source, read: Read) -> None:
    file = source("a.txt", b"a text\nof two lines\0\n")
    records, refused = read(file, txt="file")
    assert not records and [row.reason for row in refused] == ["nul_byte"]
    with open_stored(file) as stream:
        assert list(read_rows(stream, "txt", None, whole_file=True)) == [(0, None)]


def test_an_escaped_nul_in_json_is_a_character_of_its_text(source: Source, read: Read) -> None:
    rows: list[Any] = [{"text": "a\0b"}, {"text": "\0"}, {"text": "plain"}]
    file = source("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode() + b'{"text": "a\0b"}\n')
    records, refused = read(file)
    assert [record.payload for record in records] == rows
    assert [(row.row, row.reason) for row in refused] == [(3, "invalid_json")]
