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

from prep_assets.errors import StoreError
from prep_assets.stores.guards import UNGUARDED, Guards, load_json, map_array
from prep_assets.stores.segments import Int64s, Shard
from prep_assets.stores.shards import Segmented


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
