"""`load`: our stores and trainers' files, read as a trainer reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest
from prep_assets.extensions.training.formats import READERS, read_megatron
from prep_assets.extensions.training.shards import Positions, Shard, joined, renamed
from prep_assets.stores.groups import RUNS, holds_groups
from prep_assets.stores.guards import UNGUARDED, Guards, Verify
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.published import Place, check_readable
from prep_assets.stores.remote import Remote, backend_of, is_address, local_root, remote_at, remote_of
from prep_assets.stores.table import GROUPS, Table, holds_pairs, open_stream, open_table, stream_names
from prep_assets.stores.version_folders import VERSIONS, target, version_of

# Detection of formats, and the files of each, in order.

Format = Literal["h5", "bin", "jsonl", "parquet", "megatron"]
PATTERNS: tuple[tuple[Format, str], ...] = (
    ("h5", "*.h5"),
    ("h5", "*.hdf5"),
    ("bin", "meta.json"),
    ("jsonl", "*.jsonl"),
    ("parquet", "*.parquet"),
    ("megatron", "*.idx"),
)
"""The files that identify a format, in order of precedence."""
SUFFIXES = {pattern.removeprefix("*"): format_ for format_, pattern in PATTERNS if pattern.startswith("*")}

_REMEDY = "Materialize the asset again; to look at a version whatever its checks say, open its own folder"


class NoData(StoreError, FileNotFoundError):
    """A path does not exist, or a folder holds no data files."""


class UnsupportedFormat(StoreError, ValueError):
    """A file of an unsupported format."""


def format_of(path: Path, folders: Sequence[Path]) -> Format:
    """Return the format of a path, given its `payload_folders`."""
    if path.is_file():
        return _format_of_file(path)
    for format_, pattern in PATTERNS:
        if any(data_files(folders, pattern)) and (format_ != "bin" or any(data_files(folders, "*.bin"))):
            return format_
    raise NoData(f"No supported data files found at {path}: looked for .h5, .hdf5, .bin with meta.json, .jsonl, .parquet, .idx with .bin")


def _format_of_file(path: Path) -> Format:
    if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
        return "megatron"
    if path.suffix not in SUFFIXES:
        hint = "; a .bin file is opened through its folder, which has the meta.json" if path.suffix == ".bin" else ""
        raise UnsupportedFormat(f"Unsupported file format: {path}. Known: {', '.join(SUFFIXES)}{hint}")
    return SUFFIXES[path.suffix]


def data_files(folders: Sequence[Path], pattern: str) -> list[Path]:
    """Return the files below `folders` that match, in natural order: ``shard_2`` before ``shard_10``."""
    return [file for folder in folders for file in sorted(folder.rglob(pattern), key=lambda file: natural(file, folder))]


def payload_folders(path: Path) -> list[Path]:
    """Return the folders that hold the data of `path`: the current version of every published store at or below it, or `path` itself if there is none.

    A path inside a version is resolved, so it stays in that version when `current` moves.

    Raises:
        StoreError: a store at or below `path` has no published version. No other version is read instead: its checks may have failed.
    """
    if (remote := remote_of(path)) is not None and version_of(path) is None:
        if fetched_folders := _fetch_stores(path, remote):
            return fetched_folders
        raise NoData(f"{remote.url}: there is no store. Check the address; prep-assets status shows where stores are")
    if not path.is_dir() or (path / MANIFEST).is_file():
        return [_resolve_in_version(path)] if path.exists() else _damaged_version(path)
    if _is_store(path):
        return [_current_version(path)]
    nested = [folder for child in _subfolders(path) for folder in payload_folders(child)]
    published = any((folder / MANIFEST).is_file() for folder in nested)
    if published and path.resolve().name == VERSIONS:
        raise StoreError(
            f"{path} holds every version of a store, also those whose checks failed. Open {path.resolve().parent}, or one of them"
        )
    return nested if published else [_resolve_in_version(path)]


def local_path(path: Path | str) -> Path:
    """Return a local path as it is; for the address of a store, of several, or of a version, return its local folder."""
    if not is_address(path):
        return Path(path)
    place, version, rest = remote_at(str(path)).url.partition(f"/{VERSIONS}/")
    if not version:
        return local_root(place)
    name, _, inside = rest.partition("/")
    return backend_of(local_root(place)).published(name).directory / inside


def _fetch_stores(path: Path, remote: Remote, depth: int = 2) -> list[Path]:
    """Fetch the current version of every store at an address, or at most `depth` folders below it."""
    if not remote.is_store:
        children = sorted(remote.folders() if depth else (), key=lambda child: natural(path / child, path))
        return [folder for child in children for folder in _fetch_stores(path / child, remote.below(child), depth - 1)]
    current = Place(path.parent, path.name).current()
    if current is None:
        raise StoreError(f"no published store in {remote.url}: its catalog has no `current`; its checks failed or did not end. {_REMEDY}")
    return [current.directory.resolve()]


def hold(guards: Guards, folder: Path) -> None:
    """As `Guards.hold`, for what a trainer reads.

    Raises:
        StoreError: also, the version is recalled.
    """
    if held := guards.hold(folder):
        check_readable(held[0].path)


def folder_of_manifest(path: Path) -> Path | None:
    """Return the version that a path is, or is in; `None` if nothing says what it is made of."""
    return next((each for each in (path, *path.parents) if (each / MANIFEST).is_file()), None)


def _is_store(path: Path) -> bool:
    # is_symlink: a dangling link does not exist; a plain folder named `candidate` is someone's data
    current, candidate = path / "current", path / "candidate"
    return (path / VERSIONS).is_dir() or current.exists() or current.is_symlink() or candidate.is_symlink() or candidate.is_file()


def _damaged_version(path: Path) -> list[Path]:
    """Return the damaged version that a path under ``current`` used to lead to. Opening it raises an error that says why."""
    store_folder = next((parent.parent for parent in (path, *path.parents) if parent.name == "current"), None)
    damaged = None if store_folder is None else target(store_folder, "damaged")
    return [] if damaged is None else [damaged]


def _subfolders(path: Path) -> list[Path]:
    folders = (child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(folders, key=lambda child: natural(child, path))


def _current_version(path: Path) -> Path:
    pointer = path / "current"
    if not pointer.exists() and not pointer.is_symlink():
        if aside := _damaged_version(pointer):
            return aside[0]
        raise StoreError(f"no published store in {path}: it has no `current`; its build was not finished, or its checks failed. {_REMEDY}")
    # a file system without links has a pointer file instead
    try:
        version = (path / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()
    except (RuntimeError, ValueError) as error:  # a link to itself; no text
        raise StoreError(f"no published store in {path}: `current` leads nowhere ({error}). {_REMEDY}") from error
    if not version.is_dir():
        raise StoreError(f"no published store in {path}: `current` points to {version}, which is not there. {_REMEDY}")
    if (path / VERSIONS).is_dir() and version.parent != (path / VERSIONS).resolve():
        raise StoreError(f"no published store in {path}: `current` leads out of it, to {version}. {_REMEDY}")
    if (path / VERSIONS).is_dir() and not (version / MANIFEST).is_file():
        raise StoreError(f"no published store in {path}: `current` points to {version}, which has no {MANIFEST}. {_REMEDY}")
    return version


def _resolve_in_version(path: Path) -> Path:
    """Resolve `path` if it is in a version; elsewhere return it as it is, because the name of a link can say more than that of the file."""
    return path if version_of(path) is None else path.resolve()


def natural(path: Path, base: Path) -> list[tuple[int, str]]:
    """Return a sort key for the path relative to `base` in which digits compare as numbers."""
    words = re.split(r"(\d+)", path.relative_to(base).as_posix())
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


SYNONYMS = {"tokens": "sequence"}
"""Aliases of keys: train-llm-from-scratch's name → AstrAI's."""

# Reads the streams of this package as a trainer reads them: under AstrAI's keys, rows with their padding.

ASTRAI_KEYS = ("prompts", "responses", "masks", "rewards")
"""AstrAI's keys of groups."""


