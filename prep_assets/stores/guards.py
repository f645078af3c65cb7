"""Guards: the bytes of a store are compared with its manifest, block by block, when they are first read.

    lazy    each block once per process, on its first read; small files whole, when they are opened
    full    every file, when the store is opened
    off     nothing

All three raise for a version that was set aside as damaged.
Folders without a manifest, files that a manifest does not list and stores of format 1 are not verified.
"""

from __future__ import annotations

import io
import posixpath
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import FAULTY, loads, map_file, mapped, note_mapped_bytes
from prep_assets.stores.manifest import Manifest, payload_faults
from prep_assets.stores.verification import BLOCK, hashes, proven, span_of
from prep_assets.stores.version_folders import Lease, Published, lease, target, version_of

Verify = Literal["lazy", "full", "off"]
_SHIFT = BLOCK.bit_length() - 1


class _KnownFolder(NamedTuple):
    """A folder with the expected content of its files.

    Attributes:
        path: resolved.
        files: by relative path, as in a manifest.
        author: who says so, for messages.
        remedy: what to do if they differ.
        lease: keeps the folder from being pruned.
    """

    path: Path
    files: Mapping[str, Mapping[str, Any]]
    author: str
    remedy: str
    lease: Lease | None


class Guard:
    """Verifies the blocks of one file of a store, each once."""

    def __init__(self, path: Path, entry: Mapping[str, Any], folder: _KnownFolder, memory: npt.NDArray[np.uint8] | None) -> None:
        self.path, self.size = path, int(entry["bytes"])
        self.layout = entry.get("layout")
        self.hashes = hashes(entry["blocks"])
        self._seen = bytearray(len(self.hashes))
        self._memory = memory
        self.unchecked = len(self.hashes)
        self._folder = folder
        if path.is_symlink():
            raise StoreError(f"{path} is a link to {path.readlink()}; a store has its files itself. {folder.remedy}")
        if (size := path.stat().st_size) != self.size:
            raise StoreError(f"{path}: {size:,} bytes, {folder.author} says {self.size:,}. {folder.remedy}")

    def check(self, begin: int = 0, end: int | None = None) -> None:
        """Verify the blocks of bytes ``begin … end - 1``; to the end of the file by default.

        Raises:
            StoreError: a block is not what the manifest says.
        """
        end = self.size if end is None else end
        first, last, seen = begin >> _SHIFT, (end - 1) >> _SHIFT, self._seen
        if begin >= end or (last - first < 2 and seen[first] and seen[last]):
            return
        if self._memory is None:
            self._memory = map_file(self.path)
        for block in range(first, last + 1):
            if not seen[block]:
                if xxh3_64_intdigest(self._memory[block << _SHIFT : (block + 1) << _SHIFT].data) != self.hashes[block]:
                    raise self.wrong(block)
                seen[block] = 1
                self.unchecked -= 1
                note_mapped_bytes(BLOCK)

    def wrong(self, block: int) -> StoreError:
        """Return the error for a block that is not what the manifest says."""
        return StoreError(
            f"{self.path}: {span_of(block, self.size)} are not what {self._folder.author} says: the disk or the memory altered them, or somebody "
            f"did. {self._folder.remedy}"
        )


