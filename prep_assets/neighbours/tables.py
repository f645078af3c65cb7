"""Which files of a payload hold rows that other tools read, Parquet and JSON lines, and what their columns are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from prep_assets.exports.arrow import schema_of

Kind = str | list[Any] | dict[str, Any]
"""Arrow's name of a type; a list of one kind; an object with the kinds of its keys."""
READABLE = (".parquet", ".jsonl")
"""What the names of such files end with."""
_SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet")
_SPLIT = re.compile(r"(?:(\w+)_)?(train|test|dev|validation)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column."""

    name: str
    kind: Kind
    description: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The files of one split of one set of rows; splits of a set have the same name."""

    name: str
    split: str
    files: tuple[str, ...]
    rows: int
    columns: tuple[Column, ...]


def tables_of(folder: Path, files: Iterable[str]) -> tuple[Table, ...]:
    """The tables among the files of a payload, those that are empty left out. Lines are all read, since any of them may have another key."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for file in sorted(files):
        if file.endswith(READABLE):
            grouped.setdefault(_place(PurePosixPath(file)), []).append(file)
    found = [Table(*place, tuple(names), *_read(folder, names)) for place, names in grouped.items()]
    return tuple(sorted((each for each in found if each.rows), key=lambda each: (each.name, each.split != "train", each.split)))


def _place(file: PurePosixPath) -> tuple[str, str]:
    """Name and split of the table that a file belongs to."""
    if shard := _SHARD.fullmatch(file.name):
        return "default", shard[1]
    if file.parent.parent.name == "splits":
        return "default", file.parent.name
    stem = file.name.split(".", 1)[0]
    split = _SPLIT.fullmatch(stem)
    return (split[1] or "default", split[2]) if split else (stem, "train")


def _read(folder: Path, names: list[str]) -> tuple[int, tuple[Column, ...]]:
    if names[0].endswith(".parquet"):
        import pyarrow.parquet as pq

        footers = [pq.ParquetFile(folder / name) for name in names]
        return sum(each.metadata.num_rows for each in footers), _columns(footers[0].schema_arrow)
    count = sum(1 for _ in _lines(folder, names))
    return count, _columns(schema_of(lambda: _lines(folder, names), folder / names[0])) if count else ()


def _lines(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        with (folder / name).open("rb") as file:
            yield from map(json.loads, file)


def _columns(schema: Any) -> tuple[Column, ...]:
    return tuple(Column(field.name, _kind(field.type)) for field in schema)


def _kind(found: Any) -> Kind:
    import pyarrow as pa

    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return [_kind(found.value_type)]
    if pa.types.is_struct(found):
        return {field.name: _kind(field.type) for field in found}
    return "string" if pa.types.is_large_string(found) else str(found)
