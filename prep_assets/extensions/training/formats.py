"""Files of trainers, read as shards: AstrAI's, Megatron's, HDF5, JSONL and Parquet."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.caches import CACHES, bounded_cache
from prep_assets.errors import StoreError
from prep_assets.extensions.training.shards import Shard
from prep_assets.stores.guards import Guards, Segmented, load_json
from prep_assets.stores.h5 import open_h5
from prep_assets.stores.shards import map_array, read_bin

# AstrAI's memory-mapped layout, see `prep_assets.stores.shards`. A two-dimensional shape is a table of rows.


def read_bin_shard(meta: Path, guards: Guards) -> Shard:
    """Read the shard of a ``meta.json``.

    Raises:
        StoreError: as `read_bin`; borders of records are no lists of integers.
    """
    entries, arrays = read_bin(meta, guards)
    rows = {key: row_ends(entry["shape"]) for key, entry in entries.items() if len(entry["shape"]) == 2}
    ends, elements = _borders(entries, str(meta))
    return Shard(str(meta.parent), arrays, rows | ends, elements=elements)


def _borders(entries: Mapping[str, Mapping[str, Any]], label: str) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return ends of records and ends of elements, by key: `offsets` and `element_offsets` without their leading 0.

    Raises:
        StoreError: one of them is not a list of integers that begins with 0.
    """
    borders: dict[str, dict[str, Ints]] = {"offsets": {}, "element_offsets": {}}
    for key, entry in entries.items():
        for name in borders.keys() & entry.keys():
            try:
                array = np.asarray(entry[name])
            except ValueError:  # lists of different length
                array = np.zeros(0)
            if array.ndim != 1 or array.dtype.kind != "i" or array[0] != 0:
                raise StoreError(f"{label}: {name} of {key!r} is {str(entry[name])[:60]}, must be whole numbers that begin with 0")
            borders[name][key] = array[1:].astype(np.int64)
    return borders["offsets"], borders["element_offsets"]


def row_ends(shape: tuple[int, ...]) -> Ints:
    """Return the ends of the rows of a flattened table: int64[shape[0]]."""
    return np.arange(1, shape[0] + 1, dtype=np.int64) * shape[1]


# Reads HDF5: a group per key with ``data_0``, ``data_1`` … (AstrAI), or a dataset per key, flat or (rows, row length).
#
# An uncompressed dataset is memory-mapped without HDF5. Any other is read through a handle per process, because HDF5 handles do not survive a fork.
#
# In AstrAI's files each ``data_<i>`` is a record, unless there is a ``<name>.offsets.json``, as ``prep-assets preprocess`` writes it, which bounds records
# and elements of nested keys: ``{key: {"offsets": [0, …], "element_offsets": [0, …]}}``.

Identity = tuple[int, int, int, int]
"""Device, inode, modification time and size of a file."""
_HANDLES = "HDF5 handles"


def read_h5_shard(path: Path, guards: Guards) -> Shard:
    """Read the shard of an HDF5 file.

    Raises:
        StoreError: HDF5 cannot read it, or a dataset has more than two dimensions.
    """
    import h5py

    arrays: dict[str, Any] = {}
    ends: dict[str, Ints] = {}
    row_len = 0
    _close_outdated(path)
    with open_h5(path, guards) as (file, mapped):

        def flat(dataset: Any) -> Any:
            if dataset.ndim not in (1, 2):
                raise StoreError(
                    f"{path}: {dataset.name} has shape {dataset.shape}; a store has flat datasets or tables of (rows, row length)"
                )
            array = mapped(dataset)
            return H5Array(path, dataset.name, dataset.shape, dataset.dtype) if array is None else array

        for key, node in file.items():
            if isinstance(node, h5py.Group):
                parts = [flat(node[name]) for name in sorted(node, key=_natural_key)]
                arrays[key] = Segmented(parts) if parts else np.zeros(0, np.int32)
                ends[key] = np.cumsum([len(part) for part in parts], dtype=np.int64)
            else:
                arrays[key] = flat(node)
                if node.ndim == 2:
                    ends[key] = row_ends(node.shape)
                    row_len = node.shape[1] if key == "tokens" else row_len
    borders, elements = _borders_beside(path, arrays, guards) if path.with_name(f"{path.stem}.offsets.json").is_file() else ({}, {})
    return Shard(str(path), arrays, ends | borders, elements=elements, row_len=row_len)


