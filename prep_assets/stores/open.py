"""`open_store`: one way to read every format that trainers and we write.

    store = open_store("stores/sft_packed")
    store.keys                               ('loss_mask', 'position_ids', 'sequence')
    store.fetch(0, 2048, "sequence")         int32[2048]
    store.fetch_record(7, ["sequence"])      {"sequence": int32[…]}
    store.windows(1024)[3]                   (3072, 4096)

Arrays are NumPy's, memory-mapped where the format allows it. A store is pickled as the folders that it reads and opens its files again where
it arrives: the same versions, whatever `current` points to by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, get_args, overload

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest
from prep_assets.stores.detect import PATTERNS, Format, data_files, format_of, local_path, payload_folders
from prep_assets.stores.guards import UNGUARDED, Guards, Verify
from prep_assets.stores.read_bin import read_bin
from prep_assets.stores.read_h5 import read_h5
from prep_assets.stores.read_megatron import read_megatron
from prep_assets.stores.read_rows import read_jsonl, read_parquet
from prep_assets.stores.segments import Positions, Shard, joined
from prep_assets.stores.streams import read_named, read_streams
from prep_assets.stores.windows import Keys, Windows, index_in

_TRIES = 5
SYNONYMS = {"tokens": "sequence"}
"""Names under which a key is also found: train-llm-from-scratch's for AstrAI's."""


class MissingKey(StoreError, KeyError):
    """A key that is missing in the store."""

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfBounds(StoreError, ValueError):
    """A stretch of tokens that is not inside the store."""


@dataclass(frozen=True, eq=False)
class Store:
    """A store, opened for reading. Make it with `open_store`.

    Attributes:
        path, format: what was opened.
        data: its arrays and records.
        chosen: the keys it was opened with, `None` for all.
        folders: the folders, or the file, that are read; of published stores the versions that were current.
        verify: how what is read is compared with manifests, see `prep_assets.stores.guards`.
        guards: what compares it, and the leases that keep these versions from being pruned.
    """

    path: Path
    format: Format
    data: Shard
    chosen: tuple[str, ...] | None = None
    folders: tuple[Path, ...] = ()
    verify: Verify = "lazy"
    guards: Guards = UNGUARDED

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of all keys, sorted."""
        return tuple(sorted({*self.data.arrays, *self.data.objects}))

    @property
    def num_records(self) -> int:
        """Number of records (documents, rows or pairs); 0 where the format does not bound them."""
        return self.data.records

    def __len__(self) -> int:
        """Number of tokens.

        Raises:
            StoreError: the store has records only, because its keys have different lengths.
        """
        lengths = {key: len(array) for key, array in self.data.arrays.items()}
        if len(set(lengths.values())) > 1:
            raise StoreError(
                f"{self.path} is a store of {self.num_records:,} records, with keys of different length: {lengths}. Use fetch_record"
            )
        return next(iter(lengths.values()), 0)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.path, self.folders, self.format, self.chosen, self.verify)

    def require(self, keys: Iterable[str]) -> None:
        """Raises:
        MissingKey: one of `keys` is not here; the message lists what is required, available and missing.
        """
        wanted = list(keys)
        missing = [key for key in wanted if self._name(key) not in self.keys]
        if missing:
            raise MissingKey(
                f"{self.path}: no key {', '.join(map(repr, missing))}{nearest(missing[0], self.keys) or '.'} "
                f"Required: {', '.join(wanted)}. Available: {', '.join(self.keys) or 'none'}"
            )

    @overload
    def fetch(self, begin: int, end: int, keys: str) -> npt.NDArray[Any]: ...
    @overload
    def fetch(self, begin: int, end: int, keys: Keys) -> dict[str, npt.NDArray[Any]]: ...
    def fetch(self, begin: int, end: int, keys: str | Keys) -> Any:
        """Tokens ``begin … end - 1`` of one key (an array) or of several (a dict of arrays). ``begin == end`` gives an empty array.

        Raises:
            OutOfBounds: (a `ValueError`) not ``0 <= begin <= end <= length``.
            MissingKey: (a `KeyError`) no such key.
            StoreError: the key has no flat array.
        """
        if not isinstance(keys, str):
            return {key: self.fetch(begin, end, key) for key in keys}
        array = self.array(keys)
        if not 0 <= begin <= end <= len(array):
            raise OutOfBounds(f"Index out of bounds: begin={begin}, end={end}, length={len(array)} ({self.path}, key {keys!r})")
        return np.zeros(0, array.dtype) if begin == end else np.asarray(array[begin:end])

    @overload
    def fetch_record(self, i: int, keys: str) -> Any: ...
    @overload
    def fetch_record(self, i: int, keys: Keys) -> dict[str, Any]: ...
    def fetch_record(self, i: int, keys: str | Keys) -> Any:
        """Record `i` (from the end where negative): an array, a list of arrays where the key is nested, or a text; a dict of these for
        several keys.

        Raises:
            IndexError: there is no such record.
            MissingKey: no such key.
            StoreError: the format does not say where records end.
        """
        if not isinstance(keys, str):
            return {key: self.fetch_record(i, key) for key in keys}
        self.require([keys])
        number, name = index_in(i, self.num_records, f"{self.path}: record"), self._name(keys)
        if name in self.data.objects:
            return self.data.objects[name](number)
        if name not in self.data.ends:
            raise StoreError(f"{self.path}: nothing says where the records of {keys!r} end; give `offsets` in meta.json, or use fetch")
        ends = self.data.ends[name]
        begin, end = int(ends[number - 1]) if number else 0, int(ends[number])
        values = self.fetch(begin, end, keys)
        if name not in self.data.elements:
            return values
        elements = self.data.elements[name]
        first, last = np.searchsorted(elements, (begin, end), "right")
        return np.split(values, elements[first : last - 1] - begin) if end > begin else []

    def array(self, key: str) -> Any:
        """The flat array of a key, read in slices; slices of mapped files are read-only views.

        Raises:
            MissingKey: no such key.
            StoreError: the key has no flat array.
        """
        self.require([key])
        if self._name(key) not in self.data.arrays:
            raise StoreError(f"{self.path}: {key!r} is not a list of numbers; read it with fetch_record")
        return self.data.arrays[self._name(key)]

    def windows(self, window_size: int, stride: int | None = None, offset: int = 0) -> Windows:
        """The windows of `window_size` tokens that begin every `stride` tokens (default: end to end) from `offset` on, each with one token
        after it."""
        return Windows(self, window_size, window_size if stride is None else stride, offset)

    def _name(self, key: str) -> str:
        return SYNONYMS.get(key, key) if key not in self.data.arrays else key


