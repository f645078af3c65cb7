"""HDF5 files, written through `WrittenFile` and read from mapped memory.

HDF5 loses the errors of chunks that it writes late, and crashes the process if it cannot finish a file. So it never sees an error: the file object
stores it, and it is raised when HDF5 has returned.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.array_types import Bytes, Ints
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.arrays import Spool
from prep_assets.stores.files import map_file
from prep_assets.stores.guards import Guard, Guards, Segmented, guarded
from prep_assets.stores.verification import BLOCK, WrittenFile

_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory, where a sparse file takes only the room of what is written to it, and no disk can be full."""

H5_CHUNK = 1 << 16
"""Elements in a chunk of a flat dataset that grows."""
H5_PIECE = 4_000_000
"""Elements by which the datasets of a file grow."""
Shapes = Mapping[str, tuple[Sequence[int], npt.DTypeLike]]


class _DeferringFile(WrittenFile):
    """A file that stores its first error and goes on; what could not be written is kept in memory for later reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._fault: BaseException | None = None
        self._unwritten: dict[int, bytearray] = {}

    def check(self) -> None:
        """Raise the first error since the file was opened."""
        if self._fault is not None:
            raise self._fault

    def _store(self, number: int, block: bytearray | memoryview) -> None:
        if self._fault is None:
            try:
                super()._store(number, block)
            except BaseException as error:  # also Ctrl-C: it would end inside HDF5
                self._fault = error
        if self._fault is not None:
            self._unwritten[number] = bytearray(block)

    def _load(self, number: int) -> bytearray:
        if number in self._unwritten:
            return self._unwritten.pop(number)
        try:
            return super()._load(number)
        except BaseException as error:  # includes a block that is not what was written
            self._fault = self._fault or error
            return bytearray(min(BLOCK, self._size - number * BLOCK))

    def _resize(self, size: int) -> None:
        if self._fault is None:
            try:
                super()._resize(size)
            except BaseException as error:
                self._fault = error


@contextmanager
def new_h5(path: Path) -> Iterator[Any]:
    """Yield a new HDF5 file (`h5py.File`) of version ``v108``."""
    import h5py

    written = _DeferringFile(path)
    try:
        with h5py.File(written, "w", libver="v108") as file:
            yield file
    finally:
        _close(written)


class GrowingH5:
    """An HDF5 file with a flat, growing dataset per key: ``v108``, without timestamps, and uncompressed, because trainers read random windows.

    HDF5 lays data out in the order of the calls. So all keys grow by pieces of a fixed size, whatever the size of the blocks, and equal arrays give
    equal files. An incomplete piece is spooled to disk.
    """

    def __init__(self, path: Path, dtypes: Mapping[str, str]) -> None:
        import h5py

        self._dtypes = dict(dtypes)
        self._written_file = _DeferringFile(path)
        # without a cache, which would hold a MiB of each dataset
        self._file = h5py.File(self._written_file, "w", libver="v108", rdcc_nbytes=0)
        for key, dtype in dtypes.items():
            self._file.create_dataset(key, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(H5_CHUNK,), track_times=False)
        self._written_file.check()
        self._pieces, self._piece_length = {key: Spool(dtype) for key, dtype in dtypes.items()}, 0

    def append(self, block: Mapping[str, npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Append records: equally long 1-D arrays, one per key, and the length of each record."""
        start, count = 0, check_block(block, self._dtypes, lengths)
        while start < count:
            step = min(H5_PIECE - self._piece_length, count - start)
            for key, piece in self._pieces.items():
                piece.append(block[key][start : start + step])
            start, self._piece_length = start + step, self._piece_length + step
            if self._piece_length == H5_PIECE:
                self._write_pieces()

    def _write_pieces(self) -> None:
        for key, piece in self._pieces.items():
            dataset = self._file[key]
            start = dataset.shape[0]
            dataset.resize(start + self._piece_length, axis=0)
            dataset[start:] = piece.array()
            self._written_file.check()
        self._pieces, self._piece_length = {key: Spool(dtype) for key, dtype in self._dtypes.items()}, 0

    def close(self) -> None:
        """Finish the file."""
        try:
            if self._piece_length:
                self._write_pieces()
        finally:
            self._file.close()
            _close(self._written_file)


