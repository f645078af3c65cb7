"""HDF5 files of which every byte goes through `WrittenFile`.

HDF5 loses the errors of chunks that it writes late, and a file that it cannot finish crashes the process. So it never sees an error: the file
keeps it, and it is raised as soon as control is back.
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
"""Where a file takes no more room than what is written to it, and no disk can be full."""

H5_CHUNK = 1 << 16
"""Elements in a chunk of a flat dataset that grows."""
H5_PIECE = 4_000_000
"""Elements by which the datasets of a file grow."""
Shapes = Mapping[str, tuple[Sequence[int], npt.DTypeLike]]


class _Patient(WrittenFile):
    """A file that keeps the first error and goes on as if nothing had happened; what could not be written is read from memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._fault: BaseException | None = None
        self._unwritten: dict[int, bytearray] = {}

    def check(self) -> None:
        """Raise what went wrong since the file was opened."""
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
        except BaseException as error:  # also where it is not what had been written
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
    """A new HDF5 file (`h5py.File`) of version ``v108`` to write into."""
    import h5py

    written = _Patient(path)
    try:
        with h5py.File(written, "w", libver="v108") as file:
            yield file
    finally:
        _close(written)


class GrowingH5:
    """An HDF5 file with a flat, growing dataset for each key: ``v108``, without times, and uncompressed, because trainers read windows of it at random.

    The library places what is written in the order of the calls. So all keys grow by pieces of a fixed size, whatever the blocks that come, and
    equal arrays give equal files. A piece waits on disk until it is whole.
    """

    def __init__(self, path: Path, dtypes: Mapping[str, str]) -> None:
        import h5py

        self._dtypes = dict(dtypes)
        self._written = _Patient(path)
        # without a cache, which would hold a MiB of each dataset
        self._file = h5py.File(self._written, "w", libver="v108", rdcc_nbytes=0)
        for key, dtype in dtypes.items():
            self._file.create_dataset(key, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(H5_CHUNK,), track_times=False)
        self._written.check()
        self._piece, self._held = {key: Spool(dtype) for key, dtype in dtypes.items()}, 0

    def append(self, block: Mapping[str, npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Write whole records: equally long 1-D arrays, one for each key, and the length of each record in them."""
        at, count = 0, check_block(block, self._dtypes, lengths)
        while at < count:
            step = min(H5_PIECE - self._held, count - at)
            for key, piece in self._piece.items():
                piece.append(block[key][at : at + step])
            at, self._held = at + step, self._held + step
            if self._held == H5_PIECE:
                self._write()

    def _write(self) -> None:
        for key, piece in self._piece.items():
            dataset = self._file[key]
            start = dataset.shape[0]
            dataset.resize(start + self._held, axis=0)
            dataset[start:] = piece.array()
            self._written.check()
        self._piece, self._held = {key: Spool(dtype) for key, dtype in self._dtypes.items()}, 0

    def close(self) -> None:
        """Finish the file."""
        try:
            if self._held:
                self._write()
        finally:
            self._file.close()
            _close(self._written)


def check_block(block: Mapping[str, npt.NDArray[Any]], keys: Iterable[str], lengths: npt.NDArray[np.int64]) -> int:
    """How many tokens the records of a block have.

    Raises:
        StoreError: an array is longer or shorter.
    """
    count, found = int(lengths.sum()), {key: len(block[key]) for key in keys}
    if set(found.values()) != {count}:
        raise StoreError(f"per-token arrays do not fit their records: lengths {found}, records add up to {count:,}")
    return count


def _close(written: _Patient) -> None:
    try:
        written.flush()
        written.check()
    except BaseException:
        os.close(written._handle)
        written.closed = True
        raise
    written.close()


class FixedH5(AbstractContextManager["FixedH5"]):
    """An HDF5 file with datasets of known shape, each in one piece. HDF5 lays it out in memory, and its bytes are written without it.

    Args:
        shapes: by name, which may lead through groups: shape and type.
        in_turn: each takes its place in the file before the next one is described; else all are described first.
    """

    def __init__(self, path: Path, shapes: Shapes, *, in_turn: bool = False, **how: Any) -> None:
        self._dtypes = {name: np.dtype(dtype) for name, (_, dtype) in shapes.items()}
        handle, name = tempfile.mkstemp(dir=_MEMORY)
        with os.fdopen(handle, "rb") as plan:
            self._places = _lay_out(name, shapes, in_turn, how)
            self._written = WrittenFile(path)
            at, size = 0, plan.seek(0, os.SEEK_END)
            for begin, end in [*sorted(self._places.values()), (size, size)]:  # everything that is not data
                plan.seek(at)
                self._written.seek(at)
                self._written.write(plan.read(begin - at))
                at = end
            self._written.truncate(size)

    def write(self, name: str, first: int, values: npt.NDArray[Any]) -> None:
        """Elements of a dataset from number `first` on, rows end to end."""
        if not len(values):
            return
        dtype = self._dtypes[name]
        self._written.seek(self._places[name][0] + first * dtype.itemsize)
        self._written.write_array(np.asarray(values, dtype))

    def close(self) -> None:
        """Finish the file."""
        self._written.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _lay_out(plan: str, shapes: Shapes, in_turn: bool, how: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Where the bytes of each dataset begin and end. One element of each is written, so that HDF5 gives it its place."""
    import h5py

    with h5py.File(plan, "w", **how) as file:
        Path(plan).unlink()  # from here on a build that is killed leaves nothing of it behind
        datasets = {}
        for name, (shape, dtype) in shapes.items():
            dataset = file.create_dataset(name, tuple(shape), dtype, track_times=False)
            if dataset.size:
                datasets[name] = dataset
                if in_turn:
                    dataset[(0,) * dataset.ndim] = 0
        for dataset in datasets.values():
            dataset[(0,) * dataset.ndim] = 0
        return {name: ((at := each.id.get_offset()), at + each.nbytes) for name, each in datasets.items()}
