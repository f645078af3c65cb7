"""Token streams: what is written comes back, in shards that keep to their limit."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.errors import StoreError
from prep_assets.extensions.training.shards import Positions
from prep_assets.stores import h5
from prep_assets.stores.guards import Segmented
from prep_assets.stores.shards import INDEX_FIELDS, BinShards, StorageFormat
from prep_assets.stores.table import TOKENS, open_stream
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.effort import examples
from prep_assets_tests.peak import peak
from prep_assets_tests.stores.payload import list_payload

DTYPES = {"tokens": "int32", "loss_mask": "uint8"}
STORAGE: list[StorageFormat] = ["bin", "h5"]
Records = list[list[int]]

RECORDS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=12), max_size=20)
"""Token ids of records, some of them empty."""


@contextmanager
def folder() -> Iterator[Path]:
    """Hypothesis runs many examples in one test, so each has a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def mask_of(records: Records) -> Records:
    return [[token % 2 for token in record] for record in records]


def flat(records: Records) -> list[int]:
    return [token for record in records for token in record]


def cut(records: Records, sizes: Sequence[int]) -> list[Records]:
    """`records` in successive batches of the sizes given, in turn, and what is left."""
    batches, at = [], 0
    for size in sizes:
        batches.append(records[at : at + size])
        at += size
    return [*batches, records[at:]]


def write(directory: Path, storage: StorageFormat, records: Records, *, sizes: Sequence[int] = (), limit: int = 10**9) -> None:
    row = 0
    with TableWriter(directory, "train", TOKENS, DTYPES, storage=storage, max_tokens_per_shard=limit) as writer:
        for batch in cut(records, sizes):
            block_of = {"tokens": np.array(flat(batch), np.uint32), "loss_mask": np.array(flat(mask_of(batch)), np.float32)}
            numbers = range(row, row + len(batch))
            writer.append(
                block_of, np.array([len(record) for record in batch], np.int64), [number % 3 for number in numbers], list(numbers)
            )
            row += len(batch)


def shards(directory: Path) -> list[npt.NDArray[Any]]:
    return [np.fromfile(path / "sequence.bin", "<i4") for path in sorted((directory / "train").iterdir())]


@settings(max_examples=examples(60), deadline=None)
@given(RECORDS, st.lists(st.integers(0, 8), max_size=4), st.integers(1, 30), st.sampled_from(STORAGE))
@example([], [], 1, "bin")
@example([], [], 1, "h5")
def test_records_come_back(records: Records, sizes: list[int], limit: int, storage: StorageFormat) -> None:
    with folder() as directory:
        write(directory, storage, records, sizes=sizes, limit=limit)
        store = open_stream(directory, "train")
        assert len(store) == len(records)
        assert len(store.columns["tokens"].values) == sum(map(len, records))
        assert [store.record(i, "tokens").tolist() for i in range(len(store))] == records
        parts = (slice(first, min(first + 3, len(store))) for first in range(0, len(store), 3))
        assert [ids.tolist() for part in parts for ids in store.columns["tokens"].split(part)] == records
        assert [store.record(i, "loss_mask").tolist() for i in range(len(store))] == mask_of(records)
        assert {key: column.values.dtype.name for key, column in store.columns.items()} == DTYPES
        assert np.asarray(store.columns["tokens"].values[:]).tolist() == flat(records)
        assert len(store.columns["loss_mask"].values) == len(store.columns["tokens"].values)
        assert store.columns["tokens"].starts_of(slice(0, len(store))).tolist() == [sum(map(len, records[:i])) for i in range(len(records))]
        assert store.origins.row.tolist() == list(range(len(records)))
        assert store.origins.file.tolist() == [i % 3 for i in range(len(records))]