class Guards:
    """The guards of all files of the stores behind one `load`, and the leases on their versions."""

    def __init__(self, verify: Verify = "lazy") -> None:
        self._verify: Verify = verify
        self._folders: dict[Path, tuple[_KnownFolder, str] | None] = {}

    @classmethod
    def of_work(cls, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> Guards:
        """Return the guards of a folder that is not published yet; `files` are what its writer meant to write."""
        guards, resolved = cls(), folder.resolve()
        folder_of_work = _KnownFolder(resolved, files, "the process that wrote them", FAULTY, None)
        for subfolder in {"", *map(posixpath.dirname, files)}:
            guards._folders |= dict.fromkeys((folder / subfolder, resolved / subfolder), (folder_of_work, subfolder or "."))
        return guards

    def hold(self, folder: Path) -> tuple[_KnownFolder, str] | None:
        """Read the manifest of the version that contains a folder, and hold a lease on it.

        Returns:
            The version, and the relative path of the folder in it; `None` if the folder is in no version.

        Raises:
            StoreError: as `version_of`; the manifest was edited or truncated, or the version is set aside; with ``full`` also: a file is not what the
                manifest says.
        """
        if folder not in self._folders:
            version = version_of(folder)
            self._folders[folder] = (
                None if version is None else (self._open_version(version), folder.resolve().relative_to(version).as_posix())
            )
        return self._folders[folder]

    def _open_version(self, version: Path) -> _KnownFolder:
        known_folder = next((entry[0] for entry in self._folders.values() if entry and entry[0].path == version), None)
        if known_folder is None:
            manifest = Manifest.read(version)
            partition = f" --partition {manifest.partition}" if manifest.partition else ""
            remedy = f"Build it again:\n  prep-assets build {manifest.asset}{partition} --force"
            if target(version.parent.parent, "damaged") == version:
                raise StoreError(f"{Published(version, manifest).damage()}. {remedy}")
            known_folder = _KnownFolder(version, manifest.files, "the manifest", remedy, lease(version))
            if self._verify == "full" and (faults := payload_faults(version, manifest)):
                raise StoreError(f"{version} is not what its manifest says:\n  " + "\n  ".join(faults) + f"\n{known_folder.remedy}")
        return known_folder

    def guard(self, path: Path, memory: npt.NDArray[np.uint8] | None = None) -> Guard | None:
        """Return the guard of a file; `None` if there is nothing to compare it with. `memory`: its bytes, if they are mapped already."""
        if (location := self.hold(path.parent)) is None or self._verify == "off":
            return None
        folder, within = location
        entry = folder.files.get(posixpath.normpath(f"{within}/{path.name}"), {})
        return Guard(path, entry, folder, memory) if "blocks" in entry else None

    def whole(self, path: Path) -> Path:
        """Verify a whole file, and return its path.

        Raises:
            StoreError: the file is not what the manifest says.
        """
        if guard := self.guard(path):
            guard.check()
        return path

    def open(self, path: Path) -> io.BufferedIOBase:
        """Open a file for reading. Every block is verified before it is returned."""
        guard = self.guard(path)
        return path.open("rb") if guard is None else proven(path.open("rb", buffering=0), guard.size, guard.hashes, guard.wrong)


UNGUARDED = Guards("off")
"""For files that are not in a store of this package."""


class Guarded(ABC):
    """What is verified as it is read."""

    @abstractmethod
    def bare(self, *, compare: bool = False) -> Any:
        """Return the array without its guards; with `compare`, verify all of it first."""


class GuardedArray(Guarded):
    """An array in a mapped file, indexed along its first axis. What is read is verified first.

    Args:
        array: of one or two dimensions, contiguous.
        guard: of its file.
        offset: of its first byte in the file.
    """

    def __init__(self, array: npt.NDArray[Any], guard: Guard, offset: int = 0) -> None:
        self._array, self._guard, self._offset, self._step = array, guard, offset, array.strides[0]
        self.shape, self.dtype = array.shape, array.dtype

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, part: Any) -> Any:
        if self._guard.unchecked:
            self._check(part)
        return self._array[part]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self._check(slice(None))
        return np.asarray(self._array, dtype)

    def reshape(self, *shape: int) -> GuardedArray:
        """Return the same elements in rows of another length."""
        return GuardedArray(self._array.reshape(*shape), self._guard, self._offset)

    def _check(self, part: Any) -> None:
        if not isinstance(part, slice):
            whole_array = not isinstance(part, int | np.integer)
            part = slice(None) if whole_array else slice(at := range(len(self))[part], at + 1)
        begin, end, step = part.indices(len(self))
        if step < 0:
            begin, end = 0, len(self)
        self._guard.check(self._offset + begin * self._step, self._offset + end * self._step)

    def bare(self, *, compare: bool = False) -> npt.NDArray[Any]:
        """See `Guarded.bare`."""
        return np.asarray(self) if compare else self._array


