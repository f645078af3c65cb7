"""JSON lines: rows and numbers for any block size, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.data import read as jsonl
from prep_assets.data.files import find_files
from prep_assets.data.read import _decode_object_lines, read_blocks
from prep_assets.errors import ConfigError, SourceError
from prep_assets.proofs.second_reading import read_rows
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.data.conftest import table_bytes
from prep_assets_tests.effort import examples

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]

SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)
ROWS = st.lists(st.one_of(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), st.just(None)), max_size=12)


@settings(max_examples=examples(80), deadline=None)
@given(rows=ROWS, block=st.integers(1, 80), end=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), ascii=st.booleans(), bom=st.booleans())
def test_any_objects_come_back_with_their_line_numbers(rows: list[Any], block: int, end: str, last: bool, ascii: bool, bom: bool) -> None:
    """`None` stands for a blank line. The floats are compared by their text, so that -0.0 is not 0.0 and 1.0 is not 1."""
    lines = ["" if row is None else json.dumps(row, ensure_ascii=ascii) for row in rows]
    data = (b"\xef\xbb\xbf" if bom else b"") + (end.join(lines) + (end if last else "")).encode()
    if not data:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jsonl").write_bytes(data)
        (file,) = find_files(["a.jsonl"], Path(folder))
        blocks = list(read_blocks(file, 3, block_bytes=block))
    assert not [row for b in blocks for row in b.unreadable]
    found = [(r.file, r.row, repr(r.payload)) for b in blocks for r in b.records]
    assert found == [(3, number, repr(json.loads(line))) for number, line in enumerate(lines) if line]
    assert [b.bytes_read for b in blocks] == sorted(b.bytes_read for b in blocks)
    assert blocks[-1].bytes_read == len(data)


@settings(max_examples=examples(60), deadline=None)
@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=12),
    block=st.integers(1, 40),
    limit=st.integers(1, 9),
)
def test_every_line_that_is_not_blank_is_a_record_or_refused_whatever_the_blocks(lines: list[bytes], block: int, limit: int) -> None:
    data = b"[]\n" + b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jsonl").write_bytes(data)
        (file,) = find_files(["a.jsonl"], Path(folder))
        blocks = [list(read_blocks(file, 0, block_bytes=size, max_record_bytes=limit)) for size in (block, 1 << 20)]
    seen = [sorted([r.row for b in one for r in b.records] + [u.row for b in one for u in b.unreadable]) for one in blocks]
    must = [0, *(i for i, line in enumerate(lines, 1) if line.strip() or len(line) > limit)]
    assert seen == [must, must]
    assert [u for b in blocks[0] for u in b.unreadable] == [u for b in blocks[1] for u in b.unreadable]


@pytest.mark.parametrize(
    "line, reason, says",
    [
        (b'{"a": 1,}', "invalid_json", "(double quotes at byte 8|before end of object at byte 7) of 9"),
        (b'{"a": 1} {"b": 2}', "invalid_json", "Extra data at byte 9 of 17"),
        (b'{"a": NaN}', "invalid_json", "byte 6"),
        (b'{"a": Infinity}', "invalid_json", "byte 6"),
        (b'{"a": "unclosed', "invalid_json", "Unterminated string starting at byte 6 of 15"),
        (b"{'a': 1}", "invalid_json", "byte 1"),
        (b'{"a": 1e999}', "invalid_json", "out of range"),
        (b'{"a": "x\\\\ud83d \\ud83d"}', "invalid_json", r"byte 16 of 24: \\ud83d is half a surrogate pair"),
        (b'{"a": "\\udc00\\ud800"}', "invalid_json", r"byte 7 of 21: \\udc00 is half"),
        (b'{"a": "caf\xe9"}', "invalid_utf8", r"byte 10 of 13 \(0xe9\)"),
        (b'{"a": "\xed\xa0\x80"}', "invalid_utf8", r"byte 7 of 12 \(0xed\)"),
        (b'{"\xff": 1, }', "invalid_utf8", "byte 2"),
        (b"[" * 100_000, "invalid_json", r"nested more than 100 deep \(100,000 bytes\)"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "invalid_json", "nested more than 100 deep"),
        (b"[1, 2]", "not_an_object", "is a list"),
        (b'"text"', "not_an_object", "is a string"),
        (b"12", "not_an_object", "is a number"),
        (b"true", "not_an_object", "is true or false"),
        (b"null", "not_an_object", "is null"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason_and_the_lines_around_it_are_read(
    source: Source, read: Read, line: bytes, reason: str, says: str
) -> None:
    records, refused = read(source("a.jsonl", b'{"n": 0}\n' + line + b'\n{"n": 2}\n'))
    assert [(r.row, r.payload) for r in records] == [(0, {"n": 0}), (2, {"n": 2})]
    (row,) = refused
    assert (row.file, row.row, row.reason, row.length) == (0, 1, reason, len(line))
    assert re.search(says, row.detail), row.detail


def test_a_refused_payload_is_shown_cut_with_invalid_bytes_escaped(source: Source, read: Read) -> None:
    _, (row,) = read(source("a.jsonl", b'{"a": "caf\xe9' + b"x" * 9000))
    assert row.payload == r'{"a": "caf\xe9' + "x" * (2000 - 14)
    _, (row,) = read(source("b.jsonl", ("é" * 5000).encode()))
    assert row.payload == "é" * 2000


def test_numbers_are_exact(source: Source, read: Read) -> None:
    line = b'{"big": 123456789012345678901234567890, "tiny": -9223372036854775809, "float": 1.0, "sum": 0.1}'
    ((record,), _) = read(source("a.jsonl", line))
    assert record.payload == {"big": 123456789012345678901234567890, "tiny": -9223372036854775809, "float": 1.0, "sum": 0.1}
    assert [type(value) for value in record.payload.values()] == [int, int, float, float]


def test_a_long_line_is_passed_over_without_being_held(source: Source) -> None:
    """50 MB of one line; a reader that kept it would show in the peak."""
    long = b'{"a": "' + b"x" * 50_000_000 + b'"}'
    file = source("a.jsonl", b'{"n": 0}\n' + long + b'\n{"n": 2}\n')
    tracemalloc.start()
    try:
        blocks = list(read_blocks(file, 0, block_bytes=1 << 16, max_record_bytes=1 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [r.payload for b in blocks for r in b.records] == [{"n": 0}, {"n": 2}]
    (row,) = (u for b in blocks for u in b.unreadable)
    assert (row.row, row.reason, row.length) == (1, "too_long", len(long))
    assert row.payload == long[:2000].decode()
    assert peak < 5_000_000


def test_memory_does_not_grow_with_the_file(source: Source) -> None:
    line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
    peaks = []
    for count in (4_000, 16_000):
        file = source(f"{count}.jsonl", line * count)
        tracemalloc.start()
        try:
            assert sum(len(block.records) for block in read_blocks(file, 0, block_bytes=1 << 19)) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_the_limit_is_on_the_line_and_not_on_what_it_starts_with(source: Source, read: Read) -> None:
    """A cut line may be valid JSON by chance; it is refused all the same."""
    records, refused = read(source("a.jsonl", b'{"a": 1}' + b" " * 20_000 + b"\n{}"), max_record_bytes=100)
    assert [r.row for r in records] == [1]
    assert [(u.row, u.reason, u.length) for u in refused] == [(0, "too_long", 20_008)]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_how_deep_rows_may_be_nested_does_not_depend_on_who_calls(source: Source, read: Read, suffix: str) -> None:
    file = source(f"a.{suffix}", b'{"a": ' + b"[" * 99 + b"{}, " * 300 + b"{}" + b"]" * 99 + b"}\n")
    shallow = source(f"b.{suffix}", b'{"a": ' + b"[" * 98 + b"{}, " * 300 + b"{}" + b"]" * 98 + b"}\n")

    def below(calls: int) -> tuple[int, int]:
        return below(calls - 1) if calls else (len(read(file)[0]), len(read(shallow)[0]))

    assert [below(calls) for calls in (0, 200, 500)] == [(0, 1)] * 3


PIECES = st.sampled_from(['{"a":1}', '{"a":', "{", "}", '"', "[", "]", ",", " ", '{"a":"', '{"b":{}', '{"c":[{}'])


@given(st.lists(st.lists(PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=4), st.booleans())
@example(['{"a":1}{"b":2}', '{"a":"}', '{"}'], True)
@example(['{"a":1}{"b":2}', '{"b":{}', "{}}"], True)
@example(['{"a":1} {"b":2}', "{", "}"], True)
def test_lines_are_read_together_only_where_each_is_an_object(lines: list[str], ends: bool) -> None:
    text = ("\n".join(lines) + "\n" * ends).encode()
    expected = [_object(line) for line in lines]
    sound = all(type(each) is dict and line == line.strip() for each, line in zip(expected, lines, strict=True))
    assert _decode_object_lines(text, np.cumsum([len(line) + 1 for line in lines]) - 1) == (expected if sound else None)


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


# -- cSV and TSV: rows, quoting, and what is refused or stops ----------------------------------------------------------------------------


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


# -- a row in which an object has a key twice is refused: of two values nobody knows which is meant --------------------------------------


ONCE = (
    b'{"text": "a"}',
    b'{"text": "a \\": b \\\\", "n" : 1}',
    b'{"messages": [{"role": "user", "content": "x: y"}, {"role": "a", "content": "\\"k\\": 1"}], "b\\\\": {"c" \t: [{}]}}',
    b'{"t": "two  : three  :", "": ":"}',
    b'{"a": [{"a": 1}, "a"], "b": [[{"a": 1}]]}',
    b'{"a": ": b", "c":": d", "": "::", ": ": ": ", "e\\\\\\": ": 1}',
    b"{}",
    b'{"a": "\\"\\u003A \\\\u0022: \\u0022\\u003a", "b": []}',
    b'{"a": "' + 10 * b"\\\\" + b'\\"\\\\", "b": "' + 20 * b"\\\\" + b'"}',
)
TWICE = (
    *(b'{"text": "a", "text": "b"}', b'{"text": "a", "n": 1, "te\\u0078t": "b"}', b'{"a" : 1, "a": 2}'),
    *(b'{"a\\\\": 1, "a\\\\": 2}', b'{"": 1, "" \t : 2}'),
    *(b'{"messages": [{"role": "user", "content": "x"}, {"content": "a", "content": "b"}]}',),
    *(b'{"messages": [{"role": "user", "role": "x"}, "abc"]}', b'{"a": [[{"b": {"c": 1, "c": 1}}]]}'),
    *(b'{": ": 1, "a": 1, "a": 2}', b'{"a": "\\"\\u003a", "b": [], "b": 2}', b'{"a": "\\u0022:", "b": [], "b": 2}'),
    *(b'{"a": "\\u0022\\u003A", "b": [], "b": 2}', b'{"a" : ": ", ":":1, "b":":", "b": 2}'),
)


def test_a_jsonl_row_with_a_key_twice_is_refused_and_others_are_not(source: Source, read: Read) -> None:
    lines = [*ONCE, *TWICE, b"", b"[1]", *ONCE]
    records, refused = read(source("a.jsonl", b"\n".join(lines)))
    assert [record.row for record in records] == [number for number, line in enumerate(lines) if line in ONCE]
    assert [record.payload for record in records] == [json.loads(line) for line in lines if line in ONCE]
    assert [(each.row, each.reason) for each in refused if "twice" in each.detail] == [
        (len(ONCE) + i, "invalid_json") for i in range(len(TWICE))
    ]
    assert refused[0].detail == "the key 'text' stands twice in an object (26 bytes)"
    assert [each.row for each in refused] == sorted(each.row for each in refused)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_so_is_an_element_of_a_list(source: Source, read: Read, block: int) -> None:
    elements = [*ONCE, *TWICE, b"7", *ONCE]
    records, refused = read(source("a.json", b"[" + b", ".join(elements) + b"]"), block_bytes=block)
    assert [record.row for record in records] == [number for number, each in enumerate(elements) if each in ONCE]
    assert [each.row for each in refused] == [number for number, each in enumerate(elements) if each not in ONCE]


@pytest.mark.parametrize("format", ["jsonl", "json"])
def test_the_second_reader_says_the_same(format: str) -> None:
    rows = [*ONCE, *TWICE]
    data = b"\n".join(rows) if format == "jsonl" else b"[" + b",".join(rows) + b"]"
    found = list(read_rows(io.BytesIO(data), format, None))
    assert [row for _, row in found] == [json.loads(row) if row in ONCE else None for row in rows]


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('":\\ \n{},ab', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(st.text('":\\ a', max_size=3), inner), max_size=4).map(tuple),
    max_leaves=12,
)
"""Objects are tuples of keys and values, so that a key can stand twice."""
NESTED = st.lists(st.tuples(st.text('":\\ a', max_size=3), JSON), max_size=4).map(tuple)
FLAT = st.lists(st.tuples(st.text('"\\a', max_size=3), st.none() | st.booleans() | st.text('"\\a', max_size=30)), max_size=4).map(tuple)


def unfit(lines: list[bytes], rows: list[Any]) -> dict[int, str]:
    flat = lines and jsonl._are_flat(b"\n".join(lines), rows)
    return {} if flat else jsonl.unfit(lines, rows)


def _text(value: Any, space: str) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{json.dumps(key)}{space}:{space}{_text(inner, space)}" for key, inner in value) + "}"
    return "[" + ",".join(_text(each, space) for each in value) + "]" if isinstance(value, list) else json.dumps(value)


def _twice(value: Any) -> bool:
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(map(_twice, value))


@given(st.lists(NESTED, max_size=5) | st.lists(FLAT, max_size=5), st.sampled_from(["", " ", "\t "]))
def test_none_is_missed_and_none_is_made_up(rows: list[Any], space: str) -> None:
    lines = [_text(row, space).encode() for row in rows]
    found = unfit(lines, [msgspec.json.decode(line) for line in lines])
    assert sorted(found) == [number for number, row in enumerate(rows) if _twice(row)]


@pytest.mark.parametrize("depth", [101, 700, 990])
def test_a_row_that_is_nested_too_deeply_is_refused_and_its_neighbours_are_not(depth: int) -> None:
    deep = b'{"a": ' * depth + b"1" + b"}" * depth
    rows: list[Any] = [{"t": "[" * 300}, None, {"a": [[]] * 99}]
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    rows[1] = value
    lines = [json.dumps(rows[0]).encode(), deep, json.dumps(rows[2]).encode()]
    assert unfit(lines, rows) == {1: "nested more than 100 deep"}


# -- arrow gives every struct of a column the members of all others; what an object never had is left out --------------------------------


TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
OTHER = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}
ROWS_STRUCT_PADDING = [
    {
        "tools": [tool],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [{"name": tool["name"], "arguments": arguments}]},
        ],
        "note": None,
        "text": '{"default": null}',
    }
    for tool, arguments in ((TOOL, {"city": "Oslo"}), (OTHER, {"a": 1, "b": 2}))
]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_foreign_parameters_are_neither_offered_nor_trained(source: Source, read: Read, kind: str) -> None:
    """Audit W16: parameters of other tools stood in tools as null, and in the arguments of calls, which are trained."""
    content = table_bytes(kind, ROWS_STRUCT_PADDING)
    records, _ = read(source(f"a.{kind}", content))
    samples = [apply(convert_with("messages"), {key: row[key] for key in ("messages", "tools")}) for row in (r.payload for r in records)]
    assert [dict(sample.tools[0]["function"]) for sample in samples] == [TOOL, OTHER]
    assert [sample.turns[1].regions[-1].text for sample in samples] == [
        '{"name":"weather","arguments":{"city":"Oslo"}}',
        '{"name":"add","arguments":{"a":1,"b":2}}',
    ]
    assert [(r.payload["note"], r.payload["text"]) for r in records] == [(None, '{"default": null}')] * 2, "columns and JSON text stay"
    second = [row for _, row in read_rows(io.BytesIO(content), kind, None)]
    assert second == [r.payload for r in records]


# -- every format in every compression gives back what an independent writer wrote -------------------------------------------------------


Compress = dict[str, Callable[[bytes], bytes]]

ROWS_ROUND_TRIPS: list[dict[str, Any]] = [
    {"text": f'row {i}, "quoted"\tüñí\n次の行' if i % 3 else f"plain {i}", "n": str(i), "more": "x" * (i % 7)} for i in range(500)
]


def as_csv(delimiter: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(ROWS_ROUND_TRIPS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS_ROUND_TRIPS)
    return out.getvalue().encode()


WRITERS: dict[str, Callable[[], bytes]] = {
    "a.jsonl": lambda: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS_ROUND_TRIPS).encode(),
    "a.ndjson": lambda: "\n".join(map(json.dumps, ROWS_ROUND_TRIPS)).encode(),
    "a.json": lambda: json.dumps(ROWS_ROUND_TRIPS, indent=1).encode(),
    "a.csv": lambda: as_csv(","),
    "a.tsv": lambda: as_csv("\t"),
    "a.parquet": lambda: table_bytes("parquet", ROWS_ROUND_TRIPS, 70),
    "file.arrow": lambda: table_bytes("arrow", ROWS_ROUND_TRIPS, 70),
    "stream.arrow": lambda: table_bytes("stream", ROWS_ROUND_TRIPS, 70),
}


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("name", list(WRITERS))
@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 24])
def test_round_trip(source: Source, read: Read, compress: Compress, name: str, suffix: str, block_bytes: int) -> None:
    stored = compress[suffix](WRITERS[name]())
    file = source(name + suffix, stored)
    records, refused = read(file, block_bytes=block_bytes)
    assert not refused
    assert [r.row for r in records] == list(range(len(ROWS_ROUND_TRIPS)))
    assert [dict(r.payload) for r in records] == ROWS_ROUND_TRIPS
    blocks = list(read_blocks(file, 0, block_bytes=block_bytes))
    assert blocks[-1].bytes_read == len(stored)
    if block_bytes == 1 << 10:
        assert len(blocks) > 5


def test_gzip_padding_and_highly_compressible_data(source: Source, read: Read) -> None:
    """A thousandfold compression: one stored chunk gives far more output than is asked for at a time."""
    lines = b'{"a": "' + b"x" * 300_000 + b'"}\n'
    records, _ = read(source("a.jsonl.gz", gzip.compress(lines * 20) + b"\0" * 700), block_bytes=1000)
    assert [len(r.payload["a"]) for r in records] == [300_000] * 20


def test_zstd_frames_as_other_tools_write_them(source: Source, read: Read) -> None:
    """Frames without their size, a skippable frame as pzstd writes it, and a window over zstd's default limit of 128 MiB."""
    zstandard = pytest.importorskip("zstandard", reason="zstandard writes frames that pyarrow does not")
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    parameters = zstandard.ZstdCompressionParameters(compression_level=1, window_log=28, write_content_size=0, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    long_window = writer.compress(b'{"n": 1}\n') + writer.flush()
    data = zstandard.compress(b'{"n": 0}\n') + skippable + long_window
    records, _ = read(source("a.jsonl.zst", data))
    assert [r.payload["n"] for r in records] == [0, 1]


def test_parquet_of_another_writer(tmp_path: Path, read: Read) -> None:
    polars = pytest.importorskip("polars", reason="polars has a Parquet writer of its own")
    polars.DataFrame(ROWS_ROUND_TRIPS).write_parquet(tmp_path / "a.parquet", row_group_size=100)
    records, _ = read(find_files(["a.parquet"], tmp_path)[0])
    assert [r.payload for r in records] == ROWS_ROUND_TRIPS


@pytest.mark.readers
def test_a_data_set_saved_by_datasets(tmp_path: Path, read: Read) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets writes the folder that is read here")
    datasets.Dataset.from_list(ROWS_ROUND_TRIPS).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    files = find_files(["saved"], tmp_path)
    assert [file.name for file in files] == [f"data-0000{i}-of-00003.arrow" for i in range(3)]
    assert [r.payload for file in files for r in read(file)[0]] == ROWS_ROUND_TRIPS


def test_text_lines(source: Source, read: Read) -> None:
    records, refused = read(source("a.txt", "\ufeff one \r\n\r\n  \nzwei\xa0\nd\u2028rei\x0c".encode()))
    assert [(r.row, r.payload) for r in records] == [(0, {"text": " one "}), (3, {"text": "zwei\xa0"}), (4, {"text": "d\u2028rei\x0c"})]
    assert not refused


def test_text_as_one_document(source: Source, read: Read) -> None:
    text = "one\r\n\r\ntwo\n"
    (record,), refused = read(source("a.txt", b"\xef\xbb\xbf" + text.encode()), txt="file")
    assert (record.row, record.payload) == (0, {"text": text})
    assert not refused
    assert read(source("blank.txt", b" \n\n"), txt="file") == ([], [])


def test_text_that_cannot_be_read(source: Source, read: Read) -> None:
    file = source("a.txt", b"good\ncaf\xe9\n" + b"x" * 5000 + b"\nend")
    records, refused = read(file, max_record_bytes=100, block_bytes=64)
    assert [r.row for r in records] == [0, 3]
    assert [(u.row, u.reason, u.length) for u in refused] == [(1, "invalid_utf8", 4), (2, "too_long", 5000)]
    assert [(u.reason, u.length) for u in read(file, txt="file", max_record_bytes=100)[1]] == [("too_long", 5014)]
    assert [u.reason for u in read(file, txt="file")[1]] == ["invalid_utf8"]


@pytest.mark.parametrize("options", [{"block_bytes": 0}, {"max_record_bytes": 0}, {"txt": "paragraph"}])
def test_arguments_without_sense_stop_before_any_reading(source: Source, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_blocks(source("a.jsonl", b"{}"), 0, **options)


def test_a_file_that_is_gone(source: Source, tmp_path: Path) -> None:
    file = source("a.jsonl", b"{}")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match="cannot open"):
        list(read_blocks(file, 0))


def test_one_large_row_group_is_not_held_in_memory(source: Source) -> None:
    noise = random.Random(7)
    out = io.BytesIO()
    pq.write_table(pa.table({"text": [noise.randbytes(500).hex() for _ in range(20_000)]}), out, compression="none")
    file = source("a.parquet", out.getvalue())
    assert file.size > 20_000_000
    tracemalloc.start()
    try:
        assert sum(len(block.records) for block in read_blocks(file, 0, block_bytes=1 << 18)) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000
