"""Which format is at a path, and which files belong to it, in which order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from prep_assets.errors import StoreError
from prep_assets.stores.manifest import MANIFEST

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
    """
    path = Path(path)
    if path.is_file():
        return _of_file(path)
    for format_, pattern in PATTERNS:
        if any(data_files(path, pattern)) and (format_ != "bin" or any(data_files(path, "*.bin"))):
            return format_
    raise NoData(f"No supported data files found at {path}: looked for .h5, .hdf5, .bin with meta.json, .jsonl, .parquet, .idx with .bin")


def _of_file(path: Path) -> Format:
    if path.suffix == ".bin" and path.with_suffix(".idx").is_file():
        return "megatron"
    if path.suffix not in SUFFIXES:
        hint = "; a .bin file is opened through its folder, which has the meta.json" if path.suffix == ".bin" else ""
        raise UnsupportedFormat(f"Unsupported file format: {path}. Known: {', '.join(SUFFIXES)}{hint}")
    return SUFFIXES[path.suffix]


def data_files(path: Path, pattern: str) -> list[Path]:
    """Files below every payload folder of `path` that match, in natural order: ``shard_2`` before ``shard_10``."""
    return [file for folder in payload_folders(path) for file in sorted(folder.rglob(pattern), key=lambda file: natural(file, folder))]


def payload_folders(path: Path) -> list[Path]:
    """Where the data of `path` is: the current version of every published store at or below it; or `path` itself, where there is none."""
    if not path.is_dir() or (path / MANIFEST).is_file():
        return [path] if path.exists() else []
    if (path / "current").exists():
        return [_current(path)]
    children = sorted(
        (child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")), key=lambda child: natural(child, path)
    )
    below = [folder for child in children for folder in payload_folders(child)]
    return below if any((folder / MANIFEST).is_file() for folder in below) else [path]


def _current(path: Path) -> Path:
    pointer = path / "current"
    return path / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer.resolve()


def natural(path: Path, base: Path) -> list[tuple[int, str]]:
    """A sort key for the path below `base` in which digits count as numbers."""
    words = re.split(r"(\d+)", path.relative_to(base).as_posix())
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]