def read_streams(folder: Path, guards: Guards) -> list[Shard]:
    """Read the token stream of `folder`: one stream, the two of preference pairs, or the three of groups, as one shard. Return ``[]`` if the folder has
    no stream of this package.

    Raises:
        StoreError: there are several streams, or one does not fit its index.
    """
    if holds_groups(folder) or holds_pairs(folder):
        return [_shard(str(folder), open_table(folder, guards=guards))]
    names = [name for name in stream_names(folder) if "/" not in name]
    if len(names) > 1:
        raise StoreError(f"{folder} has several streams: {', '.join(names)}. Open one of them, e.g. {_data_path(folder, names[0])}")
    return [shard for name in names for shard in read_named(_data_path(folder, name), guards)]


def read_named(path: Path, guards: Guards) -> list[Shard]:
    """Read the token stream at the file or folder `path`; return ``[]`` if it has no index."""
    name = path.stem if path.is_file() else path.name
    has_index = any((path.parent / f"{name}.{suffix}").is_dir() for suffix in ("index", "documents"))
    if not has_index or path.suffix == ".jsonl":
        return []
    return [_shard(str(_data_path(path.parent, name)), open_stream(path.parent, name, guards=guards))]


def _data_path(folder: Path, name: str) -> Path:
    return next((path for suffix in (".h5", ".jsonl") if (path := folder / f"{name}{suffix}").is_file()), folder / name)


