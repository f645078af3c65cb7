"""Which format is at a path, and which files belong to it, in which order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from prep_assets.errors import StoreError
from prep_assets.stores.bucket import Bucket, checked, is_bucket
from prep_assets.stores.catalog import KEY
from prep_assets.stores.manifest import MANIFEST
from prep_assets.stores.mirror import bucket_of, local_root
from prep_assets.stores.pointers import target
from prep_assets.stores.published import Place, shelf_of
from prep_assets.stores.version_folders import VERSIONS, version_of

Format = Literal["h5", "bin", "jsonl", "parquet", "megatron"]
PATTERNS: tuple[tuple[Format, str], ...] = (
    ("h5", "*.h5"),
    ("h5", "*.hdf5"),
    ("bin", "meta.json"),
    ("jsonl", "*.jsonl"),
    ("parquet", "*.parquet"),
    ("megatron", "*.idx"),
)
"""Which files a folder of each format has, the first that is found wins."""
SUFFIXES = {pattern.removeprefix("*"): format_ for format_, pattern in PATTERNS if pattern.startswith("*")}

_REMEDY = "Materialize the asset again; to look at a version whatever its checks say, open its own folder"


class NoData(StoreError, FileNotFoundError):
    """Nothing at a path, or nothing in a folder, that a store can be read from."""


class UnsupportedFormat(StoreError, ValueError):
    """A file of a format that no reader knows."""


def detect_format(path: Path | str) -> Format:
    """The format of a file or a folder, by names alone.

    A folder is searched with everything below it. As in AstrAI, HDF5 wins over ``.bin`` with ``meta.json``, and both over JSONL; Parquet
    and Megatron's ``.idx`` come last.

    Raises:
        NoData: (a `FileNotFoundError`) there is nothing at `path`, or no data file in it.
        UnsupportedFormat: (a `ValueError`) a file whose name says no known format.
        StoreError: a store of ours without a published version.
    """
    path = local_path(path)
    return format_of(path, payload_folders(path))


def format_of(path: Path, folders: Sequence[Path]) -> Format:
    """`detect_format` of a path whose `payload_folders` are known."""
    if path.is_file():
        return _of_file(path)
    for format_, pattern in PATTERNS:
        if any(data_files(folders, pattern)) and (format_ != "bin" or any(data_files(folders, "*.bin"))):
            return format_
    raise NoData(f"No supported data files found at {path}: looked for .h5, .hdf5, .bin with meta.json, .jsonl, .parquet, .idx with .bin")


def _of_file(path: Path) -> Format:
    if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
        return "megatron"
    if path.suffix not in SUFFIXES:
        hint = "; a .bin file is opened through its folder, which has the meta.json" if path.suffix == ".bin" else ""
        raise UnsupportedFormat(f"Unsupported file format: {path}. Known: {', '.join(SUFFIXES)}{hint}")
    return SUFFIXES[path.suffix]


def data_files(folders: Sequence[Path], pattern: str) -> list[Path]:
    """Files below each of `folders` that match, in natural order: ``shard_2`` before ``shard_10``."""
    return [file for folder in folders for file in sorted(folder.rglob(pattern), key=lambda file: natural(file, folder))]


def payload_folders(path: Path) -> list[Path]:
    """Where the data of `path` is: the current version of every published store at or below it; or `path` itself, where there is none.

    Inside a version the path is free of links, so that it stays that version when `current` moves.

    Raises:
        StoreError: a store at or below `path` has no published version. Neither its candidate nor any other version is read instead: their
            checks may have failed.
    """
    if (bucket := bucket_of(path)) is not None and version_of(path) is None:
        if found := _fetched(path, bucket):
            return found
        raise NoData(f"{bucket.url}: there is no store. Check the address; prep-assets status shows where stores are")
    if not path.is_dir() or (path / MANIFEST).is_file():
        return [_pinned(path)] if path.exists() else _set_aside(path)
    if _is_store(path):
        return [_current(path)]
    below = [folder for child in _children(path) for folder in payload_folders(child)]
    published = any((folder / MANIFEST).is_file() for folder in below)
    if published and path.resolve().name == VERSIONS:
        raise StoreError(
            f"{path} holds every version of a store, also those whose checks failed. Open {path.resolve().parent}, or one of them"
        )
    return below if published else [_pinned(path)]


def local_path(path: Path | str) -> Path:
    """A path as it is; for the address of a store, of several, or of a version in a bucket the folder that stands for it."""
    if not is_bucket(path):
        return Path(path)
    place, version, rest = checked(str(path)).partition(f"/{VERSIONS}/")
    if not version:
        return local_root(place)
    name, _, inside = rest.partition("/")
    return shelf_of(local_root(place)).published(name).directory / inside


def _fetched(path: Path, bucket: Bucket, depth: int = 2) -> list[Path]:
    """The current version of every store at an address, or so many folders below it, fetched."""
    if bucket.get(KEY) is None:
        below = sorted(bucket.folders("") if depth else (), key=lambda child: natural(path / child, path))
        return [folder for child in below for folder in _fetched(path / child, bucket.below(child), depth - 1)]
    current = Place(path.parent, path.name).current()
    if current is None:
        raise StoreError(f"no published store in {bucket.url}: its catalog has no `current`; its checks failed or did not end. {_REMEDY}")
    return [current.directory.resolve()]


def _is_store(path: Path) -> bool:
    # is_symlink: a dangling link does not exist; a plain folder named `candidate` is someone's data
    current, candidate = path / "current", path / "candidate"
    return (path / VERSIONS).is_dir() or current.exists() or current.is_symlink() or candidate.is_symlink() or candidate.is_file()


def _set_aside(path: Path) -> list[Path]:
    """What was current where a path leads, if damage was found in it. It is refused in words where it is opened."""
    place = next((each.parent for each in (path, *path.parents) if each.name == "current"), None)
    damaged = None if place is None else target(place, "damaged")
    return [] if damaged is None else [damaged]


def _children(path: Path) -> list[Path]:
    folders = (child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    return sorted(folders, key=lambda child: natural(child, path))


def _current(path: Path) -> Path:
    pointer = path / "current"
    if not pointer.exists() and not pointer.is_symlink():
        if aside := _set_aside(pointer):
            return aside[0]
        raise StoreError(f"no published store in {path}: it has no `current`; its build was not finished, or its checks failed. {_REMEDY}")
    # a file system without links has a pointer file instead
    try:
        version = (path / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()
    except (RuntimeError, ValueError) as error:  # a link to itself; no text
        raise StoreError(f"no published store in {path}: `current` leads nowhere ({error}). {_REMEDY}") from error
    if not version.is_dir():
        raise StoreError(f"no published store in {path}: `current` points to {version}, which is not there. {_REMEDY}")
    if (path / VERSIONS).is_dir() and not (version / MANIFEST).is_file():
        raise StoreError(f"no published store in {path}: `current` points to {version}, which has no {MANIFEST}. {_REMEDY}")
    return version


def _pinned(path: Path) -> Path:
    """`path` without links where it is in a version; elsewhere as it is, because the name of a link can say more than the file's."""
    return path if version_of(path) is None else path.resolve()


def natural(path: Path, base: Path) -> list[tuple[int, str]]:
    """A sort key for the path below `base` in which digits count as numbers."""
    words = re.split(r"(\d+)", path.relative_to(base).as_posix())
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]
