"""`open_store` against files that are written here by hand, in each format."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.caches import CACHES
from prep_assets.errors import ConfigError, StoreError
from prep_assets.stores.open import Store, detect_format, open_store
from prep_assets_tests.effort import examples


def bin_shard(folder: Path, arrays: dict[str, np.ndarray], offsets: dict[str, list[int]] | None = None) -> Path:
    folder.mkdir(parents=True)
    meta: dict[str, Any] = {}
    for key, array in arrays.items():
        (folder / f"{key}.bin").write_bytes(array.tobytes())
        meta[key] = {"shape": [len(array)], "dtype": array.dtype.name, **({"offsets": offsets[key]} if offsets else {})}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def ints(*values: int, dtype: str = "int32") -> np.ndarray:
    return np.array(values, dtype)


@pytest.fixture
def three(tmp_path: Path) -> Store:
    """Segments of 3, 4 and 2 tokens."""
    for number, part in enumerate((range(3), range(3, 7), range(7, 9))):
        bin_shard(tmp_path / f"shard_{number:04d}", {"sequence": np.array(part, "int32")})
    return open_store(tmp_path)


@pytest.mark.parametrize(("begin", "end"), [(b, e) for b in range(10) for e in range(b, 10)])
def test_fetch_over_segments(three: Store, begin: int, end: int) -> None:
    assert three.fetch(begin, end, "sequence").tolist() == list(range(begin, end))
    assert three.fetch(begin, end, "sequence").dtype == np.int32


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (0, 10), (10, 10), (5, 2), (2, 1)])
def test_fetch_out_of_bounds(three: Store, begin: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"Index out of bounds: begin={begin}, end={end}, length=9") as caught:
        three.fetch(begin, end, "sequence")
    assert isinstance(caught.value, StoreError)


def test_fetch_several_keys(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"sequence": ints(1, 2, 3), "loss_mask": ints(0, 1, 1)})
    found = open_store(tmp_path).fetch(1, 3, ["sequence", "loss_mask"])
    assert {key: array.tolist() for key, array in found.items()} == {"sequence": [2, 3], "loss_mask": [1, 1]}


def test_missing_key_lists_what_there_is(three: Store) -> None:
    with pytest.raises(KeyError) as caught:
        three.require(["sequence", "loss_mask"])
    assert "no key 'loss_mask'" in str(caught.value)
    assert "Required: sequence, loss_mask. Available: sequence" in str(caught.value)


@pytest.mark.parametrize("count", [1, 12])
def test_shards_in_numeric_order(tmp_path: Path, count: int) -> None:
    for number in range(count):
        bin_shard(tmp_path / f"shard_{number}", {"sequence": ints(number)})
    store = open_store(tmp_path)
    assert store.fetch(0, count, "sequence").tolist() == list(range(count))


def test_astrai_h5_groups_in_numeric_order(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data_0000.h5", "w") as file:
        for number in range(12):
            file[f"sequence/data_{number}"] = ints(number, number)
            file[f"loss_mask/data_{number}"] = np.array([False, True])
    store = open_store(tmp_path)
    assert store.fetch(0, 24, "sequence").tolist() == [n for n in range(12) for _ in range(2)]
    assert store.fetch_record(10, "loss_mask").tolist() == [False, True]
    assert store.num_records == 12


@pytest.mark.parametrize("layout", [{}, {"chunks": (4,)}, {"chunks": (4,), "compression": "gzip"}])
def test_flat_h5(tmp_path: Path, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "pile_dev.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), **layout)
    store = open_store(tmp_path / "pile_dev.h5")
    assert store.keys == ("sequence",)
    assert store.fetch(3, 9, "tokens").tolist() == store.fetch(3, 9, "sequence").tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("layout", [{}, {"chunks": (1, 5)}])
def test_rows_of_an_h5_table(tmp_path: Path, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "sft_packed.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(20, dtype="int32").reshape(4, 5), **layout)
        file.create_dataset("loss_mask", data=np.arange(20, dtype="int8").reshape(4, 5) % 2, **layout)
    store = open_store(tmp_path / "sft_packed.h5")
    assert (len(store), store.num_records) == (20, 4)
    assert [store.fetch(b, e, "sequence").tolist() for b, e in ((3, 12), (5, 10), (20, 20))] == [list(range(3, 12)), list(range(5, 10)), []]
    assert store.fetch_record(-1, ["tokens", "loss_mask"])["loss_mask"].tolist() == [1, 0, 1, 0, 1]


def test_three_dimensions_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["data"] = np.zeros((2, 3, 4), "int32")
    with pytest.raises(StoreError, match=r"/data has shape \(2, 3, 4\)"):
        open_store(tmp_path)


def test_a_key_missing_from_one_shard_is_no_silent_shift(tmp_path: Path) -> None:
    bin_shard(tmp_path / "shard_0000", {"sequence": ints(1, 2)})
    bin_shard(tmp_path / "shard_0001", {"sequence": ints(3, 4), "loss_mask": ints(0, 1)})
    with pytest.raises(StoreError, match="shard_0001 has the keys"):
        open_store(tmp_path)
    assert open_store(tmp_path, keys=["sequence"]).fetch(0, 4, "sequence").tolist() == [1, 2, 3, 4]


def test_a_key_of_other_length_is_no_silent_cut(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"sequence": ints(1, 2, 3), "loss_mask": ints(0, 1)})
    with pytest.raises(StoreError, match="keys of different length"):
        open_store(tmp_path)


@pytest.mark.parametrize("size", [7, 9])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    (bin_shard(tmp_path / "a", {"sequence": ints(1, 2)}) / "sequence.bin").write_bytes(bytes(size))
    with pytest.raises(StoreError, match=f"{size} bytes, meta.json says 8"):
        open_store(tmp_path)


def test_records_of_several_shards(tmp_path: Path) -> None:
    sides = {"chosen": [0, 2, 3], "rejected": [0, 1, 5]}
    for number in range(2):
        base = number * 10
        arrays = {"chosen": ints(*range(base, base + 3)), "rejected": ints(*range(base + 5, base + 10))}
        bin_shard(tmp_path / f"shard_{number}", arrays, sides)
    store = open_store(tmp_path)
    records = [{key: array.tolist() for key, array in store.fetch_record(i, ["chosen", "rejected"]).items()} for i in range(4)]
    assert records == [
        {"chosen": [0, 1], "rejected": [5]},
        {"chosen": [2], "rejected": [6, 7, 8, 9]},
        {"chosen": [10, 11], "rejected": [15]},
        {"chosen": [12], "rejected": [16, 17, 18, 19]},
    ]
    with pytest.raises(StoreError, match="is a store of 4 records, with keys of different length"):
        len(store)
    with pytest.raises(IndexError, match="record 4 of 4"):
        store.fetch_record(4, "chosen")


def test_different_numbers_of_records_are_refused(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"chosen": ints(1, 2), "rejected": ints(3)}, {"chosen": [0, 1, 2], "rejected": [0, 1]})
    with pytest.raises(StoreError, match="different numbers of records"):
        open_store(tmp_path)


def test_jsonl_numbers_and_text(tmp_path: Path) -> None:
    rows = [{"prompt": "é?", "ids": [1, 2], "groups": [[1], [2, 3]]}, {"prompt": "b", "ids": [], "groups": [[4]]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n", "utf-8")
    store = open_store(tmp_path)
    assert (store.num_records, store.fetch(0, 2, "ids").tolist()) == (2, [1, 2])
    assert [store.fetch_record(i, "prompt") for i in range(2)] == ["é?", "b"]
    assert [group.tolist() for group in store.fetch_record(0, "groups")] == [[1], [2, 3]]
    with pytest.raises(StoreError, match="'prompt' is not a list of numbers"):
        store.fetch(0, 1, "prompt")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("{", "line 2: no JSON"), ("[1]", "must be an object"), ('{"b": 1}', "has the keys"), ('{"a": "x"}', "list of numbers")],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1]}\n' + line + "\n")
    with pytest.raises(StoreError, match=complaint):
        open_store(tmp_path)


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"input_ids": pa.array([[1, 2], [3]], pa.list_(pa.int32())), "prompt": [[{"role": "user"}], [{"role": "tool"}]]})
    pq.write_table(table, tmp_path / "a.parquet")
    store = open_store(tmp_path)
    assert [store.fetch_record(i, "input_ids").tolist() for i in range(2)] == [[1, 2], [3]]
    assert store.fetch_record(1, "prompt") == [{"role": "tool"}]
    assert store.fetch(0, 3, "input_ids").dtype == np.int32


def test_megatron_pair(tmp_path: Path) -> None:
    """Two documents, of two sequences and of one; the bytes of Megatron-LM's own builder."""
    (tmp_path / "x_text_document.bin").write_bytes(bytes.fromhex("010002000300dbff"))
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 3) + ints(2, 1, 1).tobytes() + ints(0, 4, 6, dtype="int64").tobytes()
    (tmp_path / "x_text_document.idx").write_bytes(index + ints(0, 2, 3, dtype="int64").tobytes())
    store = open_store(tmp_path / "x_text_document.bin")
    assert [store.fetch_record(i, "sequence").tolist() for i in range(2)] == [[1, 2, 3], [65499]]
    (tmp_path / "x_text_document.bin").write_bytes(b"")
    with pytest.raises(StoreError, match="0 bytes; its index says 4 of uint16, 8 bytes"):
        open_store(tmp_path)


