"""Rows of one length that lie end to end in raw files, one folder a shard, read as one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.guards import Guards, load_json, map_array


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
