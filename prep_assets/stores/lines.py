"""JSONL payloads: one JSON object a line, as ``json.dumps`` writes it, and where each line came from.

Beside ``<name>.jsonl`` stands a folder ``<name>.index`` with `source`, `file` and `row` of each line, which no trainer reads.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.disk.arrays import save_array
from prep_assets.disk.written import WrittenFile, write_json
from prep_assets.errors import StoreError
from prep_assets.stores.guards import Guards, load_array, load_json

INDEX_FIELDS = {"source": np.int32, "file": np.int32, "row": np.int64}


class LinesWriter:
    """Writes a JSONL file and its index; with `shuffle_seed`, in an order drawn by ``random.Random(seed)`` when it closes.

    Lines are spooled to disk, so memory holds a few numbers for each line and never their text.
    """

    def __init__(self, directory: Path, name: str, sources: tuple[str, ...], *, shuffle_seed: int | None = None) -> None:
        self._directory, self._name, self._sources, self._seed = directory, name, sources, shuffle_seed
        self._file = WrittenFile(directory / f"{name}.jsonl")
        self._lengths, self._hashes = array("Q"), array("Q")
        self._origin = {name: array("q") for name in INDEX_FIELDS}

    def __enter__(self) -> LinesWriter:
        return self

    def append(self, row: Mapping[str, Any], *, source: int, file: int, at: int) -> None:
        """Append one object, with the numbers of its domain and file and its row there."""
        self.append_line(json.dumps(row).encode() + b"\n", source=source, file=file, at=at)

    def append_line(self, line: bytes, *, source: int, file: int, at: int) -> None:
        """Append a line as it is."""
        self._file.write(line)
        self._lengths.append(len(line))
        if self._seed is not None:
            self._hashes.append(xxh3_64_intdigest(line))
        for column, value in (("source", source), ("file", file), ("row", at)):
            self._origin[column].append(value)

    def __len__(self) -> int:
        return len(self._lengths)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if kind is not None:
            return
        order = array("Q", range(len(self._lengths)))
        if self._seed is not None:
            random.Random(self._seed).shuffle(order)
            self._reorder(order)
        index = self._directory / f"{self._name}.index"
        index.mkdir()
        for column, dtype in INDEX_FIELDS.items():
            save_array(index / f"{column}.npy", np.asarray(self._origin[column]).astype(dtype)[np.asarray(order)])
        write_json(index / "sources.json", list(self._sources))

    def _reorder(self, order: array[int]) -> None:
        path = self._directory / f"{self._name}.jsonl"
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._lengths, dtype=np.int64)])
        with tempfile.TemporaryFile(dir=self._directory) as spool:
            with path.open("rb") as written:
                shutil.copyfileobj(written, spool)
            with WrittenFile(path) as out:
                for number in order:
                    spool.seek(int(starts[number]))
                    line = spool.read(self._lengths[number])
                    if xxh3_64_intdigest(line) != self._hashes[number]:
                        raise StoreError(f"{path}: line {number:,} read back is not what was written. The disk or the memory is faulty")
                    out.write(line)


@dataclass(frozen=True, slots=True)
class Lines:
    """A JSONL payload, opened for reading."""

    path: Path
    sources: tuple[str, ...]
    index: Mapping[str, npt.NDArray[Any]]
    guards: Guards = field(default_factory=Guards, compare=False)

    def __len__(self) -> int:
        return len(self.index["row"])

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """int64[n], file and row of each line as one number."""
        return (self.index["file"].astype(np.int64) << 40) | self.index["row"].astype(np.int64)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.part(0, None)

    def part(self, start: int, stop: int | None) -> Iterator[dict[str, Any]]:
        """The lines between two bytes at which lines begin; to the end where there is no `stop`."""
        return map(json.loads, self.written(start, stop))

    def written(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The same as they are written, each with its line break."""
        with self.guards.open(self.path) as file:
            file.seek(start)
            for line in file:
                yield line
                start += len(line)
                if start == stop:
                    return


def open_lines(directory: Path, name: str) -> Lines:
    """Open ``<name>.jsonl`` of a store.

    Raises:
        StoreError: it is not there, or its index does not fit it.
    """
    path, index = directory / f"{name}.jsonl", directory / f"{name}.index"
    if not path.is_file() or not index.is_dir():
        raise StoreError(f"{directory} has no lines {name!r}")
    guards = Guards()
    fields = {column: np.array(load_array(index / f"{column}.npy", guards)) for column in INDEX_FIELDS}
    with guards.open(path) as file:
        count = sum(1 for _ in file)
    for column, values in fields.items():
        if count != len(values):
            raise StoreError(f"{path}: {count:,} lines, {column} in its index has {len(values):,}")
    return Lines(path, tuple(load_json(index / "sources.json", guards)), fields, guards)
