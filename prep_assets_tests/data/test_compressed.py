"""What compressed files may hold, read by builds and by checks: several members, padding between them; and tables that repeat long values."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from prep_assets.checks.sources_again import _rows
from prep_assets.data import tables
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, open_stored
from prep_assets.data.read import read_blocks
from prep_assets.errors import SourceError
from prep_assets.proofs.second_reading import decompressed, read_rows
from prep_assets.samples import Record
from prep_assets_tests.conftest import zstd

Source = Callable[..., SourceFile]
Read = Callable[..., tuple[list[Record], list[Unreadable]]]

LINES = [b'{"text": "line %d"}\n' % number for number in range(40)]
FIRST, SECOND = b"".join(LINES[:20]), b"".join(LINES[20:])
SKIPPED = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
"""A frame of zstd that readers skip."""
MEMBERS: dict[str, tuple[str, bytes]] = {
    "gzip": ("a.jsonl.gz", gzip.compress(FIRST) + gzip.compress(SECOND)),
    "gzip, an empty member": ("a.jsonl.gz", gzip.compress(FIRST) + gzip.compress(b"") + gzip.compress(SECOND)),
    "gzip, zeros between": ("a.jsonl.gz", gzip.compress(FIRST) + bytes(9) + gzip.compress(SECOND)),
    "gzip, zeros at the end": ("a.jsonl.gz", gzip.compress(FIRST + SECOND) + bytes(512)),
    "bz2": ("a.jsonl.bz2", bz2.compress(FIRST) + bz2.compress(SECOND)),
    "xz": ("a.jsonl.xz", lzma.compress(FIRST) + lzma.compress(SECOND)),
    "xz, zeros between": ("a.jsonl.xz", lzma.compress(FIRST) + bytes(8) + lzma.compress(SECOND)),
    "xz, many zeros between": ("a.jsonl.xz", lzma.compress(FIRST) + bytes(1 << 20) + lzma.compress(SECOND)),
    "xz, zeros at the end": ("a.jsonl.xz", lzma.compress(FIRST) + bytes(4) + lzma.compress(SECOND) + bytes(4)),
    "xz, an empty stream": ("a.jsonl.xz", lzma.compress(FIRST) + bytes(4) + lzma.compress(b"") + lzma.compress(SECOND)),
    "zstd": ("a.jsonl.zst", zstd.compress(FIRST) + zstd.compress(SECOND)),
    "zstd, skipped frames": ("a.jsonl.zst", SKIPPED + zstd.compress(FIRST) + SKIPPED + zstd.compress(SECOND) + SKIPPED),
}


@pytest.mark.parametrize("what", MEMBERS)
def test_both_readers_read_all_members(source: Source, read: Read, what: str) -> None:
    file = source(*MEMBERS[what])
    expected = [f"line {number}" for number in range(40)]
    records, refused = read(file)
    assert [record.payload["text"] for record in records] == expected and not refused
    with open_stored(file) as stream:
        assert [row["text"] for _, row in read_rows(stream, "jsonl", file.compression) if row] == expected


@pytest.mark.parametrize("what", [name for name in MEMBERS if name.startswith("xz")])
def test_checks_read_xz_from_any_byte(source: Source, what: str) -> None:
    file = source(*MEMBERS[what])
    starts = [0, *accumulate(map(len, LINES))]
    with open_stored(file) as stored:
        stream = decompressed(stored, "xz")
        for number in (25, 26, 3, 39, 19, 20):
            stream.seek(starts[number])
            assert stream.readline() == LINES[number]
        assert stream.seek(10**6) == len(FIRST + SECOND) and stream.read() == b""


def test_checks_stop_at_xz_that_is_cut_short_or_followed_by_other_bytes() -> None:
    whole = lzma.compress(FIRST)
    for data, error in ((whole[:-20], EOFError), (whole + bytes(4) + b"no xz at all", lzma.LZMAError)):
        with pytest.raises(error):
            decompressed(io.BytesIO(data), "xz").read()


LONG, ROWS = "x" * (1 << 16), 200
"""A system prompt of 64 kB that all rows share."""


def chats() -> list[dict[str, list[dict[str, str]]]]:
    turns = [("system", LONG), ("user", "question {}"), ("assistant", "answer {}")]
    return [{"messages": [{"role": role, "content": text.format(row)} for role, text in turns]} for row in range(ROWS)]


def parquet(path: Path, **options: object) -> None:
    pq.write_table(pa.Table.from_pylist(chats()), path, **options)


def arrow(path: Path) -> None:
    system = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), [LONG])
    table = pa.table({"messages": [row["messages"][1:] for row in chats()], "system": system})
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


TABLES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a dictionary": ("a.parquet", parquet),
    "groups of 50 rows": ("a.parquet", lambda path: parquet(path, row_group_size=50)),
    "data pages of version 2": ("a.parquet", lambda path: parquet(path, data_page_version="2.0")),
    "prefixes": (
        "a.parquet",
        lambda path: parquet(path, use_dictionary=False, column_encoding={"messages.list.element.content": "DELTA_BYTE_ARRAY"}),
    ),
    "arrow": ("a.arrow", arrow),
}


@pytest.mark.parametrize("what", TABLES)
def test_tables_that_repeat_long_values_are_read_in_small_batches(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Their rows take 13 MB in memory, the file a hundredth of it."""
    name, write = TABLES[what]
    write(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert len(data) < ROWS * len(LONG) / 20
    monkeypatch.setattr(tables, "_MOST_BYTES", 1 << 20)
    file, most = source(name, data), []
    opened = pq.ParquetFile.iter_batches

    def noted(table: pq.ParquetFile, rows: int, **options: object) -> object:
        most.append(rows)
        return opened(table, rows, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    blocks = list(read_blocks(file, 0))
    expected = [row["messages"][-1]["content"] for row in chats()]
    assert [record.payload["messages"][-1]["content"] for block in blocks for record in block.records] == expected
    assert max(len(block.records) for block in blocks) <= 16
    again = [row for _, row in _rows(file, "line") if row is not None]
    assert [row["messages"][-1]["content"] for row in again] == expected
    assert {rows for rows in most if rows != tables.ROWS_LOOKED_AT} <= {*range(1, 17)}


def test_rows_of_usual_tables_are_read_many_at_once(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"row {number} of many, each with words that no other row has: {number * 7919}"} for number in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    monkeypatch.setattr(tables, "_MOST_BYTES", 1 << 20)
    blocks = list(read_blocks(source("a.parquet", (tmp_path / "a.parquet").read_bytes()), 0))
    assert [record.payload for block in blocks for record in block.records] == rows and len(blocks) < 5


def test_what_pyarrow_does_not_support_is_not_called_damaged(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    file = source("a.parquet", (tmp_path / "a.parquet").read_bytes())

    def refuse(*_: object, **__: object) -> object:
        raise pa.ArrowNotImplementedError("Support for codec 'lzo' not built")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", refuse)
    with pytest.raises(SourceError, match=r"lzo' not built\. pyarrow does not support this: write the file again"):
        list(read_blocks(file, 0))
