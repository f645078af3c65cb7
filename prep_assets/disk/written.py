"""Files that note what was meant to be written to them, so that it can be compared with what the disk gives back."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.blocks import BLOCK
from prep_assets.disk.faults import named
from prep_assets.disk.ledger import note
from prep_assets.disk.meant import Meant


class WrittenFile(AbstractContextManager["WrittenFile"]):
    """A new file, written in any order. When it is closed, what was meant to be in it stands in the ledger of its folder.

    It takes the place of a binary file: for NumPy, pyarrow and h5py too. Bytes that follow one another are gathered to blocks.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.closed = path, False
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._meant = Meant()
        self._gathered, self._held, self._at = memoryview(b""), 0, 0

    def write(self, data: Any) -> int:
        """Write at the present place, all of it."""
        memory = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        taken = 0
        while taken < len(memory):
            if not self._held and len(memory) - taken >= BLOCK:
                self._put_next(memory[taken : taken + BLOCK])
                taken += BLOCK
                continue
            if not self._gathered:
                self._gathered = memoryview(bytearray(BLOCK))
            step = min(BLOCK - self._held, len(memory) - taken)
            self._gathered[self._held : self._held + step] = memory[taken : taken + step]
            taken, self._held = taken + step, self._held + step
            if self._held == BLOCK:
                self.flush()
        return len(memory)

    def write_array(self, values: npt.NDArray[Any]) -> None:
        """The elements of an array, one after another."""
        self.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def flush(self) -> None:
        """Give the system what was gathered."""
        if held := self._held:
            self._held = 0
            self._put_next(self._gathered[:held])

    def _put_next(self, data: memoryview) -> None:
        at = self._at
        self._at = at + len(data)
        self._intend(at, data)
        self._put(at, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._end()}[whence]
        if base + offset != self.tell():
            self.flush()
            self._at = base + offset
        return self.tell()

    def tell(self) -> int:
        """The present place."""
        return self._at + self._held

    def read(self, size: int = -1) -> bytes:
        """What is at the present place."""
        self.flush()
        begin = self._at
        self._at = begin + size if size >= 0 else self._end()
        found = self._read_at(begin, self._at)
        self._at = begin + len(found)
        return found

    def readinto(self, memory: Any) -> int:
        """As `read`, into memory."""
        view = memoryview(memory).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def truncate(self, size: int) -> int:
        """Cut, or fill up with zeros."""
        self.flush()
        self._resize(size)
        return size

    def readable(self) -> bool:
        """It can be read, written to, and go anywhere."""
        return True

    writable = seekable = readable

    def close(self) -> None:
        """Write the rest, and note what the file was meant to hold. A file whose writing failed is not noted."""
        if self.closed:
            return
        self.closed = True
        try:
            self.flush()
        finally:
            os.close(self._handle)
        note(self.path, self._meant)

    def abandon(self) -> None:
        """Close the file, and note nothing of it."""
        if not self.closed:
            self.closed = True
            os.close(self._handle)

    def _end(self) -> int:
        return max(self._meant.size, self.tell())

    def _intend(self, at: int, data: bytes | memoryview) -> None:
        self._meant.put(at, data, self._read_at)

    def _put(self, at: int, data: bytes | memoryview) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._handle, memoryview(data)[done:], at + done)
        except OSError as error:
            raise named(error, self.path) from error

    def _resize(self, size: int) -> None:
        self._meant.cut(size, self._read_at)
        try:
            os.ftruncate(self._handle, size)
        except OSError as error:
            raise named(error, self.path) from error

    def _read_at(self, begin: int, end: int) -> bytes:
        found = bytearray()
        while begin + len(found) < end and (part := os.pread(self._handle, end - begin - len(found), begin + len(found))):
            found += part
        return bytes(found)

    def __exit__(self, *_: object) -> None:
        self.close()


def write_bytes(path: Path, data: bytes) -> None:
    """A new file with these bytes."""
    with WrittenFile(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """A new file with this text, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, **form: Any) -> None:
    """A new file with ``json.dumps(value, **form)`` and a line feed."""
    write_text(path, json.dumps(value, **form) + "\n")
