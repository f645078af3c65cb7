"""What a file or a folder of files holds, as trainers name it, several of them read as one, and positions that no file has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.stores.guards import Segmented


@dataclass(frozen=True)
class Shard:
    """The content of one file, or of one folder of files.

    Attributes:
        label: its name in messages.
        arrays: flat arrays by key; read in slices.
        ends: ends of records in the flat array, by key: int64[n]; empty if the format has none.
        objects: values other than flat arrays of numbers, by key: record number → value.
        count: number of records, used only if `ends` is empty.
        elements: ends of the elements of a nested key in its flat array (the responses of a group), by key: int64[m]. The elements of a record are
            those that end in it, so none may be empty.
        row_len: tokens per row, if the tokens are a table of (rows, row length); 0 otherwise.
    """

    label: str
    arrays: Mapping[str, Any]
    ends: Mapping[str, Ints] = field(default_factory=dict)
    objects: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    count: int = 0
    elements: Mapping[str, Ints] = field(default_factory=dict)
    row_len: int = 0

    @property
    def records(self) -> int:
        """Number of records; 0 if it is not known."""
        return len(next(iter(self.ends.values()))) if self.ends else self.count


def joined(shards: Sequence[Shard]) -> Shard:
    """Concatenate shards.

    Raises:
        StoreError: a shard lacks a key, or its keys have inconsistent lengths. Either would shift the keys that follow against each other.
    """
    for shard in shards:
        _check_shard(shard, shards[0])
    if len(shards) == 1:
        return shards[0]
    first = shards[0]
    arrays = {key: Segmented([shard.arrays[key] for shard in shards]) for key in first.arrays}
    ends = (
        {key: _joined_ends(shards, key, "ends") for key in first.ends}
        if all(set(shard.ends) == set(first.ends) for shard in shards)
        else {}
    )
    elements = {key: _joined_ends(shards, key, "elements") for key in first.elements}
    counts = np.cumsum([0, *(shard.records for shard in shards)])

    def record_reader(key: str) -> Callable[[int], Any]:
        def read_record(i: int) -> Any:
            shard_number = int(np.searchsorted(counts, i, "right")) - 1
            return shards[shard_number].objects[key](i - int(counts[shard_number]))

        return read_record

    return Shard(f"{len(shards)} shards", arrays, ends, {key: record_reader(key) for key in first.objects}, int(counts[-1]), elements)


def renamed(shard: Shard, names: Mapping[str, str]) -> Shard:
    """Return a shard with renamed keys."""

    def rename_keys(values: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(key, key): entry for key, entry in values.items()}

    return replace(shard, arrays=rename_keys(shard.arrays), ends=rename_keys(shard.ends), elements=rename_keys(shard.elements))


def _joined_ends(shards: Sequence[Shard], key: str, field_name: Literal["ends", "elements"]) -> Ints:
    bases = np.cumsum([0, *(len(shard.arrays[key]) for shard in shards)])
    return np.concatenate([getattr(shard, field_name)[key] + base for shard, base in zip(shards, bases[:-1], strict=True)])


def _check_shard(shard: Shard, first: Shard) -> None:
    keys, first_keys = {*shard.arrays, *shard.objects}, {*first.arrays, *first.objects}
    if keys != first_keys:
        raise StoreError(
            f"{shard.label} has the keys {sorted(keys)}, {first.label} has {sorted(first_keys)}: what follows would be shifted. "
            "Write every key in every shard, or open one of the shards alone, or keys that all have, with keys=[…]"
        )
    if set(shard.elements) != set(first.elements):
        raise StoreError(
            f"{shard.label} has element_offsets for {sorted(shard.elements)}, {first.label} for {sorted(first.elements)}: a key is nested in "
            "every shard or in none"
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
    for key, elements in shard.elements.items():
        _check_elements(f"{shard.label}: {key!r}", elements, shard.ends.get(key), lengths[key])


def _check_elements(label: str, elements: Ints, records: Ints | None, length: int) -> None:
    """Check that elements fill the array without gaps and end where records end. An empty one would belong to either adjacent record."""
    if records is None:
        raise StoreError(f"{label} has element_offsets and no offsets, so nothing says which record an element is in")
    end = int(elements[-1]) if len(elements) else 0
    if end != length:
        raise StoreError(f"{label}: its element_offsets end at {end:,}, it has {length:,} values")
    empty = np.diff(elements, prepend=0) < 1
    if empty.any():
        at = int(empty.argmax())
        begin = int(elements[at - 1]) if at else 0
        raise StoreError(f"{label}: element {at:,} begins at {begin:,} and ends at {int(elements[at]):,}; each has at least one value")
    inside = ~np.isin(records, np.append(elements, 0))
    if inside.any():
        at = int(inside.argmax())
        raise StoreError(f"{label}: record {at:,} ends at {int(records[at]):,}, in the middle of an element of its element_offsets")


_LONGEST_RAMP = 1 << 20
"""Longest document whose positions are slices of one precomputed array, which makes windows of many documents twice as fast."""


class Positions:
    """`position_ids` computed on read: they count from 0 in each document, and are 0 between documents."""

    dtype = np.dtype(np.int32)

    def __init__(self, starts: Ints, ends: Ints, total: int) -> None:
        self._starts, self._ends, self._total = starts, ends, total
        longest = int((ends - starts).max(initial=0))
        self._ramp = np.arange(min(longest, _LONGEST_RAMP), dtype=np.int32)
        self._ramp.flags.writeable = False  # a window inside one document is a slice of it
        gapless = len(starts) > 0 and (starts[0], ends[-1]) == (0, total) and np.array_equal(starts[1:], ends[:-1])
        self._plain = bool(gapless and longest <= _LONGEST_RAMP)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, part: slice) -> npt.NDArray[np.int32]:
        begin, end, step = part.indices(self._total)
        if step != 1:
            raise IndexError("positions are read in steps of 1")
        first = max(int(self._starts.searchsorted(begin, "right")) - 1, 0)
        last = int(self._starts.searchsorted(end))
        if not self._plain or begin >= end:
            return self._with_gaps(begin, end, first, last)
        ramp, starts = self._ramp, self._starts[first:last].tolist()
        if len(starts) == 1:
            return ramp[begin - starts[0] : end - starts[0]]
        parts = [ramp[begin - starts[0] : starts[1] - starts[0]]]
        parts += [ramp[: next_start - start] for start, next_start in pairwise(starts[1:])]
        parts.append(ramp[: end - starts[-1]])
        return np.concatenate(parts)

    def _with_gaps(self, position: int, end: int, first: int, last: int) -> npt.NDArray[np.int32]:
        """Return positions where there are gaps between documents, whose positions are 0, documents longer than the ramp, or an empty window."""
        pieces = []
        for start, stop in zip(self._starts[first:last].tolist(), self._ends[first:last].tolist(), strict=True):
            if start > position:
                pieces.append(np.zeros(start - position, np.int32))
                position = start
            if (stop_in_window := min(stop, end)) > position:
                pieces.append(np.arange(position - start, stop_in_window - start, dtype=np.int32))
                position = stop_in_window
        if position < end or not pieces:
            pieces.append(np.zeros(max(end - position, 0), np.int32))
        return np.concatenate(pieces)