def _shard(label: str, table: Table) -> Shard:
    """The columns of a table as flat arrays; of groups those that all groups have, whatever else some domains store of them, and their runs; with
    positions, where it has a column ``sequence``."""
    arrays, ends, elements = dict[str, Any](), dict[str, Ints](), dict[str, Ints]()
    for key, column in table.columns.items():
        if table.schema is GROUPS and key not in (*ASTRAI_KEYS, RUNS):
            continue
        name = SYNONYMS.get(key, key)
        arrays[name], ends[name] = column.values, table.ends(key)
        if column.records is not None:
            ends[name], elements[name] = np.concatenate([np.zeros(1, np.int64), column.ends])[column.records], column.ends
    if "sequence" in arrays:
        starts, stops = table.documents_at
        arrays.setdefault("position_ids", Positions(starts, stops, len(arrays["sequence"])))
        ends.setdefault("position_ids", ends["sequence"])
    return Shard(label, arrays, ends, elements=elements)


# Windows over the tokens of a store.

Keys = list[str] | tuple[str, ...]


class Windows(Struct, frozen=True, eq=False):
    """Windows of W tokens at stride S over the T tokens of a store after `offset`: n = 0 if T <= W else (T - 1 - W) // S + 1, so that every window has a
    next token."""

    store: OpenStore
    window_size: int
    stride: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.window_size < 1 or self.stride < 1 or self.offset < 0:
            raise ConfigError(
                f"window_size {self.window_size} and stride {self.stride} must be at least 1, offset {self.offset} at least 0"
            )

    def __len__(self) -> int:
        total = len(self.store) - self.offset
        return 0 if total <= self.window_size else (total - 1 - self.window_size) // self.stride + 1

    def __getitem__(self, i: int) -> tuple[int, int]:
        """Return begin and end of window `i`, counted from the end if negative.

        Raises:
            IndexError: `i` is out of range.
        """
        begin = index_in(i, len(self), f"{self.store.path}: window") * self.stride + self.offset
        return begin, begin + self.window_size


def index_in(i: int, count: int, label: str) -> int:
    """Normalize a possibly negative index.

    Raises:
        IndexError: it is out of range.
    """
    if not -count <= i < count:
        raise IndexError(f"{label} {i} of {count}")
    return i % count


# `load`
#
#     store = load("stores/sft_packed")
#     store.keys                               ('loss_mask', 'position_ids', 'sequence')
#     store.fetch(0, 2048, "sequence")         int32[2048]
#     store.fetch_record(7, ["sequence"])      {"sequence": int32[…]}
#     store.windows(1024)[3]                   (3072, 4096)
#
# Arrays are NumPy's, memory-mapped if the format allows it. A store is pickled as the folders that it reads, and unpickling opens the same versions,
# whatever `current` points to by then.

_TRIES = 5


class MissingKey(StoreError, KeyError):
    """The store has no such key."""

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfBounds(StoreError, ValueError):
    """A range of tokens outside the store."""


