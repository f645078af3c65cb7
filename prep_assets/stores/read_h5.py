"""Reads HDF5: a group for each key with ``data_0``, ``data_1`` … (AstrAI), or a dataset for each key, flat or (rows, row length).

A dataset that lies in one piece in the file, uncompressed, is memory-mapped without HDF5. Any other is read through a handle that belongs
to the process that opened it: HDF5 handles do not survive a fork.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.read_bin import row_ends
from prep_assets.stores.segments import Int64s, Shard
from prep_assets.stores.tokens import Segmented

_HANDLES: dict[tuple[int, Path], Any] = {}


def read_h5(files: Sequence[Path]) -> list[Shard]:
    """One shard for each file.

    Raises:
        StoreError: a file that HDF5 cannot read, or a dataset of three and more dimensions.
    """
    return [_shard(file) for file in files]


def _shard(path: Path) -> Shard:
    import h5py

    arrays: dict[str, Any] = {}
    ends: dict[str, Int64s] = {}
    try:
        with h5py.File(path, "r") as file:
            for key, node in file.items():
                if isinstance(node, h5py.Group):
                    parts = [_flat(path, node[name]) for name in sorted(node, key=_number)]
                    arrays[key] = Segmented(parts) if parts else np.zeros(0, np.int32)
                    ends[key] = np.cumsum([len(part) for part in parts], dtype=np.int64)
                else:
                    arrays[key] = _flat(path, node)
                    if node.ndim == 2:
                        ends[key] = row_ends(node.shape)
    except OSError as error:
        raise StoreError(f"{path} cannot be read as HDF5 ({error}); it was cut short or is still being written") from error
    return Shard(str(path), arrays, ends)


def _number(name: str) -> tuple[int, str]:
    """``data_10`` comes after ``data_2``; HDF5 lists names by their letters."""
    digits = name.rpartition("_")[2]
    return (int(digits), "") if digits.isdigit() else (-1, name)


def _flat(path: Path, dataset: Any) -> Any:
    if dataset.ndim not in (1, 2):
        raise StoreError(f"{path}: {dataset.name} has shape {dataset.shape}; a store has flat datasets or tables of (rows, row length)")
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is not None and dataset.size and dataset.file.userblock_size == 0:
        return np.asarray(np.memmap(path, dataset.dtype, "r", offset=offset, shape=(dataset.size,)))
    return H5Array(path, dataset.name, dataset.shape, dataset.dtype)


class H5Array:
    """A dataset of one or two dimensions, read as a flat array through a handle of the calling process."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._path, self._name, self._shape, self.dtype = path, name, shape, dtype

    def __len__(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64))

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        begin, end, _ = part.indices(len(self))
        if end <= begin:
            return np.zeros(0, self.dtype)
        dataset = _handle(self._path)[self._name]
        if len(self._shape) == 1:
            return np.asarray(dataset[begin:end])
        width = self._shape[1]
        rows = np.asarray(dataset[begin // width : -(-end // width)]).reshape(-1)
        return rows[begin % width : begin % width + end - begin]


def _handle(path: Path) -> Any:
    import h5py

    key = (os.getpid(), path)
    if key not in _HANDLES:
        _HANDLES[key] = h5py.File(path, "r")
    return _HANDLES[key]
