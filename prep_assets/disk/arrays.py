"""Arrays of numbers on disk: ``.npy`` files that are written whole or grow, and columns that wait on disk for what is made of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.disk.faults import named
from prep_assets.disk.pages import mapped, went_through
from prep_assets.disk.written import WrittenFile
from prep_assets.errors import StoreError


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """A new ``.npy`` file, as ``numpy.save`` writes it, without a second copy in memory."""
    values = np.ascontiguousarray(values)
    with WrittenFile(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write_array(values)


class ArrayFile:
    """A ``.npy`` file of one dimension that grows. NumPy leaves room in the header for a longer shape, so it is written again at the end."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._file, self._dtype, self._count = WrittenFile(path), np.dtype(dtype), 0
        self._write_header()
        self._begin = self._file.tell()

    def __len__(self) -> int:
        return self._count

    def _write_header(self) -> None:
        about = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, about)

    def append(self, values: npt.ArrayLike) -> None:
        """Further elements."""
        added = np.asarray(values, self._dtype)
        self._file.write_array(added)
        self._count += len(added)

    def close(self) -> None:
        """Finish the file."""
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._begin:
            raise StoreError(f"{self._file.path}: the header of {self._count:,} entries has another size than that of none")
        self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._file.abandon()
        self._file.path.unlink(missing_ok=True)


RECENT = 1 << 17
"""Bytes of a growing column that wait in memory until they are written."""


class Spool:
    """A column that grows: its last elements in memory, what came before in a file that has no name and is gone with the process.

    What comes back from disk is compared with what was written.

    Args:
        dtype: of its elements; of several fields for a table.
        folder: where the file lies; the system's folder for temporary files where nothing is said.
    """

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._file: Any = None
        self._recent, self._written, self._hash = bytearray(), 0, xxhash.xxh3_64()

    def __len__(self) -> int:
        return (self._written + len(self._recent)) // self._dtype.itemsize

    def append(self, values: npt.ArrayLike) -> None:
        """Further elements."""
        self._recent += np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data
        if len(self._recent) >= RECENT:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 it is closed with the spool
        self._hash.update(self._recent)
        left = memoryview(self._recent)
        try:
            while left:
                left = left[os.pwrite(self._file.fileno(), left, self._written + len(self._recent) - len(left)) :]
        except OSError as error:
            raise named(error, self._folder or Path(tempfile.gettempdir())) from error
        self._written += len(self._recent)
        self._recent = bytearray()

    def array(self) -> npt.NDArray[Any]:
        """All elements, mapped where they are on disk: pages that the system takes back when it needs them.

        Raises:
            StoreError: the disk gives back something else than was written.
        """
        if self._file is None:
            return np.frombuffer(self._recent, self._dtype)
        if self._recent:
            self._write()
        found = mapped(np.memmap(self._file, np.uint8, "r+", shape=(self._written,)))
        hashed = xxhash.xxh3_64()
        for at in range(0, self._written, RECENT):
            hashed.update(found[at : at + RECENT].data)
            went_through(RECENT)
        if hashed.digest() != self._hash.digest():
            raise StoreError(
                "a temporary file does not hold what was written to it. Look for faults of the disk or the memory, then build again"
            )
        return found.view(self._dtype)


def numbers(column: npt.NDArray[Any], some: int = 1 << 14) -> Iterator[int]:
    """The elements of a long column, a few at a time as Python's numbers, each of which takes four times an element."""
    return (number for first in range(0, len(column), some) for number in column[first : first + some].tolist())
