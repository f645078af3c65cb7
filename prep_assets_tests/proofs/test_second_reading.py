"""The second reader of source files agrees with the first, on files as hostile as they come; and alone."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
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
    NoCall,
    Seen,
    Unsupported,
    canonical_json,
    conflicting_thoughts,
    decompressed,
    digest,
    fingerprint,
    group_again,
    is_held_out,
    object_of,
    read_again,
    read_rows,
    shown_by,
    typed_tokens,
    unique,
    untyped,
)
from prep_assets.samples import IMAGE, SEPARATOR, TEXT, THINKING, TOOL_CALL, Group, Record, Region, Sample, Turn
from prep_assets_tests.conftest import zstd
from prep_assets_tests.effort import SOAK
from prep_assets_tests.proofs.conversations import template, user

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
    for data in (text.encode(), *(text.encode() + byte + b",1\n" for byte in (b"\x80", b"\xff"))):
        assert list(read_rows(io.BytesIO(data), "csv", None)) == by_project(tmp_path, data, "csv")
        tabs = data.replace(b",", b"\t")
        assert list(read_rows(io.BytesIO(tabs), "tsv", None)) == by_project(tmp_path, tabs, "tsv")


NESTED = ", ".join('{"a": ' + "[" * depth + "]" * depth + "}" for depth in (98, 99, 100, 101))
LISTS = ['[{"a": 1}, 2, {"b": []}, null]', '{"a": 1}', "[]", '\ufeff [{"a": "\\u00e9"}]\n', f"[{NESTED}]"]
LISTS += ['[{"a": 1, "a": 2}, {"b": {"a": 1, "a": 1}}, {"b": [{"a": 1, "a": 1}]}, {"b": {"b": 1}}]', '{"a": 1, "a": 2}']


@pytest.mark.parametrize("text", LISTS)
def test_lists(tmp_path: Path, text: str) -> None:
    assert list(read_rows(io.BytesIO(text.encode()), "json", None)) == by_project(tmp_path, text.encode(), "json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a": NaN}, {"a": 1}]', "NaN is no JSON"),
        ('[{"a": "\\ud800"}]', "'utf-8' codec can't encode character '\\ud800' in position 8: surrogates not allowed"),
        (f'[{{"a": {"9" * 50}e999}}]', f"{'9' * 40} is beyond every float"),
        (" ", "no JSON"),
        ("[1] [" + "2" * 50, f"more than one value: {' [' + '2' * 38!r}"),
    ],
)
def test_a_damaged_list_is_left_to_the_first_reader(text: str, says: str) -> None:
    with pytest.raises(Unsupported) as raised:
        read_rows(io.BytesIO(text.encode()), "json", None)
    assert str(raised.value) == f"the list as a whole is no JSON: {says}"


def test_a_table_without_a_header_or_end_is_left_to_the_first_reader() -> None:
    for data, says in ((b"", "no header"), (b'a,b\n"x,1\n', "unexpected end of data")):
        with pytest.raises(Unsupported) as raised:
            list(read_rows(io.BytesIO(data), "csv", None))
        assert str(raised.value) == says


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


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": 1}\n\n {"b": 2}\n', [(0, {"lines": [{"a": 1}, {"b": 2}]})]),
        (b'\xef\xbb\xbf{"a": 1}', [(0, {"lines": [{"a": 1}]})]),
        *((data, []) for data in (b"", b" \n", b"\xef\xbb\xbf\n")),
        *((data, [(0, None)]) for data in (b'{"a": 1}\n[1]', b'{"a": 1}\n\0', b'{"a": 1}\n\xff')),
        (b'\xef\xbb\xbf{"a": "78901234567"}', [(0, {"lines": [{"a": "78901234567"}]})]),
        (b'{"a": "789012345678"}', [(0, None)]),
    ],
)
def test_a_whole_file_of_lines(monkeypatch: pytest.MonkeyPatch, data: bytes, found: list[tuple[int, Any]]) -> None:
    monkeypatch.setattr(source_rows, "LINE_BYTES", 20)
    assert read(data, "jsonl", whole_file=True) == found


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


@pytest.mark.parametrize(
    "opened", [io.BytesIO, *(lambda data, size=size: io.BufferedReader(io.BytesIO(data), size) for size in (5, 1 << 13))]
)
@pytest.mark.parametrize("format", ["jsonl", "txt"])
def test_lines_of_a_part(monkeypatch: pytest.MonkeyPatch, format: str, opened: Callable[[bytes], Any]) -> None:
    """Every stretch between two lines has the rows that the whole file has there, and no line more or less than it must have."""
    monkeypatch.setattr(source_rows, "LINE_BYTES", 20)
    data = b'\xef\xbb\xbf{"a": 1}\n\n \n\t\n\n  {"a": 2}\nno json\n{"a": "' + b"x" * 70 + b'"}\n\n{"a": 3}\n{"a": 4}'
    whole, starts = list(read_rows(io.BytesIO(data), format, None)), [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    for first, start in enumerate(starts):
        last = Between(None, first)
        assert list(read_rows(opened(data[start:]), format, None, between=last)) == [row for row in whole if row[0] >= first]
        for end, stop in enumerate(starts[first + 1 :], first + 1):
            wanted = [row for row in whole if first <= row[0] < end]
            assert list(read_rows(opened(data[start:]), format, None, between=Between(stop - start, first, end))) == wanted
            for size, wrong in (
                (stop - start, end + 1),
                (stop - start, end - 1),
                (stop - start - 1, end),
                (len(data) - start, len(starts)),
            ):
                with pytest.raises(CheckFailed, match="a file that is read in parts has row"):
                    list(read_rows(opened(data[start:]), format, None, between=Between(size, first, wrong)))


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
    with pytest.raises(ValueError, match=r"^a key stands there twice$"):
        unique([*row.items(), next(iter(row.items()))])


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
    calling = Group((user("x"), answer(text(WRITTEN))), ((answer(text(WRITTEN)),),), (1.0,))
    read = answer(call(F))
    assert group_again(calling, {**OPTIONS, "calls": "auto"}, shown=False, calls=True) == Group((user("x"), read), ((read,),), (1.0,))


CALLING = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
THINKING_ALOUD = "{% for m in messages %}{% if m.reasoning_content %}<t>{{ m.reasoning_content }}</t>{% endif %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(("source", "shown", "calls"), [(CALLING, False, True), (THINKING_ALOUD, True, False)])
def test_what_a_template_shows_is_read_out_of_texts(source: str, shown: bool, calls: bool) -> None:
    shows = shown_by(template(source))
    assert shows == {"shown": shown, "calls": calls}
    read = read_again(Sample((PLAIN, answer(text(WRITTEN)))), {**OPTIONS, "calls": "auto"}, **shows)
    kinds = {region.kind for turn in read.turns for region in turn.regions}
    assert kinds == {TEXT} | ({THINKING} if shown else set()) | ({TOOL_CALL} if calls else set())


def read_turn(turn: Turn, *, shown: bool = True, **options: Any) -> list[Turn]:
    return [*read_again(Sample((turn,)), {**OPTIONS, **options}, shown=shown).turns]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (answer(text("<think>a</think>b")), answer(thought("a"), text("b"))),
        (answer(text("\n[R] a [/R] b ", 0.5)), answer(thought("a", 0.5), text("b ", 0.5))),
        (answer(text("<think></think>b")), answer(text("b"))),
        (answer(text("<think>a</think> \n")), answer(thought("a"))),
        # without its beginning, which the prompt has, where its end has a line of its own
        *((answer(text(f"a{end}b")), answer(thought("a"), text("b"))) for end in ("\n</think>\n", "\n \t</think>", "</think> \t\n")),
        *((answer(text(words)), None) for words in ("a</think>b", "a </think> b", "<think>a", "a<think>b</think>c", "", "b")),
        *((answer(text(f"<think>a</think>b{more}")), None) for more in ("<think>", "</think>", "<think>c</think>")),
        (answer(text("<think>a<think>b</think>c")), None),
        # beside reasoning that says the same
        (answer(thought("a"), text("<think>a</think>b")), answer(thought("a"), text("b"))),
        (
            answer(Region(TEXT, "x", drop=True), thought("a"), text("[R]a[/R]b"), text("c")),
            answer(Region(TEXT, "x", drop=True), thought("a"), text("b"), text("c")),
        ),
        (
            answer(Region(IMAGE, "1.png"), Region(TOOL_CALL, "{}"), text("<think>a</think>b")),
            answer(Region(IMAGE, "1.png"), Region(TOOL_CALL, "{}"), thought("a"), text("b")),
        ),
        (answer(text("b"), text("<think>a</think>")), None),
        (answer(), None),
        (Turn("user", (text("<think>a</think>b"),)), None),
    ],
)
def test_reasoning_in_the_text_of_an_answer(given: Turn, read: Turn | None) -> None:
    assert read_turn(given) == [given if read is None else read]


def test_reasoning_that_stays_in_its_text() -> None:
    """Where a template shows none, or the configuration says so; reasoning beside it that says the same goes."""
    both = answer(thought("a"), text("<think>a</think>b"))
    for options in ({"shown": False}, {"reasoning": "text"}):
        assert read_turn(answer(text("<think>a</think>b")), **options) == [answer(text("<think>a</think>b"))]
        assert read_turn(both, **options) == [answer(text("<think>a</think>b"))]
        ended = answer(thought("a"), text("a\n</think>\nb"))
        assert read_turn(ended, **options) == [ended]


@pytest.mark.parametrize(
    ("given", "shown", "conflicts"),
    [
        (answer(thought("x"), text("<think>y</think>b")), True, True),
        (answer(thought("x"), text("<think> x\n</think>b")), True, False),
        (answer(thought(" x "), text("<think>x</think>b")), True, False),
        (answer(thought("x"), thought("y"), text("<think>xy</think>b")), True, False),
        (answer(thought("x"), text("y\n</think>\nb")), True, True),
        (answer(thought("x"), text("y\n</think>\nb")), False, False),
        (answer(thought("x"), text("<think>y</think>b")), False, True),
        (answer(text("<think>y</think>b")), True, False),
        (answer(Region(THINKING, "x", drop=True), text("<think>y</think>b")), True, False),
        (answer(thought("x"), text("b")), True, False),
    ],
)
def test_other_reasoning_in_the_text_than_beside_it(given: Turn, shown: bool, conflicts: bool) -> None:
    assert conflicting_thoughts(Sample((PLAIN, given)), OPTIONS, shown=shown) is conflicts


def block(tag: str, words: str) -> str:
    return f"<tool_{tag}>{words}</tool_{tag}>"


def call(words: str, weight: float | None = None) -> Region:
    return Region(TOOL_CALL, words, weight)


F = '{"name":"f","arguments":{"a":1}}'
WRITTEN = block("call", '\n{"name": "f", "arguments": {"a": 1}}\n')


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (answer(text(WRITTEN)), [answer(call(F))]),
        (answer(text(f"I add. \n {WRITTEN}\n{WRITTEN} ", 0.5)), [answer(text("I add.", 0.5), call(F, 0.5), call(F, 0.5))]),
        (answer(thought("a"), text(WRITTEN)), [answer(thought("a"), call(F))]),
        *(
            (answer(text(block("call", words))), [answer(call(is_read))])
            for words, is_read in (
                ('{"arguments": "{\\"a\\": 1}", "name": "f", "type": "function"}', F),
                ('{"parameters": {"a": 1}, "name": "f"}', F),
                (
                    "{'name': 'f', 'arguments': {'a': True, 'b': [None, -2.5, 'é']}}",
                    '{"name":"f","arguments":{"a":true,"b":[null,-2.5,"é"]}}',
                ),
                ('{"name": "f"}', '{"name":"f","arguments":{}}'),
                ('{"name": "f", "id": 7}', '{"name":"f","arguments":{},"id":"7"}'),
                ('{"name": "f", "id": null}', '{"name":"f","arguments":{}}'),
            )
        ),
        *(
            (answer(text(words)), None)
            for words in (
                f"As {WRITTEN}",
                f"As\n as{WRITTEN}",
                f"{WRITTEN}.",
                f"{WRITTEN}</tool_call>",
                "x</tool_call>",
                "a",
                block("response", "4"),
            )
        ),
        (answer(text("a"), call(F)), None),
        (answer(Region(TEXT, WRITTEN, drop=True)), None),
        (answer(text("a"), thought(WRITTEN)), None),
        (answer(), None),
        (Turn("user", (text(WRITTEN),)), None),
        # results
        (
            Turn("tool", (text(f"{block('response', ' 4 ')}\n{block('response', '5')}\n"),)),
            [Turn("tool", (text("4"),)), Turn("tool", (text("5"),))],
        ),
        (Turn("tool", (text(f"It is {block('response', '4')}"),)), None),
        (Turn("tool", (text(f"{block('response', '4')}."),)), None),
        (Turn("tool", (text("a"), text(block("response", "4")))), None),
        (Turn("tool", (text(block("call", "4")),)), None),
        (Turn("user", (text(block("response", "4")),)), None),
    ],
)
def test_calls_and_results_between_tags(given: Turn, read: list[Turn] | None) -> None:
    found = read_again(Sample((given,)), {**OPTIONS, "calls": "auto"}, shown=True, calls=True).turns
    assert [*found] == ([given] if read is None else read)
    for options, writes in (({"calls": "text"}, True), ({}, True), ({"calls": "auto"}, False)):
        assert [*read_again(Sample((given,)), {**OPTIONS, **options}, shown=True, calls=writes).turns] == [given]


@pytest.mark.parametrize(
    "words",
    [
        *(
            "5",
            "[]",
            "f()",
            '{"arguments": {}}',
            '{"name": " "}',
            '{"name": 5}',
            '{"name": "f", "arguments": [1]}',
            '{"name": "f", "arguments": "x"}',
        ),
        *('{"name": "f", "more": 1}', '{"name": "f", "name": "g"}', '{"name": "f", "arguments": {"a": NaN}}', "[" * 9999, "{" * 9999),
        *(
            "{'name': 'f', 'name': 'g'}",
            "{'name': 'f', 1: 2}",
            "{'name': 'f' 'g'}",
            "{'name': 'f', 'arguments': {'a': (1,)}}",
            "{'name': b'f'}",
        ),
        *("{'name': 'f', 'arguments': {'a': 0x10}}", "{'name': 'f', 'arguments': {'a': 1_0}}", "{'name': 'f', 'arguments': g()}"),
    ],
)
def test_no_call_between_tags(words: str) -> None:
    with pytest.raises(NoCall) as raised:
        read_again(Sample((answer(text(block("call", words))),)), {**OPTIONS, "calls": "auto"}, shown=True, calls=True)
    assert str(raised.value) == words


@pytest.mark.parametrize(
    ("compression", "compress"),
    [("gzip", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zstd", zstd.compress), (None, lambda data: data)],
)
@pytest.mark.parametrize("at_once", [1 << 18, 100])
def test_compressed_files(monkeypatch: pytest.MonkeyPatch, compression: str | None, compress: Any, at_once: int) -> None:
    """Of several streams one behind the other, and of a part."""
    monkeypatch.setattr(source_rows, "_AT_ONCE", at_once)
    first, second = b'{"a": 1}\n' * 3000, b'{"a": 2}\n'
    data = compress(first) + compress(second)
    assert read(data, "jsonl", compression) == [*((at, {"a": 1}) for at in range(3000)), (3000, {"a": 2})]
    opened = decompressed(io.BytesIO(data), compression)
    for at in (9 * 2999, 5, 9 * 3000, 9 * 1500, 0):
        assert opened.seek(at) == at and opened.read(4) == (first + second)[at : at + 4]
        assert opened.tell() == at + 4
    assert opened.seek(3, io.SEEK_CUR) == 7 and opened.read(2) == b"}\n"


def test_xz_streams_with_zeros_between_them() -> None:
    data = lzma.compress(b"a\n") + bytes(8) + lzma.compress(b"b\n") + bytes(1 << 20)
    assert read(data, "txt", "xz") == [(0, {"text": "a"}), (1, {"text": "b"})]
    whole = lzma.compress(bytes(range(256)) * 40)
    with pytest.raises(EOFError, match=r"^the xz stream is cut short$"):
        decompressed(io.BytesIO(whole[:-1]), "xz").read()
    with pytest.raises(lzma.LZMAError):
        decompressed(io.BytesIO(whole + b"X" * 99), "xz").read()


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


@given(st.lists(st.integers(0, 40)))
def test_what_was_seen_is_that_of_a_set(numbers: list[int]) -> None:
    """Of digests of which the first four stand in a set, the others in a table."""
    seen, known = Seen(plain=4), set[int]()
    for number in numbers:
        value = digest(b"%d" % number)
        assert (value in seen) == (number in known)
        assert seen.add(value) == (number not in known)
        known.add(number)