class Segmented(Guarded):
    """Several arrays read as one, without concatenating them: by slices of step 1, tables also by row number.

    Attributes:
        parts: the arrays.
        dtype: of the elements.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        flat = (part for array in arrays for part in (array.parts if isinstance(array, Segmented) else [array]))
        # slices of a memmap as a plain array are several times cheaper
        self.parts: list[npt.NDArray[Any]] = [np.asarray(array) if isinstance(array, np.memmap) else array for array in flat]
        self._bounds = [0, *accumulate(map(len, self.parts))]
        self.dtype = self.parts[0].dtype

    def __len__(self) -> int:
        return self._bounds[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return len(self), *self.parts[0].shape[1:]

    def bare(self, *, compare: bool = False) -> Segmented:
        """See `Guarded.bare`."""
        return Segmented([(compared if compare else bare)(array) for array in self.parts])

    def reshape(self, *shape: int) -> Segmented:
        """Return the same elements in rows of another length. Every part must hold whole rows."""
        return Segmented([array.reshape(*shape) for array in self.parts])

    def __getitem__(self, part: int | slice) -> npt.NDArray[Any]:
        if not isinstance(part, slice):
            at = range(len(self))[part]
            return self[at : at + 1][0]  # type: ignore[no-any-return]
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise IndexError("a segmented array is read in steps of 1")
        if start >= stop:
            return np.zeros((0, *self.parts[0].shape[1:]), self.dtype)
        first = bisect_right(self._bounds, start) - 1
        low = self._bounds[first]
        if stop <= self._bounds[first + 1]:
            return self.parts[first][start - low : stop - low]
        last = bisect_right(self._bounds, stop - 1) - 1
        within = zip(self.parts[first : last + 1], self._bounds[first : last + 1], strict=True)
        return np.concatenate([array[max(0, start - low) : stop - low] for array, low in within])


def bare(array: Any) -> Any:
    """Return an array, guarded or segmented or plain, without verification."""
    return array.bare() if isinstance(array, Guarded) else array


def compared(array: Any) -> Any:
    """Verify all of an array, guarded or segmented or plain, and return it without guards: for reading all of it in small slices.

    Raises:
        StoreError: a block is not what the manifest says.
    """
    return array.bare(compare=True) if isinstance(array, Guarded) else array


def guarded(array: npt.NDArray[Any], guard: Guard | None, offset: int = 0) -> Any:
    """Return an array under a guard, or as it is without one."""
    return array if guard is None or not array.size else GuardedArray(array, guard, offset)


def load_columns(folder: Path, names: Iterable[str], guards: Guards) -> dict[str, npt.NDArray[Any]]:
    """Map and verify the columns ``<name>.npy`` of a folder.

    Raises:
        StoreError: a column is missing or damaged, or lengths differ.
    """
    columns = {name: load_array(folder / f"{name}.npy", guards) for name in names}
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) != 1:
        raise StoreError(f"{folder}: its parts do not fit together: fields of different lengths: {counts}. Build the store again")
    return columns


_HEADERS = Lock()
"""NumPy parses a header as Python; Python 3.11 counts how deep all threads are together, and raises a SystemError where two parse at once."""


def load_array(path: Path, guards: Guards) -> npt.NDArray[Any]:
    """Map and verify a ``.npy`` file.

    Raises:
        StoreError: it is missing or damaged, or is not a one-dimensional array of numbers.
    """
    try:
        file = str(guards.whole(path))
        with _HEADERS:
            column = mapped(np.load(file, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. Build the store again") from error
    except (OSError, PrepAssetsError):
        raise
    except Exception as error:  # NumPy raises all kinds for a damaged header: ValueError, EOFError, SyntaxError, tokenize.TokenError …
        raise StoreError(f"{path} is missing or damaged ({type(error).__name__}: {str(error)[:200]}). Build the store again") from error
    if column.ndim != 1 or column.dtype.kind not in "iuf":
        raise StoreError(f"{path}: {column.dtype.name} of shape {column.shape}, expected numbers of one dimension. Build the store again")
    return column


def load_json(path: Path, guards: Guards) -> Any:
    """Verify and parse a JSON file.

    Raises:
        StoreError: it is missing or damaged, or not unambiguous JSON.
    """
    try:
        return loads(guards.whole(path).read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is missing or damaged ({error}). Build the store again") from error
