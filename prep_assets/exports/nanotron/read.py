"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Options, Readable, Tokens
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    path = folder / f"{options['name']}.ds"
    width = int(path.with_name(f"{path.name}.metadata").read_text("utf-8").split("\n")[0].rpartition("|")[2])
    ids, ends = np.memmap(path, f"<u{width}", "r"), np.fromfile(path.with_name(f"{path.name}.index"), "<u8").astype(np.int64)
    loss = path.with_name(f"{path.name}.loss")
    mask = np.memmap(loss, np.uint8, "r") if loss.exists() else None
    if len(ids) != ends[-1] or (mask is not None and len(mask) != len(ids)):
        raise StoreError(f"{path.name}: {len(ids):,} tokens, its index ends at {ends[-1]:,}")

    def row(number: int) -> tuple[Tokens]:
        part = slice(int(ends[number - 1]) if number else 0, int(ends[number]))
        return (Tokens(ids[part].astype(np.int64), None if mask is None else mask[part] != 0),)

    return Readable(len(ends), row, documents=True)