def open_store(path: Path | str, format: Format | None = None, keys: Sequence[str] | None = None, *, verify: Verify = "lazy") -> Store:
    """Open what is at `path`: a file, a folder of shards, or a published store (its current version).

    The address of a bucket is opened as a folder is; its current versions are fetched first.

    Shards are read in numeric order and checked against each other. Published stores below `path` are read one after another. Keys:
    AstrAI's names; `tokens` is also found as ``sequence``. Where no positions are stored, `position_ids` is worked out: from 0 in each
    document where they are known, from 0 in each row of an HDF5 table where they are not.

    Args:
        format: instead of what `detect_format` finds.
        keys: open only these.
        verify: compare what is read with the manifest: ``lazy``, each block of 1 MiB when something in it is first read; ``full``, every
            file now; ``off``, never. Data that has no manifest is read as it is.

    Raises:
        NoData, UnsupportedFormat: as `detect_format`.
        StoreError: parts that do not fit together, the message says which and how; a store without a published version, or whose
            manifest was edited, or whose files are not what it says.
    """
    path = local_path(path)
    for _ in range(_TRIES):
        folders = tuple(payload_folders(path))
        try:
            return _opened(path, folders, format, keys, verify)
        except PrepAssetsError:
            if all(folder.exists() for folder in folders):
                raise
        except Exception as error:  # whatever libraries make of damaged bytes
            if all(folder.exists() for folder in folders):
                raise StoreError(
                    f"{path} cannot be read ({type(error).__name__}: {str(error)[:200]}); a file is damaged. Build or copy it again"
                ) from error
    raise StoreError(
        f"{path}: its version was removed {_TRIES} times while it was opened. Wait until nothing is pruned, then open it again"
    )


