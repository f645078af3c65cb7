"""Readers of formats: HDF5, AstrAI's layout, Megatron's, JSONL and Parquet."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.caches import CACHES, bounded_cache
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import mapped
from prep_assets.stores.guards import UNGUARDED, Guard, GuardedArray, Guards, bare, guarded, load_json, map_array
from prep_assets.stores.segments import Segmented, Shard

# HDF5 datasets read straight from the mapped file, without HDF5: those that are uncompressed, in one piece or in chunks of whole rows.
#
# HDF5 says at which byte of the file a dataset, or each chunk of it, lies; elements there are as in memory. A read of a window then costs a
# slice, where HDF5 takes a hundred times as long, and nothing has to be opened again after a fork. The bytes of a dataset are checked block by block
# when they are read. That they are the right ones says a hash over names, types, shapes and places of all datasets, the `layout`, which a manifest has.

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


def map_file(path: Path) -> Bytes:
    """A file's bytes, read-only. All its datasets share this one mapping: a process may have about 65,000 of them."""
    return mapped(np.memmap(path, np.uint8, "r"))


def map_dataset(memory: Bytes, dataset: Any, guard: Guard | None = None) -> npt.NDArray[Any] | GuardedArray | ChunkedArray | None:
    """A dataset of one or two dimensions as a flat array, rows end to end, under the guard of its file; `None` where only HDF5 can read it."""
    if not dataset.size or dataset.dtype.hasobject or dataset.file.userblock_size:
        return None
    if dataset.chunks is not None:
        return _chunked(memory, dataset, guard)
    offset = dataset.id.get_offset()
    if offset is None:
        return None
    found: npt.NDArray[Any] | GuardedArray = guarded(memory[offset : offset + dataset.nbytes].view(dataset.dtype), guard, offset)
    return found


