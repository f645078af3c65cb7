"""A source that was pinned is compared with its hashes while it is read, a block at a time, in every format and in every part."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prep_assets.disk.blocks import BLOCK
from prep_assets.errors import SourceError
from prep_assets.records.files import WHOLE, Part, SourceFile, find_files
from prep_assets.records.pin import pin_files
from prep_assets.records.read import read_blocks

# words that compress badly, so that every file has more than two blocks
ROWS = [{"n": n, "text": random.Random(n).randbytes(600).hex()} for n in range(2200)]


def _lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def _compressed(path: Path) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode(), 1))


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path, compression="none", row_group_size=500)


def _arrow(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=500)


WRITE: dict[str, Callable[[Path], None]] = {
    "a.jsonl": _lines,
    "a.jsonl.gz": _compressed,
    "a.json": lambda path: path.write_text(json.dumps(ROWS)),
    "a.parquet": _parquet,
    "a.arrow": _arrow,
}  # fmt: skip


def pinned(name: str, folder: Path) -> SourceFile:
    """A file that was pinned, with what it held then."""
    WRITE[name](folder / name)
    (file,) = find_files([name], folder)
    (pin,) = pin_files([file])
    return replace(file, blocks=pin.blocks, remedy="prep-assets build pretrain_raw --partition a")


def rot(path: Path, at: int) -> None:
    """Alter one byte; size and time stay."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def read(file: SourceFile, part: Part = WHOLE) -> list[Any]:
    return [record.payload for block in read_blocks(file, 0, part=part) for record in block.records]


@pytest.mark.parametrize("name", WRITE)
def test_what_is_untouched_reads_as_it_is(name: str, tmp_path: Path) -> None:
    file = pinned(name, tmp_path)
    assert file.size > (1.2 if name.endswith("gz") else 2) * BLOCK
    assert read(file) == ROWS


@pytest.mark.parametrize("name", WRITE)
def test_one_altered_byte_stops_and_says_how_to_go_on(name: str, tmp_path: Path) -> None:
    file = pinned(name, tmp_path)
    rot(tmp_path / name, BLOCK + 7_000)
    with pytest.raises(SourceError, match=rf"^{name}: bytes 1,048,576 to [\d,]+ are not what they were when") as raised:
        read(file)
    assert str(raised.value).endswith(f"\n  touch {tmp_path / name} && prep-assets build pretrain_raw --partition a")


def test_a_part_is_compared_as_far_as_it_reaches(tmp_path: Path) -> None:
    file = pinned("a.jsonl", tmp_path)
    begins = list(accumulate((len(json.dumps(row)) + 1 for row in ROWS), initial=0))
    first = next(i for i, begin in enumerate(begins) if begin > 2 * BLOCK)
    part = Part(begins[first], None, first)
    rot(tmp_path / "a.jsonl", BLOCK + 5)
    assert read(file, part) == ROWS[first:]
    rot(tmp_path / "a.jsonl", file.size - 10)
    with pytest.raises(SourceError, match="are not what they were"):
        read(file, part)


def test_a_file_that_is_read_from_front_to_end_only(tmp_path: Path) -> None:
    file = pinned("a.jsonl", tmp_path)
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/proven/a.jsonl", (tmp_path / "a.jsonl").read_bytes())
    there = replace(file, url="memory://proven/a.jsonl")
    assert read(there) == ROWS
    memory.pipe_file("/proven/a.jsonl", (tmp_path / "a.jsonl").read_bytes().replace(b'"n": 2199', b'"n": 2198'))
    with pytest.raises(SourceError, match=r"\(memory://proven/a.jsonl\)") as raised:
        read(there)
    assert "touch " not in str(raised.value)
