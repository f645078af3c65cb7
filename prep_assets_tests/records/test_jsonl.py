"""JSON lines: rows and numbers for any block size, and what is refused."""

from __future__ import annotations

import json
import re
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.records.files import find_files
from prep_assets.records.jsonl import _one_a_line
from prep_assets.records.read import read_blocks
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
        (b'{"a": 1,}', "invalid_json", "double quotes at byte 8 of 9"),
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
    assert _one_a_line(text, np.cumsum([len(line) + 1 for line in lines]) - 1) == (expected if sound else None)


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
