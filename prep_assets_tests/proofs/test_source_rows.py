"""The second reader of source files agrees with the first, on files as hostile as they come; and alone."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets.data.files import SourceFile
from prep_assets.data.read import read_blocks
from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.second_reading import DEPTH, Unsupported, read_rows
from prep_assets_tests.conftest import zstd


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
    *(b'{"a": [{"b": 1, "b": 2}]}', b'{"a": ":", "b": 1, "b" : 2}', b'{"a": "":", "b": "\\\\":", "c": 1}', b'{"a": {"b": 1}, "c": ":b"}'),
    *(b'{"a": [18446744073709551615, 18446744073709551616, 0.5]}', b'{"a": -9223372036854775809}', b'{"a": 1e16}', b'{"a": 0.1e-400}'),
    *(b'{"a": "\x01"}', b'{"a": 12345678901234567890123}', b'{"a": -0.0}', b'{"\\ud800": 1}', b'{"a": 01}', b'{"a": .5}', b"[" * 100_000),
    *(b'{"a": ' + b"[" * depth + b"]" * depth + b"}" for depth in (99, 100, 700)),
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


# -- alone ------------------------------------------------------------------------------------------------------------------------------


def read(data: bytes, format: str, compression: str | None = None, **more: Any) -> list[tuple[int, Any]]:
    return list(read_rows(io.BytesIO(data), format, compression, **more))


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": "\\u00e9"}', {"a": "é"}),
        (b'{"a": 1.5e3}', {"a": 1500.0}),
        (b"[1]", None),
        (b"{", None),
        (b'{"a": NaN}', None),
        (b'{"a": -Infinity}', None),
        (b'{"a": 1e999}', None),
        (b'{"a": -1e999}', None),
        (b'{"a": "\\ud800"}', None),
        (b'{"a": "\xff"}', None),
        (b"[" * 100_000, None),
    ],
)
def test_lines_of_json(line: bytes, row: Any) -> None:
    assert read(b"\n \n" + line + b"\n", "jsonl") == [(2, row)]
    assert read(b"\xef\xbb\xbf" + line, "jsonl") == [(0, row)]
    assert read(b'{"x": 0}\n\xef\xbb\xbf' + line, "jsonl")[1] == (1, None), "a byte-order mark stands first"


@pytest.mark.parametrize("format", ["jsonl", "txt"])
def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    assert source_rows.LINE_BYTES == 32 << 20
    monkeypatch.setattr(source_rows, "LINE_BYTES", 20)
    fits, over = json.dumps({"a": "x" * 11}).encode(), json.dumps({"a": "x" * 12}).encode()
    assert (len(fits), len(over)) == (20, 21)
    data = b"\n".join([fits, over, b"x" * 3_000_000, fits])
    found = read(data, format)
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert [row is None for _, row in found] == [False, True, True, False]
    assert read(over + b"\n" + fits, format)[0] == (0, None)


@pytest.mark.parametrize("pack", [None, ("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zstd", zstd.compress)])
def test_compressed(pack: Any) -> None:
    data = b'{"a": 1}\n{"a": 2}'
    name, packed = (None, data) if pack is None else (pack[0], pack[1](data))
    assert read(packed, "jsonl", name) == [(0, {"a": 1}), (1, {"a": 2})]


def test_the_longest_windows_of_zstd() -> None:
    """``zstd --long=31`` writes them; decoders refuse them unless they are asked."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 31})
    assert read(packer.compress(b'{"a": 1}') + packer.flush(), "jsonl", "zstd") == [(0, {"a": 1})]


def test_text() -> None:
    assert read(b"\xef\xbb\xbf one\r\n\n \t\ntwo\xc3\xa9\n\xff", "txt") == [(0, {"text": " one"}), (3, {"text": "twoé"}), (4, None)]
    assert read(b"\xef\xbb\xbfone\r\ntwo\n", "txt", whole_file=True) == [(0, {"text": "one\r\ntwo\n"})]
    assert read(b" \n ", "txt", whole_file=True) == [] and read(b"\xff", "txt", whole_file=True) == [(0, None)]


def test_a_whole_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "LINE_BYTES", 5)
    assert read(b"12345", "txt", whole_file=True) == [(0, {"text": "12345"})]
    assert read(b"\xef\xbb\xbf12345", "txt", whole_file=True) == [(0, {"text": "12345"})]
    assert read(b"123456", "txt", whole_file=True) == [(0, None)]


