"""Where the data of an HDF5 file lies, as one hash.

The bytes of a dataset are checked block by block when they are read. That they are the right ones says this hash, over names, types, shapes and
places of all datasets, which a manifest has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.mapped_h5 import Bytes, ChunkedArray, map_dataset, map_file


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
    about = [dataset.name, dataset.dtype.str, list(dataset.shape)]
    if not dataset.size:
        return about
    mapped = map_dataset(memory, dataset)
    if mapped is None:
        return None
    return [*about, mapped.firsts if isinstance(mapped, ChunkedArray) else dataset.id.get_offset()]