def check_block(block: Mapping[str, npt.NDArray[Any]], keys: Iterable[str], lengths: npt.NDArray[np.int64]) -> int:
    """Return the number of tokens of a block.

    Raises:
        StoreError: an array has another length than its records.
    """
    count, lengths_by_key = int(lengths.sum()), {key: len(block[key]) for key in keys}
    if set(lengths_by_key.values()) != {count}:
        raise StoreError(f"per-token arrays do not fit their records: lengths {lengths_by_key}, records add up to {count:,}")
    return count


def _close(written: _DeferringFile) -> None:
    try:
        written.flush()
        written.check()
    except BaseException:
        os.close(written._handle)
        written.closed = True
        raise
    written.close()


class FixedH5(AbstractContextManager["FixedH5"]):
    """An HDF5 file with contiguous datasets of known shape. HDF5 lays it out in memory; the data is written without HDF5.

    Args:
        shapes: shape and dtype of each dataset, by name, which may be a path through groups.
        in_turn: allocate each dataset before the next one is created; otherwise create all of them first.
    """

    def __init__(self, path: Path, shapes: Shapes, *, in_turn: bool = False, **options: Any) -> None:
        self._dtypes, self._appended = {name: np.dtype(dtype) for name, (_, dtype) in shapes.items()}, 0
        handle, name = tempfile.mkstemp(dir=_MEMORY)
        with os.fdopen(handle, "rb") as layout:
            self._places = _lay_out(name, shapes, in_turn, options)
            self._written = WrittenFile(path)
            position, size = 0, layout.seek(0, os.SEEK_END)
            for begin, end in [*sorted(self._places.values()), (size, size)]:  # the bytes between the datasets
                layout.seek(position)
                self._written.seek(position)
                self._written.write(layout.read(begin - position))
                position = end
            self._written.truncate(size)

    def write(self, name: str, first: int, values: npt.NDArray[Any]) -> None:
        """Write elements of a dataset from flat index `first` on."""
        if not len(values):
            return
        dtype = self._dtypes[name]
        self._written.seek(self._places[name][0] + first * dtype.itemsize)
        self._written.write_array(np.asarray(values, dtype))

    def append(self, block: Mapping[str, npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Write records after those appended before: equally long 1-D arrays, one per dataset, and the length of each record."""
        count = check_block(block, self._dtypes, lengths)
        for name in self._dtypes:
            self.write(name, self._appended, block[name])
        self._appended += count

    def close(self) -> None:
        """Finish the file."""
        self._written.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _lay_out(plan: str, shapes: Shapes, in_turn: bool, options: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the byte offsets at which each dataset begins and ends. Writing one element of each makes HDF5 allocate it."""
    import h5py

    with h5py.File(plan, "w", **options) as file:
        Path(plan).unlink()  # a build that is killed from now on leaves nothing behind
        datasets = {}
        for name, (shape, dtype) in shapes.items():
            dataset = file.create_dataset(name, tuple(shape), dtype, track_times=False)
            if dataset.size:
                datasets[name] = dataset
                if in_turn:
                    dataset[(0,) * dataset.ndim] = 0
        for dataset in datasets.values():
            dataset[(0,) * dataset.ndim] = 0
        return {name: ((at := allocated.id.get_offset()), at + allocated.nbytes) for name, allocated in datasets.items()}


# HDF5 datasets read from the mapped file, without HDF5, if they are uncompressed, contiguous or in chunks of whole rows.
#
# HDF5 gives the byte offset of a dataset, or of each of its chunks; elements are stored as in memory. Reading a window then costs a slice, where HDF5
# takes a hundred times as long, and nothing has to be reopened after a fork. The bytes of a dataset are verified block by block when they are read. The
# `layout` in the manifest, a hash over names, dtypes, shapes and offsets of all datasets, shows that they are the right bytes.


def map_dataset(memory: Bytes, dataset: Any, guard: Guard | None = None) -> Any:
    """Map a dataset of one or two dimensions as a flat array, under the guard of its file; return `None` if only HDF5 can read it.

    Chunks that are adjacent in the file become one part of it.
    """
    if (places := _chunk_offsets(dataset)) is None:
        return None
    size = dataset.nbytes if dataset.chunks is None else int(np.prod(dataset.chunks)) * dataset.dtype.itemsize
    firsts = np.flatnonzero(np.append(True, np.diff(places) != size))
    sizes, parts = np.diff(firsts, append=len(places)) * size, []
    sizes[-1] -= len(places) * size - dataset.nbytes  # the last chunk is padded
    for begin, length in zip(places[firsts].tolist(), sizes.tolist(), strict=True):
        parts.append(guarded(memory[begin : begin + length].view(dataset.dtype), guard, begin))
    return parts[0] if len(parts) == 1 else Segmented(parts)


def _chunk_offsets(dataset: Any) -> Ints | None:
    """Return the byte offset of a dataset, or of each of its chunks in order; `None` if only HDF5 can read it."""
    if not dataset.size or dataset.dtype.hasobject or dataset.file.userblock_size:
        return None
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return None if offset is None else np.array([offset])
    rows, *width = dataset.chunks
    count = -(-dataset.shape[0] // rows)
    if dataset.id.get_create_plist().get_nfilters() or tuple(width) != dataset.shape[1:] or dataset.id.get_num_chunks() != count:
        return None  # chunks that were never written have the fill value and no offset
    places = np.zeros(count, np.int64)

    def note_chunk(chunk: Any) -> None:
        places[chunk.chunk_offset[0] // rows] = chunk.byte_offset

    dataset.id.chunk_iter(note_chunk)
    return places if len(set((places % dataset.dtype.itemsize).tolist())) == 1 else None


def h5_layout(path: Path) -> dict[str, str]:
    """Return the manifest entry ``layout`` of an HDF5 file; ``{}`` for any other file, or if only HDF5 can read a dataset."""
    if path.suffix not in (".h5", ".hdf5"):
        return {}
    import h5py

    with readable(path), h5py.File(path, "r") as file:
        layout = _layout(file)
    return {} if layout is None else {"layout": layout}


def _layout(file: Any) -> str | None:
    """Return the layout hash of an open HDF5 file; `None` if only HDF5 can read a dataset."""
    import h5py

    descriptions: list[Any] = []

    def describe(_: str, dataset: Any) -> None:
        if isinstance(dataset, h5py.Dataset):
            description, places = [dataset.name, dataset.dtype.str, list(dataset.shape)], _chunk_offsets(dataset)
            if places is not None:
                description.append(int(places[0]) if dataset.chunks is None else (places // dataset.dtype.itemsize).tolist())
            descriptions.append(None if places is None and dataset.size else description)

    file.visititems(describe)
    return None if None in descriptions else xxhash.xxh3_128_hexdigest(json.dumps(descriptions).encode())


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of HDF5 about an unreadable file into a `StoreError`. HDF5 raises several types, some with many lines."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, PrepAssetsError):
            raise
        message = str(error).partition("(file read failed")[0].strip() or type(error).__name__
        number = re.search(r"error message = '([^']*)'", str(error))
        why = f"{message}: {number[1]}" if number else message
        raise StoreError(f"{path} cannot be read as HDF5 ({why}); it was cut short, or the disk is faulty. Build it again") from error


@contextmanager
def open_h5(path: Path, guards: Guards) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yield an HDF5 file, and a function that maps one of its datasets as a flat array, or returns `None` where only HDF5 can read it.

    Raises:
        StoreError: HDF5 cannot read the file, or it is not the manifest's.
    """
    import h5py

    with readable(path), h5py.File(path, "r") as file:
        memory = map_file(path)
        guard = guards.guard(path, memory)
        if guard is not None and (guard.layout is None or _layout(file) != guard.layout):
            guard.check()  # only HDF5 can read it, or the layout is not the manifest's
            guard = None
        yield file, lambda dataset: map_dataset(memory, dataset, guard)


def read_h5(path: Path, guards: Guards) -> dict[str, Any]:
    """Map the datasets of an HDF5 file of this package, each in its shape.

    Raises:
        StoreError: as `open_h5`; a dataset is compressed or in pieces.
    """
    arrays: dict[str, Any] = {}
    with open_h5(path, guards) as (file, mapped_array):
        for key, dataset in file.items():
            array = mapped_array(dataset) if dataset.size else np.zeros(0, dataset.dtype)
            if array is None:
                raise StoreError(f"{path}: {key} is compressed or in pieces, which no store of ours is. Build it again")
            arrays[key] = array if dataset.ndim == 1 else array.reshape(-1, *dataset.shape[1:])
    return arrays
