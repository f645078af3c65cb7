"""JSONL payloads: one JSON object per line, as ``json.dumps`` writes it, and the origin of each line.

A folder ``<name>.index`` next to ``<name>.jsonl`` holds `source`, `file` and `row` of each line; no trainer reads it.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, Spool, compress, equals, fill_column
from prep_assets.stores.guards import Guards, load_columns, load_json
from prep_assets.stores.verification import WrittenFile, write_json

INDEX_FIELDS = {"source": np.int32, "file": np.int32, "row": np.int64}
_ENTRY = np.dtype([("source", "<i4"), ("file", "<i4"), ("row", "<i8"), ("start", "<i8"), ("length", "<i8"), ("hash", "<u8")])
_PACKED = struct.Struct("<iiqqqQ")
_AT_ONCE = 4096


class LinesWriter(AbstractContextManager["LinesWriter"]):
    """Writes a JSONL file and its index; with `shuffle_seed`, lines are shuffled by ``random.Random(seed)`` when it closes.

    Lines, their origins and their order are spooled to disk, so memory does not grow with their number.
    """

    def __init__(self, directory: Path, name: str, sources: tuple[str, ...], *, shuffle_seed: int | None = None) -> None:
        self._directory, self._name, self._sources, self._seed = directory, name, sources, shuffle_seed
        self._file = WrittenFile(directory / f"{name}.jsonl")
        self._entries, self._pending, self._count = Spool(_ENTRY, directory), bytearray(), 0

    def append(self, row: Mapping[str, Any], *, source: int, file: int, at: int) -> None:
        """Append one object, with the numbers of its domain and file, and its row in the file."""
        self.append_line(json.dumps(row).encode() + b"\n", source=source, file=file, at=at)

    def append_line(self, line: bytes, *, source: int, file: int, at: int) -> None:
        """Append a line verbatim."""
        hashed = 0 if self._seed is None else xxh3_64_intdigest(line)
        self._pending += _PACKED.pack(source, file, at, self._file.tell(), len(line), hashed)
        self._file.write(line)
        self._count += 1
        if self._count % _AT_ONCE == 0:
            self._spool_pending()

    def _spool_pending(self) -> None:
        self._entries.append(np.frombuffer(self._pending, _ENTRY))
        self._pending = bytearray()

    def __len__(self) -> int:
        return self._count

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._file.close()
        if kind is not None:
            return
        self._spool_pending()
        entries = self._entries.array()
        parts = [slice(first, first + _AT_ONCE) for first in range(0, self._count, _AT_ONCE)]
        if self._seed is None:
            self._write_index(entries[part] for part in parts)
        else:
            order = _shuffled(self._count, self._seed, self._directory)
            self._write_shuffled(entries[order[part]] for part in parts)
            self._write_index(entries[order[part]] for part in parts)

    def _write_index(self, entries: Iterable[npt.NDArray[Any]]) -> None:
        index = self._directory / f"{self._name}.index"
        columns = Columns(index, INDEX_FIELDS)
        for block in entries:
            columns.append({column: block[column] for column in INDEX_FIELDS})
        columns.close()
        write_json(index / "sources.json", list(self._sources))

    def _write_shuffled(self, entries: Iterable[npt.NDArray[Any]]) -> None:
        path = self._directory / f"{self._name}.jsonl"
        with tempfile.TemporaryFile(dir=self._directory) as spool:
            with path.open("rb") as unordered:
                shutil.copyfileobj(unordered, spool)
            with WrittenFile(path) as out:
                for start, length, expected_hash in (entry for block in entries for entry in block[["start", "length", "hash"]].tolist()):
                    spool.seek(start)
                    line = spool.read(length)
                    if xxh3_64_intdigest(line) != expected_hash:
                        raise StoreError(
                            f"{path}: the line at byte {start:,} read back is not what was written. The disk or the memory is faulty"
                        )
                    out.write(line)


def _shuffled(count: int, seed: int, folder: Path) -> npt.NDArray[np.int64]:
    """Return ``range(count)`` shuffled by ``random.Random(seed)``."""
    order = Spool(np.int64, folder)
    for first in range(0, count, _AT_ONCE):
        order.append(np.arange(first, min(first + _AT_ONCE, count)))
    permutation = order.array()
    random.Random(seed).shuffle(memoryview(permutation))  # type: ignore[arg-type]
    return permutation


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

    def __len__(self) -> int:
        return len(self.index["row"])

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
    with guards.open(path) as file:
        count = sum(1 for _ in file)
    if count != len(fields["row"]):
        raise StoreError(f"{path}: {count:,} lines, row in its index has {len(fields['row']):,}")
    return Lines(path, tuple(load_json(index / "sources.json", guards)), fields, guards)
