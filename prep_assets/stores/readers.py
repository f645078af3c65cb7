"""Readers of formats: HDF5, AstrAI's layout, Megatron's, JSONL and Parquet."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.caches import CACHES, bounded_cache
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import map_file
from prep_assets.stores.guards import UNGUARDED, Guard, Guards, guarded, load_json
from prep_assets.stores.segments import Segmented, Shard, joined, renamed

# HDF5 datasets read straight from the mapped file, without HDF5: those that are uncompressed, in one piece or in chunks of whole rows.
#
# HDF5 says at which byte of the file a dataset, or each chunk of it, lies; elements there are as in memory. A read of a window then costs a
# slice, where HDF5 takes a hundred times as long, and nothing has to be opened again after a fork. The bytes of a dataset are checked block by block
# when they are read. That they are the right ones says a hash over names, types, shapes and places of all datasets, the `layout`, which a manifest has.

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


def map_dataset(memory: Bytes, dataset: Any, guard: Guard | None = None) -> Any:
    """A dataset of one or two dimensions as a flat array, rows end to end, under the guard of its file; `None` where only HDF5 can read it.

    Chunks that lie one after another in the file are one part of it.
    """
    if (places := _places(dataset)) is None:
        return None
    size = dataset.nbytes if dataset.chunks is None else int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    firsts = np.flatnonzero(np.append(True, np.diff(places) != size))
    sizes, parts = np.diff(firsts, append=len(places)) * size, []
    sizes[-1] -= len(places) * size - dataset.nbytes  # the last chunk is filled up
    for begin, length in zip(places[firsts].tolist(), sizes.tolist(), strict=True):
        parts.append(guarded(memory[begin : begin + length].view(dataset.dtype), guard, begin))
    return parts[0] if len(parts) == 1 else Segmented(parts)


def _places(dataset: Any) -> Int64s | None:
    """The byte at which a dataset lies, or each of its chunks in their order; `None` where only HDF5 can read it."""
    if not dataset.size or dataset.dtype.hasobject or dataset.file.userblock_size:
        return None
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return None if offset is None else np.array([offset])
    rows, *width = dataset.chunks
    count = -(-dataset.shape[0] // rows)
    if dataset.id.get_create_plist().get_nfilters() or tuple(width) != dataset.shape[1:] or dataset.id.get_num_chunks() != count:
        return None  # chunks that were never written hold the fill value and lie nowhere
    places = np.zeros(count, np.int64)

    def note(chunk: Any) -> None:
        places[chunk.chunk_offset[0] // rows] = chunk.byte_offset

    dataset.id.chunk_iter(note)
    return places if len(set((places % dataset.dtype.itemsize).tolist())) == 1 else None


def h5_layout(path: Path) -> dict[str, str]:
    """For a manifest: the hash of an HDF5 file; nothing of another file, or where only HDF5 can read a dataset."""
    if path.suffix not in (".h5", ".hdf5"):
        return {}
    import h5py

    with readable(path), h5py.File(path, "r") as file:
        found = _layout(file)
    return {} if found is None else {"layout": found}


def _layout(file: Any) -> str | None:
    """The hash of an open HDF5 file; `None` where only HDF5 can read a dataset."""
    import h5py

    described: list[Any] = []

    def describe(_: str, dataset: Any) -> None:
        if isinstance(dataset, h5py.Dataset):
            about, places = [dataset.name, dataset.dtype.str, list(dataset.shape)], _places(dataset)
            if places is not None:
                about.append(int(places[0]) if dataset.chunks is None else (places // dataset.dtype.itemsize).tolist())
            described.append(None if places is None and dataset.size else about)

    file.visititems(describe)
    return None if None in described else xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what HDF5 says of a file that it cannot read into a `StoreError`. It raises all kinds of errors, some of many lines."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, PrepAssetsError):
            raise
        message = str(error).partition("(file read failed")[0].strip() or type(error).__name__
        number = re.search(r"error message = '([^']*)'", str(error))
        why = f"{message}: {number[1]}" if number else message
        raise StoreError(f"{path} cannot be read as HDF5 ({why}); it was cut short, or the disk is faulty. Build it again") from error


# Reads AstrAI's memory-mapped layout: folders of ``meta.json`` and raw ``<key>.bin`` files, one folder a shard.
#
# ``meta.json`` says ``{key: {"shape": [n], "dtype": name, "offsets": [0, …, n], "element_offsets": [0, …, n]}}``. `offsets` bounds records and may be absent;
# `element_offsets` bounds the elements of lists inside them (the responses of a group), where a key has such. Rows of one length are read as one table.


def read_bin(meta: Path, guards: Guards = UNGUARDED) -> Shard:
    """The shard of a ``meta.json``.

    Raises:
        StoreError: it cannot be read, or a file is missing or of another size.
    """
    arrays: dict[str, Any] = {}
    rows: dict[str, Int64s] = {}
    try:
        entries: dict[str, dict[str, Any]] = load_json(meta, guards)
        for key, entry in entries.items():
            path, shape, dtype = meta.parent / f"{key}.bin", tuple(entry["shape"]), np.dtype(entry["dtype"])
            count = int(np.prod(shape, dtype=np.int64))
            if not path.is_file():
                raise StoreError(f"{path} is missing; meta.json lists it with {count:,} elements of {dtype.name}")
            if (size := path.stat().st_size) != count * dtype.itemsize:
                raise StoreError(f"{path}: {size:,} bytes, meta.json says {count * dtype.itemsize:,}: {count:,} of {dtype.name}")
            arrays[key] = map_array(path, dtype, guards)
            if len(shape) == 2:
                rows[key] = row_ends(shape)
        ends, elements = _borders(entries, str(meta))
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{meta} is not {{key: {{shape, dtype}}}}: {error!r}") from error
    return Shard(str(meta.parent), arrays, rows | ends, elements=elements)


def map_array(path: Path, dtype: npt.DTypeLike, guards: Guards) -> Any:
    """The elements that a file holds, mapped and under its guard."""
    memory = map_file(path)
    return guarded(memory.view(dtype), guards.guard(path, memory))


def _borders(entries: Mapping[str, Mapping[str, Any]], where: str) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
    """Where records end, and where the elements of nested ones do, by key: `offsets` and `element_offsets` without the 0 they begin with.

    Raises:
        StoreError: one of them is not a list of integers that begins with 0.
    """
    borders: dict[str, dict[str, Int64s]] = {"offsets": {}, "element_offsets": {}}
    for key, entry in entries.items():
        for name in borders.keys() & entry.keys():
            try:
                array = np.asarray(entry[name])
            except ValueError:  # lists of different length
                array = np.zeros(0)
            if array.ndim != 1 or array.dtype.kind != "i" or array[0] != 0:
                raise StoreError(f"{where}: {name} of {key!r} is {str(entry[name])[:60]}, must be whole numbers that begin with 0")
            borders[name][key] = array[1:].astype(np.int64)
    return borders["offsets"], borders["element_offsets"]


def row_ends(shape: tuple[int, ...]) -> Int64s:
    """Where the rows of a table end when they stand end to end: int64[shape[0]]."""
    return np.arange(1, shape[0] + 1, dtype=np.int64) * shape[1]


def read_ours(directory: Path, name: str, guards: Guards = UNGUARDED) -> Shard:
    """The stream or table `name` of a store of ours: ``<name>.h5``, or the shards ``<name>/shard_0000 …`` read as one. Its tokens are called ``tokens``.

    Raises:
        StoreError: neither is there, or one is damaged.
    """
    h5, folder = directory / f"{name}.h5", directory / name
    if h5.is_file():
        return read_h5(h5, guards)
    if not folder.is_dir():
        raise StoreError(f"{directory}: {name} has an index, but neither {name}.h5 nor a folder {name}")
    folders = sorted(folder.glob("shard_*"), key=lambda path: int(path.name.removeprefix("shard_")))
    shards = [read_bin(shard / "meta.json", guards) for shard in folders]
    return renamed(joined(shards), {"sequence": "tokens"}) if shards else Shard(str(folder), {})


# Reads HDF5: a group for each key with ``data_0``, ``data_1`` … (AstrAI), or a dataset for each key, flat or (rows, row length).
#
# An uncompressed dataset is memory-mapped without HDF5. Any other is read through a handle that belongs to the process
# that opened it: HDF5 handles do not survive a fork.
#
# In AstrAI's files each ``data_<i>`` is a record. Where a file ``<name>.offsets.json`` lies beside ``<name>.h5``, as ``prep-assets preprocess`` writes it,
# that one bounds records and the elements of lists inside them: ``{key: {"offsets": [0, …], "element_offsets": [0, …]}}``.

Identity = tuple[int, int, int, int]
"""Device, inode, time of change and size: which file a path led to."""
_HANDLES = "HDF5 handles"


def read_h5(path: Path, guards: Guards = UNGUARDED) -> Shard:
    """The shard of a file.

    Raises:
        StoreError: HDF5 cannot read it, or a dataset has three and more dimensions.
    """
    import h5py

    arrays: dict[str, Any] = {}
    ends: dict[str, Int64s] = {}
    row_len = 0
    _close_outdated(path)
    with readable(path), h5py.File(path, "r") as file:
        memory = map_file(path)
        guard = guards.guard(path, memory)
        if guard is not None and (guard.layout is None or _layout(file) != guard.layout):
            guard.check()  # only HDF5 can read it, or the data does not lie where the manifest says
            guard = None

        def flat(dataset: Any) -> Any:
            if dataset.ndim not in (1, 2):
                raise StoreError(
                    f"{path}: {dataset.name} has shape {dataset.shape}; a store has flat datasets or tables of (rows, row length)"
                )
            found = map_dataset(memory, dataset, guard)
            return H5Array(path, dataset.name, dataset.shape, dataset.dtype) if found is None else found

        for key, node in file.items():
            if isinstance(node, h5py.Group):
                parts = [flat(node[name]) for name in sorted(node, key=_number)]
                arrays[key] = Segmented(parts) if parts else np.zeros(0, np.int32)
                ends[key] = np.cumsum([len(part) for part in parts], dtype=np.int64)
            else:
                arrays[key] = flat(node)
                if node.ndim == 2:
                    ends[key] = row_ends(node.shape)
                    row_len = node.shape[1] if key == "tokens" else row_len
    borders, elements = _borders_beside(path, arrays, guards) if path.with_name(f"{path.stem}.offsets.json").is_file() else ({}, {})
    return Shard(str(path), arrays, ends | borders, elements=elements, row_len=row_len)


def _borders_beside(path: Path, arrays: Mapping[str, Any], guards: Guards) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
    offsets = path.with_name(f"{path.stem}.offsets.json")
    try:
        borders = _borders(load_json(offsets, guards), str(offsets))
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{offsets} is not {{key: {{offsets, element_offsets}}}}: {error!r}") from error
    if set(borders[0]) != set(arrays):
        raise StoreError(f"{offsets} has offsets of {sorted(borders[0])}, {path.name} has the keys {sorted(arrays)}")
    return borders


def _number(name: str) -> tuple[int, str]:
    """``data_10`` comes after ``data_2``; HDF5 lists names by their letters."""
    digits = name.rpartition("_")[2]
    return (int(digits), "") if digits.isdigit() else (-1, name)


class H5Array:
    """A dataset of one or two dimensions, read as a flat array through a handle of the calling process."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path, self._name, self._shape, self.dtype = path, name, shape, dtype
        self._identity = _identity(path)

    def __len__(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64))

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        begin, end, _ = part.indices(len(self))
        if end <= begin:
            return np.zeros(0, self.dtype)
        file = _handle(self._path, self._identity)  # held, so that it stays open
        dataset = file[self._name]
        if len(self._shape) == 1:
            return np.asarray(dataset[begin:end])
        width = self._shape[1]
        rows = np.asarray(dataset[begin // width : -(-end // width)]).reshape(-1)
        return rows[begin % width : begin % width + end - begin]


def _identity(path: Path) -> Identity:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


@bounded_cache(_HANDLES, 256, key=lambda path, identity: (os.getpid(), path, identity))
def _handle(path: Path, identity: Identity) -> Any:
    import h5py

    if not path.exists() or _identity(path) != identity:
        raise StoreError(f"{path} was replaced or changed since it was opened. Open the store again")
    return h5py.File(path, "r")


def _close_outdated(path: Path) -> None:
    """Close handles of the same inode with another content: HDF5 would answer for the new file from what it remembers of the old one.

    A file that another one replaced keeps its handle, so that a store that has it open can be read on.
    """
    handles, identity = CACHES[_HANDLES], _identity(path)
    for key in [key for key in handles if key[:2] == (os.getpid(), path) and key[2][:2] == identity[:2] and key[2] != identity]:
        handles.pop(key).close()


# Reads Megatron's indexed data sets: pairs ``<prefix>.bin`` and ``<prefix>.idx``, all numbers little-endian.
#
# The index is: ``MMIDIDX\\0\\0`` · uint64 version 1 · uint8 type · uint64 S · uint64 D · int32[S] lengths · int64[S] byte offsets · int64[D] document
# indices, first 0, last S. A record here is a document. ModelLink writes one pair a key, named ``<name>_packed_<key>_document``; every other pair holds the
# key ``sequence``.

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<QBQQ")
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


def read_megatron(indices: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each pair, or for each set of ModelLink's pairs.

    Raises:
        StoreError: a file that is not an index, or an index that does not fit its ``.bin``.
    """
    shards: dict[str, Shard] = {}
    for path in indices:
        found = re.fullmatch(r"(.*)_packed_(.+)_(?:document|sentence)", path.stem)
        name, key = (str(path.with_name(found[1])), found[2]) if found else (str(path.with_suffix("")), "sequence")
        array, ends = _pair(path, guards)
        known = shards.get(name, Shard(name, {}))
        shards[name] = Shard(name, {**known.arrays, key: array}, {**known.ends, key: ends})
    return list(shards.values())


def _pair(path: Path, guards: Guards) -> tuple[Any, Int64s]:
    raw = guards.whole(path).read_bytes()
    if raw[:9] != MAGIC or len(raw) < 9 + HEADER.size:
        raise StoreError(f"{path} is no Megatron index: it begins with {raw[:9]!r}, not {MAGIC!r}")
    version, code, sequences, documents = HEADER.unpack_from(raw, 9)
    expected = 9 + HEADER.size + 12 * sequences + 8 * documents
    if version != 1 or code not in DTYPES or len(raw) not in (expected, expected + sequences):
        raise StoreError(f"{path}: version {version}, type {code}, {len(raw):,} bytes where its counts say {expected:,}")
    at = 9 + HEADER.size
    lengths = np.frombuffer(raw, "<i4", sequences, at)
    borders = np.frombuffer(raw, "<i8", documents, at + 12 * sequences)
    data = path.with_suffix(".bin")
    dtype, total = np.dtype(DTYPES[code]), int(lengths.sum(dtype=np.int64))
    if not data.is_file() or data.stat().st_size != total * dtype.itemsize:
        found = f"{data.stat().st_size:,} bytes" if data.is_file() else "missing"
        raise StoreError(f"{data}: {found}; its index says {total:,} of {dtype.name}, {total * dtype.itemsize:,} bytes")
    flat = map_array(data, dtype, guards)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return flat, ends[borders[1:]]


# Reads JSONL and Parquet. Columns that are lists of numbers become flat arrays in memory; any other value is read with its record.


def read_jsonl(path: Path, guards: Guards = UNGUARDED) -> Shard:
    """The shard of a file. Every line is decoded once: memory holds the numbers, and for text the places of lines.

    Raises:
        StoreError: a line that is no JSON object, or that has other lists of numbers than the first. Any other key may be left out of a line, where
            its value is `None`.
    """
    places: list[int] = []
    lists: dict[str, list[npt.NDArray[Any]] | None] = {}
    at = 0
    with guards.open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                places.append(at)
                _gather(lists, _decoded(line, path, number), f"{path} line {number}")
            at += len(line)
    arrays, ends, objects = {}, {}, {}
    for key, parts in lists.items():
        if parts is None:
            objects[key] = partial(_line_value, path, places, key, guards)
        else:
            ends[key] = np.cumsum([len(part) for part in parts], dtype=np.int64)
            arrays[key] = np.concatenate(filled) if (filled := [part for part in parts if len(part)]) else np.zeros(0, np.int64)
    return Shard(str(path), arrays, ends, objects, len(places))


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} line {number}: no JSON ({error})") from error
    if not isinstance(row, dict):
        raise StoreError(f"{path} line {number}: {type(row).__name__}, a line must be an object")
    return row


def _gather(lists: dict[str, list[npt.NDArray[Any]] | None], row: dict[str, Any], where: str) -> None:
    """Add the lists of numbers of a row; `None` is a key of other values."""
    if not lists:
        lists.update({key: [] if _is_numbers(value) else None for key, value in row.items()})
    lists.update(dict.fromkeys(key for key in row.keys() - lists.keys() if not _is_numbers(row[key])))
    numeric = {key: parts for key, parts in lists.items() if parts is not None}
    if not row.keys() <= lists.keys() or not numeric.keys() <= row.keys():
        raise StoreError(f"{where} has the keys {sorted(row)}, the first line has {sorted(lists)}")
    for key, parts in numeric.items():
        if not _is_numbers(row[key]):
            raise StoreError(f"{where}: {key!r} is a list of numbers in the first line, here it is {str(row[key])[:40]!r}")
        parts.append(np.asarray(row[key]))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _line_value(path: Path, places: Sequence[int], key: str, guards: Guards, record: int) -> Any:
    with guards.open(path) as file:
        file.seek(places[record])
        return typed(_decoded(file.readline(), path, record + 1).get(key))


def read_parquet(path: Path, guards: Guards = UNGUARDED) -> Shard:
    """The shard of a file, decoded into memory.

    Raises:
        StoreError: a file that is no Parquet, or a list column with nulls, for lists or inside them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(guards.whole(path))
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} cannot be read as Parquet: {error}") from error
    arrays, ends, objects = {}, {}, {}
    for key in table.column_names:
        column = table[key].combine_chunks()
        if pa.types.is_list(column.type) and (pa.types.is_integer(column.type.value_type) or pa.types.is_floating(column.type.value_type)):
            if column.null_count:
                raise StoreError(f"{path}: {column.null_count:,} of {len(column):,} rows have no {key!r}")
            values = column.flatten()
            ends[key] = np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False), dtype=np.int64)
            if values.null_count:
                at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
                row = int(np.searchsorted(ends[key], at, "right"))
                raise StoreError(
                    f"{path}: {key!r} of row {row:,} has a null in its list, {values.null_count:,} in all; only numbers are read"
                )
            arrays[key] = values.to_numpy(zero_copy_only=False)
        else:
            objects[key] = lambda i, column=column: typed(column[i].as_py())
    return Shard(str(path), arrays, ends, objects, table.num_rows)


def typed(value: Any) -> Any:
    """A list of numbers as an array, a list of such lists as a list of arrays, anything else as it is."""
    if isinstance(value, list) and value:
        if _is_numbers(value):
            return np.asarray(value)
        if all(_is_numbers(each) for each in value):
            return [np.asarray(each) for each in value]
    return value
