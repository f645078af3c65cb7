"""Pins: what they hold, when a file is hashed again, and what a change says."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data import pins as pin_module
from prep_assets.data import stream
from prep_assets.data.files import WHOLE, Part, SourceFile, find_files, open_stored
from prep_assets.data.pins import Pin, pin_files, verify_pins
from prep_assets.data.read import read_blocks
from prep_assets.data.tables import LineCuts, parts, table_cuts
from prep_assets.errors import SourceError
from prep_assets.stores.verification import BLOCK, Sums
from prep_assets_tests.data.conftest import table_bytes


@pytest.fixture
def files(tmp_path: Path) -> tuple[SourceFile, ...]:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"b": 2}\n')
    return find_files(["*"], tmp_path)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are hashed, in order."""
    names: list[str] = []
    real = pin_module.stored_sums

    def count(file: SourceFile) -> Sums:
        names.append(file.name)
        return real(file)

    monkeypatch.setattr(pin_module, "stored_sums", count)
    return names


def test_a_pin_holds_name_size_and_hash_and_nothing_of_the_machine(files: tuple[SourceFile, ...], tmp_path: Path) -> None:
    first, second = pin_files(files)
    assert first.identity == {"name": "a.jsonl", "size": 9, "sha256": hashlib.sha256(b'{"a": 1}\n').hexdigest()}
    assert second.name == "b.jsonl"
    assert first.url_hint is None
    assert str(tmp_path) not in repr((first, second))


def test_unchanged_files_are_not_hashed_again(files: tuple[SourceFile, ...], hashed: list[str]) -> None:
    pins = pin_files(files)
    verify_pins(files, pins)
    assert pin_files(files, known=pins) == pins
    assert sorted(hashed) == ["a.jsonl", "b.jsonl"]


def test_a_touched_file_is_hashed_again_and_holds(files: tuple[SourceFile, ...], tmp_path: Path, hashed: list[str]) -> None:
    pins = pin_files(files)
    os.utime(tmp_path / "b.jsonl", ns=(0, 5))
    verify_pins(files, pins)
    assert sorted(hashed) == ["a.jsonl", "b.jsonl", "b.jsonl"]


def test_a_changed_file_stops_with_both_sizes_and_hashes(files: tuple[SourceFile, ...], tmp_path: Path) -> None:
    pins = pin_files(files)
    (tmp_path / "b.jsonl").write_bytes(b'{"b": 22}\n')
    with pytest.raises(SourceError) as raised:
        verify_pins(files, pins)
    expected, found = (hashlib.sha256(data).hexdigest() for data in (b'{"b": 2}\n', b'{"b": 22}\n'))
    assert f"b.jsonl: expected 9 bytes with sha256 {expected}, found 10 bytes with sha256 {found}" in str(raised.value)
    assert "a.jsonl" not in str(raised.value)


def test_files_that_came_or_went_stop(files: tuple[SourceFile, ...]) -> None:
    pins = pin_files(files)
    with pytest.raises(SourceError, match=r"b\.jsonl: pinned, but no longer there"):
        verify_pins(files[:1], pins)
    with pytest.raises(SourceError, match=r"b\.jsonl: there, but not pinned"):
        verify_pins(files, pins[:1])


def test_a_file_that_changes_while_it_is_hashed_stops(
    files: tuple[SourceFile, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(file: SourceFile) -> Sums:
        (tmp_path / file.name).write_bytes(b'{"a": 1, "more": 2}\n')
        return Sums(9, "0" * 64, "0" * 16)

    monkeypatch.setattr(pin_module, "stored_sums", slow)
    with pytest.raises(SourceError, match="changes while it is read"):
        pin_files(files)


def test_a_source_without_any_sign_of_a_change_is_hashed_every_time(
    files: tuple[SourceFile, ...], hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin_module, "fingerprint", lambda file: "")
    verify_pins(files, pin_files(files))
    assert sorted(hashed) == ["a.jsonl", "a.jsonl", "b.jsonl", "b.jsonl"]


def test_many_changes_are_summed_up(files: tuple[SourceFile, ...]) -> None:
    pins = tuple(Pin(f"{i}.jsonl", 1, "", "", "") for i in range(9))
    with pytest.raises(SourceError, match="and 6 more"):
        verify_pins(files, pins)


# -- a source that was pinned is compared with its hashes while it is read, a block at a time, in every format and in every part ---------


# words that compress badly, so that every file has more than two blocks
ROWS = [{"n": n, "text": random.Random(n).randbytes(600).hex()} for n in range(2200)]


TEXT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
WRITE: dict[str, Callable[[], bytes]] = {
    "a.jsonl": lambda: TEXT,
    "a.jsonl.gz": lambda: gzip.compress(TEXT, 1),
    "a.json": lambda: json.dumps(ROWS).encode(),
    "a.parquet": lambda: table_bytes("parquet", ROWS, 500),
    "a.arrow": lambda: table_bytes("arrow", ROWS, 500),
}


def pinned(name: str, folder: Path) -> SourceFile:
    """A file that was pinned, with what it held then."""
    (folder / name).write_bytes(WRITE[name]())
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


# -- cuts: parts of a file, one after the other, are the file, whoever reads them --------------------------------------------------------


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


@pytest.mark.parametrize("groups", [7, 50, 1000])
@pytest.mark.parametrize(("name", "kind"), [("t.parquet", "parquet"), ("s.arrow", "stream"), ("f.arrow", "arrow")])
def test_parts_of_a_table_are_the_table(source, name, kind, groups):
    file = source(name, table_bytes(kind, [{"n": n, "text": f"text {n} " * 5} for n in range(1000)], groups))
    whole = everything(file)
    cuts = table_cuts(file, 2000)
    assert len(cuts) >= 5
    assert cuts == sorted(set(cuts))
    assert in_parts(file, cuts, block_bytes=500) == whole


def test_a_small_or_compressed_table_is_not_cut(tmp_path, compress):
    table = table_bytes("parquet", [{"n": 1}, {"n": 2}], 1)
    (tmp_path / "t.parquet").write_bytes(table)
    (tmp_path / "t.parquet.gz").write_bytes(compress[".gz"](table))
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
