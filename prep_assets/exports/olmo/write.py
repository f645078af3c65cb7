"""OLMo-core's numpy files: headerless token ids, a label mask and document borders, in parts of at most 1 GB.

    token_ids_part_0000.npy     raw ids: uint8, uint16, uint32 or uint64, the smallest that holds the vocabulary
    labels_mask_part_0000.npy   raw bool, true where the token is trained; unshifted, the trainer shifts
    token_ids_part_0000.csv.gz  ``start,end`` of each document in the part, no header

The ``.npy`` files have no NumPy header; read them with `numpy.memmap`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.exports.blocks import Block, count, documents
from prep_assets.exports.options import Count
from prep_assets.exports.registry import Progress, exporter
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore


@exporter("olmo", TokenStore, PackedStore)
def olmo(
    source: TokenStore | PackedStore, out: Path, progress: Progress, *, vocab_size: Count | None = None, part_bytes: Count = 1_000_000_000
) -> None:
    """Files for `NumpyPackedFSLDataset` and its siblings; a packed table gives its documents, which the trainer packs by itself.

    `vocab_size` decides about the type of ids, uint32 where it is not given. Parts are cut between documents.
    """
    dtype = np.dtype("<u4") if vocab_size is None else np.min_scalar_type(vocab_size - 1).newbyteorder("<")
    masked = isinstance(source, PackedStore) or "loss_mask" in source.arrays
    total, tokens, trained = count(source, of_documents=True), 0, 0
    part, used, most = 0, 0, part_bytes // dtype.itemsize
    for block in documents(source):
        for number, at, chosen in _parts(block.row_lengths, part, used, most):
            _append(out, number, at, block, chosen, dtype, masked)
            part, used = number, at + int(block.row_lengths[chosen].sum())
        tokens, trained = tokens + len(block.tokens), trained + int(block.trained.sum())
        progress(block.done, total)
    statistics = {"total_instances": total, "total_tokens": tokens, "trainable_tokens": trained}
    (out / "dataset_statistics.json").write_text(json.dumps({"overall_statistics": statistics}, indent=2) + "\n", "utf-8")


def _parts(lengths: npt.NDArray[np.int64], part: int, used: int, most: int) -> Iterator[tuple[int, int, slice]]:
    """Which documents go into which part, and after how many of its tokens. A part has at most `most` tokens, or one longer document."""
    first, ends = 0, np.cumsum(lengths)
    while first < len(lengths):
        begin = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, begin + most - used, "right"))
        if stop <= first and used:
            part, used = part + 1, 0
            continue
        stop = max(stop, first + 1)
        yield part, used, slice(first, stop)
        first, used = stop, used + int(ends[stop - 1]) - begin


def _append(out: Path, part: int, at: int, block: Block, chosen: slice, dtype: np.dtype[Any], masked: bool) -> None:
    """Append some documents of a block to a part that has `at` tokens."""
    lengths = block.row_lengths[chosen]
    begin, ends = int(block.row_lengths[: chosen.start].sum()), np.cumsum(lengths)
    here = slice(begin, begin + int(lengths.sum()))
    with (out / f"token_ids_part_{part:04d}.npy").open("ab") as file:
        block.ids(dtype)[here].tofile(file)
    if masked:
        with (out / f"labels_mask_part_{part:04d}.npy").open("ab") as file:
            block.trained[here].tofile(file)
    _append_borders(out / f"token_ids_part_{part:04d}.csv.gz", at + ends - lengths, at + ends)


def _append_borders(path: Path, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
    """Append lines. Several gzip members in one file are one stream; a fixed time and no name keep the bytes equal."""
    lines = "".join(f"{start},{end}\n" for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    with path.open("ab") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(lines.encode())