def _chunked(memory: Bytes, dataset: Any, guard: Guard | None) -> ChunkedArray | None:
    plain = dataset.id.get_create_plist().get_nfilters() == 0
    rows, *width = dataset.chunks
    count = -(-dataset.shape[0] // rows)
    if not plain or tuple(width) != dataset.shape[1:] or dataset.id.get_num_chunks() != count:
        return None  # chunks that were never written hold the fill value and lie nowhere
    offsets = np.zeros(count, np.int64)

    def note(chunk: Any) -> None:
        offsets[chunk.chunk_offset[0] // rows] = chunk.byte_offset

    dataset.id.chunk_iter(note)
    first, remainder = divmod(offsets, dataset.dtype.itemsize)
    if len(set(remainder.tolist())) > 1:
        return None
    elements = memory[int(remainder[0]) :]
    elements = elements[: len(elements) // dataset.dtype.itemsize * dataset.dtype.itemsize].view(dataset.dtype)
    whole = elements if guard is None else GuardedArray(elements, guard, int(remainder[0]))
    return ChunkedArray(whole, first, int(np.prod(dataset.chunks)), dataset.size)


class ChunkedArray:
    """A flat array whose chunks lie at places of a mapped file. Slices inside a chunk are read-only views of it, others are copies.

    Args:
        elements: the file as elements of the array's type.
        firsts: int64[n], where each chunk begins in it.
        chunk: elements in a chunk; the last one is filled up.
        size: elements in the array.
    """

    def __init__(self, elements: npt.NDArray[Any] | GuardedArray, firsts: Int64s, chunk: int, size: int) -> None:
        self._elements, self._chunk, self._size = elements, chunk, size
        self._firsts: list[int] = firsts.tolist()

    def bare(self) -> ChunkedArray:
        """The same without its guard."""
        return ChunkedArray(bare(self._elements), np.array(self._firsts), self._chunk, self._size)

    @property
    def firsts(self) -> list[int]:
        """Where each chunk begins, in elements of the file."""
        return self._firsts

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return self._elements.dtype

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        begin, end, step = part.indices(self._size)
        if step != 1:
            raise IndexError("a chunked array is read in steps of 1")
        chunk, at = divmod(begin, self._chunk)
        if at + end - begin <= self._chunk and begin < end:
            first = self._firsts[chunk] + at
            return self._elements[first : first + end - begin]
        pieces = []
        while begin < end:
            chunk, at = divmod(begin, self._chunk)
            first, count = self._firsts[chunk] + at, min(end - begin, self._chunk - at)
            pieces.append(self._elements[first : first + count])
            begin += count
        return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)


def h5_layout(path: Path) -> dict[str, str]:
    """For a manifest: the hash of an HDF5 file; nothing of another file, or where only HDF5 can read a dataset."""
    if path.suffix not in (".h5", ".hdf5"):
        return {}
    import h5py

    with readable(path), h5py.File(path, "r") as file:
        found = layout(file, map_file(path))
    return {} if found is None else {"layout": found}


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


def layout(file: Any, memory: Bytes) -> str | None:
    """The hash of an open HDF5 file; `None` where only HDF5 can read a dataset."""
    import h5py

    datasets: list[Any] = []
    file.visititems(lambda _, node: datasets.append(node) if isinstance(node, h5py.Dataset) else None)
    places = [_place(memory, dataset) for dataset in datasets]
    return None if None in places else xxhash.xxh3_128_hexdigest(json.dumps(places).encode())


def _place(memory: Bytes, dataset: Any) -> list[Any] | None:
    place = [dataset.name, dataset.dtype.str, list(dataset.shape)]
    if not dataset.size:
        return place
    mapped = map_dataset(memory, dataset)
    if mapped is None:
        return None
    return [*place, mapped.firsts if isinstance(mapped, ChunkedArray) else dataset.id.get_offset()]


# Reads AstrAI's memory-mapped layout: folders of ``meta.json`` and raw ``<key>.bin`` files, one folder a shard.
#
# ``meta.json`` says ``{key: {"shape": [n], "dtype": name, "offsets": [0, …, n], "element_offsets": [0, …, n]}}``. `offsets` bounds records and may be absent;
# `element_offsets` bounds the elements of lists inside them (the responses of a group), where a key has such. Rows of one length are read as one table.


def read_bin(metas: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each ``meta.json``.

    Raises:
        StoreError: a meta.json that cannot be read, or a file that is missing or of another size.
    """
    return [_shard(meta, guards) for meta in metas]


def _shard(meta: Path, guards: Guards) -> Shard:
    try:
        entries: dict[str, dict[str, Any]] = load_json(meta, guards)
        arrays = {
            key: _mapped(meta.parent / f"{key}.bin", tuple(entry["shape"]), np.dtype(entry["dtype"]), guards)
            for key, entry in entries.items()
        }
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{meta} is not {{key: {{shape, dtype}}}}: {error!r}") from error
    ends, elements = borders(entries, str(meta))
    rows = {key: row_ends(tuple(entry["shape"])) for key, entry in entries.items() if len(entry["shape"]) == 2}
    return Shard(str(meta.parent), arrays, rows | ends, elements=elements)


def borders(entries: Mapping[str, Mapping[str, Any]], where: str) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
    """Where records end, and where the elements of nested ones do, by key: `offsets` and `element_offsets` without the 0 they begin with.

    Raises:
        StoreError: one of them is not a list of integers that begins with 0.
    """
    found: dict[str, dict[str, Int64s]] = {"offsets": {}, "element_offsets": {}}
    for key, entry in entries.items():
        for name in found.keys() & entry.keys():
            found[name][key] = _whole(entry[name], f"{where}: {name} of {key!r}")
    return found["offsets"], found["element_offsets"]


def _whole(values: Any, what: str) -> Int64s:
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different length
        array = np.zeros(0)
    if array.ndim != 1 or array.dtype.kind != "i" or array[0] != 0:
        raise StoreError(f"{what} is {str(values)[:60]}, must be whole numbers that begin with 0")
    return array[1:].astype(np.int64)


def _mapped(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], guards: Guards) -> Any:
    count = int(np.prod(shape, dtype=np.int64))
    if not path.is_file():
        raise StoreError(f"{path} is missing; meta.json lists it with {count:,} elements of {dtype.name}")
    if path.stat().st_size != count * dtype.itemsize:
        raise StoreError(f"{path}: {path.stat().st_size:,} bytes, meta.json says {count * dtype.itemsize:,}: {count:,} of {dtype.name}")
    return map_array(path, dtype, guards)


def row_ends(shape: tuple[int, ...]) -> Int64s:
    """Where the rows of a table end when they stand end to end: int64[shape[0]]."""
    return np.arange(1, shape[0] + 1, dtype=np.int64) * shape[1]


def shard_metas(folder: Path) -> list[Path]:
    """The ``meta.json`` of each of our shards in a folder, in their order."""
    return [shard / "meta.json" for shard in sorted(folder.glob("shard_*"), key=lambda path: int(path.name.removeprefix("shard_")))]


def bin_rows(shards: Sequence[Shard], key: str, row_len: int) -> Any:
    """The rows of a key of shards that `read_bin` opened, (N, row_len), one shard below the other.

    Raises:
        StoreError: a shard holds no whole rows.
        KeyError: a shard has no such key.
    """
    tables = []
    for shard in shards:
        array = shard.arrays[key]
        if len(array) % row_len:
            raise StoreError(f"{shard.label}/{key}.bin: {len(array):,} elements, which are no rows of {row_len:,}")
        tables.append(array.reshape(-1, row_len) if len(array) else np.zeros((0, row_len), array.dtype))
    return tables[0] if len(tables) == 1 else Segmented(tables)


# Reads HDF5: a group for each key with ``data_0``, ``data_1`` … (AstrAI), or a dataset for each key, flat or (rows, row length).
#
# An uncompressed dataset is memory-mapped without HDF5 (see `prep_assets.stores.readers`). Any other is read through a handle that belongs to the process
# that opened it: HDF5 handles do not survive a fork.
#
# In AstrAI's files each ``data_<i>`` is a record. Where a file ``<name>.offsets.json`` lies beside ``<name>.h5``, as ``prep-assets preprocess`` writes it,
# that one bounds records and the elements of lists inside them: ``{key: {"offsets": [0, …], "element_offsets": [0, …]}}``.

Identity = tuple[int, int, int, int]
"""Device, inode, time of change and size: which file a path led to."""
_HANDLES = "HDF5 handles"


def read_h5(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file.

    Raises:
        StoreError: a file that HDF5 cannot read, or a dataset of three and more dimensions.
    """
    return [_h5_shard(file, guards) for file in files]


def _h5_shard(path: Path, guards: Guards) -> Shard:
    import h5py

    arrays: dict[str, Any] = {}
    ends: dict[str, Int64s] = {}
    row_len = 0
    _close_outdated(path, _identity(path))
    with readable(path), h5py.File(path, "r") as file:
        memory = map_file(path)
        guard = _guard(path, file, memory, guards)
        for key, node in file.items():
            if isinstance(node, h5py.Group):
                parts = [_flat(path, memory, node[name], guard) for name in sorted(node, key=_number)]
                arrays[key] = Segmented(parts) if parts else np.zeros(0, np.int32)
                ends[key] = np.cumsum([len(part) for part in parts], dtype=np.int64)
            else:
                arrays[key] = _flat(path, memory, node, guard)
                if node.ndim == 2:
                    ends[key] = row_ends(node.shape)
                    row_len = node.shape[1] if key == "tokens" else row_len
    beside = _beside(path, arrays, guards)
    return Shard(str(path), arrays, ends | beside[0], elements=beside[1], row_len=row_len)


def _beside(path: Path, arrays: Mapping[str, Any], guards: Guards) -> tuple[dict[str, Int64s], dict[str, Int64s]]:
    offsets = path.with_name(f"{path.stem}.offsets.json")
    if not offsets.is_file():
        return {}, {}
    try:
        entries = load_json(offsets, guards)
        found = borders(entries, str(offsets))
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{offsets} is not {{key: {{offsets, element_offsets}}}}: {error!r}") from error
    if set(found[0]) != set(arrays):
        raise StoreError(f"{offsets} has offsets of {sorted(found[0])}, {path.name} has the keys {sorted(arrays)}")
    return found


def _number(name: str) -> tuple[int, str]:
    """``data_10`` comes after ``data_2``; HDF5 lists names by their letters."""
    digits = name.rpartition("_")[2]
    return (int(digits), "") if digits.isdigit() else (-1, name)


def _guard(path: Path, file: Any, memory: Bytes, guards: Guards) -> Guard | None:
    """The guard of a file whose data lies where the manifest says; a file that only HDF5 can read is compared as a whole."""
    guard = guards.guard(path)
    if guard is None:
        return None
    if guard.layout is None or layout(file, memory) != guard.layout:
        guard.over(memory).check_all()
        return None
    return guard.over(memory)


def _flat(path: Path, memory: Bytes, dataset: Any, guard: Guard | None) -> Any:
    if dataset.ndim not in (1, 2):
        raise StoreError(f"{path}: {dataset.name} has shape {dataset.shape}; a store has flat datasets or tables of (rows, row length)")
    mapped = map_dataset(memory, dataset, guard)
    return H5Array(path, dataset.name, dataset.shape, dataset.dtype) if mapped is None else mapped


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


def _close_outdated(path: Path, identity: Identity) -> None:
    """Close handles of the same inode with another content: HDF5 would answer for the new file from what it remembers of the old one.

    A file that another one replaced keeps its handle, so that a store that has it open can be read on.
    """
    handles = CACHES[_HANDLES]
    outdated = [key for key in handles if key[:2] == (os.getpid(), path) and key[2][:2] == identity[:2] and key[2] != identity]
    for key in outdated:
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
    shards: dict[str, dict[str, tuple[Any, Int64s]]] = {}
    for path in indices:
        name, key = _parts(path)
        shards.setdefault(name, {})[key] = _pair(path, guards)
    return [
        Shard(name, {key: data for key, (data, _) in pairs.items()}, {key: ends for key, (_, ends) in pairs.items()})
        for name, pairs in shards.items()
    ]


def _parts(path: Path) -> tuple[str, str]:
    found = re.fullmatch(r"(.*)_packed_(.+)_(?:document|sentence)", path.stem)
    return (str(path.with_name(found[1])), found[2]) if found else (str(path.with_suffix("")), "sequence")


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


def read_jsonl(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file. Every line is decoded once: memory holds the numbers, and for text the places of lines.

    Raises:
        StoreError: a line that is no JSON object, or that has other lists of numbers than the first. Any other key may be left out of a line, where
            its value is `None`.
    """
    return [_jsonl(file, guards) for file in files]


def _jsonl(path: Path, guards: Guards) -> Shard:
    places: list[int] = []
    lists: dict[str, list[npt.NDArray[Any]] | None] = {}
    at = 0
    with guards.open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                places.append(at)
                _gather(lists, _decoded(line, path, number), path, number)
            at += len(line)
    flat = {key: parts for key, parts in lists.items() if parts is not None}
    ends = {key: np.cumsum([len(part) for part in parts], dtype=np.int64) for key, parts in flat.items()}
    arrays = {key: _concatenated(parts) for key, parts in flat.items()}
    objects = {key: _line_value(path, places, key, guards) for key in lists if key not in flat}
    return Shard(str(path), arrays, ends, objects, len(places))


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} line {number}: no JSON ({error})") from error
    if not isinstance(row, dict):
        raise StoreError(f"{path} line {number}: {type(row).__name__}, a line must be an object")
    return row


def _gather(lists: dict[str, list[npt.NDArray[Any]] | None], row: dict[str, Any], path: Path, number: int) -> None:
    if not lists:
        lists.update({key: [] if _is_numbers(value) else None for key, value in row.items()})
    for key in row.keys() - lists.keys():
        if not _is_numbers(row[key]):
            lists[key] = None
    if any(key not in lists for key in row) or any(key not in row for key, parts in lists.items() if parts is not None):
        raise StoreError(f"{path} line {number} has the keys {sorted(row)}, the first line has {sorted(lists)}")
    for key, parts in lists.items():
        if parts is not None:
            if not _is_numbers(row[key]):
                raise StoreError(f"{path} line {number}: {key!r} is a list of numbers in the first line, here it is {str(row[key])[:40]!r}")
            parts.append(np.asarray(row[key]))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _concatenated(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled) if filled else np.zeros(0, np.int64)


def _line_value(path: Path, places: Sequence[int], key: str, guards: Guards) -> Callable[[int], Any]:
    def value(i: int) -> Any:
        with guards.open(path) as file:
            file.seek(places[i])
            return typed(_decoded(file.readline(), path, i + 1).get(key))

    return value


def read_parquet(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file, decoded into memory.

    Raises:
        StoreError: a file that is no Parquet, or a list column with nulls, for lists or inside them.
    """
    return [_parquet(guards.whole(file)) for file in files]


def _parquet(path: Path) -> Shard:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
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
