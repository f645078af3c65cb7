"""The writer of all tables: the columns of a schema, and where each record comes from.

with TableWriter(folder, "train", TOKENS, {"tokens": "int32", "loss_mask": "uint8"}) as writer:
    writer.append({"tokens": ids, "loss_mask": mask}, lengths, file, row)

schema     files
TOKENS     train/shard_0000/{sequence.bin, loss_mask.bin, meta.json} … or train.h5     train.index/{ends, file, row}.npy
PAIRS      two of these: chosen, rejected                                              chosen.index/margin.npy
GROUPS     three of these: prompts, responses, rewards                                 prompts.index/{source.npy, sources.json}
PACKED     table/shard_0000/… or table.h5, rows of one length                          table.documents/…, written with `write_documents`
LINES      rows.jsonl                                                                  rows.index/{source, file, row}.npy, sources.json
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns, Spool, batches, cumulative_sums, stretches, zeros
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.guards import Guards
from prep_assets.stores.h5 import FixedH5, GrowingH5
from prep_assets.stores.images import ImageBlock, ImageWriter
from prep_assets.stores.lists import Entries, ListWriter, declared
from prep_assets.stores.shards import BIN_NAMES, INDEX_FIELDS, BinShards, StorageFormat
from prep_assets.stores.table import LINE_FIELDS, MARGIN, TOKENS, Schema, Table, open_stream
from prep_assets.stores.verification import WrittenFile, write_json

SHARD = 100_000_000
"""Tokens of a shard by default."""
COPIED = 1 << 20
"""Tokens of a stream that are copied at a time: what is longer than a block of the new file goes there without a copy in memory."""
GATHERED = 1 << 18
"""Tokens that are copied at a time in another order, unless one record alone has more."""


class TableWriter(AbstractContextManager["TableWriter"]):
    """Writes the records of a table.

    A context manager: after an exception there is no index, so that the table cannot be opened.

    Args:
        name: of the stream, where the columns of the schema have no files of their own.
        dtypes: of the columns that the table has, by name; of optional values of records none.
        domains: names that `domain` indexes, of lines and of groups.
        rows: number of rows and their length, of a packed table.
        shuffle_seed: of lines, which are shuffled by ``random.Random(seed)`` in the end.
        max_tokens_per_shard: of `bin`. A shard holds whole records, at least one.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        schema: Schema = TOKENS,
        dtypes: Mapping[str, str] | None = None,
        *,
        storage: StorageFormat = "bin",
        domains: Sequence[str] | None = None,
        rows: tuple[int, int] | None = None,
        shuffle_seed: int | None = None,
        max_tokens_per_shard: int = SHARD,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._domains, self._rows = name, domains, rows
        self._columns = {column.name: column for column in schema.columns}
        self._stack, self._streams, self._count = ExitStack(), dict[str, _Stream](), 0
        self._lines = self._stack.enter_context(_Lines(folder, name, shuffle_seed)) if schema.role("json") else None
        files: dict[str, dict[str, str]] = {}
        for column, dtype in (dtypes or {}).items():
            if column not in self._columns:
                raise StoreError(f"{folder / name}: {schema.name} has no column {column!r}. It has: {', '.join(self._columns)}")
            files.setdefault(self._columns[column].file or name, {})[self._columns[column].key or column] = dtype
        for number, (file, own) in enumerate(files.items()):
            arrays: GrowingH5 | FixedH5 | BinShards
            if storage == "bin":
                arrays = BinShards(folder / file, {BIN_NAMES.get(key, key): dtype for key, dtype in own.items()}, max_tokens_per_shard)
            elif rows is None:
                arrays = GrowingH5(folder / f"{file}.h5", own)
            else:
                arrays = FixedH5(folder / f"{file}.h5", {key: (rows, dtype) for key, dtype in own.items()}, libver="v108")
            index = None if rows else folder / f"{file}.index"
            self._streams[file] = self._stack.enter_context(_Stream(arrays, index, own, indexed=domains is not None and not number))
        self._index = next((folder / f"{file}.index" for file in (files or [name])), folder)

    def __len__(self) -> int:
        return self._count

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._stack.__exit__(kind, *rest)
        if kind is not None:
            return
        if self._rows and self._count != self._rows[0]:
            raise StoreError(f"{self._name}: {self._count:,} rows written, {self._rows[0]:,} planned")
        if self._domains is not None and not self._rows:
            write_json(self._index / "sources.json", list(self._domains))

    def append(
        self,
        columns: Mapping[str, npt.NDArray[Any]],
        lengths: Ints | Mapping[str, Ints] | None = None,
        file: npt.ArrayLike = (),
        row: npt.ArrayLike = (),
        domain: npt.ArrayLike = 0,
        *,
        images: ImageBlock | None = None,
        lists: Mapping[str, Entries] = {},
    ) -> None:
        """Append records.

        Args:
            columns: values of each, end to end; of a packed table (R, row length).
            lengths: of the arrays of the columns, by file, where the schema has several; a packed table needs none.
            file, row, domain: where each record comes from.
            images: files that tokens stand for.
            lists: lists beside tokens, by name, which all records have or none.
        """
        if self._rows:
            self._count += len(next(iter(columns.values())))
            lengths = np.full(len(next(iter(columns.values()))), self._rows[1])
        for name, stream in self._streams.items():
            own = {
                self._columns[column].key or column: values.reshape(-1) if self._rows else values
                for column, values in columns.items()
                if (self._columns[column].file or self._name) == name
            }
            own_lengths = lengths[name] if isinstance(lengths, Mapping) else lengths
            assert own_lengths is not None
            counted = next((column.counted for column in self._columns.values() if column.file == name and column.counted), "")
            origins: Sequence[Any] = (file, row, domain)
            if counted:
                assert isinstance(lengths, Mapping)
                origins = [np.repeat(np.broadcast_to(values, len(lengths[counted])), lengths[counted]) for values in origins]
            stream.append(own, own_lengths, origins, images, lists)
        self._count += 0 if self._rows else len(np.atleast_1d(row))

    def append_object(self, content: Mapping[str, Any], file: int, row: int, domain: int = 0) -> None:
        """Append a line of one object."""
        self.append_line(json.dumps(content).encode() + b"\n", file, row, domain)

    def append_line(self, line: bytes, file: int, row: int, domain: int = 0) -> None:
        """Append a line verbatim."""
        assert self._lines is not None
        self._lines.append(line, domain, file, row)
        self._count += 1

    def append_stored(self, folder: Path, name: str = "", guards: Guards | None = None, domain: int = 0) -> None:
        """Append all records of the stored table `name` of the same schema, with their origins.

        Raises:
            StoreError: it is missing, or its files are inconsistent.
        """
        for file, stream in self._streams.items():
            stored = open_stream(folder, name or file, guards=guards)
            for records in batches(next(iter(stored.columns.values())).ends, COPIED):
                stream.append_part(stored, records, domain)
                note_mapped_bytes(4 * COPIED)

    def append_records(self, streams: Sequence[Table], stream_number: Ints, record: Ints, row: Ints) -> None:
        """Append records of several streams of tokens in any order, without lists. They come from rows of one file.

        Args:
            stream_number, record: int64[n], the stream of each record, and its number in that stream.
            row: int64[n], the row of each.
        """
        lengths, starts = zeros(len(record)), zeros(len(record))
        for part in stretches(len(record)):
            for index, stream in enumerate(streams):
                members = np.flatnonzero(stream_number[part] == index) + part.start
                ends = stream.columns["tokens"].ends
                begin = np.where(record[members], ends[record[members] - 1], 0)
                lengths[members], starts[members] = ends[record[members]] - begin, begin
        for part in batches(cumulative_sums(lengths), GATHERED):
            block: dict[str, npt.NDArray[Any]] = {}
            for key in (name for name in streams[0].columns if name != MARGIN):
                pieces = zip(stream_number[part].tolist(), starts[part].tolist(), lengths[part].tolist(), strict=True)
                block[key] = np.concatenate(
                    [np.asarray(streams[number].columns[key].values[start : start + length]) for number, start, length in pieces]
                )
            margins = np.full(len(lengths[part]), np.nan, np.float32)
            for number, stream in enumerate(streams):
                if MARGIN in stream.columns:
                    members = np.flatnonzero(stream_number[part] == number)
                    margins[members] = stream.columns[MARGIN].values[record[part][members]]
            self.append({**block, MARGIN: margins}, lengths[part], np.zeros(len(lengths[part]), np.int32), row[part])


