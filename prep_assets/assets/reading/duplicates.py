"""Duplicates and limits across shards: each shard notes 16 bytes for every record, and which of them came first is found of all. Workers that pin a
domain note them by the way, for the same build; otherwise that is a first pass.

The first in the order of the plan wins, as where one process reads everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import exact_digests
from prep_assets.assets.reading.source import Source
from prep_assets.assets.reading.stretches import Stretch, is_held_out
from prep_assets.config.models import Domain, Family
from prep_assets.disk.arrays import save_array
from prep_assets.disk.columns import joined, stretches, together, zeros
from prep_assets.errors import Refused
from prep_assets.records.blocks import Unreadable
from prep_assets.records.files import SourceFile, record_id
from prep_assets.records.where import MISSED
from prep_assets.samples import Record
from prep_assets.stores.guards import Guards, load_array
from prep_assets.workers.shards import Shard, ShardResult

BLOCK_BYTES = 4 << 20
FIELDS: Mapping[str, Any] = {"file": np.int32, "row": np.int64, "number": np.int64}
"""Beside the digest of a record: its file and row, and how many rows of its shard count towards a limit before it."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Found:
    """What a first pass says to one shard.

    Attributes:
        duplicates: int64[k, 4]: file and row of each of its records that came before, and of the record that it equals.
        limit: use at most so many of its records to train on.
    """

    duplicates: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    limit: int | None = None


class Elsewhere:
    """Refuses the records of one shard that came before, there or elsewhere; see `Duplicates`.

    Args:
        files: of the domain.
    """

    def __init__(self, found: Found, files: Sequence[SourceFile]) -> None:
        self._first = {(file, row): (of, at) for file, row, of, at in found.duplicates.tolist()}
        self._files = files

    def among(self, file: SourceFile, records: Sequence[Record]) -> dict[int, Refused]:
        """See `Duplicates`."""
        firsts = {record.row: first for record in records if (first := self._first.get((record.file, record.row)))}
        return {
            row: Refused("duplicate", f"equals {record_id(self._files[of], at)}", stage="deduplicate") for row, (of, at) in firsts.items()
        }


