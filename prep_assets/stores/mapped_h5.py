"""HDF5 datasets read straight from the mapped file, without HDF5: those that are uncompressed, in one piece or in chunks of whole rows.

HDF5 says at which byte of the file a dataset, or each chunk of it, lies; elements there are as in memory. A read of a window then costs a
slice, where HDF5 takes a hundred times as long, and nothing has to be opened again after a fork. The bytes of a dataset are checked block by block
when they are read. That they are the right ones says a hash over names, types, shapes and places of all datasets, the `layout`, which a manifest has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.disk.pages import mapped
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.guards import Guard, GuardedArray, bare, guarded

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