def _borders_beside(path: Path, arrays: Mapping[str, Any], guards: Guards) -> tuple[dict[str, Ints], dict[str, Ints]]:
    offsets = path.with_name(f"{path.stem}.offsets.json")
    try:
        borders = _borders(load_json(offsets, guards), str(offsets))
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{offsets} is not {{key: {{offsets, element_offsets}}}}: {error!r}") from error
    if set(borders[0]) != set(arrays):
        raise StoreError(f"{offsets} has offsets of {sorted(borders[0])}, {path.name} has the keys {sorted(arrays)}")
    return borders


def _natural_key(name: str) -> tuple[int, str]:
    """Return a sort key that puts ``data_10`` after ``data_2``; HDF5 lists names alphabetically."""
    digits = name.rpartition("_")[2]
    return (int(digits), "") if digits.isdigit() else (-1, name)


class H5Array:
    """A dataset of one or two dimensions, read as a flat array through a handle of the calling process."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path, self._name, self._table, self.dtype = path, name, shape, dtype
        self._identity = _identity(path)

    def __len__(self) -> int:
        return int(np.prod(self._table, dtype=np.int64))

    @property
    def shape(self) -> tuple[int]:
        """As of a flat array."""
        return (len(self),)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        begin, end, _ = part.indices(len(self))
        if end <= begin:
            return np.zeros(0, self.dtype)
        file = _handle(self._path, self._identity)  # a reference, so that it stays open
        dataset = file[self._name]
        if len(self._table) == 1:
            return np.asarray(dataset[begin:end])
        width = self._table[1]
        rows = np.asarray(dataset[begin // width : -(-end // width)]).reshape(-1)
        return rows[begin % width : begin % width + end - begin]


def _identity(path: Path) -> Identity:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@bounded_cache(_HANDLES, 256, key=lambda path, identity: (os.getpid(), path, identity))
def _handle(path: Path, identity: Identity) -> Any:
    import h5py

    if not path.exists() or _identity(path) != identity:
        raise StoreError(f"{path} was replaced or changed since it was opened. Open the store again")
    return h5py.File(path, "r")


def _close_outdated(path: Path) -> None:
    """Close handles of the same inode with other content, because HDF5 would serve the new file from its cache of the old one.

    The handle of a file that was replaced by another inode stays open, for stores that are still reading it.
    """
    handles, identity = CACHES[_HANDLES], _identity(path)
    for key in [key for key in handles if key[:2] == (os.getpid(), path) and key[2][:2] == identity[:2] and key[2] != identity]:
        handles.pop(key).close()


# Reads Megatron's indexed data sets: pairs ``<prefix>.bin`` and ``<prefix>.idx``, all numbers little-endian.
#
# The index is: ``MMIDIDX\\0\\0`` · uint64 version 1 · uint8 type · uint64 S · uint64 D · int32[S] lengths · int64[S] byte offsets · int64[D] document
# indices, first 0, last S. A document becomes a record. ModelLink writes a pair per key, named ``<name>_packed_<key>_document``; any other pair holds the
# key ``sequence``.

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<QBQQ")
DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}


def read_megatron(indices: Sequence[Path], guards: Guards) -> list[Shard]:
    """Read one shard per pair, or per set of ModelLink's pairs.

    Raises:
        StoreError: a file is not an index, an index does not fit its ``.bin``, or sequences do not lie end to end.
    """
    shards: dict[str, Shard] = {}
    for path in indices:
        match = re.fullmatch(r"(.*)_packed_(.+)_(?:document|sentence)", path.stem)
        name, key = (str(path.with_name(match[1])), match[2]) if match else (str(path.with_suffix("")), "sequence")
        array, ends = _read_pair(path, guards)
        shard = shards.get(name, Shard(name, {}))
        shards[name] = Shard(name, {**shard.arrays, key: array}, {**shard.ends, key: ends})
    return list(shards.values())


def _read_pair(path: Path, guards: Guards) -> tuple[Any, Ints]:
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
        size_on_disk = f"{data.stat().st_size:,} bytes" if data.is_file() else "missing"
        raise StoreError(f"{data}: {size_on_disk}; its index says {total:,} of {dtype.name}, {total * dtype.itemsize:,} bytes")
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if not np.array_equal(np.frombuffer(raw, "<i8", sequences, at + 4 * sequences), ends[:-1] * dtype.itemsize):
        raise StoreError(
            f"{path}: its sequences do not lie end to end in {data.name}, where Megatron would read other tokens. Write it again"
        )
    return map_array(data, dtype, guards), ends[borders[1:]]


# Reads JSONL and Parquet. Columns of lists of numbers become flat arrays in memory; other values are read record by record.


def read_jsonl(path: Path, guards: Guards) -> Shard:
    """Read the shard of a JSONL file. Every line is decoded once: memory holds the numbers, and the offsets of lines for other values.

    Raises:
        StoreError: a line is not a JSON object, or has other keys with lists of numbers than the first. Any other key may be missing in a line; its
            value is then `None`.
    """
    places: list[int] = []
    lists: dict[str, list[npt.NDArray[Any]] | None] = {}
    at = 0
    with guards.open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                places.append(at)
                _add_row(lists, _decoded(line, path, number), f"{path} line {number}")
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


def _add_row(lists: dict[str, list[npt.NDArray[Any]] | None], row: dict[str, Any], label: str) -> None:
    """Append the lists of numbers of a row to `lists`, which maps keys with other values to `None`."""
    if not lists:
        lists.update({key: [] if _is_numbers(field_value) else None for key, field_value in row.items()})
    lists.update(dict.fromkeys(key for key in row.keys() - lists.keys() if not _is_numbers(row[key])))
    numeric = {key: parts for key, parts in lists.items() if parts is not None}
    if not row.keys() <= lists.keys() or not numeric.keys() <= row.keys():
        raise StoreError(f"{label} has the keys {sorted(row)}, the first line has {sorted(lists)}")
    for key, parts in numeric.items():
        if not _is_numbers(row[key]):
            raise StoreError(f"{label}: {key!r} is a list of numbers in the first line, here it is {str(row[key])[:40]!r}")
        parts.append(np.asarray(row[key]))


def _is_numbers(field_value: Any) -> bool:
    return isinstance(field_value, list) and all(isinstance(number, int | float) for number in field_value)


def _line_value(path: Path, places: Sequence[int], key: str, guards: Guards, record: int) -> Any:
    with guards.open(path) as file:
        file.seek(places[record])
        return typed(_decoded(file.readline(), path, record + 1).get(key))


def read_parquet(path: Path, guards: Guards) -> Shard:
    """Read the shard of a Parquet file, decoded into memory.

    Raises:
        StoreError: the file is not Parquet, or a list column has null lists or null elements.
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


def typed(field_value: Any) -> Any:
    """Return a list of numbers as an array, a list of such lists as a list of arrays, anything else as it is."""
    if isinstance(field_value, list) and field_value:
        if _is_numbers(field_value):
            return np.asarray(field_value)
        if all(_is_numbers(nested) for nested in field_value):
            return [np.asarray(nested) for nested in field_value]
    return field_value


READERS = {"h5": read_h5_shard, "bin": read_bin_shard, "jsonl": read_jsonl, "parquet": read_parquet}
"""What reads a file of a format; `read_megatron` reads files that belong together."""
