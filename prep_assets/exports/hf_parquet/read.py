"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from pathlib import Path

from prep_assets.exports.readable import Options, Readable, hf_row, parquet, said_in_columns
from prep_assets.exports.source import Source


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet(sorted((folder / "data").glob(f"{options['split']}-*-of-*.parquet")))
    return Readable(len(table), lambda number: hf_row(table.slice(number, 1).to_pylist()[0]), expected=said_in_columns)
