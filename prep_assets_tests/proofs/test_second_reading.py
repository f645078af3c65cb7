"""The second reader of source files agrees with the first, on files as hostile as they come; and alone."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.files import SourceFile
from prep_assets.data.read import read_blocks
from prep_assets.errors import CheckFailed
from prep_assets.pipeline.examples import Deduplicator, content_digest, held_out
from prep_assets.proofs import second_reading as source_rows
from prep_assets.proofs.second_reading import (
    Between,
    Unsupported,
    canonical_json,
    fingerprint,
    group_again,
    is_held_out,
    object_of,
    read_rows,
    typed_tokens,
    untyped,
)
from prep_assets.samples import IMAGE, SEPARATOR, TEXT, THINKING, TOOL_CALL, Group, Record, Region, Sample, Turn
from prep_assets_tests.conftest import zstd
from prep_assets_tests.effort import SOAK
from prep_assets_tests.proofs.conversations import user

# -- The second reader of source files agrees with the first, on files as hostile as they come; and alone ---------------------------------


def by_project(folder: Path, data: bytes, format: str, txt: Any = "line") -> list[tuple[int, Any]]:
    path = folder / "x"
    path.write_bytes(data)
    rows: list[tuple[int, Any]] = []
    for block in read_blocks(SourceFile("x", str(path), len(data), format, None), 0, txt=txt):
        rows += [(record.row, record.payload) for record in block.records] + [(bad.row, None) for bad in block.unreadable]
    return sorted(rows, key=lambda row: row[0])


HOSTILE = [
    *(
        *(b'{"a": 1}', b"", b"  ", b"\t", b"[1]", b'"x"', b"null", b"{broken", b'{"a": NaN}', b'{"a": Infinity}'),
        *(b'{"a": -Infinity}', b'{"a": 1e999}'),
    ),
    *(
        *(b'{"a": "\\ud800"}', b'{"a": "\\ud83d\\ude00"}', b'{"a": "\xff"}', b'{"a": 1, "a": 2}', b' {"a": 1} ', b'{"a": 1}\r'),
        *(b"\x0b", b'{"a": 1} x'),
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
    *("a,b\n1,2\n", "a,b\n\n1,2\n3\n4,5,6\n", 'a,b\n"x\ny",2\n', 'a,b\n"x""y",\r\n1,2\r\n', 'a,b\n1,"2"x\n3,4\n', "a\n\n\n"),
    *("\ufeffa,b\né,ü\n", "a\nx\ry\nz\n"),
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


def test_the_longest_windows_of_zstd() -> None:
    """``zstd --long=31`` writes them; decoders refuse them unless they are asked."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 31})
    assert read(packer.compress(b'{"a": 1}') + packer.flush(), "jsonl", "zstd") == [(0, {"a": 1})]


def test_a_whole_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "LINE_BYTES", 5)
    assert read(b"12345", "txt", whole_file=True) == [(0, {"text": "12345"})]
    assert read(b"\xef\xbb\xbf12345", "txt", whole_file=True) == [(0, {"text": "12345"})]
    assert read(b"123456", "txt", whole_file=True) == [(0, None)]


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


def test_a_value_that_python_does_not_have() -> None:
    """Nanoseconds and years beyond Python's spoil their row alone."""
    far = pa.array([0, 10**18, 2], pa.timestamp("s"))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("t", far.type)])) as writer:
        writer.write_table(pa.table({"t": far}))
    found = read(sink.getvalue(), "arrow")
    assert [number for number, _ in found] == [0, 1, 2] and [row is None for _, row in found] == [False, True, False]


# -- Parts of a source file have the rows that the whole file has there, and nothing else of it is read -----------------------------------


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


# -- What stands on a line of JSON by a second reading: no key twice, no integer as a fraction, no half of a character, nothing too deep---


@given(st.dictionaries(st.text('":\\\n ', max_size=5), st.text('":\\\n ', max_size=9), min_size=1), st.sampled_from(["", " ", " \n"]))
def test_a_key_that_stands_twice_is_found_beside_any_quotes(row: dict[str, str], space: str) -> None:
    pairs = [f"{json.dumps(key)}{space}:{json.dumps(value)}" for key, value in row.items()]
    once, twice = f"{{{', '.join(pairs)}}}".encode(), f"{{{', '.join([pairs[-1], *pairs])}}}".encode()
    assert object_of(once) == row and object_of(twice) is None


# -- Reasoning in the text of answers, read a second time ---------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"reasoning": "auto", "reasoning_tags": [("<think>", "</think>"), ("[R]", "[/R]")]}