def test_windows_of_tokens(three: Store) -> None:
    windows = three.windows(4, 3)
    assert [windows.sample_window(number, ["sequence"])["sequence"].tolist() for number in range(2)] == [[0, 1, 2, 3], [3, 4, 5, 6]]
    assert (len(windows), windows[-1]) == (2, (3, 7))
    with pytest.raises(IndexError):
        windows[2]


def test_windows_of_nothing_are_refused(three: Store) -> None:
    with pytest.raises(ConfigError):
        three.windows(0)
    with pytest.raises(ConfigError):
        three.windows(3, 0)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25))
def test_every_window_has_a_next_token_and_no_window_more_fits(total: int, window: int, stride: int) -> None:
    begins = [begin for begin in range(0, total, stride) if begin + window < total]

    class Tokens:
        path = "tokens"

        def __len__(self) -> int:
            return total

    from prep_assets.stores.open import Windows

    found = Windows(Tokens(), window, stride)  # type: ignore[arg-type]
    assert [found[i] for i in range(len(found))] == [(begin, begin + window) for begin in begins]


def test_detect_format(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No supported data files found at"):
        detect_format(tmp_path)
    with pytest.raises(FileNotFoundError, match="No supported data files found at"):
        detect_format(tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match="Unsupported file format"):
        detect_format(tmp_path / "a.txt")
    (tmp_path / "a.parquet").touch()
    assert detect_format(tmp_path) == "parquet"
    (tmp_path / "a.jsonl").touch()
    assert detect_format(tmp_path) == "jsonl"
    bin_shard(tmp_path / "domain" / "shard_0000", {"sequence": ints(1)})
    assert detect_format(tmp_path) == "bin"
    h5py.File(tmp_path / "domain" / "a.h5", "w").close()
    assert detect_format(tmp_path) == "h5"
    assert open_store(tmp_path, "bin").format == "bin"
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        open_store(tmp_path, "parqet")  # type: ignore[arg-type]


def test_names_with_brackets_are_no_patterns(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a[1]*" / "shard_0000", {"sequence": ints(1, 2)})
    assert len(open_store(tmp_path / "a[1]*")) == 2


def test_empty_bin(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"sequence": ints(), "loss_mask": ints()})
    store = open_store(tmp_path)
    assert (len(store), store.fetch(0, 0, "sequence").tolist(), len(store.windows(4))) == (0, [], 0)


def _child_reads(store: Store, parent: int, queue: Any) -> None:
    tokens, windows = store.fetch(2, 6, "sequence").tolist(), len(store.windows(3))
    inherited = {pid for pid, *_ in CACHES["HDF5 handles"]} - {parent, os.getpid()}
    own = [path for pid, path, _ in CACHES["HDF5 handles"] if pid == os.getpid()]
    queue.put((os.getpid() != parent and not inherited, tokens, windows, len(own)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("layout", [{}, {"chunks": (4,)}, {"chunks": (4,), "compression": "gzip"}])
def test_reads_in_a_child_process(tmp_path: Path, method: str, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), **layout)
    store = open_store(tmp_path)
    assert store.fetch(0, 1, "sequence").tolist() == [0]
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_child_reads, args=(store, os.getpid(), queue))
    child.start()
    assert queue.get(timeout=60) == (True, [2, 3, 4, 5], 3, 1 if "compression" in layout else 0)
    child.join()


def test_pickle_is_the_path(three: Store) -> None:
    data = pickle.dumps(three)
    assert len(data) < 500
    assert pickle.loads(data).fetch(2, 7, "sequence").tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(("kind", "bad"), [(pa.int32(), [[1, 2], [], [3, None, None]]), (pa.float32(), [[0.5], [1.0], [None]])])
def test_a_null_inside_a_list_of_parquet_is_no_token(tmp_path: Path, kind: pa.DataType, bad: list[Any]) -> None:
    pq.write_table(pa.table({"tokens": pa.array(bad, pa.list_(kind))}), tmp_path / "a.parquet", row_group_size=1)
    with pytest.raises(StoreError, match=r"a\.parquet: 'tokens' of row 2 has a null"):
        open_store(tmp_path)


def _gzip(path: Path, values: list[int]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", data=ints(*values), chunks=(2,), compression="gzip")


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """An open store goes on with the file that it opened; one that has read nothing yet says so."""
    path = tmp_path / "a.h5"
    _gzip(path, [1, 2, 3, 4])
    reading, idle = open_store(path), open_store(path, keys=["tokens"])
    assert reading.fetch(0, 2, "tokens").tolist() == [1, 2]
    _gzip(tmp_path / "new", [7, 8, 9, 10])
    (tmp_path / "new").replace(path)
    assert open_store(path).fetch(0, 4, "tokens").tolist() == [7, 8, 9, 10]
    assert reading.fetch(0, 4, "tokens").tolist() == idle.fetch(0, 4, "tokens").tolist() == [1, 2, 3, 4]


def test_a_file_that_was_replaced_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    _gzip(path, [1, 2, 3, 4])
    store = open_store(path)
    _gzip(tmp_path / "new", [7, 8, 9, 10])
    (tmp_path / "new").replace(path)
    with pytest.raises(StoreError, match=r"a\.h5 was replaced or changed since it was opened"):
        store.fetch(0, 4, "tokens")


def test_a_file_that_was_overwritten_in_place_is_read_anew(tmp_path: Path) -> None:
    path, new = tmp_path / "a.h5", tmp_path / "new"
    _gzip(path, [1, 2, 3, 4])
    assert open_store(path).fetch(0, 4, "tokens").tolist() == [1, 2, 3, 4]
    _gzip(new, [7, 8, 9, 10, 11, 12])
    path.write_bytes(new.read_bytes())
    os.utime(path, ns=(1, 1))
    assert open_store(path).fetch(0, 6, "tokens").tolist() == [7, 8, 9, 10, 11, 12]