@dataclass(frozen=True, eq=False)
class OpenStore:
    """A store, opened for reading. Make it with `load`.

    Attributes:
        path, format: what was opened.
        data: its arrays and records.
        chosen: the keys it was opened with, `None` for all.
        folders: the folders, or the file, that are read; for published stores the versions that were current.
        verify: how reads are verified, see `prep_assets.stores.guards`.
        guards: verify reads, and hold the leases that keep these versions from being pruned.
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
        """Number of records (documents, rows or pairs); 0 if the format has no record bounds."""
        return self.data.records

    def __len__(self) -> int:
        """Number of tokens.

        Raises:
            StoreError: keys have different lengths, so the store can only be read by record.
        """
        lengths = {key: len(array) for key, array in self.data.arrays.items()}
        if len(set(lengths.values())) > 1:
            raise StoreError(
                f"{self.path} is a store of {self.num_records:,} records, with keys of different length: {lengths}. Use fetch_record"
            )
        return next(iter(lengths.values()), 0)

    def __bool__(self) -> bool:
        return True

    def _repr_html_(self) -> str:
        """As notebooks show it: its keys, with what their elements are."""
        keys = [(key, f"{len(array):,}", np.dtype(array.dtype).name) for key, array in self.data.arrays.items()]
        keys += [(key, f"{self.num_records:,}", "objects") for key in self.data.objects]
        rows = "".join(f"<tr><th>{escape(key)}</th><td>{count}</td><td>{kind}</td></tr>" for key, count, kind in sorted(keys))
        head = "<tr><th>key</th><th>elements</th><th>type</th></tr>"
        return f"<p><b>{escape(str(self.path))}</b>: {self.format}, {self.num_records:,} records</p><table>{head}{rows}</table>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_folders, (self.path, self.folders, self.format, self.chosen, self.verify)

    def require(self, keys: Iterable[str]) -> None:
        """Raises:
        MissingKey: the store lacks one of `keys`; the message lists what is required, available and missing.
        """
        wanted = list(keys)
        missing = [key for key in wanted if self._name(key) not in self.keys]
        if missing:
            raise MissingKey(
                f"{self.path}: no key {', '.join(map(repr, missing))}{nearest(missing[0], self.keys) or '.'} "
                f"Required: {', '.join(wanted)}. Available: {', '.join(self.keys) or 'none'}"
                + (". `prep-assets preprocess --position-ids doc_reset` writes position_ids" if "position_ids" in missing else "")
            )

    @overload
    def fetch(self, begin: int, end: int, keys: str) -> npt.NDArray[Any]: ...
    @overload
    def fetch(self, begin: int, end: int, keys: Keys) -> dict[str, npt.NDArray[Any]]: ...
    def fetch(self, begin: int, end: int, keys: str | Keys) -> Any:
        """Return tokens ``begin … end - 1`` of one key (an array) or of several (a dict of arrays). ``begin == end`` gives an empty array.

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
        """Return record `i`, counted from the end if negative: an array, a list of arrays if the key is nested, or a text; a dict of these for
        several keys.

        Raises:
            IndexError: `i` is out of range.
            MissingKey: no such key.
            StoreError: the format has no record bounds.
        """
        if not isinstance(keys, str):
            return {key: self.fetch_record(i, key) for key in keys}
        self.require([keys])
        number, name = index_in(i, self.num_records, f"{self.path}: record"), self._name(keys)
        if name in self.data.objects:
            return self.data.objects[name](number)
        if name not in self.data.ends:
            raise StoreError(
                f"{self.path}: record boundaries of {keys!r} are unknown; add `offsets` to meta.json, or read ranges with fetch()"
            )
        ends = self.data.ends[name]
        begin, end = int(ends[number - 1]) if number else 0, int(ends[number])
        values = self.fetch(begin, end, keys)
        if name not in self.data.elements:
            return values
        elements = self.data.elements[name]
        first, last = np.searchsorted(elements, (begin, end), "right")
        return np.split(values, elements[first : last - 1] - begin) if end > begin else []

    def array(self, key: str) -> Any:
        """Return the flat array of a key, which is read in slices; slices of mapped files are read-only views.

        Raises:
            MissingKey: no such key.
            StoreError: the key has no flat array.
        """
        self.require([key])
        if self._name(key) not in self.data.arrays:
            raise StoreError(f"{self.path}: {key!r} is not a list of numbers; read it with fetch_record")
        return self.data.arrays[self._name(key)]

    def windows(self, window_size: int, stride: int | None = None, offset: int = 0) -> Windows:
        """Return the windows of `window_size` tokens that begin every `stride` tokens (default: `window_size`) from `offset` on, each followed by at least
        one token."""
        return Windows(self, window_size, window_size if stride is None else stride, offset)

    def _name(self, key: str) -> str:
        return SYNONYMS.get(key, key) if key not in self.data.arrays else key