class _Stream(AbstractContextManager["_Stream"]):
    """Arrays with one index."""

    def __init__(self, arrays: GrowingH5 | FixedH5 | BinShards, index: Path | None, keys: Mapping[str, str], *, indexed: bool) -> None:
        self._arrays, self._index, self._keys = arrays, index, keys
        self._columns = None if index is None else Columns(index, INDEX_FIELDS | ({"source": np.int32} if indexed else {}))
        self._images = None if index is None else ImageWriter(index.parent, index.stem)
        self._records = self._tokens = 0
        self._margins: Columns | None = None
        self._lists: dict[str, ListWriter] = {}

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        sound = False
        try:
            self._arrays.close()
            for beside in (self._images, *self._lists.values()):
                if beside is not None:
                    beside.close()
            sound = kind is None
        finally:
            for columns in (self._margins, self._columns):
                if columns is not None:
                    columns.close() if sound else columns.discard()
            if self._index is not None and not sound:
                with suppress(OSError):  # the folder may not be empty, and the earlier error is the one to raise
                    self._index.rmdir()

    def append(
        self,
        block: Mapping[str, npt.NDArray[Any]],
        lengths: Ints,
        origins: Sequence[npt.ArrayLike],
        images: ImageBlock | None,
        lists: Mapping[str, Entries],
    ) -> None:
        arrays = {BIN_NAMES.get(key, key): block[key] for key in self._keys} if isinstance(self._arrays, BinShards) else block
        self._arrays.append(arrays, lengths)
        if self._columns is None or self._index is None:
            return
        if images is not None and self._images is not None:
            self._images.append(images, self._records)
        for name, entries in lists.items():
            if name not in self._lists:
                self._lists[name] = ListWriter(self._index.with_suffix(f".{name}"), declared()[name].fields)
            self._lists[name].append(entries)
        self._append_margins(len(lengths), block.get(MARGIN))
        ends = self._tokens + np.cumsum(lengths, dtype=np.int64)
        self._records, self._tokens = self._records + len(ends), int(ends[-1]) if len(ends) else self._tokens
        file, row, source = origins
        self._columns.append({"ends": ends, "file": file, "row": row, "source": np.broadcast_to(source, len(ends))})

    def append_part(self, stored: Table, records: slice, domain: int) -> None:
        """Append consecutive records of a stored stream."""
        block = {key: column.read(records)[0] for key, column in stored.columns.items()}
        ids = next(iter(stored.columns.values()))
        tokens, lengths = ids.span(records), ids.ends[records] - ids.starts_of(records)
        which = stored.images.of(records.start, records.stop)
        record, start, length = (np.asarray(column[which]) for column in (stored.images.record, stored.images.start, stored.images.length))
        images = ImageBlock(record - records.start, start, length, stored.images.references(np.arange(which.start, which.stop)))
        lists = {name: entries.read(records, tokens) for name, entries in stored.lists.items()}
        self.append(block, lengths, (stored.origins.file[records], stored.origins.row[records], domain), images, lists)

    def _append_margins(self, count: int, margins: npt.NDArray[Any] | None) -> None:
        """Append margins, once a record has had one: there is no column before, and none of earlier records has any."""
        if self._margins is None:
            if self._index is None or margins is None or np.isnan(margins).all():
                return
            self._margins = Columns(self._index, {MARGIN: np.float32})
            for part in stretches(self._records):
                self._margins.append({MARGIN: np.full(part.stop - part.start, np.nan)})
        self._margins.append({MARGIN: np.full(count, np.nan) if margins is None else margins})