@settings(max_examples=examples(60), deadline=None)
@given(RECORDS, st.lists(st.integers(0, 8), max_size=4), st.integers(1, 30))
def test_shards_hold_whole_records_up_to_the_limit(records: Records, sizes: list[int], limit: int) -> None:
    with folder() as directory:
        write(directory, "bin", records, sizes=sizes, limit=limit)
        found = shards(directory)
        ends = np.cumsum([len(record) for record in records]).tolist()
        assert {0, *ends} >= set(np.cumsum([len(shard) for shard in found]).tolist())
        for number, shard in enumerate(found):
            records_inside = [len(record) for record in records if record]
            assert len(shard) <= limit or len(shard) in records_inside
            assert len(shard) or len(found) == 1, f"shard {number} is empty"


def test_shards_are_filled_in_order(tmp_path: Path) -> None:
    """A record that does not fit starts the next shard; one that is longer than a shard has a shard of its own."""
    write(tmp_path, "bin", [[1, 2], [3, 4], [5, 6], [7] * 9, [8], [9, 9, 9, 9]], limit=5)
    assert [shard.tolist() for shard in shards(tmp_path)] == [[1, 2, 3, 4], [5, 6], [7] * 9, [8, 9, 9, 9, 9]]


def test_meta_json_is_astrais_to_the_byte(tmp_path: Path) -> None:
    write(tmp_path, "bin", [[1, 2, 3], [4, 5]])
    shard = tmp_path / "train" / "shard_0000"
    meta = b'{"sequence": {"shape": [5], "dtype": "int32"}, "loss_mask": {"shape": [5], "dtype": "uint8"}}'
    assert {path.name: path.read_bytes() for path in shard.iterdir()} == {
        "meta.json": meta,
        "sequence.bin": b"".join(number.to_bytes(4, "little") for number in (1, 2, 3, 4, 5)),
        "loss_mask.bin": bytes([1, 0, 1, 0, 1]),
    }


def test_an_h5_file_is_flat_and_uncompressed(tmp_path: Path) -> None:
    import h5py

    write(tmp_path, "h5", [[1, 2, 3], [4, 5]])
    with h5py.File(tmp_path / "train.h5", "r") as file:
        assert sorted(file) == ["loss_mask", "tokens"]
        assert file["tokens"][:].tolist() == [1, 2, 3, 4, 5]
        assert (file["tokens"].dtype, file["tokens"].compression, file["tokens"].ndim) == (np.int32, None, 1)


def test_a_missing_shard_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "bin", [[7], [8], [9]], limit=1)
    shutil.rmtree(tmp_path / "train" / "shard_0001")
    with pytest.raises(StoreError, match="its shards are shard_0000, shard_0002; they are numbered from 0 without a gap"):
        open_stream(tmp_path, "train")


# what does not fit together


def test_arrays_that_do_not_fit_their_records_are_not_written(tmp_path: Path) -> None:
    writer = BinShards(tmp_path / "train", DTYPES, 9)
    with pytest.raises(StoreError, match=r"'tokens': 3, 'loss_mask': 2.*add up to 3"):
        writer.append({"tokens": np.zeros(3), "loss_mask": np.zeros(2)}, np.array([3]))
    with pytest.raises(StoreError, match="add up to 4"):
        writer.append({"tokens": np.zeros(3), "loss_mask": np.zeros(3)}, np.array([1, 3]))


@pytest.mark.parametrize("storage", STORAGE)
def test_a_stream_left_by_an_exception_cannot_be_opened(tmp_path: Path, storage: StorageFormat) -> None:
    with pytest.raises(KeyboardInterrupt), TableWriter(tmp_path, "train", TOKENS, {"tokens": "int32"}, storage=storage) as writer:
        writer.append({"tokens": np.zeros(3)}, np.array([3]), [0], [0])
        raise KeyboardInterrupt
    with pytest.raises(StoreError, match=r"no token stream 'train': neither train.index"):
        open_stream(tmp_path, "train")


def resized(path: Path) -> None:
    import h5py

    with h5py.File(path, "a") as file:
        file["loss_mask"].resize(4, axis=0)