class Notes:
    """What is noted of the rows of a shard.

    Attributes:
        rows: how many count towards a limit so far.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._digests: list[bytes] = []
        self._places: list[tuple[int, int, int]] = []

    def add(self, rows: Sequence[Record | Unreadable]) -> None:
        """Note the next rows."""
        counted = [row for row in rows if isinstance(row, Record) or row.reason not in MISSED]
        records = [(number, row) for number, row in enumerate(counted, self.rows) if isinstance(row, Record)]
        self.rows += len(counted)
        self._digests += exact_digests([row for _, row in records])
        self._places += [(row.file, row.row, number) for number, row in records]

    def save(self, folder: Path) -> None:
        """Write down what was noted."""
        save_array(folder / "digests.npy", np.frombuffer(b"".join(self._digests), np.uint8))
        places = np.array(self._places, np.int64).reshape(-1, len(FIELDS))
        for name, column in zip(FIELDS, places.T, strict=True):
            save_array(folder / f"{name}.npy", column.astype(FIELDS[name]))


def note_records(stretches: Sequence[Stretch], folder: Path, *, source: Source) -> dict[str, int]:
    """The first pass over one shard."""
    notes = Notes()
    for block in source.rows(stretches).rows(BLOCK_BYTES):
        notes.add(block.rows)
    notes.save(folder)
    return {"rows": notes.rows}


@dataclass(frozen=True, slots=True)
class Noted:
    """Duplicates that were found when a domain was pinned, for the same build.

    Attributes:
        domain, files: how it was configured, and what it held.
        shards: how it was cut.
        duplicates: of each shard, see `Found`.
    """

    domain: Domain
    files: tuple[SourceFile, ...]
    shards: Sequence[Shard]
    duplicates: Sequence[Ints]

    @staticmethod
    def can_be(family: Family, domain: Domain) -> bool:
        """Whether equal records of a domain are used alike, so that those that are pinned can be compared."""
        return family.preprocessing.deduplicate and domain.domain_key is None and domain.max_items is None

    def of(self, source: Source, shards: Sequence[Shard]) -> list[Shard] | None:
        """The shards with what each must know of the others; nothing where these are the duplicates of something else."""
        files = (*source.sources.files, *source.sources.test_files)
        held, holds = ([(file.url, file.blocks) for file in each] for each in (self.files, files))
        if source.max_items is not None or (self.domain, held, self.shards) != (source.domain, holds, shards):
            return None
        return [replace(shard, task=(shard.task, Found(mine))) for shard, mine in zip(shards, self.duplicates, strict=True)]


def without_duplicates(source: Source, noted: Sequence[ShardResult]) -> Iterator[Shard]:
    """The shards that are used, with what each must know of the others: tasks become ``(stretches, Found)``."""
    limits = dict(_limits(source, noted))
    kept = [each for each in noted if limits[each.shard.number] != 0]
    if source.family.preprocessing.deduplicate:
        duplicates = duplicates_of([columns_of(each, limits[each.shard.number]) for each in kept])
    else:
        duplicates = [Found().duplicates] * len(kept)
    for number, (each, mine) in enumerate(zip(kept, duplicates, strict=True)):
        yield replace(each.shard, number=number, task=(each.shard.task, Found(mine, limits[each.shard.number])))


def _limits(source: Source, noted: Sequence[ShardResult]) -> Iterator[tuple[int, int | None]]:
    remaining = source.max_items
    for each in noted:
        if remaining is None or is_held_out(each.shard, source.sources):
            yield each.shard.number, None
        else:
            taken = min(remaining, each.counts["rows"])
            yield each.shard.number, taken
            remaining -= taken


def columns_of(noted: ShardResult, limit: int | None = None) -> dict[str, npt.NDArray[Any]]:
    """What a shard noted, up to its limit: both halves of each digest, file and row."""
    guards = Guards.of_work(noted.folder, noted.files)
    digests, file, row, number = (load_array(noted.folder / f"{name}.npy", guards) for name in ("digests", *FIELDS))
    halves = np.asarray(digests).view(np.uint64)
    some = slice(None if limit is None else int(np.searchsorted(number, limit)))
    return {"high": halves[::2][some], "low": halves[1::2][some], "file": file[some], "row": row[some]}


def duplicates_of(columns: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[Ints]:
    """Of each shard, `Found.duplicates`. All of them wait on disk until their shard is sent to its worker."""
    if not columns:
        return []
    high, low = (joined([each[half] for each in columns], np.uint64) for half in ("high", "low"))
    file, row = joined([each["file"] for each in columns], np.int32), joined([each["row"] for each in columns])
    equals = _first_equals(high, low)
    counts = [int(np.count_nonzero(part)) for part in np.split(equals, np.cumsum([len(each["row"]) for each in columns]))[:-1]]
    found, filled = zeros(4 * sum(counts)).reshape(-1, 4), 0
    for part in stretches(len(equals)):
        later = np.flatnonzero(equals[part])
        first = equals[part][later] - 1
        here = slice(filled, filled + len(later))
        found[here] = np.stack([file[part][later], row[part][later], file[first], row[first]], axis=1)
        filled = here.stop
    return np.split(found, np.cumsum(counts)[:-1])


def _first_equals(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Ints:
    """Of each digest that came before, 1 + the place of the first that it equals; 0 of all others."""
    equals = zeros(len(high))
    for places in together(high):
        here = places[np.lexsort((low[places], high[places]))]  # stable, so that equal ones stay in order
        same = (high[here[1:]] == high[here[:-1]]) & (low[here[1:]] == low[here[:-1]])
        begins = np.append(np.ones(1, bool), ~same)
        first = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        later = np.flatnonzero(~begins)
        equals[here[later]] = here[first[later]] + 1
    return equals
