"""`load` against files that are written here by hand, in each format."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import struct
import tempfile
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, product
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets import load
from prep_assets.caches import CACHES
from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.training.opening import OpenStore, format_of, payload_folders
from prep_assets.stores.files import map_file
from prep_assets.stores.guards import Segmented
from prep_assets.stores.h5 import map_dataset
from prep_assets.stores.published import Draft, Place, open_published
from prep_assets.stores.table import TOKENS
from prep_assets.stores.version_folders import Published
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.effort import SOAK, examples
from prep_assets_tests.stores.payload import write_table


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


Records = list[list[int]]
H5_LAYOUTS: list[dict[str, Any]] = [{}, {"chunks": True}, {"chunks": True, "compression": "gzip"}]


def columns(records: Records) -> dict[str, np.ndarray]:
    """Tokens one after another, and beside each the mask of an odd one."""
    tokens = ints(*(token for record in records for token in record))
    return {"sequence": tokens, "loss_mask": (tokens % 2).astype("uint8")}


def as_bin(folder: Path, name: str, records: Records, layout: Any) -> Records:
    ends = [0, *accumulate(map(len, records))]
    bin_shard(folder / name, columns(records), dict.fromkeys(("sequence", "loss_mask"), ends))
    return records


def as_groups(folder: Path, name: str, records: Records, layout: Any) -> Records:
    with h5py.File(folder / f"{name}.h5", "w") as file:
        for number, record in enumerate(records):
            for key, array in columns([record]).items():
                file.create_dataset(f"{key}/data_{number}", data=array, **(layout if len(array) else {}))
    return records


def as_table(folder: Path, name: str, records: Records, layout: Any) -> Records:
    rows = [(record * 3 or [0, 0, 0])[:3] for record in records]
    with h5py.File(folder / f"{name}.h5", "w") as file:
        for key, array in columns(rows).items():
            chunks = {"chunks": (1, 3)} if "chunks" in layout else {}
            file.create_dataset({"sequence": "tokens"}.get(key, key), data=array.reshape(-1, 3), **layout | chunks)
    return rows


def as_lines(folder: Path, name: str, records: Records, layout: Any) -> Records:
    rows = (
        {"sequence": record, "loss_mask": [token % 2 for token in record], "said": str(record), "nested": [record, [1]]}
        for record in records
    )
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n", "utf-8")
    return records


def as_parquet(folder: Path, name: str, records: Records, layout: Any) -> Records:
    masks = [[token % 2 for token in record] for record in records]
    lists = {"sequence": pa.array(records, pa.list_(pa.int32())), "loss_mask": pa.array(masks, pa.list_(pa.uint8()))}
    pq.write_table(pa.table({**lists, "said": list(map(str, records))}), folder / f"{name}.parquet")
    return records


def as_megatron(folder: Path, name: str, records: Records, layout: Any) -> Records:
    """Pairs of files as ModelLink names them, each record a document of one sequence."""
    lengths, borders = ints(*map(len, records)), np.arange(len(records) + 1)
    for (key, array), code in zip(columns(records).items(), (4, 1), strict=True):
        starts = (np.cumsum(lengths) - lengths) * array.itemsize
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(borders)) + lengths.tobytes() + starts.tobytes()
        (folder / f"{name}_packed_{key}_document.idx").write_bytes(index + borders.tobytes())
        (folder / f"{name}_packed_{key}_document.bin").write_bytes(array.tobytes())
    return records


def ends_of(begin: int, length: int, borders: list[int]) -> set[int]:
    """Ends of the ranges that begin here: in a soak run every fourth token, else around the next two ends of records and half way; always both extremes."""
    near = (border + by for border in borders[bisect_left(borders, begin) :][:2] for by in (-1, 0, 1))
    ends = range(begin, length + 1, 4) if SOAK else (*near, (begin + length) // 2)
    return {begin, length, *(end for end in ends if begin <= end <= length)}


DOCUMENT = st.lists(st.integers(0, 60_000), max_size=5)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.sampled_from([as_bin, as_groups, as_table, as_lines, as_parquet, as_megatron]),
    st.lists(st.lists(DOCUMENT, min_size=1, max_size=4), min_size=1, max_size=12),
    st.sampled_from(H5_LAYOUTS),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_shards_of_records_are_read_as_one_store(writer: Any, shards: list[Records], layout: Any, window: int, stride: int) -> None:
    """In natural order: `part_2` before `part_10`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [record for number, each in enumerate(shards) for record in writer(folder, f"part_{number}", each, layout)]
        tokens = [token for record in records for token in record]
        store, borders = load(folder), sorted(set(accumulate(map(len, records))))
        sent = pickle.dumps(store)
        assert len(sent) < 500
        for opened in (store, pickle.loads(sent)):
            assert (len(opened), opened.num_records) == (len(tokens), len(records))
            for begin in range(len(tokens) + 1):
                for end in ends_of(begin, len(tokens), borders):
                    found = opened.fetch(begin, end, ["tokens", "loss_mask"])
                    assert found["tokens"].tolist() == tokens[begin:end]
                    assert found["loss_mask"].tolist() == [token % 2 for token in tokens[begin:end]]
            for number, record in enumerate(records):
                found = opened.fetch_record(number, ["sequence", "loss_mask"])
                assert found["sequence"].tolist() == opened.fetch_record(number - len(records), "sequence").tolist() == record
                assert found["loss_mask"].tolist() == [token % 2 for token in record]
                assert "said" not in opened.keys or opened.fetch_record(number, "said") == str(record)
                assert "nested" not in opened.keys or [
                    part.tolist() for part in map(np.asarray, opened.fetch_record(number, "nested"))
                ] == [record, [1]]
        windows, begins = store.windows(window, stride), [at for at in range(0, len(tokens), stride) if at + window < len(tokens)]
        assert [windows[number] for number in range(len(windows))] == [(begin, begin + window) for begin in begins]
        assert [store.fetch(*windows[number], "sequence").tolist() for number in range(len(windows))] == [
            tokens[begin : begin + window] for begin in begins
        ]
        with pytest.raises(IndexError, match=f"record {len(records)} of {len(records)}"):
            store.fetch_record(len(records), "sequence")
        with pytest.raises(IndexError):
            windows[len(begins)]


