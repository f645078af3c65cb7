"""Ragged per-token arrays on disk: token streams with, for SFT, a loss mask, and the ends of records.

Two formats hold the same arrays:

    bin   shard_0000/meta.json, shard_0000/<key>.bin …   AstrAI's layout: raw little-endian elements, {"key": {"shape", "dtype"}}
    h5    <name>.h5 with one flat dataset a key          train-llm-from-scratch's layout: ``tokens``

and both have a folder ``<name>.index``, which no trainer reads, with the end and the origin of each record; and, with images, ``<name>.images``
(see `prep_assets.stores.images`); and, with what a teacher says of its tokens, ``<name>.teacher`` (see `prep_assets.stores.teachers`). Where pairs have
margins, ``chosen.index`` has ``margin.npy``, float32, NaN for a pair without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.samples import UNATTENDED
from prep_assets.stores.arrays import Columns, batches, cumulative_sums, equals_previous, fill_column, predecessors, sizes, stretches, zeros
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.guards import Guards, load_array, load_columns
from prep_assets.stores.h5 import GrowingH5, check_block
from prep_assets.stores.images import NO_IMAGES, ImageBlock, Images, ImageWriter, open_images
from prep_assets.stores.readers import read_ours
from prep_assets.stores.segments import BinShard
from prep_assets.stores.teachers import TeacherBlock, Teachers, TeacherWriter, open_teachers

StorageFormat = Literal["bin", "h5"]
BIN_NAMES = {"tokens": "sequence"}
"""AstrAI's name of a key, where it differs."""
Block = Mapping[str, npt.NDArray[Any]]
ATTENTION = "attention_mask"
"""uint8: 1 where a token is attended, 0 where it is not. A store in which all tokens are attended has no such key."""
INDEX_FIELDS = {"ends": np.int64, "file": np.int32, "row": np.int64}
MARGIN = {"margin": np.float32}


def signed(loss: Any, attention: Any) -> npt.NDArray[Any]:
    """Encode loss weight and attention of each token in one number: the loss weight if the token is attended, `UNATTENDED` minus the loss weight if it is
    not. So a token that is trained but not attended, which is invalid, is distinguishable. Without `attention`, return the loss weights."""
    weights = np.asarray(loss)
    return weights if attention is None else np.where(np.asarray(attention) != 0, weights, UNATTENDED - weights.astype(np.float32))


