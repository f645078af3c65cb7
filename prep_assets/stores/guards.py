"""Guards: the bytes of a store, compared with its manifest block by block when they are first read.

    lazy    each block once for each process, when something in it is read; small files whole, when they are opened
    full    every file, when the store is opened
    off     nothing

A version in which damage was found is refused by all three.
Folders without a manifest, files that a manifest does not list and stores of format 1 have nothing to compare with.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.stores.files import FAULTY, loads, map_file, mapped, note_mapped_bytes
from prep_assets.stores.manifest import Manifest, payload_faults
from prep_assets.stores.verification import BLOCK, hashes, proven, span_of
from prep_assets.stores.version_folders import Lease, Published, lease, target, version_over

Verify = Literal["lazy", "full", "off"]
_SHIFT = BLOCK.bit_length() - 1
_HEADER = 128  # bytes that NumPy writes before the numbers of a column
_OF_COLUMN = re.compile(
    rb"\x93NUMPY\x01\0v\0\{'descr': '([<|][iu][1248])', 'fortran_order': False, 'shape': \((0|[1-9]\d{0,17}),\), \} *\n"
)


class _Folder(NamedTuple):
    """A folder whose files are known.

    Attributes:
        path: without links.
        files: by relative path, as a manifest has them.
        who: says what they hold.
        remedy: what to do where they do not.
        lease: keeps the folder from being pruned.
    """

    path: Path
    files: Mapping[str, Mapping[str, Any]]
    who: str
    remedy: str
    lease: Lease | None


class Guard:
    """The blocks of one file of a store."""

    def __init__(self, path: Path, entry: Mapping[str, Any], folder: _Folder, memory: npt.NDArray[np.uint8] | None) -> None:
        self.path, self.size = path, int(entry["bytes"])
        self.layout = entry.get("layout")
        self.hashes = hashes(entry["blocks"])
        self._seen = bytearray(len(self.hashes))
        self._memory = memory
        self.unchecked = len(self.hashes)
        self._folder = folder
        if (found := path.stat().st_size) != self.size:
            raise StoreError(f"{path}: {found:,} bytes, {folder.who} says {self.size:,}. {folder.remedy}")

    def check(self, begin: int = 0, end: int | None = None) -> None:
        """Compare the blocks that bytes ``begin … end - 1`` are in; all where no end is given.

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
        """The error for a block that is not what the manifest says."""
        return StoreError(
            f"{self.path}: {span_of(block, self.size)} are not what {self._folder.who} says: the disk or the memory altered them, or somebody "
            f"did. {self._folder.remedy}"
        )