def test_keys_of_several_lengths_have_records_and_no_length(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"chosen": ints(1, 2), "rejected": ints(3)}, {"chosen": [0, 1, 2], "rejected": [0, 1, 1]})
    with pytest.raises(StoreError, match="is a store of 2 records, with keys of different length"):
        len(load(tmp_path))


def test_what_is_no_number_is_read_by_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "é?", "ids": [1]}\n', "utf-8")
    with pytest.raises(StoreError, match="'prompt' is not a list of numbers"):
        load(tmp_path).fetch(0, 1, "prompt")


def test_an_index_of_megatron_that_does_not_fit(tmp_path: Path) -> None:
    as_megatron(tmp_path, "x", [[1, 2], [3]], {})
    (tmp_path / "x_packed_sequence_document.bin").write_bytes(b"")
    with pytest.raises(StoreError, match="0 bytes; its index says 3 of int32, 12 bytes"):
        load(tmp_path)


def test_sequences_of_megatron_that_do_not_lie_end_to_end(tmp_path: Path) -> None:
    as_megatron(tmp_path, "x", [[1, 2], [3]], {})
    index = tmp_path / "x_packed_sequence_document.idx"
    raw = index.read_bytes()
    assert raw.count((8).to_bytes(8, "little")) == 1  # where the second sequence begins
    index.write_bytes(raw.replace((8).to_bytes(8, "little"), (4).to_bytes(8, "little")))
    with pytest.raises(StoreError, match="do not lie end to end"):
        load(tmp_path)


@pytest.fixture
def three(tmp_path: Path) -> OpenStore:
    """Segments of 3, 4 and 2 tokens."""
    for number, part in enumerate((range(3), range(3, 7), range(7, 9))):
        bin_shard(tmp_path / f"shard_{number:04d}", {"sequence": np.array(part, "int32")})
    return load(tmp_path)


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (0, 10), (10, 10), (5, 2), (2, 1)])
def test_fetch_out_of_bounds(three: OpenStore, begin: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"Index out of bounds: begin={begin}, end={end}, length=9") as caught:
        three.fetch(begin, end, "sequence")
    assert isinstance(caught.value, StoreError)


