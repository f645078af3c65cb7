"""Reads JSONL and Parquet. Columns that are lists of numbers become flat arrays in memory; any other value is read with its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.guards import UNGUARDED, Guards
from prep_assets.stores.segments import Shard


def read_jsonl(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file. Every line is decoded once: memory holds the numbers, and for text the places of lines.

    Raises:
        StoreError: a line that is no JSON object, or that has other lists of numbers than the first. Any other key may be left out of a line, where
            its value is `None`.
    """
    return [_jsonl(file, guards) for file in files]


def _jsonl(path: Path, guards: Guards) -> Shard:
    places: list[int] = []
    lists: dict[str, list[npt.NDArray[Any]] | None] = {}
    at = 0
    with guards.open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                places.append(at)
                _gather(lists, _decoded(line, path, number), path, number)
            at += len(line)
    flat = {key: parts for key, parts in lists.items() if parts is not None}
    ends = {key: np.cumsum([len(part) for part in parts], dtype=np.int64) for key, parts in flat.items()}
    arrays = {key: _concatenated(parts) for key, parts in flat.items()}
    objects = {key: _line_value(path, places, key, guards) for key in lists if key not in flat}
    return Shard(str(path), arrays, ends, objects, len(places))


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path} line {number}: no JSON ({error})") from error
    if not isinstance(row, dict):
        raise StoreError(f"{path} line {number}: {type(row).__name__}, a line must be an object")
    return row


def _gather(lists: dict[str, list[npt.NDArray[Any]] | None], row: dict[str, Any], path: Path, number: int) -> None:
    if not lists:
        lists.update({key: [] if _is_numbers(value) else None for key, value in row.items()})
    for key in row.keys() - lists.keys():
        if not _is_numbers(row[key]):
            lists[key] = None
    if any(key not in lists for key in row) or any(key not in row for key, parts in lists.items() if parts is not None):
        raise StoreError(f"{path} line {number} has the keys {sorted(row)}, the first line has {sorted(lists)}")
    for key, parts in lists.items():
        if parts is not None:
            if not _is_numbers(row[key]):
                raise StoreError(f"{path} line {number}: {key!r} is a list of numbers in the first line, here it is {str(row[key])[:40]!r}")
            parts.append(np.asarray(row[key]))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _concatenated(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    filled = [part for part in parts if len(part)]
    return np.concatenate(filled) if filled else np.zeros(0, np.int64)


def _line_value(path: Path, places: Sequence[int], key: str, guards: Guards) -> Callable[[int], Any]:
    def value(i: int) -> Any:
        with guards.open(path) as file:
            file.seek(places[i])
            return typed(_decoded(file.readline(), path, i + 1).get(key))

    return value


def read_parquet(files: Sequence[Path], guards: Guards = UNGUARDED) -> list[Shard]:
    """One shard for each file, decoded into memory.

    Raises:
        StoreError: a file that is no Parquet, or a list column with nulls, for lists or inside them.
    """
    return [_parquet(guards.whole(file)) for file in files]


def _parquet(path: Path) -> Shard:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} cannot be read as Parquet: {error}") from error
    arrays, ends, objects = {}, {}, {}
    for key in table.column_names:
        column = table[key].combine_chunks()
        if pa.types.is_list(column.type) and (pa.types.is_integer(column.type.value_type) or pa.types.is_floating(column.type.value_type)):
            if column.null_count:
                raise StoreError(f"{path}: {column.null_count:,} of {len(column):,} rows have no {key!r}")
            values = column.flatten()
            ends[key] = np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False), dtype=np.int64)
            if values.null_count:
                at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
                row = int(np.searchsorted(ends[key], at, "right"))
                raise StoreError(
                    f"{path}: {key!r} of row {row:,} has a null in its list, {values.null_count:,} in all; only numbers are read"
                )
            arrays[key] = values.to_numpy(zero_copy_only=False)
        else:
            objects[key] = lambda i, column=column: typed(column[i].as_py())
    return Shard(str(path), arrays, ends, objects, table.num_rows)


def typed(value: Any) -> Any:
    """A list of numbers as an array, a list of such lists as a list of arrays, anything else as it is."""
    if isinstance(value, list) and value:
        if _is_numbers(value):
            return np.asarray(value)
        if all(_is_numbers(each) for each in value):
            return [np.asarray(each) for each in value]
    return value
