"""HDF5 files of which every byte goes through `WrittenFile`.

HDF5 loses the errors of chunks that it writes late, and a file that it cannot finish crashes the process. So it never sees an error: the file
keeps it, and it is raised as soon as control is back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.verification import BLOCK, WrittenFile

_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a file takes no more room than what is written to it, and no disk can be full."""

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
    """An HDF5 file with flat datasets that grow: ``v108``, chunks of `chunk` elements, uncompressed, without times."""

    def __init__(self, path: Path, dtypes: Mapping[str, str], chunk: int) -> None:
        import h5py

        self._written = _Patient(path)
        # without a cache, which would hold a MiB of each dataset
        self._file = h5py.File(self._written, "w", libver="v108", rdcc_nbytes=0)
        for key, dtype in dtypes.items():
            self._file.create_dataset(key, shape=(0,), maxshape=(None,), dtype=dtype, chunks=(chunk,), track_times=False)
        self._written.check()

    def append(self, key: str, values: npt.NDArray[Any]) -> None:
        """Further elements of a dataset."""
        dataset = self._file[key]
        start = dataset.shape[0]
        dataset.resize(start + len(values), axis=0)
        dataset[start:] = values
        self._written.check()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
        _close(self._written)


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
            self._write_frame(plan)

    def _write_frame(self, plan: IO[bytes]) -> None:
        """Everything that is not data."""
        at, size = 0, plan.seek(0, os.SEEK_END)
        for begin, end in [*sorted(self._places.values()), (size, size)]:
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
        for name, (shape, dtype) in shapes.items():
            dataset = file.create_dataset(name, tuple(shape), dtype, track_times=False)
            if in_turn:
                _take_place(dataset)
        found = {name: file[name] for name in shapes if file[name].size}
        for dataset in found.values():
            _take_place(dataset)
        return {name: (each.id.get_offset(), each.id.get_offset() + each.nbytes) for name, each in found.items()}


def _take_place(dataset: Any) -> None:
    if dataset.size:
        dataset[(0,) * dataset.ndim] = 0