def answer(*regions: Region) -> Turn:
    return Turn("assistant", regions)


def text(words: str, weight: float | None = None) -> Region:
    return Region(TEXT, words, weight)


def thought(words: str, weight: float | None = None) -> Region:
    return Region(THINKING, words, weight)


PLAIN = answer(text("<think> Hm.\n</think>\n\nOne. ", 0.5))


def test_groups() -> None:
    group = Group((user("x"), PLAIN), ((PLAIN,), (answer(text("Two.")),)), (1.0, 0.0))
    read = answer(thought("Hm.", 0.5), text("One. ", 0.5))
    assert group_again(group, OPTIONS, shown=True) == Group((user("x"), read), ((read,), (answer(text("Two.")),)), (1.0, 0.0))
    assert group_again(group, OPTIONS, shown=False) == group


# -- Fingerprints and what is held out agree with the first reading, on any values --------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.sampled_from(["a", "b", "a.b", "c", "é"]), values, max_size=4)


@given(payloads, payloads)
def test_fingerprints_are_equal_where_every_field_is(one: dict[str, Any], two: dict[str, Any]) -> None:
    file = SourceFile("a", "a", 0, "jsonl", None)
    for blocks in ([[one, two]], [[one], [two]]):
        found, rows = Deduplicator(), iter(range(2))
        gone = [found.among(file, [Record(0, next(rows), each) for each in block]) for block in blocks]
        assert (fingerprint(one) == fingerprint(two)) == bool(gone[-1])
    assert fingerprint(one) == fingerprint(dict(reversed(one.items())))
    assert len(fingerprint(one)) == 16


@given(payloads, st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.999]))
def test_the_held_out_share(payload: dict[str, Any], fraction: float) -> None:
    content = canonical_json(payload)
    assert content == msgspec.json.encode(payload, order="sorted")
    assert is_held_out(content, fraction) == held_out(content_digest(Record(0, 0, payload)), fraction)


def test_the_border_of_the_held_out_share() -> None:
    for number in range(200):
        content = str(number).encode()
        share = int.from_bytes(xxhash.xxh3_128_digest(content)[:8], "big") / 2**64
        assert not is_held_out(content, share * (1 - 1e-9)) and is_held_out(content, share * (1 + 1e-9))
        exact: Any = Fraction(int.from_bytes(xxhash.xxh3_128_digest(content)[:8], "big"), 2**64)
        assert not is_held_out(content, exact)


def test_values_that_json_does_not_have() -> None:
    import datetime

    day, path = datetime.date(2024, 1, 2), Path("2024-01-02")
    assert canonical_json({"a": day}) == b'{"a":"2024-01-02"}'
    assert fingerprint({"a": day}) != fingerprint({"a": "2024-01-02"})
    assert fingerprint({"a": float("nan")}) != fingerprint({"a": None})
    assert fingerprint({"a": day}) not in (fingerprint({"a": datetime.date(2024, 1, 3)}), fingerprint({"a": None}))
    assert fingerprint({"a": day}) != fingerprint({"a": path}) and fingerprint({"a": path}) == fingerprint({"a": Path(str(day))})
    assert canonical_json({"a": float("nan"), "é": [1, 2]}) == '{"a":null,"é":[1,2]}'.encode()
    assert canonical_json({"b": 1e16, "a": "1e5"}) == b'{"a":"1e5","b":1e16}'


@pytest.mark.parametrize(
    ("kind", "text", "left"),
    [
        (TEXT, "a <|x|> b", "a  b"),
        (TEXT, "<|x<|x|>|>", ""),  # another comes together where one is removed
        (TEXT, "<|x|>y", ""),  # the longer one first
        (TOOL_CALL, '{"name": "f", "arguments": {"a<|x|>": ["\\u003c|x|>é", 1]}}', '{"name": "f", "arguments": {"a": ["é", 1]}}'),
        (TOOL_CALL, '{"name":"f","arguments":{}}', '{"name":"f","arguments":{}}'),  # as the source spells it
        (TOOL_CALL, "{broken <|x|>", "{broken "),  # rejected later
        (SEPARATOR, "<|x|>", "<|x|>"),
        (IMAGE, "<|x|>.png", "<|x|>.png"),
    ],
)
def test_control_tokens_that_are_typed_are_taken_out(kind: str, text: str, left: str) -> None:
    sample = Sample((Turn("user", (Region(kind, text),)),))
    assert untyped(sample, typed_tokens(["<|x|>", "<|x|>y"])).turns[0].regions[0].text == left
    assert untyped(sample, typed_tokens([])) == sample
