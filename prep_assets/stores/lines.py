"""JSONL payloads: one JSON object per line, as ``json.dumps`` writes it, and the origin of each line.

A folder ``<name>.index`` next to ``<name>.jsonl`` holds `source`, `file` and `row` of each line; no trainer reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Spool, compress, cumulative_sums, equals, fill_column
from prep_assets.stores.files import map_file
from prep_assets.stores.guards import Guards, guarded, load_columns, load_json

INDEX_FIELDS = {"source": np.int32, "file": np.int32, "row": np.int64}

_decode = msgspec.json.Decoder().decode


def row_of(line: bytes) -> dict[str, Any]:
    """Parse a line. The standard library, which wrote it, also writes NaN, infinities and lone surrogates, which are not JSON, and parses them back."""
    try:
        row: dict[str, Any] = _decode(line)
    except (msgspec.MsgspecError, ValueError):
        row = json.loads(line)
    return row


@dataclass(frozen=True, slots=True)
class Lines:
    """A JSONL payload, opened for reading."""

    path: Path
    sources: tuple[str, ...]
    index: Mapping[str, npt.NDArray[Any]]
    guards: Guards = field(default_factory=Guards, compare=False)
    ends: npt.NDArray[np.int64] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.index["row"])

    @property
    def text(self) -> Any:
        """uint8: the file, read in slices."""
        return guarded(map_file(self.path), self.guards.guard(self.path))

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """int64[n], file and row of each line packed into one number."""
        file, row = self.index["file"], self.index["row"]
        return fill_column(len(self), lambda part: (file[part].astype(np.int64) << 40) | row[part])

    def of(self, source: int) -> npt.NDArray[np.int64]:
        """Return the line numbers of a domain, given its index in `sources`."""
        return compress(equals(self.index["source"], source))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.part(0, None)

    def part(self, start: int, stop: int | None) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines from byte `start` to byte `stop`, at both of which a line begins; to the end without `stop`."""
        return map(row_of, self.written(start, stop))

    def written(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the same lines as bytes, with line breaks."""
        with self.guards.open(self.path) as file:
            file.seek(start)
            if stop is None:
                yield from file  # holds no reference to a line, which may be long
                return
            for line in file:
                yield line
                start += len(line)
                if start == stop:
                    return


def open_lines(directory: Path, name: str, guards: Guards | None = None) -> Lines:
    """Open ``<name>.jsonl`` of a store.

    Raises:
        StoreError: it is missing, or its index does not fit it.
    """
    path, index = directory / f"{name}.jsonl", directory / f"{name}.index"
    if not path.is_file() or not index.is_dir():
        raise StoreError(f"{directory} has no lines {name!r}")
    guards = guards or Guards()
    fields = load_columns(index, INDEX_FIELDS, guards)
    ends = Spool(np.int64)
    with guards.open(path) as file:
        lengths = map(len, file)
        while batch := list(islice(lengths, 4096)):
            ends.append(batch)
    if len(ends) != len(fields["row"]):
        raise StoreError(f"{path}: {len(ends):,} lines, row in its index has {len(fields['row']):,}")
    return Lines(path, tuple(load_json(index / "sources.json", guards)), fields, guards, cumulative_sums(ends.array()))
