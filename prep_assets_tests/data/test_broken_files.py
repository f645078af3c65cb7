"""A file that is cut short, damaged or not what its name says stops the build; it never gives fewer rows in silence."""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from prep_assets.data import read as json_list
from prep_assets.data.files import find_files
from prep_assets.data.read import read_blocks
from prep_assets.errors import SourceError
from prep_assets_tests.conftest import zstd
from prep_assets_tests.data.conftest import COMPRESS, table_bytes

Read = Callable[..., tuple[list[Any], list[Any]]]
Source = Callable[..., Any]
Compress = dict[str, Callable[[bytes], bytes]]

CODECS = [".gz", ".bz2", ".xz", ".zst"]


def noisy_lines(count: int) -> bytes:
    """Lines that do not compress away, so that every cut hits data."""
    noise = random.Random(7)
    return b"".join(json.dumps({"n": i, "x": noise.randbytes(40).hex()}).encode() + b"\n" for i in range(count))


@pytest.mark.parametrize("suffix", ["", *CODECS])
def test_whole_files_are_decompressed_in_a_thread_of_their_own(source: Source, compress: Compress, suffix: str) -> None:
    data, seen, threads = noisy_lines(3000), list[bytes](), set[str]()

    def watch(part: bytes) -> None:
        seen.append(part)
        threads.add(threading.current_thread().name)

    blocks = list(read_blocks(source(f"a.jsonl{suffix}", compress[suffix](data) if suffix else data), 0, block_bytes=1 << 14, watch=watch))
    assert b"".join(seen) == data
    assert sum(len(block.records) for block in blocks) == 3000
    assert ("reads ahead" in threads) == bool(suffix)  # what is not compressed is at hand
    assert not [thread for thread in threading.enumerate() if thread.name == "reads ahead"]


@pytest.mark.parametrize("suffix", CODECS)
@pytest.mark.parametrize("kept", [3, 0.3, 0.9, -1])
def test_a_compressed_file_cut_short_stops(source: Source, read: Read, compress: Compress, suffix: str, kept: float) -> None:
    whole = compress[suffix](noisy_lines(3000))
    cut = whole[: int(len(whole) * kept)] if isinstance(kept, float) else whole[:kept]
    with pytest.raises(SourceError, match=r"cut short after [\d,]+ rows, at byte [\d,]+ of [\d,]+ .*fetch it again") as raised:
        read(source(f"a.jsonl{suffix}", cut))
    assert f"a.jsonl{suffix}" in str(raised.value)
    assert f"of {len(cut):,} " in str(raised.value)


