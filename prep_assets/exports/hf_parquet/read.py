"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.exports.readable import Options, Readable, hf_row, parquet, said_in_columns
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet(sorted((folder / "data").glob(f"{options['split']}-*-of-*.parquet")))

    def row(number: int) -> Any:
        found = table.slice(number, 1).to_pylist()[0]
        read = hf_row(found)
        if "labels" not in found:
            return read
        return (replace(read[0], attended=np.array(found.get("attention_mask", np.ones(len(found["labels"]))))),)

    return Readable(len(table), row, expected=said_in_columns)
