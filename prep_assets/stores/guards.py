"""Guards: the bytes of a store, compared with its manifest block by block when they are first read.

    lazy    each block once for each process, when something in it is read; small files whole, when they are opened
    full    every file, when the store is opened
    off     nothing

Folders without a manifest, files that a manifest does not list and stores of format 1 have nothing to compare with.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.disk.blocks import BLOCK
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.detect import version_of
from prep_assets.stores.leases import Lease, lease
from prep_assets.stores.manifest import Manifest, payload_faults

Verify = Literal["lazy", "full", "off"]
_SHIFT = BLOCK.bit_length() - 1


class Guard:
    """The blocks of one file of a store."""

    def __init__(self, path: Path, manifest: Manifest, entry: Mapping[str, Any], held: Lease | None) -> None:
        self.path, self.size = path, int(entry["bytes"])
        self.layout = entry.get("layout")
        self._hashes = np.frombuffer(bytes.fromhex(entry["blocks"]), ">u8").tolist()
        self._seen = bytearray(len(self._hashes))
        self._memory: npt.NDArray[np.uint8] | None = None
        self.left = len(self._hashes)
        self._remedy, self._held = repair_command(manifest), held
        if (found := path.stat().st_size) != self.size:
            raise StoreError(f"{path}: {found:,} bytes, the manifest says {self.size:,}. Build it again:\n  {self._remedy}")

    def over(self, memory: npt.NDArray[np.uint8]) -> Guard:
        """Look at these bytes of the file, which are mapped already."""
        self._memory = memory
        return self

    def check(self, begin: int, end: int) -> None:
        """Compare the blocks that bytes ``begin … end - 1`` are in.

        Raises:
            StoreError: a block is not what the manifest says.
        """
        first, last, seen = begin >> _SHIFT, (end - 1) >> _SHIFT, self._seen
        if begin >= end or (last - first < 2 and seen[first] and seen[last]):
            return
        for block in range(first, last + 1):
            if not seen[block]:
                self.compare(block, self._bytes(block))
                seen[block] = 1
                self.left -= 1

    def check_all(self) -> None:
        """Compare the whole file."""
        self.check(0, self.size)

    def compare(self, block: int, data: Any) -> None:
        """Raises:
        StoreError: `data` is not that block.
        """
        if xxh3_64_intdigest(data) != self._hashes[block]:
            raise StoreError(
                f"{self.path}: bytes {block * BLOCK:,} to {min((block + 1) * BLOCK, self.size):,} are not what the manifest says: the disk or the "
                f"memory altered them, or somebody did. Build it again:\n  {self._remedy}"
            )

    def _bytes(self, block: int) -> Any:
        if self._memory is None:
            self._memory = np.asarray(np.memmap(self.path, np.uint8, "r")) if self.size else np.zeros(0, np.uint8)
        return self._memory[block << _SHIFT : (block + 1) << _SHIFT]


class Guards:
    """The guards of every file of the stores that are opened together, and the leases on their versions."""

    def __init__(self, verify: Verify = "lazy") -> None:
        self._verify: Verify = verify
        self._stores: dict[Path, tuple[Path, Manifest, Lease | None] | None] = {}

    def hold(self, folder: Path) -> None:
        """Read the manifest of the version that a folder is, or is in, and hold a lease on it.

        Raises:
            StoreError: the manifest was edited or cut short; with ``full`` also: a file is not what it says.
        """
        self._store(folder)

    def guard(self, path: Path) -> Guard | None:
        """Of a file; `None` where there is nothing to compare with."""
        store = self._store(path.parent)
        if store is None or self._verify == "off":
            return None
        version, manifest, held = store
        entry = manifest.files.get(path.resolve().relative_to(version).as_posix(), {})
        return Guard(path, manifest, entry, held) if "blocks" in entry else None

    def whole(self, path: Path) -> Path:
        """`path`, after the whole file was compared.

        Raises:
            StoreError: it is not what the manifest says.
        """
        if guard := self.guard(path):
            guard.check_all()
        return path

    def open(self, path: Path) -> io.BufferedIOBase:
        """A file to read, of which every block is compared before it is given out."""
        guard = self.guard(path)
        return path.open("rb") if guard is None else io.BufferedReader(_Reader(guard))

    def _store(self, folder: Path) -> tuple[Path, Manifest, Lease | None] | None:
        if folder not in self._stores:
            self._stores[folder] = self._found(version_of(folder))
        return self._stores[folder]

    def _found(self, version: Path | None) -> tuple[Path, Manifest, Lease | None] | None:
        if version is None:
            return None
        known = next((store for store in self._stores.values() if store and store[0] == version), None)
        if known is None:
            known = (version, Manifest.read(version), lease(version))
            if self._verify == "full" and (faults := payload_faults(version, known[1])):
                raise StoreError(
                    f"{version} is not what its manifest says:\n  "
                    + "\n  ".join(faults)
                    + f"\nBuild it again:\n  {repair_command(known[1])}"
                )
        return known


UNGUARDED = Guards("off")
"""For files that are in no store of ours."""


class _Reader(io.RawIOBase):
    """A file that is read block by block, each compared."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self._handle = guard, os.open(guard.path, os.O_RDONLY | os.O_CLOEXEC)
        self._at, self._number, self._block = 0, -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._guard.size}[whence] + offset
        return self._at

    def readinto(self, memory: Any) -> int:
        if self._at >= self._guard.size:
            return 0
        number, within = divmod(self._at, BLOCK)
        if number != self._number:
            self._block = self._load(number)
            self._number = number
        part = self._block[within : within + len(memory)]
        memory[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _load(self, number: int) -> bytes:
        found, size = bytearray(), min(BLOCK, self._guard.size - number * BLOCK)
        while len(found) < size and (part := os.pread(self._handle, size - len(found), number * BLOCK + len(found))):
            found += part
        self._guard.compare(number, found)
        return bytes(found)

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


class GuardedArray:
    """An array in a mapped file, by rows of its first axis. What is read of it is compared with the manifest first.

    Args:
        array: of one or two dimensions, contiguous.
        guard: of its file.
        offset: where it begins there, in bytes.
    """

    def __init__(self, array: npt.NDArray[Any], guard: Guard, offset: int = 0) -> None:
        self._array, self._guard, self._offset, self._step = array, guard, offset, array.strides[0]
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, part: Any) -> Any:
        if self._guard.left:
            self._check(part)
        return self._array[part]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._check(slice(None))
        return np.asarray(self._array, dtype)

    def reshape(self, *shape: int) -> GuardedArray:
        """The same elements in rows of another length."""
        return GuardedArray(self._array.reshape(*shape), self._guard, self._offset)

    def _check(self, part: Any) -> None:
        if not isinstance(part, slice):
            whole = not isinstance(part, int | np.integer)
            part = slice(None) if whole else slice(at := range(len(self))[part], at + 1)
        begin, end, step = part.indices(len(self))
        if step < 0:
            begin, end = 0, len(self)
        self._guard.check(self._offset + begin * self._step, self._offset + end * self._step)


