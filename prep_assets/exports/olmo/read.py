"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from prep_assets.exports.readable import Options, Readable, Tokens
from prep_assets.exports.source import Source


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