def other_shape(path: Path) -> None:
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "sequence": {**meta["sequence"], "shape": [4]}}))


SHARD = "train/shard_0000"
FAULTS: list[tuple[StorageFormat, str, Callable[[Path], object], str]] = [
    *(
        ("bin", f"{SHARD}/{key}.bin", change, rf"{key}.bin: {size + by} bytes, meta.json says {size}")
        for key, size in (("sequence", 20), ("loss_mask", 5))
        for by, change in (
            (-1, lambda path: path.write_bytes(path.read_bytes()[:-1])),
            (1, lambda path: path.write_bytes(path.read_bytes() + b"\0")),
        )
    ),
    ("bin", "train/shard_0001", shutil.rmtree, "has 3 elements, its index says 5"),
    ("bin", f"{SHARD}/meta.json", other_shape, "sequence.bin: 20 bytes, meta.json says 16"),
    ("h5", "train.h5", resized, "loss_mask has 4 elements, its index says 5"),
    *(("bin", f"train.index/{part}.npy", lambda path: np.save(path, np.load(path)[:-1]), "of different lengths") for part in INDEX_FIELDS),
]


@pytest.mark.parametrize(("storage", "path", "harm", "said"), FAULTS)
def test_what_does_not_fit_together_is_found_at_open(
    tmp_path: Path, storage: StorageFormat, path: str, harm: Callable[[Path], object], said: str
) -> None:
    write(tmp_path, storage, [[1, 2, 3], [4, 5]], limit=3 if path.endswith("shard_0001") else 10**9)
    harm(tmp_path / path)
    with pytest.raises(StoreError, match=said):
        open_stream(tmp_path, "train")


@pytest.mark.parametrize("storage", ["h5", "bin"])
def test_equal_records_give_equal_files_whatever_the_blocks_that_they_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: StorageFormat
) -> None:
    """The HDF5 library places data in the order of the calls: two keys that grew block by block stood differently in every file."""
    monkeypatch.setattr(h5, "H5_PIECE", 1000)
    monkeypatch.setattr(h5, "H5_CHUNK", 100)
    lengths = np.arange(1, 120)
    ids, ends = np.arange(lengths.sum(), dtype=np.int32), np.cumsum(lengths)
    found = set[str]()
    for step in (1, 7, 119):
        folder = tmp_path / str(step)
        folder.mkdir()
        with TableWriter(folder, "s", TOKENS, DTYPES, storage=storage) as writer:
            for first in range(0, 119, step):
                some = lengths[first : first + step]
                part = slice(int(ends[first] - lengths[first]), int(ends[min(first + step, 119) - 1]))
                writer.append({"tokens": ids[part], "loss_mask": (ids[part] % 2).astype(np.uint8)}, some, [0] * len(some), [0] * len(some))
        found.add(json.dumps(list_payload(folder)))
        assert np.array_equal(open_stream(folder, "s").columns["tokens"].values[:], ids)
    assert len(found) == 1


@pytest.mark.parametrize(("size", "parts"), [(1, 5), (4, 3), (5, 2), (100, 1)])
def test_blocks_hold_whole_records(tmp_path: Path, size: int, parts: int) -> None:
    write(tmp_path, "bin", [[1] * length for length in (2, 2, 1, 3, 2)])
    store = open_stream(tmp_path, "train")
    blocks = list(store.blocks(size))
    records = [range(block.first, block.first + len(block.ends)) for block in blocks]
    assert [at for each in records for at in each] == [0, 1, 2, 3, 4] and len(blocks) == parts
    assert all(len(each) == 1 or len(block.ids) <= size for each, block in zip(records, blocks, strict=True))
    assert [np.diff([0, *block.ends]).tolist() for block in blocks] == [[2, 2, 1, 3, 2][each.start : each.stop] for each in records]
    assert all([0, *block.ends[:-1]] == block.starts.tolist() for block in blocks)


