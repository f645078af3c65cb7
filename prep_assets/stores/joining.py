"""Joins streams: the records of a stream on disk, appended to one that is being written."""

from __future__ import annotations

import numpy as np

from prep_assets.stores.images import ImageBlock
from prep_assets.stores.tokens import RecordWriter, TokenStore

BLOCK_TOKENS = 1 << 22
"""Tokens that are copied at a time, unless one record alone has more."""


def append_store(writer: RecordWriter, store: TokenStore) -> None:
    """Append all records of a stream, with where they came from and the images in them."""
    ends, images = np.asarray(store.ends), store.images
    first = 0
    while first < len(store):
        start = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, start + BLOCK_TOKENS, "right")))
        tokens = slice(start, int(ends[stop - 1]))
        some = images.of(first, stop)
        block = ImageBlock(
            np.asarray(images.record[some]) - first,
            np.asarray(images.start[some]),
            np.asarray(images.length[some]),
            images.references(np.arange(some.start, some.stop)),
        )
        writer.append(
            {key: np.asarray(array[tokens]) for key, array in store.arrays.items()},
            np.diff(ends[first:stop], prepend=start),
            store.file[first:stop].tolist(),
            store.row[first:stop].tolist(),
            block if len(block.images) else None,
        )
        first = stop
