"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Options, Readable, Tokens, cut
from prep_assets.exports.source import Source
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    if isinstance(source, Lines):
        path = folder / f"{options['name'] or source.path.stem}.jsonl"
        with path.open("rb") as file:
            ends = np.cumsum([len(line) for line in file])
        return Readable(len(ends), lambda number: json.loads(_line(path, int(ends[number - 1]) if number else 0)))
    import h5py

    packed = isinstance(source, PackedStore)
    file = h5py.File(folder / f"{options['name'] or ('sft_packed' if packed else 'pile_train')}.h5", "r")
    if packed:
        tokens, mask = file["tokens"], file["loss_mask"]
        return Readable(len(tokens), lambda number: (Tokens(tokens[number].astype(np.int64), mask[number] != 0),))
    assert isinstance(source, TokenStore)
    if len(file["tokens"]) != source.tokens:
        raise StoreError(f"{len(file['tokens']):,} tokens, the store has {source.tokens:,}")
    return Readable(len(source), cut(file["tokens"], None, source))


def _line(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.readline()
