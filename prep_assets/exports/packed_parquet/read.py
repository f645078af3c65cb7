"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets.exports.readable import Options, Readable, Tokens, parquet
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet(sorted((folder / "splits" / options["split"]).glob("*.parquet")))

    def row(number: int) -> tuple[Tokens]:
        found = {name: np.asarray(values[0], np.int64) for name, values in table.slice(number, 1).to_pydict().items()}
        # the mask stands where the prediction is made, one place before the token that it is about
        attended = found.get("attention_mask", np.ones_like(found["input_ids"]))
        return (Tokens(found["input_ids"], np.roll(found["loss_mask"] != 0, 1), found["seq_start_id"], attended=attended),)

    return Readable(len(table), row)
