"""Shards, and how several of them are read as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import StoreError
from prep_assets.stores.tokens import Segmented

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """What one file, or one folder of files, holds.

    Attributes:
        label: how messages call it.
        arrays: flat arrays by key; read in slices.
        ends: where each record ends, by key: int64[n]; empty where the format does not say.
        objects: values that are no flat array of numbers, by key: record number → value.
        count: number of records, where only `objects` say it.
    """

    label: str
    arrays: Mapping[str, Any]
    ends: Mapping[str, Int64s] = field(default_factory=dict)
    objects: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    count: int = 0

    @property
    def records(self) -> int:
        """Number of records, 0 where it is not known."""
        return len(next(iter(self.ends.values()))) if self.ends else self.count


def joined(shards: Sequence[Shard]) -> Shard:
    """All shards as one.

    Raises:
        StoreError: a shard lacks a key, or its keys do not fit together. Either would shift one key against another from there on.
    """
    for shard in shards:
        _check(shard, shards[0])
    if len(shards) == 1:
        return shards[0]
    first = shards[0]
    arrays = {key: Segmented([shard.arrays[key] for shard in shards]) for key in first.arrays}
    ends = {key: _all_ends(shards, key) for key in first.ends} if all(set(shard.ends) == set(first.ends) for shard in shards) else {}
    counts = np.cumsum([0, *(shard.records for shard in shards)])

    def pick(key: str) -> Callable[[int], Any]:
        def value(i: int) -> Any:
            number = int(np.searchsorted(counts, i, "right")) - 1
            return shards[number].objects[key](i - int(counts[number]))

        return value

    return Shard(f"{len(shards)} shards", arrays, ends, {key: pick(key) for key in first.objects}, int(counts[-1]))


def _all_ends(shards: Sequence[Shard], key: str) -> Int64s:
    bases = np.cumsum([0, *(len(shard.arrays[key]) for shard in shards)])
    return np.concatenate([shard.ends[key] + base for shard, base in zip(shards, bases[:-1], strict=True)])


def _check(shard: Shard, first: Shard) -> None:
    here, there = {*shard.arrays, *shard.objects}, {*first.arrays, *first.objects}
    if here != there:
        raise StoreError(
            f"{shard.label} has the keys {sorted(here)}, {first.label} has {sorted(there)}: what follows would be shifted. "
            "Write every key in every shard, or open one of the shards alone"
        )
    lengths = {key: len(array) for key, array in shard.arrays.items()}
    records = {key: len(ends) for key, ends in shard.ends.items()}
    if len(set(lengths.values())) > 1 and set(records) != set(lengths):
        raise StoreError(
            f"{shard.label}: keys of different length, and no record offsets that say what belongs together: {lengths}. "
            "Give `offsets` to every key in meta.json, or open some of the keys with keys=[…]"
        )
    if len(set(records.values())) > 1:
        raise StoreError(f"{shard.label}: keys hold different numbers of records: {records}")
    for key, ends in shard.ends.items():
        if len(ends) and (int(ends[-1]) != lengths[key] or int(ends[0]) < 0 or (np.diff(ends) < 0).any()):
            raise StoreError(f"{shard.label}: the records of {key!r} end at {int(ends[-1]):,}, it has {lengths[key]:,} elements")


class Positions:
    """`position_ids` that are worked out when they are read: they count from 0 in each document, and are 0 between documents."""

    dtype = np.dtype(np.int32)

    def __init__(self, starts: Int64s, ends: Int64s, total: int) -> None:
        self._starts, self._ends, self._total = starts, ends, total

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, part: slice) -> npt.NDArray[np.int32]:
        at = np.arange(*part.indices(self._total))
        if not len(at) or not len(self._starts):
            return np.zeros(len(at), np.int32)
        document = np.maximum(np.searchsorted(self._starts, at, "right") - 1, 0)
        inside = (at >= self._starts[document]) & (at < self._ends[document])
        return np.where(inside, at - self._starts[document], 0).astype(np.int32)