def test_lists_alone() -> None:
    assert read(b'\xef\xbb\xbf[{"a": 1}, 2, [], {"b": "\\u00e9"}]', "json") == [(0, {"a": 1}), (1, None), (2, None), (3, {"b": "é"})]
    assert read(b'{"a": 1}', "json") == [(0, {"a": 1})] and read(b"7", "json") == [(0, None)]
    for data, why in (
        (b"[1", "Expecting"),
        (b"[NaN]", "NaN is no JSON"),
        (b"[1e999]", "1e999 is beyond every float"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b"[" + b"9" * 400 + b".5]", "9" * 40 + " is beyond every float"),
    ):
        with pytest.raises(Unsupported) as raised:
            read(data, "json")
        assert str(raised.value).startswith("the list as a whole is no JSON: ") and why in str(raised.value)
    with pytest.raises(Unsupported, match=f": {'9' * 40} is"):
        read(b"[" + b"9" * 400 + b".5]", "json")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [0, 1, DEPTH - 1, DEPTH])
def test_depth_and_keys_that_stand_twice(depth: int) -> None:
    """The object itself is the first level; what stands beside the deepest value changes nothing."""
    deep = f'{{"a": {nested(depth) or 1}, "b": [[]], "c": {{}}}}'
    row = None if depth == DEPTH else json.loads(deep)
    twice = '{"a": 1, "b": {"c": 1, "c": 1}, "d": [[]]}'
    assert read(f"{deep}\n{twice}".encode(), "jsonl") == [(0, row), (1, None)]
    assert read(f"[{deep}, {twice}, [{deep}]]".encode(), "json") == [(0, row), (1, None), (2, None)]


def test_tables_of_text() -> None:
    data = b'\xef\xbb\xbfa,b\n\n1,"x\ny"\n3\n\xc3\xa9,\xff\n5,"6""7"\n'
    wanted = [(0, {"a": "1", "b": "x\ny"}), (1, None), (2, None), (3, {"a": "5", "b": '6"7'})]
    assert read(data, "csv") == wanted
    assert read(data.replace(b",", b"\t"), "tsv") == wanted
    assert read(b'a,b\n1,"2"x\n3,4\n', "csv") == [(0, None), (1, {"a": "3", "b": "4"})]
    assert read(b"a\n" + b"x" * 200_000 + b"\n", "csv") == [(0, {"a": "x" * 200_000})]
    for broken, why in ((b"", "no header"), (b'a\n"x', "unexpected end of data")):
        with pytest.raises(Unsupported) as raised:
            read(broken, "csv")
        assert str(raised.value) == why


@pytest.mark.parametrize("byte", [b"\x80", b"\xff"])
def test_bytes_that_are_no_text(byte: bytes) -> None:
    assert read(b"a,b\n1,x" + byte + b"\n\xc3\xa9,\xee\x80\x80\n", "csv") == [(0, None), (1, {"a": "é", "b": "\ue000"})]


TABLE = pa.table({"n": list(range(2500)), "o": [{"x": number, "y": None} for number in range(2500)], "l": [[{"z": None}]] * 2500})


def arrow(make: Any) -> bytes:
    sink = io.BytesIO()
    with make(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=700)
    return sink.getvalue()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=900)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("format", "data"),
    [("parquet", parquet()), ("arrow", arrow(pa.ipc.new_file)), ("arrow", arrow(pa.ipc.new_stream))],
    ids=["parquet", "file", "stream"],
)
def test_tables(monkeypatch: pytest.MonkeyPatch, format: str, data: bytes) -> None:
    """Members that are null are those of other rows; a column gives each object all of them."""
    rows = [(number, {"n": number, "o": {"x": number}, "l": [{}]}) for number in range(2500)]
    assert read(data, format) == rows
    monkeypatch.setattr(source_rows, "ROWS", 500)  # fewer than a batch of the file has
    assert read(data, format) == rows


def test_a_value_that_python_does_not_have() -> None:
    """Nanoseconds and years beyond Python's spoil their row alone."""
    far = pa.array([0, 10**18, 2], pa.timestamp("s"))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("t", far.type)])) as writer:
        writer.write_table(pa.table({"t": far}))
    found = read(sink.getvalue(), "arrow")
    assert [number for number, _ in found] == [0, 1, 2] and [row is None for _, row in found] == [False, True, False]