def test_missing_key_lists_what_there_is(three: OpenStore) -> None:
    with pytest.raises(KeyError) as caught:
        three.require(["sequence", "loss_mask"])
    assert "no key 'loss_mask'" in str(caught.value)
    assert "Required: sequence, loss_mask. Available: sequence" in str(caught.value)


def test_three_dimensions_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["data"] = np.zeros((2, 3, 4), "int32")
    with pytest.raises(StoreError, match=r"/data has shape \(2, 3, 4\)"):
        load(tmp_path)


def test_a_key_missing_from_one_shard_is_no_silent_shift(tmp_path: Path) -> None:
    bin_shard(tmp_path / "shard_0000", {"sequence": ints(1, 2)})
    bin_shard(tmp_path / "shard_0001", {"sequence": ints(3, 4), "loss_mask": ints(0, 1)})
    with pytest.raises(StoreError, match="shard_0001 has the keys"):
        load(tmp_path)
    assert load(tmp_path, keys=["sequence"]).fetch(0, 4, "sequence").tolist() == [1, 2, 3, 4]


def test_a_key_of_other_length_is_no_silent_cut(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"sequence": ints(1, 2, 3), "loss_mask": ints(0, 1)})
    with pytest.raises(StoreError, match="keys of different length"):
        load(tmp_path)


@pytest.mark.parametrize("size", [7, 9])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    (bin_shard(tmp_path / "a", {"sequence": ints(1, 2)}) / "sequence.bin").write_bytes(bytes(size))
    with pytest.raises(StoreError, match=f"{size} bytes, meta.json says 8"):
        load(tmp_path)


def test_different_numbers_of_records_are_refused(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a", {"chosen": ints(1, 2), "rejected": ints(3)}, {"chosen": [0, 1, 2], "rejected": [0, 1]})
    with pytest.raises(StoreError, match="different numbers of records"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("{", "line 2: no JSON"), ("[1]", "must be an object"), ('{"b": 1}', "has the keys"), ('{"a": "x"}', "list of numbers")],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1]}\n' + line + "\n")
    with pytest.raises(StoreError, match=complaint):
        load(tmp_path)


def test_windows_of_nothing_are_refused(three: OpenStore) -> None:
    with pytest.raises(ConfigError):
        three.windows(0)
    with pytest.raises(ConfigError):
        three.windows(3, 0)


def detect_format(path: Path) -> str:
    return format_of(path, payload_folders(path))


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
    assert load(tmp_path, "bin").format == "bin"
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        load(tmp_path, "parqet")  # type: ignore[arg-type]


def test_names_with_brackets_are_no_patterns(tmp_path: Path) -> None:
    bin_shard(tmp_path / "a[1]*" / "shard_0000", {"sequence": ints(1, 2)})
    assert len(load(tmp_path / "a[1]*")) == 2


def _child_reads(store: OpenStore, parent: int, queue: Any) -> None:
    tokens, windows = store.fetch(2, 6, "sequence").tolist(), len(store.windows(3))
    inherited = {pid for pid, *_ in CACHES["HDF5 handles"]} - {parent, os.getpid()}
    own = [path for pid, path, _ in CACHES["HDF5 handles"] if pid == os.getpid()]
    queue.put((os.getpid() != parent and not inherited, tokens, windows, len(own)))


@pytest.mark.parametrize(
    ("method", "layout"),
    [
        *(("fork", layout) for layout in ({}, {"chunks": (4,)})),
        *((method, {"chunks": (4,), "compression": "gzip"}) for method in ("fork", "spawn")),
        *(pytest.param("spawn", layout, marks=pytest.mark.soak) for layout in ({}, {"chunks": (4,)})),
    ],
)
def test_reads_in_a_child_process(tmp_path: Path, method: str, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), **layout)
    store = load(tmp_path)
    assert store.fetch(0, 1, "sequence").tolist() == [0]
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_child_reads, args=(store, os.getpid(), queue))
    child.start()
    assert queue.get(timeout=60) == (True, [2, 3, 4, 5], 3, 1 if "compression" in layout else 0)
    child.join()