def test_rows_before_the_cut_come_first_and_the_error_counts_them(source: Source, compress: Compress) -> None:
    """bzip2 and gzip cut mid-way still give rows; the error names how many were read, so that nobody takes them for all."""
    whole = compress[".gz"](noisy_lines(20_000))
    records = []
    with pytest.raises(SourceError) as raised:
        for block in read_blocks(source("a.jsonl.gz", whole[: len(whole) // 2]), 0, block_bytes=1 << 14):
            records += block.records
    assert [r.payload["n"] for r in records] == list(range(len(records)))
    assert 5_000 < len(records) < 15_000
    assert f"after {len(records):,} rows" in str(raised.value)


def test_a_file_that_shrinks_while_it_is_read_stops(source: Source, read: Read, tmp_path: Path) -> None:
    file = source("a.jsonl", noisy_lines(10))
    (tmp_path / "a.jsonl").write_bytes(noisy_lines(5))
    with pytest.raises(SourceError, match="ends early"):
        read(file)


ROWS = [{"n": i, "x": str(i) * 20} for i in range(1000)]


@pytest.mark.parametrize("kept", [5, 0.5, 0.99, -1])
@pytest.mark.parametrize(("name", "kind"), [("a.parquet", "parquet"), ("f.arrow", "arrow"), ("s.arrow", "stream")])
def test_a_table_cut_short_stops(source: Source, read: Read, name: str, kind: str, kept: float) -> None:
    data = table_bytes(kind, ROWS)
    cut = data[: int(len(data) * kept)] if isinstance(kept, float) else data[:kept]
    with pytest.raises(SourceError, match=f"{name}: no readable .*fetch it again"):
        read(source(name, cut))


def stream_of(table: pa.Table, *changes: tuple[bytes, bytes], ended: bool = True) -> bytes:
    """An Arrow stream with some of its bytes changed; without its end, which pyarrow reads without a complaint."""
    out = io.BytesIO()
    writer = ipc.new_stream(out, table.schema)
    writer.write_table(table)
    writer.close() if ended else None
    data = out.getvalue()
    assert ipc.open_stream(data).read_all() == table
    for before, after in changes:
        assert data.count(before) == 1
        data = data.replace(before, after)
    return data


def flipped(suffix: str) -> bytes:
    write = COMPRESS[suffix]
    if suffix == ".zst":  # pyarrow writes frames without a checksum, in which a changed letter cannot be seen
        write = partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1})
    whole = bytearray(write(noisy_lines(3000)))
    whole[len(whole) // 2] ^= 0x10
    return bytes(whole)


def without_rows() -> bytes:
    """A Parquet file whose footer promises none of its 77 rows."""
    data = table_bytes("parquet", [{"n": i} for i in range(77)])
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(b"\x16\x9a\x01", footer)  # field 3 of the footer, 77 as thrift writes it
    return data[:at] + b"\x16\x80\x00" + data[at + 3 :]


PARQUET = table_bytes("parquet", ROWS)
BROKEN: dict[str, tuple[str, bytes, str]] = {
    **{f"a flipped bit in {suffix}": (f"a.jsonl{suffix}", flipped(suffix), "damaged") for suffix in CODECS},
    **{
        f"a page behind {suffix}": (
            f"a.jsonl{suffix}",
            COMPRESS[suffix](noisy_lines(10)) + b"<html>503 Service Unavailable</html>",
            "damaged",
        )
        for suffix in CODECS
    },
    **{f"no {suffix}": (f"a.jsonl{suffix}", noisy_lines(10), "damaged") for suffix in CODECS},
    **{
        f"{says} named {name}": (name, COMPRESS[suffix](noisy_lines(10)), f"compressed with {says}.*Give it the suffix {suffix}")
        for name in ("a.jsonl", "a.json", "a.csv", "a.txt")
        for suffix, says in ((".gz", "gzip"), (".zst", "zstd"), (".xz", "xz"), (".bz2", "bzip2"))
    },
    "UTF-16": ("a.jsonl", '{"a": 1}\n'.encode("utf-16"), "UTF-16.*Convert it to UTF-8"),
    "UTF-16, big end first": ("a.jsonl", '\ufeff{"a": 1}\n'.encode("utf-16-be"), "UTF-16.*Convert it to UTF-8"),
    "a number": ("a.json", b"12", "starts with b'1' at byte 0"),
    "a text": ("a.json", b'  "text"', "starts with b'\"' at byte 2"),
    "white space": ("a.json", b" \n", "white space only"),
    "a list cut in a text": ("a.json", b'[{"a": 1}, {"b": 2', "cut short"),
    "a list cut between": ("a.json", b'[{"a": 1}, {"b": 2}', "cut short"),
    "a missing quote": ("a.json", b'[{"a": "1}]', "cut short or a quote is missing"),
    "an object cut": ("a.json", b'{"a": 1', "cut short"),
    "lines": ("a.json", b'{"a": 1}\n{"a": 2}\n', "more follows the first JSON value at byte 9.*format: jsonl"),
    "two lists": ("a.json", b"[1] [2]", "more follows the first JSON value at byte 4"),
    "damage in a table": ("a.parquet", PARQUET[:200] + bytes(700) + PARQUET[900:], "fetch it again"),
    "a footer that promises no rows": ("a.parquet", without_rows(), "the footer promises 0 rows"),
    "a stream cut between two batches": ("a.arrow", stream_of(pa.table({"n": [1]}), ended=False), "no end-of-stream mark"),
    "a column twice": ("a.arrow", stream_of(pa.table([[1], [2]], ["a", "a"])), r"column 'a' is there 2 times\. Give each"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_stops(source: Source, read: Read, what: str) -> None:
    name, data, says = BROKEN[what]
    with pytest.raises(SourceError, match=says):
        read(source(name, data))


DEEP = 200_000
"""Nested lists that no version of Python parses."""
LISTS: list[tuple[bytes, dict[int, Any], dict[int, str]]] = [
    (
        b'\xef\xbb\xbf[{"n": 0}, {"n": NaN}, 3, {"n": [{"a,]": "\\"}"}, 1]}, {"n": "\xff"}, {"n" 5}, {"n": "\\ud800"}, , {"n": 8}]\n',
        {0: {"n": 0}, 3: {"n": [{"a,]": '"}'}, 1]}, 8: {"n": 8}},
        {1: "invalid_json", 2: "not_an_object", 4: "invalid_utf8", 5: "invalid_json", 6: "invalid_json", 7: "invalid_json"},
    ),
    (
        b'[{"n": "\xff"}, {"n": "\\ud800"}, [], {"n": "' + b"x" * 100 + b'"}, {}]',
        {4: {}},
        {0: "invalid_utf8", 1: "invalid_json", 2: "not_an_object", 3: "too_long"},
    ),
    (b"[{}, " + b"[" * DEEP + b"]" * DEEP + b", {}]", {0: {}, 2: {}}, {1: "invalid_json"}),
    (b' {"n": NaN} ', {}, {0: "invalid_json"}),
    (b"[]", {}, {}),
    (b" [ ] \n", {}, {}),
]


@pytest.mark.parametrize(("data", "kept", "refused"), LISTS, ids=range(len(LISTS)))
def test_bad_elements_of_a_json_list_are_refused_one_by_one(
    source: Source, read: Read, data: bytes, kept: dict[int, Any], refused: dict[int, str]
) -> None:
    records, found = read(source("a.json", data), **({"max_record_bytes": 50} if b"x" * 100 in data else {}))
    assert {each.row: each.payload for each in records} == kept
    assert {each.row: each.reason for each in found} == refused
    assert len(records) + len(found) == len(kept) + len(refused) and all(each.length == 2 * DEEP for each in found if b"[[" in data)


def test_a_json_file_over_the_limit_stops(source: Source, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "MAX_JSON_BYTES", 50)
    assert len(read(source("fits.json", b'{"a": "' + b"x" * 41 + b'"}'))[0]) == 1
    with pytest.raises(SourceError, match=r"more than 50 bytes.*Convert it to JSON lines"):
        read(source("a.json", b'{"a": "' + b"x" * 42 + b'"}'))


def test_a_value_that_python_cannot_hold_is_a_refused_row(tmp_path: Path, read: Read) -> None:
    far = pa.array([0, 2**60, 1], pa.int64()).view(pa.timestamp("ms"))
    invalid = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(b"".join(i.to_bytes(4, "little") for i in (0, 1, 2, 3))), pa.py_buffer(b"a\xffb")]
    )
    pq.write_table(pa.table({"when": far, "text": pa.array(["a", "b", "c"])}), tmp_path / "when.parquet")
    pq.write_table(pa.table({"text": invalid}), tmp_path / "text.parquet")
    text, when = find_files(["*.parquet"], tmp_path)
    records, refused = read(text)
    assert ([r.payload["text"] for r in records], [(u.row, u.reason) for u in refused]) == (["a", "b"], [(1, "invalid_utf8")])
    records, refused = read(when)
    assert ([r.row for r in records], [(u.row, u.reason) for u in refused]) == ([0, 2], [(1, "unreadable_value")])
    assert refused[0].payload == '{"text": "b"}'


@pytest.mark.parametrize("offset", [1 << 30, -5])
@pytest.mark.parametrize("text", ["zwei", "\udcff"])
def test_arrow_offsets_beyond_the_data_stop(source: Source, read: Read, offset: int, text: str) -> None:
    table = pa.table({"text": ["eins", "zwei", "drei"], "said": [[{"a": "x"}], None, [{"a": "y"}]]})
    offsets = [number.to_bytes(4, "little", signed=True) for number in (0, 4, 8, 12, offset)]
    damaged = b"".join([offsets[0], offsets[1], offsets[4], offsets[3]])
    data = stream_of(table, (b"".join(offsets[:4]), damaged), (b"zwei", text.encode("utf-8", "surrogateescape").ljust(4, b"\xff")))
    with pytest.raises(SourceError, match="no readable arrow file"):
        read(source("a.arrow", data))


def test_an_arrow_text_that_is_no_utf8_is_one_refused_row(source: Source, read: Read) -> None:
    table = pa.table({"text": ["eins", "zwei", "drei"], "said": [[{"a": "x"}], None, [{"a": "y"}]]})
    records, refused = read(source("a.arrow", stream_of(table, (b"zwei", b"\xffwei"))))
    assert [(r.row, r.payload["text"], r.payload["said"]) for r in records] == [(0, "eins", [{"a": "x"}]), (2, "drei", [{"a": "y"}])]
    assert [(each.row, each.reason) for each in refused] == [(1, "invalid_utf8")]
