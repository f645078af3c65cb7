"""Duplicates and limits across shards: a first pass in which each shard notes 16 bytes for every record, and which of them came first.

The first in the order of the plan wins, as where one process reads everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import exact_digest
from prep_assets.assets.reading.source import Source
from prep_assets.assets.reading.stretches import Stretch, is_held_out
from prep_assets.disk.arrays import save_array
from prep_assets.errors import Refused
from prep_assets.records.files import record_id
from prep_assets.records.where import MISSED
from prep_assets.samples import Record
from prep_assets.stores.guards import Guards, load_array
from prep_assets.workers.shards import Shard, ShardResult

BLOCK_BYTES = 4 << 20
DIGEST = 16
FIELDS: Mapping[str, Any] = {"file": np.int32, "row": np.int64, "number": np.int64}
"""Beside the digest of a record: its file and row, and how many rows of its shard count towards a limit before it."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """What a first pass says to one shard.

    Attributes:
        first: file and row of a duplicate → id of the record that it equals.
        limit: use at most so many of its records to train on.
    """

    first: Mapping[tuple[int, int], str] = field(default_factory=dict)
    limit: int | None = None

    def check(self, record: Record, identity: str) -> None:
        """See `Duplicates`."""
        if first := self.first.get((record.file, record.row)):
            raise Refused("duplicate", f"equals {first}", stage="deduplicate")


def note_records(stretches: Sequence[Stretch], folder: Path, *, source: Source) -> dict[str, int]:
    """The first pass over one shard: digests of its records, and how many of its rows count towards a limit."""
    digests: list[bytes] = []
    noted: dict[str, list[int]] = {name: [] for name in FIELDS}
    number = 0
    for block in source.rows(stretches).rows(BLOCK_BYTES):
        for row in block.rows:
            if isinstance(row, Record):
                digests.append(exact_digest(row))
                for name, value in (("file", row.file), ("row", row.row), ("number", number)):
                    noted[name].append(value)
            elif row.reason in MISSED:
                continue
            number += 1
    save_array(folder / "digests.npy", np.frombuffer(b"".join(digests), np.uint8))
    for name, dtype in FIELDS.items():
        save_array(folder / f"{name}.npy", np.array(noted[name], dtype))
    return {"rows": number}


def without_duplicates(source: Source, noted: Sequence[ShardResult]) -> Iterator[Shard]:
    """The shards of which anything is used, with what each must know of the others: tasks become ``(stretches, Found)``."""
    limits = dict(_limits(source, noted))
    kept = [each for each in noted if limits[each.shard.number] != 0]
    columns = [_columns(each, limits[each.shard.number]) for each in kept]
    firsts = _firsts(source, columns) if source.family.preprocessing.deduplicate else [{} for _ in kept]
    for number, (each, first) in enumerate(zip(kept, firsts, strict=True)):
        yield replace(each.shard, number=number, task=(each.shard.task, Found(first, limits[each.shard.number])))


def _limits(source: Source, noted: Sequence[ShardResult]) -> Iterator[tuple[int, int | None]]:
    left = source.max_items
    for each in noted:
        if left is None or is_held_out(each.shard, source.sources):
            yield each.shard.number, None
        else:
            taken = min(left, each.counts["rows"])
            yield each.shard.number, taken
            left -= taken


def _columns(noted: ShardResult, limit: int | None) -> dict[str, npt.NDArray[Any]]:
    """What a shard noted, up to its limit."""
    guards = Guards.of_work(noted.folder, noted.files)
    columns = {name: load_array(noted.folder / f"{name}.npy", guards) for name in ("digests", *FIELDS)}
    columns["digest"] = columns.pop("digests").reshape(-1, DIGEST)
    return columns if limit is None else {name: column[columns["number"] < limit] for name, column in columns.items()}


def _firsts(source: Source, columns: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[dict[tuple[int, int], str]]:
    """Of each shard, its duplicates and the id of the record that each equals."""
    files = (*source.sources.files, *source.sources.test_files)
    joined = {name: np.concatenate([each[name] for each in columns]) for name in ("digest", "file", "row")} if columns else {}
    ends = np.cumsum([len(each["row"]) for each in columns], dtype=np.int64)
    firsts: list[dict[tuple[int, int], str]] = [{} for _ in columns]
    for later, first in first_equals(joined["digest"]) if columns else ():
        shards = np.searchsorted(ends, later, "right")
        for shard, at, equal in zip(shards.tolist(), later.tolist(), first.tolist(), strict=True):
            place = int(joined["file"][at]), int(joined["row"][at])
            firsts[shard][place] = record_id(files[int(joined["file"][equal])], int(joined["row"][equal]))
    return firsts


def first_equals(digests: npt.NDArray[np.uint8]) -> Iterator[tuple[Ints, Ints]]:
    """Digests that came before: their places, and the place of the first one that each equals, by the first byte of the digest.

    Args:
        digests: uint8[n, 16].
    """
    order = np.argsort(digests[:, 0], kind="stable")
    for places in np.split(order, np.searchsorted(digests[order, 0], np.arange(1, 256))):
        halves = np.ascontiguousarray(digests[places]).view(np.uint64)
        by_value = np.lexsort((halves[:, 1], halves[:, 0]))  # stable, so that equal ones stay in order
        sorted_halves = halves[by_value]
        same = (sorted_halves[1:] == sorted_halves[:-1]).all(axis=1)
        begins = np.concatenate([np.ones(min(1, len(places)), bool), ~same])
        first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        later = np.flatnonzero(~begins)
        yield places[by_value[later]], places[by_value[first[later]]]
