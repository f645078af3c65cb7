"""Reads HDF5: a group for each key with ``data_0``, ``data_1`` … (AstrAI), or a dataset for each key, flat or (rows, row length).

An uncompressed dataset is memory-mapped without HDF5 (see `prep_assets.stores.mapped_h5`). Any other is read through a handle that belongs to
the process that opened it: HDF5 handles do not survive a fork.

In AstrAI's files each ``data_<i>`` is a record. Where a file ``<name>.offsets.json`` lies beside ``<name>.h5``, as ``prep-assets preprocess``
writes it, that one bounds records and the elements of lists inside them: ``{key: {"offsets": [0, …], "element_offsets": [0, …]}}``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.caches import CACHES, bounded_cache
from prep_assets.errors import StoreError
from prep_assets.stores.guards import UNGUARDED, Guard, Guards, load_json
from prep_assets.stores.mapped_h5 import Bytes, layout, map_dataset, map_file, readable
from prep_assets.stores.read_bin import borders, row_ends
from prep_assets.stores.segments import Int64s, Shard
from prep_assets.stores.shards import Segmented

Identity = tuple[int, int, int, int]
"""Device, inode, time of change and size: which file a path led to."""
_HANDLES = "HDF5 handles"


def read_h5(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file.

    Raises:
        StoreError: a file that HDF5 cannot read, or a dataset of three and more dimensions.
    """
    return [_shard(file, guards) for file in files]


def _shard(path: Path, guards: Guards) -> Shard:
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
