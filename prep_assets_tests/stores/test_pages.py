"""Pages of mapped files are given back while a process goes through them, and hold the same when they are read again."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness.workloads import OLD

from prep_assets.stores import arrays
from prep_assets.stores import arrays as columns
from prep_assets.stores import files as pages
from prep_assets.stores.arrays import Spool, stretches, zeros
from prep_assets.stores.files import mapped, note_mapped_bytes
from prep_assets.stores.guards import Guards, compared
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.shards import StorageFormat
from prep_assets.stores.table import TOKENS, open_stream
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.stores.test_packed import write as write_packed

SMALL, SIZE = 1 << 18, 8 << 20
HAS = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what a process has of files")


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOM", SMALL)
    note_mapped_bytes(SMALL)


def resident() -> int:
    """Bytes of files that this process has in memory."""
    return int(Path("/proc/self/statm").read_bytes().split()[2]) * mmap.PAGESIZE


def in_file(folder: Path, size: int = SIZE) -> Any:
    path = folder / "file"
    path.write_bytes(np.arange(size // 8).tobytes())
    return np.memmap(path, np.int64, "r")


def most(work: Callable[[], Iterator[object]]) -> int:
    """Bytes of files that this process had at most while it went through something, beyond those before."""
    before, found = resident(), 0
    for _ in work():
        found = max(found, resident() - before)
    return found


@HAS
def test_no_more_than_the_room_is_kept(tmp_path: Path) -> None:
    array = mapped(in_file(tmp_path))

    def read(tell: Callable[[int], None]) -> Iterator[object]:
        for at in range(0, len(array), 1 << 13):
            yield array[at : at + (1 << 13)].sum()
            tell(1 << 16)

    assert most(lambda: read(lambda size: None)) > SIZE // 2
    assert most(lambda: read(note_mapped_bytes)) <= 6 * SMALL
    assert array.sum() == (SIZE // 8) * (SIZE // 8 - 1) // 2


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    in_file(tmp_path)
    array = mapped(np.memmap(tmp_path / "file", np.int64, "r+"))
    array[:] = 7
    note_mapped_bytes(SMALL)
    array[::2] += 1
    note_mapped_bytes(SMALL)
    assert (array[::2] == 8).all() and (array[1::2] == 7).all()


# who goes through files


@HAS
def test_long_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "IN_MEMORY", 0)
    column = zeros(SIZE // 8)

    def write() -> Iterator[object]:
        for part in stretches(len(column)):
            column[part] = np.arange(part.start, part.stop)
            yield part

    assert most(write) <= 6 * SMALL
    assert (column == np.arange(SIZE // 8)).all()


@HAS
def test_a_column_that_waited_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "RECENT", 1 << 16)
    spool = Spool("int64", tmp_path)
    for part in np.split(np.arange(SIZE // 8), 64):
        spool.append(part)
    before = resident()
    column = spool.array()
    assert resident() - before <= 6 * SMALL
    assert (column == np.arange(SIZE // 8)).all()


@HAS
@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_token_stores(tmp_path: Path, storage: StorageFormat) -> None:
    count = SIZE // 4

    def write(payload: Path, quarantine: Path) -> Draft:
        with TableWriter(payload, "train", TOKENS, {"tokens": "int32"}, storage=storage) as out:
            out.append({"tokens": np.arange(count, dtype=np.int32)}, np.full(128, count // 128), [0] * 128, range(128))
        return Draft({"read": 1, "kept": 1}, {}, ())

    published = Place(tmp_path, "asset", "part").propose(OLD, write, config_key=OLD, recipe={})
    opened = open_stream(published.directory, "train", guards=Guards("off"))
    assert most(lambda: (block.ids.sum() for block in opened.blocks(1 << 16) or ())) <= 6 * SMALL
    guarded = open_stream(published.directory, "train").columns["tokens"].values
    before = resident()
    whole = compared(guarded)
    assert resident() - before <= 1 << 21  # it is compared a MiB at a time
    assert (whole[:] == np.arange(count)).all()


@HAS
@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_packed_tables(tmp_path: Path, storage: StorageFormat) -> None:
    write_packed(tmp_path, storage, rows=1 << 11, row_len=1 << 10)
    store = open_stream(tmp_path, "sft_packed", guards=Guards("off"))
    assert most(lambda: (block.ids.sum() for block in store.blocks(1 << 16) or ())) <= 6 * SMALL


def test_a_file_that_another_thread_maps_meanwhile_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check failed with `Set changed size during iteration`, and a right store was not published."""

    class MappedMeanwhile(set[Any]):
        def __iter__(self) -> Iterator[Any]:
            first = set(map(str, range(3)))
            for each in first:
                first.add(f"{each} and another")
                yield SimpleNamespace(madvise=lambda advice: None)

    monkeypatch.setattr(pages, "_MAPPED", MappedMeanwhile())
    note_mapped_bytes(SMALL)


def test_arrays_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    before = len(pages._MAPPED)
    array = mapped(in_file(tmp_path))
    assert len(pages._MAPPED) == before + 1
    del array
    assert len(pages._MAPPED) == before
    assert len(mapped(np.memmap(tmp_path / "file", np.int64, "r")[5:])) == SIZE // 8 - 5