def _opened(path: Path, folders: tuple[Path, ...], format: Format | None, keys: Sequence[str] | None, verify: Verify) -> Store:
    if verify not in get_args(Verify):
        raise ConfigError(f"verify {verify!r} is not one of {', '.join(get_args(Verify))}{nearest(verify, get_args(Verify))}")
    guards = Guards(verify)
    for folder in folders:
        guards.hold(folder)
    known = format_of(path, folders) if format is None else format
    found = joined([_select(shard, keys) for shard in _shards(path, folders, known, guards)])
    return Store(path, known, found, None if keys is None else tuple(keys), folders, verify, guards)


def _shards(path: Path, folders: tuple[Path, ...], format_: Format, guards: Guards) -> list[Shard]:
    readers = {"h5": read_h5, "bin": read_bin, "jsonl": read_jsonl, "parquet": read_parquet, "megatron": read_megatron}
    if format_ not in readers:
        _unknown(format_, readers)
    named = read_named(folders[0], guards) if len(folders) == 1 and format_ in ("h5", "bin") else []
    if named:
        return named
    if len(folders) == 1 and (file := folders[0]).is_file():
        return [
            _with_positions(_renamed(shard))
            for shard in readers[format_]([file.with_suffix(".idx") if format_ == "megatron" else file], guards)
        ]
    ours = [read_streams(folder, guards) for folder in folders]
    if any(ours):
        return [shard for shards in ours for shard in shards]
    files = [file for kind, pattern in PATTERNS if kind == format_ for file in data_files(folders, pattern)]
    if not files:
        format_of(path, folders)
        raise StoreError(f"{path} has no {format_} files")
    return [_with_positions(_renamed(shard)) for shard in readers[format_](files, guards)]


def _with_positions(shard: Shard) -> Shard:
    """With positions from 0 in each row of a table that has none and whose documents are not known, as train-llm-from-scratch counts them."""
    if not shard.row_len or "position_ids" in shard.arrays:
        return shard
    ends = shard.ends["sequence"]
    positions = Positions(ends - shard.row_len, ends, len(shard.arrays["sequence"]))
    return replace(shard, arrays={**shard.arrays, "position_ids": positions}, ends={**shard.ends, "position_ids": ends})


def _unknown(format_: str, known: Iterable[str]) -> NoReturn:
    raise ConfigError(f"format {format_!r} is not one of {', '.join(known)}{nearest(format_, known)}")


def _renamed(shard: Shard) -> Shard:
    def names(values: Mapping[str, Any]) -> dict[str, Any]:
        return {SYNONYMS.get(key, key): value for key, value in values.items()}

    return replace(shard, arrays=names(shard.arrays), ends=names(shard.ends), elements=names(shard.elements))


def _select(shard: Shard, keys: Sequence[str] | None) -> Shard:
    if keys is None:
        return shard
    wanted = [SYNONYMS.get(key, key) for key in keys]
    missing = [key for key in wanted if key not in shard.arrays and key not in shard.objects]
    if missing:
        raise MissingKey(f"{shard.label}: no key {missing[0]!r}. Available: {', '.join(sorted({*shard.arrays, *shard.objects}))}")

    def chosen(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: values[key] for key in wanted if key in values}

    arrays, ends, objects, elements = map(chosen, (shard.arrays, shard.ends, shard.objects, shard.elements))
    return Shard(shard.label, arrays, ends, objects, shard.records, elements)
