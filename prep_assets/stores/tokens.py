"""Ragged per-token arrays on disk: token streams with, for SFT, a loss mask, and the ends of records.

Two formats hold the same arrays:

    bin   shard_0000/meta.json, shard_0000/<key>.bin …   AstrAI's layout: raw little-endian elements, {"key": {"shape", "dtype"}}
    h5    <name>.h5 with one flat dataset a key          train-llm-from-scratch's layout: ``tokens``

and both have a folder ``<name>.index``, which no trainer reads, with the end and the origin of each record; and, with images, ``<name>.images``
(see `prep_assets.stores.images`); and a folder for each of its lists (see `prep_assets.stores.lists`). Where pairs have
margins, ``chosen.index`` has ``margin.npy``, float32, NaN for a pair without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.samples import UNATTENDED
from prep_assets.stores.arrays import batches, equals_previous, fill_column, predecessors, sizes
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.guards import Guards, load_array, load_columns
from prep_assets.stores.images import NO_IMAGES, Images, open_images
from prep_assets.stores.lists import StoredLists, open_lists
from prep_assets.stores.readers import read_ours

StorageFormat = Literal["bin", "h5"]
BIN_NAMES = {"tokens": "sequence"}
"""AstrAI's name of a key, where it differs."""
ATTENTION = "attention_mask"
"""uint8: 1 where a token is attended, 0 where it is not. A store in which all tokens are attended has no such key."""
STARTS = "sentence_start"
"""uint8: 1 at the first token of each sentence; the tokens around a document belong to its first and last sentence. Only of documents cut into sentences."""
INDEX_FIELDS = {"ends": np.int64, "file": np.int32, "row": np.int64}


def signed(loss: Any, attention: Any) -> npt.NDArray[Any]:
    """Encode loss weight and attention of each token in one number: the loss weight if the token is attended, `UNATTENDED` minus the loss weight if it is
    not. So a token that is trained but not attended, which is invalid, is distinguishable. Without `attention`, return the loss weights."""
    weights = np.asarray(loss)
    return weights if attention is None else np.where(np.asarray(attention) != 0, weights, UNATTENDED - weights.astype(np.float32))


def unsigned(weights: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Decode `signed`: return the loss weights, and whether tokens are attended."""
    attended = weights >= 0
    return weights if attended.all() else np.where(attended, weights, UNATTENDED - weights), attended


@dataclass(frozen=True)
class TokenStore:
    """A ragged token store, opened for reading.

    Attributes:
        arrays: per-token arrays by key, each 1-D and as long as the store; memory-mapped for `bin`, read lazily from `h5`.
        ends: int64[n], ends of records.
        file, row: int32[n], int64[n]: source file and row of each record.
        images: the images in the records.
        before: for a part of a stream, the number of tokens before it.
        lists: lists beside the tokens, by name.
        margins: float32[n], by how much the reward of each record exceeds that of its counterpart, NaN where nothing says it; `None` where nothing says it
            of any record.
    """

    arrays: Mapping[str, Any]
    ends: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]
    images: Images = NO_IMAGES
    before: int = 0
    lists: Mapping[str, StoredLists] = field(default_factory=dict)
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
    if lists := open_lists(directory, name, store.tokens, len(ends), guards):
        store = replace(store, lists=lists)
    if (path := index / "margin.npy").is_file():
        margins = load_array(path, guards)
        if len(margins) != len(ends):
            raise StoreError(f"{path}: {len(margins):,} margins of {len(ends):,} records. Build it again")
        store = replace(store, margins=margins)
    for key, array in arrays.items():
        if len(array) != store.tokens:
            raise StoreError(f"{directory}: {name}/{key} has {len(array):,} elements, its index says {store.tokens:,}")
    return store