class _Lines(AbstractContextManager["_Lines"]):
    """A JSONL file with its index. Lines, their origins and their order are spooled to disk, so memory does not grow with their number."""

    def __init__(self, folder: Path, name: str, seed: int | None) -> None:
        self._folder, self._name, self._seed = folder, name, seed
        self._file = WrittenFile(folder / f"{name}.jsonl")
        self._entries, self._pending, self._count = Spool(_ENTRY, folder), bytearray(), 0

    def append(self, line: bytes, source: int, file: int, row: int) -> None:
        hashed = 0 if self._seed is None else xxh3_64_intdigest(line)
        self._pending += _PACKED.pack(source, file, row, self._file.tell(), len(line), hashed)
        self._file.write(line)
        self._count += 1
        if self._count % AT_ONCE == 0:
            self._spool_pending()

    def _spool_pending(self) -> None:
        self._entries.append(np.frombuffer(self._pending, _ENTRY))
        self._pending = bytearray()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._file.close()
        if kind is not None:
            return
        self._spool_pending()
        entries, order = self._entries.array(), None if self._seed is None else _shuffled(self._count, self._seed, self._folder)

        def in_order() -> Iterator[npt.NDArray[Any]]:
            for first in range(0, self._count, AT_ONCE):
                part = slice(first, first + AT_ONCE)
                yield entries[part if order is None else order[part]]

        if order is not None:
            self._write_again(in_order())
        columns = Columns(self._folder / f"{self._name}.index", LINE_FIELDS)
        for block in in_order():
            columns.append({column: block[column] for column in LINE_FIELDS})
        columns.close()

    def _write_again(self, entries: Iterator[npt.NDArray[Any]]) -> None:
        """Write the lines in another order.

        Raises:
            StoreError: the disk does not return what was written.
        """
        path = self._file.path
        with tempfile.TemporaryFile(dir=self._folder) as spool:
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


_ENTRY = np.dtype([("source", "<i4"), ("file", "<i4"), ("row", "<i8"), ("start", "<i8"), ("length", "<i8"), ("hash", "<u8")])
_PACKED = struct.Struct("<iiqqqQ")
AT_ONCE = 4096
"""Lines whose origins are handled together."""


def _shuffled(count: int, seed: int, folder: Path) -> Ints:
    """Return ``range(count)`` shuffled by ``random.Random(seed)``."""
    order = Spool(np.int64, folder)
    for first in range(0, count, AT_ONCE):
        order.append(np.arange(first, min(first + AT_ONCE, count)))
    permutation = order.array()
    random.Random(seed).shuffle(memoryview(permutation))  # type: ignore[arg-type]
    return permutation