def unsigned(weights: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Decode `signed`: return the loss weights, and whether tokens are attended."""
    attended = weights >= 0
    return weights if attended.all() else np.where(attended, weights, UNATTENDED - weights), attended


class BinWriter:
    """AstrAI's mmap layout: ``<directory>/shard_%04d/{meta.json, <key>.bin}``.

    A shard holds whole records and at most `max_tokens_per_shard` tokens, unless a single record is longer. A stream without records is
    one empty shard, so that its keys and dtypes are known.
    """

    def __init__(self, directory: Path, dtypes: Mapping[str, str], *, max_tokens_per_shard: int = 100_000_000) -> None:
        self._directory, self._dtypes, self._limit = directory, dict(dtypes), max_tokens_per_shard
        self._shards, self._tokens = 0, 0
        directory.mkdir()
        self._shard = self._next_shard()

    def _next_shard(self) -> BinShard:
        self._shards += 1
        dtypes = {BIN_NAMES.get(key, key): dtype for key, dtype in self._dtypes.items()}
        return BinShard(self._directory / f"shard_{self._shards - 1:04d}", dtypes)

    def append(self, block: Block, lengths: npt.NDArray[np.int64]) -> None:
        """Append records: equally long 1-D arrays, one per key, and the length of each record."""
        check_block(block, self._dtypes, lengths)
        ends = np.cumsum(lengths)
        record, start = 0, 0
        while record < len(ends):
            size = int(ends[record]) - start
            if size and self._tokens and self._tokens + size > self._limit:
                self._shard.close()
                self._shard, self._tokens = self._next_shard(), 0
            record = max(record + 1, int(np.searchsorted(ends, start + self._limit - self._tokens, "right")))
            stop = int(ends[record - 1])
            for key in self._dtypes:
                self._shard.append(BIN_NAMES.get(key, key), block[key][start:stop])
            self._tokens, start = self._tokens + stop - start, stop

    def close(self) -> None:
        """Finish the files."""
        self._shard.close()


class RecordWriter(AbstractContextManager["RecordWriter"]):
    """Writes records to a token stream, and their index.

    Use it as a context manager; after an exception the stream has no index and cannot be opened.
    """

    def __init__(self, writer: BinWriter | GrowingH5, index: Path) -> None:
        self._writer, self._index = writer, index
        self._images, self._records, self._tokens = ImageWriter(index.parent, index.name.removesuffix(".index")), 0, 0
        self._columns = Columns(index, INDEX_FIELDS)
        self._margins: Columns | None = None
        self._teachers: TeacherWriter | None = None

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        sound = False
        try:
            self._writer.close()
            self._images.close()
            if self._teachers is not None:
                self._teachers.close()
            sound = kind is None
        finally:
            for columns in (self._margins, self._columns):
                if columns is not None:
                    columns.close() if sound else columns.discard()
            if not sound:
                with suppress(OSError):  # the folder may not be empty, and the earlier error is the one to raise
                    self._index.rmdir()

    def append(
        self,
        block: Block,
        lengths: npt.NDArray[np.int64],
        file: npt.ArrayLike,
        row: npt.ArrayLike,
        images: ImageBlock | None = None,
        teacher: TeacherBlock | None = None,
        margins: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Append records: their per-token arrays, lengths, file numbers, rows, images, the entries of a teacher, which all records have or none, and the
        margin of each, NaN where it has none."""
        if images is not None:
            self._images.append(images, self._records)
        if teacher is not None:
            self._teachers = self._teachers or TeacherWriter(self._index.parent, self._index.name.removesuffix(".index"))
            self._teachers.append(teacher)
        self._writer.append(block, lengths)
        self._append_margins(len(lengths), margins)
        ends = self._tokens + np.cumsum(lengths, dtype=np.int64)
        self._records, self._tokens = self._records + len(ends), int(ends[-1]) if len(ends) else self._tokens
        self._columns.append({"ends": ends, "file": file, "row": row})

    def _append_margins(self, count: int, margins: npt.NDArray[np.float32] | None) -> None:
        """Append margins, once a record has had one: there is no column before, and none of earlier records has any."""
        if self._margins is None:
            if margins is None or np.isnan(margins).all():
                return
            self._margins = Columns(self._index, MARGIN)
            for part in stretches(self._records):
                self._margins.append({"margin": np.full(part.stop - part.start, np.nan)})
        self._margins.append({"margin": np.full(count, np.nan) if margins is None else margins})


@dataclass(frozen=True)
class TokenStore:
    """A ragged token store, opened for reading.

    Attributes:
        arrays: per-token arrays by key, each 1-D and as long as the store; memory-mapped for `bin`, read lazily from `h5`.
        ends: int64[n], ends of records.
        file, row: int32[n], int64[n]: source file and row of each record.
        images: the images in the records.
        before: for a part of a stream, the number of tokens before it.
        teachers: what a teacher says of all tokens of the stream; `None` where there is none.
        margins: float32[n], by how much the reward of each record exceeds that of its counterpart, NaN where nothing says it; `None` where nothing says it
            of any record.
    """

    arrays: Mapping[str, Any]
    ends: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]
    images: Images = NO_IMAGES
    before: int = 0
    teachers: Teachers | None = None
    margins: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """int64[n], starts of records."""
        return fill_column(len(self), lambda part: predecessors(self.ends, part, 0))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """int64[n], tokens per record."""
        return sizes(self.ends)

    def blocks(self, size: int = 1 << 20) -> Iterator[tuple[slice, slice]]:
        """Yield slices of consecutive records and of their tokens, about `size` tokens at a time, unless a single record has more."""
        for records in batches(self.ends, size):
            tokens = self.span(records.start, records.stop)
            yield records, tokens
            note_mapped_bytes(4 * (tokens.stop - tokens.start))

    def starts_of(self, records: slice) -> npt.NDArray[np.int64]:
        """Return the starts of consecutive records."""
        return predecessors(self.ends, records, 0)

    def record(self, i: int, key: str) -> npt.NDArray[Any]:
        """Return the array of one record."""
        return np.asarray(self.arrays[key][self.span(i, i + 1)])

    def records(self, records: slice, key: str) -> list[npt.NDArray[Any]]:
        """Return the arrays of consecutive records, at least one, read at once."""
        span = self.span(records.start, records.stop)
        return np.split(np.asarray(self.arrays[key][span]), self.ends[records][:-1] - span.start)

    def weights(self, tokens: int | slice) -> npt.NDArray[Any]:
        """Return the weights of a record, or of a slice of tokens, encoded by `signed`: loss mask and attention mask in one."""
        span = tokens if isinstance(tokens, slice) else self.span(tokens, tokens + 1)
        return signed(self.arrays["loss_mask"][span], self.arrays[ATTENTION][span] if ATTENTION in self.arrays else None)

    def span(self, first: int, stop: int) -> slice:
        """Return the slice of the tokens of records ``first … stop - 1``, at least one."""
        return slice(int(self.ends[first - 1]) if first else 0, int(self.ends[stop - 1]))

    @property
    def begins_row(self) -> npt.NDArray[np.bool_]:
        """bool[n], whether a record is the first of its source row; records of one row are adjacent."""
        same_file, same_row = equals_previous(self.file), equals_previous(self.row)
        return fill_column(len(self), lambda part: ~(same_file[part] & same_row[part]), bool)


