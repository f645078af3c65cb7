"""Reads what `write` wrote, by the description of the format alone; see `prep_assets.exports.readable`."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from prep_assets.errors import StoreError
from prep_assets.exports.readable import Options, Readable, parquet
from prep_assets.exports.source import Source
from prep_assets.stores.lines import Lines


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them: the rows of one query are one row here."""
    table = parquet([folder / f"{options['split']}.parquet"])
    assert isinstance(source, Lines)
    ends = list(accumulate(len(row["positives"]) for row in source))
    if table.column_names[:2] != ["anchor", "positive"] or not ends or len(table) != ends[-1]:
        raise StoreError(f"{len(table):,} rows of {table.column_names}, the store has {ends[-1] if ends else 0:,} positives")

    def row(number: int) -> list[list[str]]:
        start = ends[number - 1] if number else 0
        return [list(each.values()) for each in table.slice(start, ends[number] - start).to_pylist()]

    def expected(line: dict[str, Any], number: int) -> list[list[str]]:
        return [[line["query"], positive, *line["negatives"][: len(table.column_names) - 2]] for positive in line["positives"]]

    return Readable(len(ends), row, expected=expected)
