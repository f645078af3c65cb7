"""Cuts: parts of a file, one after the other, are the file, whoever reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.records import stream
from prep_assets.records.cuts import LineCuts, parts, table_cuts
from prep_assets.records.files import SourceFile, find_files, open_stored
from prep_assets.records.read import read_blocks


def obvious_cuts(data: bytes, size: int) -> list[tuple[int, int]]:
    """The first line that begins at or after each multiple of `size`, and its number."""
    starts = [0, *(at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n")]
    found = {}
    for multiple in range(size, len(data), size):
        later = [(start, row) for row, start in enumerate(starts) if start >= multiple and start < len(data)]
        if later:
            found[later[0][0]] = later[0][1]
    return list(found.items())


@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"defghijkl"]), max_size=60).map(b"".join),
    size=st.integers(1, 12),
    chunk=st.integers(1, 30),
)
def test_cuts_are_the_first_lines_after_each_multiple_however_the_bytes_come(data, size, chunk):
    watch = LineCuts(size)
    for at in range(0, len(data), chunk):
        watch(data[at : at + chunk])
    assert watch.cuts == obvious_cuts(data, size)
    assert watch.seen == len(data)


def everything(file: SourceFile, **options: Any) -> list[tuple[int, Any]]:
    blocks = list(read_blocks(file, 0, **options))
    return [(row.row, row) for block in blocks for row in sorted([*block.records, *block.unreadable], key=lambda row: row.row)]


def in_parts(file: SourceFile, cuts: list[tuple[int, int]], **options: Any) -> list[tuple[int, Any]]:
    return [row for part in parts(cuts) for row in everything(file, part=part, **options)]


LINES = [json.dumps({"n": n, "text": "x" * (n % 50)}) for n in range(300)]
SPOILED = [*LINES[:40], "", "  ", "no json", *LINES[40:], "[1]"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.txt"])
@pytest.mark.parametrize("block_bytes", [1, 700, 1 << 20])
def test_parts_of_a_file_of_lines_are_the_file(source, compress, name, suffix, block_bytes):
    data = b"\xef\xbb\xbf" + "\n".join(SPOILED).encode()
    file: SourceFile = source(name + suffix, compress[suffix](data))
    watch = LineCuts(1000)
    whole = everything(file, watch=watch)
    assert len(watch.cuts) >= 10
    assert len(whole) > 300
    assert in_parts(file, watch.cuts, block_bytes=block_bytes) == whole


def write_parquet(path, table, groups):
    pq.write_table(table, path, row_group_size=groups)


def write_stream(path, table, groups):
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=groups)


def write_file(path, table, groups):
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=groups)


@pytest.mark.parametrize("groups", [7, 50, 1000])
@pytest.mark.parametrize(("name", "write"), [("t.parquet", write_parquet), ("s.arrow", write_stream), ("f.arrow", write_file)])
def test_parts_of_a_table_are_the_table(tmp_path, name, write: Callable[..., None], groups):
    table = pa.table({"n": list(range(1000)), "text": [f"text {n} " * 5 for n in range(1000)]})
    write(tmp_path / name, table, groups)
    [file] = find_files([name], tmp_path)
    whole = everything(file)
    cuts = table_cuts(file, 2000)
    assert len(cuts) >= 5
    assert cuts == sorted(set(cuts))
    assert in_parts(file, cuts, block_bytes=500) == whole


def test_a_small_or_compressed_table_is_not_cut(tmp_path, compress):
    write_parquet(tmp_path / "t.parquet", pa.table({"n": [1, 2]}), 1)
    (tmp_path / "t.parquet.gz").write_bytes(compress[".gz"]((tmp_path / "t.parquet").read_bytes()))
    plain, packed = find_files(["t.parquet", "t.parquet.gz"], tmp_path)
    assert table_cuts(plain) == []
    assert table_cuts(packed, 1) == []


def test_a_compressed_file_is_decompressed_once_for_parts_in_order(source, compress, monkeypatch):
    file: SourceFile = source("rows.jsonl.gz", compress[".gz"]("\n".join(LINES).encode()))
    watch, opened = LineCuts(1000), []
    whole = everything(file, watch=watch)
    some = list(parts(watch.cuts))
    monkeypatch.setattr(stream, "open_stored", lambda file: opened.append(file) or open_stored(file))
    for order, times in ((some, 1), (some[::2], 1), (some[::-1], len(some))):
        opened.clear()
        found = [row for part in order for row in everything(file, part=part)]
        assert found == [row for part in order for row in whole if part.row <= row[0] < _end(some, part)]
        assert len(opened) == times


def _end(some, part):
    return next((each.row for each in some if each.row > part.row), 1 << 62)