def guarded(array: npt.NDArray[Any], guard: Guard | None, offset: int = 0) -> Any:
    """The array under its guard, if it has one."""
    return array if guard is None or not array.size else GuardedArray(array, guard, offset)


def map_array(path: Path, dtype: npt.DTypeLike, guards: Guards) -> Any:
    """The elements that a file holds, mapped and under its guard."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    guard, memory = guards.guard(path), np.asarray(np.memmap(path, np.uint8, "r"))
    return guarded(memory.view(dtype), guard and guard.over(memory))


def load_array(path: Path, guards: Guards) -> npt.NDArray[Any]:
    """A ``.npy`` file, mapped, after all of it was compared."""
    try:
        found: npt.NDArray[Any] = np.load(guards.whole(path), mmap_mode="r", allow_pickle=False)
    except (OSError, PrepAssetsError):
        raise
    except Exception as error:  # what NumPy makes of a damaged header: ValueError, EOFError, SyntaxError, tokenize.TokenError …
        raise StoreError(f"{path} is missing or damaged ({type(error).__name__}: {str(error)[:200]}). Build the store again") from error
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise StoreError(f"{path}: {found.dtype.name} of shape {found.shape}, expected numbers of one dimension. Build the store again")
    return found


def repair_command(manifest: Manifest) -> str:
    """The command that builds a store again."""
    return f"prep-assets build {manifest.asset}" + (f" --partition {manifest.partition}" if manifest.partition else "") + " --force"
