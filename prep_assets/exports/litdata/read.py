"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Options, Readable, cut
from prep_assets.exports.source import Source
from prep_assets.stores.shards import Segmented
from prep_assets.stores.tokens import TokenStore


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    assert isinstance(source, TokenStore)
    chunks = []
    for entry in json.loads((folder / "index.json").read_text("utf-8"))["chunks"]:
        items, first, end = np.fromfile(folder / entry["filename"], "<u4", 3).tolist()
        if (items, first, end - first) != (1, 12, 4 * entry["dim"]):
            raise StoreError(f"{entry['filename']}: {items} items from byte {first} to {end}, the index says {entry['dim']:,} tokens")
        chunks.append(np.memmap(folder / entry["filename"], "<i4", "r", offset=12, shape=(entry["dim"],)))
    tokens = Segmented(chunks)
    whole = source.tokens // options["block_size"] * options["block_size"]
    if len(tokens) != whole:
        raise StoreError(f"{len(tokens):,} tokens, {whole:,} are expected: the stream without the rest after its last whole block")
    # that rest is not in the files; it is taken from the store, so that the last records can be compared whole
    return Readable(len(source), cut(Segmented([*chunks, np.asarray(source.arrays["tokens"][whole : source.tokens])]), None, source))