@pytest.mark.parametrize("storage", STORAGE)
def test_memory_does_not_grow_with_a_stream(tmp_path: Path, storage: StorageFormat) -> None:
    """Lengths, files and rows of all records waited in memory for the end of the stream, blocks for each other, and 4 million tokens for HDF5."""
    block, ones = {"tokens": np.ones(20_000, np.uint32), "loss_mask": np.ones(20_000, np.float32)}, np.ones(20_000, np.int64)

    def stream(name: str, blocks: int) -> None:
        with TableWriter(tmp_path, name, TOKENS, DTYPES, storage=storage) as writer:
            for _ in range(blocks):
                writer.append(block, ones, ones, ones)  # type: ignore[arg-type]

    stream("warm", 1)
    one, other = peak(lambda: stream("one", 10)), peak(lambda: stream("other", 160))
    # its six files gather a MiB each; the columns of 3.2 million records take 64 MB
    assert other < min(one + (6 << 20), 16 << 20), (one, other)


# -- Several arrays read as one, against the one that `np.concatenate` makes of them ------------------------------------------------------

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
EDGE = st.none() | st.integers(-40, 40)


def parts(lengths: list[int]) -> list[npt.NDArray[Any]]:
    bounds = np.cumsum([0, *lengths])
    return [np.arange(low, high, dtype=np.uint16) for low, high in pairwise(bounds)]


@given(LENGTHS, EDGE, EDGE)
def test_slices_are_those_of_the_joined_array(lengths: list[int], start: int | None, stop: int | None) -> None:
    arrays = parts(lengths)
    joined = np.concatenate(arrays)
    segmented = Segmented(arrays)
    found = segmented[start:stop]
    assert found.tolist() == joined[start:stop].tolist()
    assert found.dtype == segmented.dtype == np.uint16
    assert len(segmented) == len(joined)


def test_a_slice_inside_one_part_is_a_view() -> None:
    """Memory-mapped shards are read in place."""
    arrays = parts([4, 4])
    assert np.shares_memory(Segmented(arrays)[5:7], arrays[1])


def test_steps_are_refused() -> None:
    with pytest.raises(IndexError, match="steps of 1"):
        Segmented(parts([3, 3]))[::2]


# -- Positions worked out when they are read, against counting them one by one ------------------------------------------------------------

DOCUMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=6)
"""Of each document the gap before it and its length."""


def counted(documents: list[tuple[int, int]], after: int) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and all positions."""
    starts, ends, positions = [], [], list[int]()
    for gap, length in documents:
        positions += [0] * gap
        starts.append(len(positions))
        positions += range(length)
        ends.append(len(positions))
    return starts, ends, positions + [0] * after


@given(DOCUMENTS, st.integers(0, 3), st.integers(0, 40), st.integers(0, 40))
def test_every_slice(documents: list[tuple[int, int]], after: int, begin: int, end: int) -> None:
    starts, ends, expected = counted(documents, after)
    positions = Positions(np.array(starts, np.int64), np.array(ends, np.int64), len(expected))
    assert positions[begin:end].tolist() == expected[begin:end]
    assert positions[:].tolist() == expected
    assert positions[begin:end].dtype == positions.dtype == np.int32


def test_a_document_longer_than_what_is_counted_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.extensions.training.shards._LONGEST_RAMP", 4)
    starts, ends, expected = counted([(0, 3), (2, 9), (1, 4)], 2)
    positions = Positions(np.array(starts), np.array(ends), len(expected))
    assert [positions[begin : begin + 6].tolist() for begin in range(21)] == [expected[begin : begin + 6] for begin in range(21)]


def test_positions_steps_are_refused() -> None:
    with pytest.raises(IndexError, match="steps of 1"):
        Positions(np.zeros(1, np.int64), np.ones(1, np.int64), 1)[::2]
