"""Reads AstrAI's memory-mapped layout: folders of ``meta.json`` and raw ``<key>.bin`` files, one folder a shard.

``meta.json`` says ``{key: {"shape": [n], "dtype": name, "offsets": [0, …, n], "element_offsets": [0, …, n]}}``. `offsets` bounds records
and may be absent; `element_offsets` bounds the elements of lists inside them (the responses of a group), where a key has such. Rows of one length
are read as one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.guards import UNGUARDED, Guards, load_json, map_array
from prep_assets.stores.segments import Int64s, Shard


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


class RowShards:
    """Tables (N, row_len) of several shards, one below the other. Read by row number, or by slices in steps of 1."""

    def __init__(self, tables: Sequence[Any]) -> None:
        self._tables = list(tables)
        self._bounds = np.cumsum([0, *(len(table) for table in tables)])
        self.shape = (int(self._bounds[-1]), tables[0].shape[1])
        self.dtype = tables[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> npt.NDArray[Any]:
        if not isinstance(rows, slice):
            at = range(len(self))[rows]
            shard = int(np.searchsorted(self._bounds, at, "right")) - 1
            found: npt.NDArray[Any] = self._tables[shard][at - self._bounds[shard]]
            return found
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("the rows of several shards are read in steps of 1")
        parts = [table[max(0, start - low) : max(0, stop - low)] for table, low in zip(self._tables, self._bounds[:-1], strict=True)]
        return np.concatenate([part for part in parts if len(part)] or parts[:1])


def bin_rows(folder: Path, key: str, row_len: int, guards: Guards | None = None) -> Any:
    """The rows of ``<folder>/shard_*/<key>.bin``, (N, row_len), memory-mapped.

    Raises:
        StoreError: a file is not of the size that its ``meta.json`` says, or holds no whole rows.
        FileNotFoundError: there is no shard, or one without ``meta.json``.
    """
    shards = sorted(folder.glob("shard_*"), key=lambda path: int(path.name.removeprefix("shard_")))
    if not shards:
        raise FileNotFoundError(f"{folder} has no shard")
    guards = guards or Guards()
    tables = [_rows_of(shard, key, row_len, guards) for shard in shards]
    return tables[0] if len(tables) == 1 else RowShards(tables)


def _rows_of(shard: Path, key: str, row_len: int, guards: Guards) -> Any:
    entry = load_json(shard / "meta.json", guards)[key]
    path, dtype, total = shard / f"{key}.bin", np.dtype(entry["dtype"]), int(entry["shape"][0])
    if path.stat().st_size != total * dtype.itemsize or total % row_len:
        raise StoreError(f"{path}: {path.stat().st_size:,} bytes, meta.json says {total:,} {dtype.name}, rows of {row_len:,}")
    if not total:
        return np.zeros((0, row_len), dtype)
    return map_array(path, dtype, guards).reshape(-1, row_len)