@pytest.mark.parametrize(("kind", "bad"), [(pa.int32(), [[1, 2], [], [3, None, None]]), (pa.float32(), [[0.5], [1.0], [None]])])
def test_a_null_inside_a_list_of_parquet_is_no_token(tmp_path: Path, kind: pa.DataType, bad: list[Any]) -> None:
    pq.write_table(pa.table({"tokens": pa.array(bad, pa.list_(kind))}), tmp_path / "a.parquet", row_group_size=1)
    with pytest.raises(StoreError, match=r"a\.parquet: 'tokens' of row 2 has a null"):
        load(tmp_path)


def _gzip(path: Path, values: list[int]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", data=ints(*values), chunks=(2,), compression="gzip")


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """An open store goes on with the file that it opened; one that has read nothing yet says so."""
    path = tmp_path / "a.h5"
    _gzip(path, [1, 2, 3, 4])
    reading, idle = load(path), load(path, keys=["tokens"])
    assert reading.fetch(0, 2, "tokens").tolist() == [1, 2]
    _gzip(tmp_path / "new", [7, 8, 9, 10])
    (tmp_path / "new").replace(path)
    assert load(path).fetch(0, 4, "tokens").tolist() == [7, 8, 9, 10]
    assert reading.fetch(0, 4, "tokens").tolist() == idle.fetch(0, 4, "tokens").tolist() == [1, 2, 3, 4]


def test_a_file_that_was_replaced_before_it_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    _gzip(path, [1, 2, 3, 4])
    store = load(path)
    _gzip(tmp_path / "new", [7, 8, 9, 10])
    (tmp_path / "new").replace(path)
    with pytest.raises(StoreError, match=r"a\.h5 was replaced or changed since it was opened"):
        store.fetch(0, 4, "tokens")


def test_a_file_that_was_overwritten_in_place_is_read_anew(tmp_path: Path) -> None:
    path, new = tmp_path / "a.h5", tmp_path / "new"
    _gzip(path, [1, 2, 3, 4])
    assert load(path).fetch(0, 4, "tokens").tolist() == [1, 2, 3, 4]
    _gzip(new, [7, 8, 9, 10, 11, 12])
    path.write_bytes(new.read_bytes())
    os.utime(path, ns=(1, 1))
    assert load(path).fetch(0, 6, "tokens").tolist() == [7, 8, 9, 10, 11, 12]


# -- `load` on stores as the pipelines write and publish them -----------------------------------------------------------------------

Storage = Literal["bin", "h5"]
DOCUMENTS = [[11, 12, 13], [21], [31, 32, 33, 34]]


def write_stream(folder: Path, storage: Storage, name: str, documents: list[list[int]], shard: int = 4) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TableWriter(
        folder, name, TOKENS, {"tokens": "int32", "loss_mask": "uint8"}, storage=storage, max_tokens_per_shard=shard
    ) as writer:
        for number, document in enumerate(documents):
            tokens = np.array(document, "int32")
            writer.append({"tokens": tokens, "loss_mask": tokens % 2}, np.array([len(document)]), [0], [number])


def publish(root: Path, asset: str, partition: str, key: str, storage: Storage, documents: list[list[int]]) -> None:
    def write(payload: Path, quarantine: Path) -> Draft:
        write_stream(payload, storage, "train", documents)
        quarantine.write_text("{}\n")
        return Draft({}, {}, ())

    place = Place(root, asset, partition)
    place.accept(place.propose(key * 20, write, config_key=key * 20, recipe={}), {})


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_stream(tmp_path: Path, storage: Storage) -> None:
    write_stream(tmp_path, storage, "train", DOCUMENTS)
    named = tmp_path / ("train.h5" if storage == "h5" else "train")
    for path in (tmp_path, named):
        store = load(path)
        assert store.keys == ("loss_mask", "position_ids", "sequence")
        assert [store.fetch_record(i, "sequence").tolist() for i in range(store.num_records)] == DOCUMENTS
        assert store.fetch(2, 6, "position_ids").tolist() == [2, 0, 0, 1]
        assert store.fetch(0, 8, "loss_mask").tolist() == [token % 2 for document in DOCUMENTS for token in document]


def test_two_streams_are_not_mixed(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        write_stream(tmp_path, "h5", name, DOCUMENTS)
    with pytest.raises(StoreError, match="several streams: dev, train"):
        load(tmp_path)
    assert load(tmp_path / "dev.h5").num_records == 3


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_published_domains_current_versions_only(tmp_path: Path, storage: Storage) -> None:
    publish(tmp_path, "sft_tokens", "b", "old", storage, [[9, 9, 9]])
    publish(tmp_path, "sft_tokens", "b", "new", storage, DOCUMENTS[1:])
    publish(tmp_path, "sft_tokens", "a", "new", storage, DOCUMENTS[:1])
    store = load(tmp_path / "sft_tokens")
    assert [store.fetch_record(i, "sequence").tolist() for i in range(store.num_records)] == DOCUMENTS
    assert store.fetch(0, 8, "position_ids").tolist() == [0, 1, 2, 0, 0, 1, 2, 3]


def test_pairs(tmp_path: Path) -> None:
    write_stream(tmp_path, "h5", "chosen", DOCUMENTS)
    write_stream(tmp_path, "h5", "rejected", DOCUMENTS[::-1])
    store = load(tmp_path)
    assert store.keys == ("chosen", "chosen_mask", "rejected", "rejected_mask")
    assert store.fetch_record(0, "chosen").tolist() == DOCUMENTS[0]
    assert store.fetch_record(0, "rejected_mask").tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("storage", ["bin", "h5"])
def test_packed_table(tmp_path: Path, storage: Storage) -> None:
    write_table(tmp_path, storage, [[([1, 2, 3], [1, 0, 1]), ([4], [0])], [([5, 6], [1, 0]), ([7, 8, 9], [1, 0, 1])]], 5)
    store = load(tmp_path)
    assert (len(store), store.num_records) == (10, 2)
    assert store.fetch(0, 10, "position_ids").tolist() == [0, 1, 2, 0, 0, 0, 1, 0, 1, 2]
    assert store.fetch_record(1, "sequence").tolist() == [5, 6, 7, 8, 9]


def test_positions_of_a_packed_table_are_read_where_they_are_stored(tmp_path: Path) -> None:
    write_table(tmp_path, "bin", [[([1, 2, 3], [1, 0, 1]), ([4, 5], [0, 1])]], 5)
    ints(7, 1, 2, 0, 9).tofile(tmp_path / "sft_packed" / "shard_0000" / "position_ids.bin")
    assert load(tmp_path).fetch(0, 5, "position_ids").tolist() == [7, 1, 2, 0, 9]


# -- Which version of a published store is read, and that no other ever is ----------------------------------------------------------------


def propose(root: Path, partition: str, key: str, tokens: list[int]) -> Published:
    def write(payload: Path, quarantine: Path) -> Draft:
        with TableWriter(payload, "train", TOKENS, {"tokens": "int32"}, max_tokens_per_shard=100) as writer:
            writer.append({"tokens": np.array(tokens, "int32")}, np.array([len(tokens)]), [0], [0])
        return Draft({}, {}, ())

    return Place(root, "t", partition).propose(key * 20, write, config_key=key, recipe={})


def version_publish(root: Path, partition: str, key: str, tokens: list[int]) -> Published:
    proposed = propose(root, partition, key, tokens)
    Place(root, "t", partition).accept(proposed, {})
    return proposed


def tokens(store: OpenStore) -> list[int]:
    return store.fetch(0, len(store), "sequence").tolist()


def pointer_file(store: Path) -> None:
    version = next(path for path in (store / "versions").iterdir() if path.is_dir())
    (store / "candidate").unlink()
    (store / "candidate").write_text(f"versions/{version.name}\n")


@pytest.mark.parametrize("change", [lambda store: None, lambda store: (store / "candidate").unlink(), pointer_file])
def test_a_store_that_was_never_accepted_is_not_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    rejected = propose(tmp_path, "", "a", [1, 2, 3])
    change(tmp_path / "t")
    for path in (tmp_path / "t", tmp_path):
        with pytest.raises(StoreError, match=r"no published store in .*t: it has no `current`"):
            load(path)
    assert tokens(load(rejected.directory)) == [1, 2, 3]


@pytest.mark.parametrize("as_file", [False, True])
def test_a_current_that_leads_nowhere(tmp_path: Path, as_file: bool) -> None:
    gone = version_publish(tmp_path, "", "a", [1])
    propose(tmp_path, "", "b", [2])
    if as_file:
        (tmp_path / "t" / "current").unlink()
        (tmp_path / "t" / "current").write_text(f"versions/{gone.directory.name}\n")
    shutil.rmtree(gone.directory)
    with pytest.raises(StoreError, match=r"no published store in .*points to .*a-\w+, which is not there"):
        load(tmp_path / "t")


@pytest.mark.parametrize("pointer", [lambda path: path.symlink_to("current"), lambda path: path.write_bytes(b"\xff\xfe")])
def test_a_pointer_that_cannot_be_followed(tmp_path: Path, pointer: Callable[[Path], None]) -> None:
    version_publish(tmp_path, "", "a", [1])
    (tmp_path / "t" / "current").unlink()
    pointer(tmp_path / "t" / "current")
    with pytest.raises(StoreError, match=r"no published store in .*`current` (leads nowhere|points to)"):
        load(tmp_path / "t")
    with pytest.raises(StoreError, match=r"holds no path|no store in"):
        open_published(tmp_path, "t")


def test_a_partition_that_is_not_published_is_named(tmp_path: Path) -> None:
    version_publish(tmp_path, "good", "a", [1])
    propose(tmp_path, "rejected", "b", [2])
    with pytest.raises(StoreError, match=r"no published store in .*t/rejected: "):
        load(tmp_path / "t")


def test_all_versions_together_are_no_store(tmp_path: Path) -> None:
    version_publish(tmp_path, "", "a", [1])
    propose(tmp_path, "", "b", [2])
    with pytest.raises(StoreError, match="holds every version"):
        load(tmp_path / "t" / "versions")
    assert tokens(load(tmp_path / "t")) == [1]


def test_plain_folders_are_read_as_ever(tmp_path: Path) -> None:
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "a.jsonl").write_text('{"sequence": [1, 2]}\n')
    assert tokens(load(tmp_path)) == [1, 2]


@pytest.mark.parametrize("opened", ["t", "t/one", "t/one/current", "t/one/current/train", "link"])
def test_what_was_opened_is_what_is_opened_again(tmp_path: Path, opened: str) -> None:
    version_publish(tmp_path, "one", "a", [1, 2])
    version_publish(tmp_path, "two", "a", [3])
    (tmp_path / "link").symlink_to("t/one/current")
    store = load(tmp_path / opened)
    expected = [1, 2, 3] if opened == "t" else [1, 2]
    sent = pickle.dumps(store)
    version_publish(tmp_path, "one", "b", [9, 9, 9])
    version_publish(tmp_path, "three", "a", [7])
    assert tokens(store) == tokens(pickle.loads(sent)) == tokens(pickle.loads(pickle.dumps(pickle.loads(sent)))) == expected
    assert tokens(load(tmp_path / "t")) == [9, 9, 9, 7, 3]


def edited(manifest: Path) -> None:
    manifest.write_text(manifest.read_text().replace('"partition": ""', '"partition": "x"'))


@pytest.mark.parametrize("damage", [edited, lambda manifest: manifest.write_text(""), lambda manifest: manifest.unlink()])
@pytest.mark.parametrize("opened", ["t", "."])
def test_nothing_is_read_under_a_manifest_that_cannot_be_read(tmp_path: Path, damage: Callable[[Path], None], opened: str) -> None:
    published = version_publish(tmp_path, "", "a", [1])
    load(tmp_path / opened)
    damage(published.directory / "manifest.json")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        load(tmp_path / opened)


def test_a_link_keeps_the_name_that_says_its_format(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text('{"sequence": [4, 5]}\n')
    (tmp_path / "a.jsonl").symlink_to("blob")
    assert tokens(pickle.loads(pickle.dumps(load(tmp_path / "a.jsonl")))) == [4, 5]


# -- HDF5 read through the mapped file, against h5py --------------------------------------------------------------------------------------


def mapped(path: Path, name: str = "tokens") -> Any:
    with h5py.File(path) as file:
        return map_dataset(map_file(path), file[name])


@pytest.mark.parametrize("dtype", ["int32", "uint16", "bool", "float32", ">i4", "int64"])
@pytest.mark.parametrize("chunk", [None, 1, 4, 7, 23])
def test_every_slice_of_a_flat_dataset(tmp_path: Path, dtype: str, chunk: int | None) -> None:
    values = (np.arange(23) * 300 % 701).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["first"] = np.arange(5, dtype="int8")
        file.create_dataset("tokens", data=values, chunks=chunk and (chunk,))
        file["last"] = np.arange(5, dtype="int8")
    found = mapped(tmp_path / "a.h5")
    assert (len(found), found.dtype) == (23, np.dtype(dtype))
    for begin, end in product(range(25), range(25)):
        assert found[begin:end].tolist() == values[begin:end].tolist()


def test_a_dataset_that_grew_beside_another(tmp_path: Path) -> None:
    """Chunks of both lie between each other in the file."""
    rng = np.random.default_rng(0)
    blocks = [rng.integers(0, 1000, size).astype("int32") for size in (3, 100, 7, 64, 1)]
    with h5py.File(tmp_path / "a.h5", "w", libver="v108") as file:
        for key in ("tokens", "loss_mask"):
            file.create_dataset(key, (0,), "int32", maxshape=(None,), chunks=(8,))
        for block in blocks:
            for sign, key in ((1, "tokens"), (-1, "loss_mask")):
                file[key].resize(len(file[key]) + len(block), axis=0)
                file[key][-len(block) :] = sign * block
    expected = np.concatenate(blocks)
    assert isinstance(mapped(tmp_path / "a.h5"), Segmented)
    assert mapped(tmp_path / "a.h5")[:].tolist() == expected.tolist()
    assert mapped(tmp_path / "a.h5", "loss_mask")[5:90].tolist() == (-expected[5:90]).tolist()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_table_in_chunks_of_whole_rows(tmp_path: Path, rows: int) -> None:
    table = np.arange(35, dtype="int32").reshape(7, 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=table, chunks=(rows, 5))
    assert [mapped(tmp_path / "a.h5")[b:e].tolist() for b, e in ((0, 35), (4, 16), (34, 35))] == [list(range(35)), list(range(4, 16)), [34]]


@pytest.mark.parametrize(
    "layout",
    [{"chunks": (4,), "compression": "gzip"}, {"chunks": (4,), "shuffle": True}, {"chunks": (4,), "fletcher32": True}],
    ids=lambda layout: next(reversed(layout)),
)
def test_filters_are_left_to_hdf5(tmp_path: Path, layout: dict[str, Any]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), **layout)
    assert mapped(tmp_path / "a.h5") is None
    assert load(tmp_path).fetch(2, 9, "sequence").tolist() == list(range(2, 9))


def test_what_lies_nowhere_in_the_file_is_left_to_hdf5(tmp_path: Path) -> None:
    """Chunks that were never written, chunks of part of a row, a user block, an empty dataset."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", (10,), "int32", chunks=(4,), fillvalue=7)[:2] = 1
    assert mapped(tmp_path / "a.h5") is None
    assert load(tmp_path / "a.h5").fetch(0, 10, "sequence").tolist() == [1, 1, 7, 7, 7, 7, 7, 7, 7, 7]
    with h5py.File(tmp_path / "b.h5", "w", userblock_size=512) as file:
        file["tokens"] = np.arange(4, dtype="int32")
        file.create_dataset("wide", data=np.arange(6).reshape(2, 3), chunks=(1, 2))
        file["empty"] = np.zeros(0, "int32")
    assert [mapped(tmp_path / "b.h5", name) for name in ("tokens", "wide", "empty")] == [None] * 3
    assert load(tmp_path / "b.h5", keys=["tokens"]).fetch(0, 4, "sequence").tolist() == [0, 1, 2, 3]
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(6, dtype="int32").reshape(2, 3), chunks=(1, 2))
    assert mapped(tmp_path / "c.h5") is None
    assert load(tmp_path / "c.h5").fetch(1, 5, "sequence").tolist() == [1, 2, 3, 4]


def test_what_is_read_cannot_be_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=np.arange(10, dtype="int32"), chunks=(4,))
    with pytest.raises(ValueError, match="read-only"):
        mapped(tmp_path / "a.h5")[0:2][0] = 5