def load(path: Path | str, format: Format | None = None, keys: Sequence[str] | None = None, *, verify: Verify = "lazy") -> OpenStore:
    """Open a file, a folder of shards, or a published store (its current version).

    The address of a bucket is opened like a folder; its current versions are fetched first.

    Shards are read in numeric order and checked against each other. Published stores below `path` are concatenated. Keys have AstrAI's names;
    `tokens` is an alias of ``sequence``. If no positions are stored, `position_ids` is computed: from 0 in each document if documents are known,
    from 0 in each row of an HDF5 table otherwise.

    Args:
        format: overrides `detect_format`.
        keys: open only these.
        verify: compare reads with the manifest: ``lazy``, each block of 1 MiB on its first read; ``full``, every file now; ``off``, never. Data
            without a manifest is not verified.

    Raises:
        NoData, UnsupportedFormat: as `detect_format`.
        StoreError: shards or files are inconsistent, the message says which and how; a store has no published version, its manifest was edited,
            or its files are not what it says.
    """
    path = local_path(path)
    for _ in range(_TRIES):
        folders = tuple(payload_folders(path))
        try:
            return _open_folders(path, folders, format, keys, verify)
        except PrepAssetsError:
            if all(folder.exists() for folder in folders):
                raise
        except Exception as error:  # libraries raise all kinds for damaged bytes
            if all(folder.exists() for folder in folders):
                raise StoreError(
                    f"{path} cannot be read ({type(error).__name__}: {str(error)[:200]}); a file is damaged. Build or copy it again"
                ) from error
    raise StoreError(
        f"{path}: its version was removed {_TRIES} times while it was opened. Wait until nothing is pruned, then open it again"
    )


def _open_folders(path: Path, folders: tuple[Path, ...], format: Format | None, keys: Sequence[str] | None, verify: Verify) -> OpenStore:
    if verify not in get_args(Verify):
        raise ConfigError(f"verify {verify!r} is not one of {', '.join(get_args(Verify))}{nearest(verify, get_args(Verify))}")
    guards = Guards(verify)
    for folder in folders:
        hold(guards, folder)
    detected = format_of(path, folders) if format is None else format
    data = joined([_select(shard, keys) for shard in _shards(path, folders, detected, guards)])
    return OpenStore(path, detected, data, None if keys is None else tuple(keys), folders, verify, guards)


def _shards(path: Path, folders: tuple[Path, ...], format_: Format, guards: Guards) -> list[Shard]:
    if format_ not in get_args(Format):
        raise ConfigError(f"format {format_!r} is not one of {', '.join(get_args(Format))}{nearest(format_, get_args(Format))}")
    named_stream = read_named(folders[0], guards) if len(folders) == 1 and format_ in ("h5", "bin") else []
    if named_stream:
        return named_stream
    if len(folders) == 1 and (file := folders[0]).is_file():
        files = [file.with_suffix(".idx") if format_ == "megatron" else file]
    elif any(streams := [read_streams(folder, guards) for folder in folders]):
        return [shard for shards in streams for shard in shards]
    else:
        files = [file for kind, pattern in PATTERNS if kind == format_ for file in data_files(folders, pattern)]
        if not files:
            format_of(path, folders)
            raise StoreError(f"{path} has no {format_} files")
    shards = read_megatron(files, guards) if format_ == "megatron" else [READERS[format_](file, guards) for file in files]
    return [_with_positions(renamed(shard, SYNONYMS)) for shard in shards]


def _with_positions(shard: Shard) -> Shard:
    """Add positions from 0 in each row to a table without positions and documents, as train-llm-from-scratch counts them."""
    if not shard.row_len or "position_ids" in shard.arrays:
        return shard
    ends = shard.ends["sequence"]
    positions = Positions(ends - shard.row_len, ends, len(shard.arrays["sequence"]))
    return replace(shard, arrays={**shard.arrays, "position_ids": positions}, ends={**shard.ends, "position_ids": ends})


def _select(shard: Shard, keys: Sequence[str] | None) -> Shard:
    if keys is None:
        return shard
    wanted = [SYNONYMS.get(key, key) for key in keys]
    missing = [key for key in wanted if key not in shard.arrays and key not in shard.objects]
    if missing:
        remedy = " Write them with --position-ids doc_reset of prep-assets preprocess." if missing[0] == "position_ids" else ""
        raise MissingKey(f"{shard.label}: no key {missing[0]!r}.{remedy} Available: {', '.join(sorted({*shard.arrays, *shard.objects}))}")

    def take_keys(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: values[key] for key in wanted if key in values}

    arrays, ends, objects, elements = map(take_keys, (shard.arrays, shard.ends, shard.objects, shard.elements))
    return Shard(shard.label, arrays, ends, objects, shard.records, elements)
