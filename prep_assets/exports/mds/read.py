"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from prep_assets.exports.readable import Options, Readable, Tokens, labelled
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    shards = json.loads((folder / "index.json").read_text("utf-8"))["shards"]
    ends = np.cumsum([shard["samples"] for shard in shards])

    def row(number: int) -> tuple[Tokens]:
        which = int(np.searchsorted(ends, number, "right"))
        shard = shards[which]
        data = np.memmap(folder / shard["raw_data"]["basename"], np.uint8, "r")
        at = int(data[4 * (1 + number - (int(ends[which - 1]) if which else 0)) :][:4].view("<u4")[0])
        names = shard["column_names"]
        sizes = data[at : at + 4 * len(names)].view("<u4").tolist()
        found, at = {}, at + 4 * len(names)
        for name, size in zip(names, sizes, strict=True):
            # a byte with the number of axes and the type of the shape, the shape of one axis, the values
            header = 1 + (1, 2, 4)[int(data[at]) & 3]
            found[name] = np.frombuffer(data[at + header : at + size].tobytes(), "<i4").astype(np.int64)
            at += size
        if "tokens" in found:
            return (Tokens(found["tokens"]),)
        return (labelled(found["input_ids"], found["labels"], np.flatnonzero(found["position_ids"] == 0)),)

    return Readable(int(ends[-1]), row)
