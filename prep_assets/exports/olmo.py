"""OLMo-core's numpy files: headerless token ids, a label mask and document borders, in parts of at most 1 GB.

    token_ids_part_0000.npy     raw ids: uint8, uint16, uint32 or uint64, the smallest that holds the vocabulary
    labels_mask_part_0000.npy   raw bool, true where the token is trained; unshifted, the trainer shifts
    token_ids_part_0000.csv.gz  ``start,end`` of each document in the part, no header

The ``.npy`` files have no NumPy header; read them with `numpy.memmap`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.exports.blocks import Block, count, documents
from prep_assets.exports.readable import Options, Readable, Source, Tokens
from prep_assets.exports.registry import Count, Progress, exporter
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import WrittenFile, write_json

READ_BY = "OLMo-core"
LINES = {
    "": (
        "NumpyPackedFSLDatasetConfig(",
        '    paths=["{folder}/token_ids_part_*.npy"], label_mask_paths=["{folder}/labels_mask_part_*.npy"],  # masks where there are any',
        "    expand_glob=True, sequence_length=2048, tokenizer=tokenizer)",
    )
}


@exporter("olmo", TokenStore, PackedStore, keeps_borders=False)
def olmo(
    source: TokenStore | PackedStore, out: Path, progress: Progress, *, vocab_size: Count | None = None, part_bytes: Count = 1_000_000_000
) -> None:
    """Files for `NumpyPackedFSLDataset` and its siblings; a packed table gives its documents, which the trainer packs by itself.

    `vocab_size` decides about the type of ids, uint32 where it is not given. Parts are cut between documents.
    """
    dtype = np.dtype("<u4") if vocab_size is None else np.min_scalar_type(vocab_size - 1).newbyteorder("<")
    masked = isinstance(source, PackedStore) or "loss_mask" in source.arrays
    labels = {"labels_mask": "labels_mask_part_{}.npy"} if masked else {}
    total, tokens, trained = count(source, of_documents=True), 0, 0
    number, used, most = -1, 0, part_bytes // dtype.itemsize
    with ExitStack() as opened:
        for block in documents(source):
            for part, at, chosen in _parts(block.row_lengths, max(number, 0), used, most):
                if part != number:
                    opened.close()
                    number = part
                    names = {"token_ids": "token_ids_part_{}.npy", **labels, "borders": "token_ids_part_{}.csv.gz"}
                    files = {key: opened.enter_context(WrittenFile(out / name.format(f"{part:04d}"))) for key, name in names.items()}
                _append(files, block, chosen, at, dtype)
                used = at + int(block.row_lengths[chosen].sum())
            tokens, trained = tokens + len(block.tokens), trained + int(block.trained.sum())
            progress(block.done, total)
    statistics = {"total_instances": total, "total_tokens": tokens, "trainable_tokens": trained}
    write_json(out / "dataset_statistics.json", {"overall_statistics": statistics}, indent=2)


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


def _append(files: dict[str, WrittenFile], block: Block, chosen: slice, at: int, dtype: np.dtype[Any]) -> None:
    """Append some documents of a block to the files of a part, after `at` tokens."""
    lengths = block.row_lengths[chosen]
    begin, ends = int(block.row_lengths[: chosen.start].sum()), np.cumsum(lengths)
    here = slice(begin, begin + int(lengths.sum()))
    files["token_ids"].write_array(block.ids(dtype)[here])
    if "labels_mask" in files:
        files["labels_mask"].write_array(block.trained[here])
    borders = zip((at + ends - lengths).tolist(), (at + ends).tolist(), strict=True)
    # several gzip members in one file are one stream; a fixed time and no name keep the bytes equal
    with gzip.GzipFile(filename="", mode="wb", fileobj=files["borders"], mtime=0) as file:
        file.write("".join(f"{start},{end}\n" for start, end in borders).encode())


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    size = options["vocab_size"]
    kind = "<u4" if size is None else next(f"<u{width}" for width in (1, 2, 4, 8) if size <= 256**width)
    parts = []
    for path in sorted(folder.glob("token_ids_part_*.npy")):
        ids, mask = np.memmap(path, kind, "r"), path.with_name(path.name.replace("token_ids", "labels_mask"))
        with gzip.open(path.with_suffix(".csv.gz"), "rt") as lines:
            borders = np.array([line.split(",") for line in lines], np.int64)
        parts.append((ids, np.memmap(mask, np.uint8, "r") if mask.exists() else None, borders))
    ends = np.cumsum([len(borders) for _, _, borders in parts])

    def row(number: int) -> tuple[Tokens]:
        part = int(np.searchsorted(ends, number, "right"))
        ids, mask, borders = parts[part]
        start, end = borders[number - (int(ends[part - 1]) if part else 0)]
        return (Tokens(ids[start:end].astype(np.int64), None if mask is None else mask[start:end] != 0),)

    return Readable(int(ends[-1]), row, documents=True)