def record_writer(
    storage: StorageFormat, directory: Path, name: str, dtypes: Mapping[str, str], *, max_tokens_per_shard: int = 100_000_000
) -> RecordWriter:
    """Return the writer of the stream `name`: ``<directory>/<name>.h5`` or ``<directory>/<name>/shard_0000/…``, and ``<name>.index``."""
    if storage == "h5":
        return RecordWriter(GrowingH5(directory / f"{name}.h5", dtypes), directory / f"{name}.index")
    return RecordWriter(BinWriter(directory / name, dtypes, max_tokens_per_shard=max_tokens_per_shard), directory / f"{name}.index")


def open_tokens(directory: Path, name: str, guards: Guards | None = None) -> TokenStore:
    """Open the stream `name` of a store, in either format.

    Args:
        guards: of a folder that is not published yet.

    Raises:
        StoreError: it is missing, or its files are inconsistent.
    """
    index = directory / f"{name}.index"
    if not index.is_dir():
        raise StoreError(f"{directory} has no token stream {name!r}: {index.name} is missing")
    guards = guards or Guards()
    columns = load_columns(index, INDEX_FIELDS, guards)
    arrays = read_ours(directory, name, guards).arrays
    ends = columns["ends"]
    store = TokenStore(arrays, ends, columns["file"], columns["row"], open_images(directory, name, guards))
    if (folder := directory / f"{name}.teacher").is_dir():
        store = replace(store, teachers=open_teachers(folder, store.tokens, len(ends), guards))
    if (path := index / "margin.npy").is_file():
        margins = load_array(path, guards)
        if len(margins) != len(ends):
            raise StoreError(f"{path}: {len(margins):,} margins of {len(ends):,} records. Build it again")
        store = replace(store, margins=margins)
    for key, array in arrays.items():
        if len(array) != store.tokens:
            raise StoreError(f"{directory}: {name}/{key} has {len(array):,} elements, its index says {store.tokens:,}")
    return store


# Joins streams: the records of a stream on disk, appended to one that is being written.

BLOCK_TOKENS = 1 << 18
"""Tokens that are copied at a time, unless one record alone has more."""
MAPPED_TOKENS = 1 << 20
"""Tokens of a mapped stream that are written at a time: what is longer than a block of the new file goes there without being copied in memory."""


def append_records(
    writer: RecordWriter,
    streams: Sequence[TokenStore],
    stream_number: npt.NDArray[np.int64],
    record: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
) -> None:
    """Append records of several streams in any order, without images. They come from rows of one file.

    Args:
        stream_number, record: int64[n], the stream of each record, and its number in that stream.
        row: int64[n], the row of each.
    """
    lengths, starts = zeros(len(record)), zeros(len(record))
    for part in stretches(len(record)):
        for index, stream in enumerate(streams):
            members = np.flatnonzero(stream_number[part] == index) + part.start
            ends, begin = stream.ends[record[members]], np.where(record[members], stream.ends[record[members] - 1], 0)
            lengths[members], starts[members] = ends - begin, begin
    for part in batches(cumulative_sums(lengths), BLOCK_TOKENS):
        block: dict[str, npt.NDArray[Any]] = {}
        for key in streams[0].arrays:
            pieces = zip(stream_number[part].tolist(), starts[part].tolist(), lengths[part].tolist(), strict=True)
            block[key] = np.concatenate(
                [np.asarray(streams[number].arrays[key][start : start + length]) for number, start, length in pieces]
            )
        margins = np.full(len(lengths[part]), np.nan, np.float32)
        for number, stream in enumerate(streams):
            if stream.margins is not None:
                members = np.flatnonzero(stream_number[part] == number)
                margins[members] = stream.margins[record[part][members]]
        writer.append(block, lengths[part], [0] * len(lengths[part]), row[part].tolist(), margins=margins)


def append_store(writer: RecordWriter, store: TokenStore) -> None:
    """Append all records of a stream, with their origins and images."""
    images = store.images
    for records, tokens in store.blocks(MAPPED_TOKENS):
        first, stop = records.start, records.stop
        image_slice = images.of(first, stop)
        block = ImageBlock(
            np.asarray(images.record[image_slice]) - first,
            np.asarray(images.start[image_slice]),
            np.asarray(images.length[image_slice]),
            images.references(np.arange(image_slice.start, image_slice.stop)),
        )
        writer.append(
            {key: np.asarray(array[tokens]) for key, array in store.arrays.items()},
            np.diff(store.ends[records], prepend=tokens.start),
            store.file[records],
            store.row[records],
            block if len(block.images) else None,
            None if store.teachers is None else store.teachers.block(records, tokens),
            None if store.margins is None else np.asarray(store.margins[records]),
        )
