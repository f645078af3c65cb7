"""HDF5 files written through `WrittenFile`.

HDF5 loses the errors of chunks that it writes late, and crashes the process if it cannot finish a file. So it never sees an error: the file object
stores it, and it is raised when HDF5 has returned.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Spool
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