class Guards:
    """The guards of every file of the stores that are opened together, and the leases on their versions."""

    def __init__(self, verify: Verify = "lazy") -> None:
        self._verify: Verify = verify
        self._places: dict[Path, tuple[_Folder, str] | None] = {}

    @classmethod
    def of_work(cls, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> Guards:
        """Of a folder that is not published yet: `files` are what its writer meant to write."""
        guards, real = cls(), folder.resolve()
        known = _Folder(real, files, "the process that wrote them", FAULTY, None)
        for parent in {"", *map(posixpath.dirname, files)}:
            guards._places |= dict.fromkeys((folder / parent, real / parent), (known, parent or "."))
        return guards

    def hold(self, folder: Path) -> tuple[_Folder, str] | None:
        """Read the manifest of the version that a folder is, or is in, and hold a lease on it.

        Returns:
            The version, and where in it the folder is; `None` where it is in none.

        Raises:
            StoreError: the manifest was edited or cut short; with ``full`` also: a file is not what it says.
        """
        if folder not in self._places:
            real = folder.resolve()
            version = version_over(real)
            self._places[folder] = None if version is None else (self._version(version), real.relative_to(version).as_posix())
        return self._places[folder]

    def _version(self, version: Path) -> _Folder:
        known = next((place[0] for place in self._places.values() if place and place[0].path == version), None)
        if known is None:
            manifest = Manifest.read(version)
            partition = f" --partition {manifest.partition}" if manifest.partition else ""
            remedy = f"Build it again:\n  prep-assets build {manifest.asset}{partition} --force"
            if target(version.parent.parent, "damaged") == version:
                raise StoreError(f"{Published(version, manifest).damage()}. {remedy}")
            known = _Folder(version, manifest.files, "the manifest", remedy, lease(version))
            if self._verify == "full" and (faults := payload_faults(version, manifest)):
                raise StoreError(f"{version} is not what its manifest says:\n  " + "\n  ".join(faults) + f"\n{known.remedy}")
        return known

    def guard(self, path: Path, memory: npt.NDArray[np.uint8] | None = None) -> Guard | None:
        """Of a file; `None` where there is nothing to compare with. `memory`: its bytes, where they are mapped already."""
        if (place := self.hold(path.parent)) is None or self._verify == "off":
            return None
        folder, within = place
        entry = folder.files.get(posixpath.normpath(f"{within}/{path.name}"), {})
        return Guard(path, entry, folder, memory) if "blocks" in entry else None

    def whole(self, path: Path) -> Path:
        """`path`, after the whole file was compared.

        Raises:
            StoreError: it is not what the manifest says.
        """
        if guard := self.guard(path):
            guard.check()
        return path

    def open(self, path: Path) -> io.BufferedIOBase:
        """A file to read. Every block is compared before it is returned."""
        guard = self.guard(path)
        return path.open("rb") if guard is None else proven(path.open("rb", buffering=0), guard.size, guard.hashes, guard.wrong)


UNGUARDED = Guards("off")
"""For files that are in no store of ours."""


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
        if self._guard.unchecked:
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

    def bare(self, *, compare: bool = False) -> npt.NDArray[Any]:
        """The array without its guard; with `compare`, after all of it was compared."""
        return np.asarray(self) if compare else self._array


def bare(array: Any) -> Any:
    """An array whose reads are compared with nothing, however it is put together."""
    return array.bare() if hasattr(array, "bare") else array


def compared(array: Any) -> Any:
    """An array of which everything was compared already, however it is put together: for whoever reads all of it in small slices.

    Raises:
        StoreError: a block is not what the manifest says.
    """
    return array.bare(compare=True) if hasattr(array, "bare") else array


def guarded(array: npt.NDArray[Any], guard: Guard | None, offset: int = 0) -> Any:
    """The array under its guard, if it has one."""
    return array if guard is None or not array.size else GuardedArray(array, guard, offset)


def load_columns(folder: Path, names: Iterable[str], guards: Guards) -> dict[str, npt.NDArray[Any]]:
    """The columns ``<name>.npy`` of a folder, mapped, after all of them were compared.

    Raises:
        StoreError: one is missing or damaged, or they have different lengths.
    """
    columns = {name: load_array(folder / f"{name}.npy", guards) for name in names}
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) != 1:
        raise StoreError(f"{folder}: its parts do not fit together: fields of different lengths: {counts}. Build the store again")
    return columns


def load_array(path: Path, guards: Guards) -> npt.NDArray[Any]:
    """A ``.npy`` file, mapped, after all of it was compared.

    Raises:
        StoreError: it is missing or damaged, or holds no column of numbers.
    """
    try:
        memory = map_file(path)
        if guard := guards.guard(path, memory):
            guard.check()
        header = _OF_COLUMN.fullmatch(memory[:_HEADER].tobytes())
        if header and len(memory) - _HEADER == int(header[2]) * (dtype := np.dtype(header[1].decode())).itemsize:
            return memory[_HEADER:].view(dtype)
        found = mapped(np.load(str(path), mmap_mode="r", allow_pickle=False))  # whose header is not as NumPy writes it for whole numbers
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing. Build the store again") from error
    except (OSError, PrepAssetsError):
        raise
    except Exception as error:  # what NumPy makes of a damaged header: ValueError, EOFError, SyntaxError, tokenize.TokenError …
        raise StoreError(f"{path} is missing or damaged ({type(error).__name__}: {str(error)[:200]}). Build the store again") from error
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise StoreError(f"{path}: {found.dtype.name} of shape {found.shape}, expected numbers of one dimension. Build the store again")
    return found


def load_json(path: Path, guards: Guards) -> Any:
    """The value of a JSON file, after all of it was compared.

    Raises:
        StoreError: it is missing, or holds no JSON that means one thing.
    """
    try:
        return loads(guards.whole(path).read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is missing or damaged ({error}). Build the store again") from error
