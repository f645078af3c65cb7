"""Joins streams: the records of a stream on disk, appended to one that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.columns import batches, stretches, sums, zeros
from prep_assets.stores.images import ImageBlock
from prep_assets.stores.tokens import RecordWriter, TokenStore

BLOCK_TOKENS = 1 << 18
"""Tokens that are copied at a time, unless one record alone has more."""
MAPPED_TOKENS = 1 << 20
"""Tokens of a mapped stream that are written at a time: what is longer than a block of the new file goes there without being copied in memory."""


def append_records(
    writer: RecordWriter,
    parts: Sequence[TokenStore],
    source: npt.NDArray[np.int64],
    record: npt.NDArray[np.int64],
    row: npt.NDArray[np.int64],
) -> None:
    """Append records of several streams in any order, without images. They come from rows of one file.

    Args:
        source, record: int64[n], the number of each record's stream and its number there.
        row: int64[n], the row of each.
    """
    lengths, starts = zeros(len(record)), zeros(len(record))
    for some in stretches(len(record)):
        for number, part in enumerate(parts):
            places = np.flatnonzero(source[some] == number) + some.start
            ends, first = part.ends[record[places]], np.where(record[places], part.ends[record[places] - 1], 0)
            lengths[places], starts[places] = ends - first, first
    for some in batches(sums(lengths), BLOCK_TOKENS):
        block: dict[str, npt.NDArray[Any]] = {}
        for key in parts[0].arrays:
            pieces = zip(source[some].tolist(), starts[some].tolist(), lengths[some].tolist(), strict=True)
            block[key] = np.concatenate([np.asarray(parts[of].arrays[key][start : start + length]) for of, start, length in pieces])
        writer.append(block, lengths[some], [0] * len(lengths[some]), row[some].tolist())


def append_store(writer: RecordWriter, store: TokenStore) -> None:
    """Append all records of a stream, with where they came from and the images in them."""
    images = store.images
    for records, tokens in store.blocks(MAPPED_TOKENS):
        first, stop = records.start, records.stop
        some = images.of(first, stop)
        block = ImageBlock(
            np.asarray(images.record[some]) - first,
            np.asarray(images.start[some]),
            np.asarray(images.length[some]),
            images.references(np.arange(some.start, some.stop)),
        )
        writer.append(
            {key: np.asarray(array[tokens]) for key, array in store.arrays.items()},
            np.diff(store.ends[records], prepend=tokens.start),
            store.file[records],
            store.row[records],
            block if len(block.images) else None,
        )
