"""The pack plan, the rows gathered by it, and the positions of runs that must stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.errors import CheckFailed, ConfigError
from prep_assets.stores.arrays import concatenate, predecessors, rounded_up, sorted_groups, stretches, zeros
from prep_assets.stores.files import note_mapped_bytes
from prep_assets.stores.guards import Segmented

# The pack plan: an index that says which tokens of which record go where in which row, and the rows that are gathered by it.

_AT_A_TIME = 512
"""Members that are copied between two looks at mapped pages: the system maps up to 64 KiB where one is read."""


@dataclass(frozen=True, slots=True, eq=False)
class PackPlan:
    """M members in `rows` rows of `row_len` tokens, ordered by (row, row_offset). What a row does not use is padding at its end.

    A member is a piece of a record: tokens ``start … start + length - 1`` of `record` stand at ``row_offset …`` of `row`.

    Attributes:
        row_len: tokens per row.
        rows: number of rows; each holds at least one member.
        row: int64[M], the member's row.
        record: int64[M], position of its record in the lengths that were packed.
        start: int64[M], first token of the record used.
        length: int64[M], number of tokens, at least 1.
        row_offset: int64[M], where in the row the first one stands.
        dropped: int64[K, 3], the pieces (record, start, length) that are in no row, ordered by (record, start).
        align: a row has room for each of its members with `length` rounded up to a multiple of it, see `rooms`.
    """

    row_len: int
    rows: int
    row: Ints
    record: Ints
    start: Ints
    length: Ints
    row_offset: Ints
    dropped: Ints
    align: int = 1

    @property
    def used(self) -> int:
        """Tokens in rows, padding not counted."""
        return int(self.length.sum())

    @property
    def fill(self) -> float:
        """Share of the rows' places that hold a token; 0.0 for a plan without rows."""
        return self.used / (self.rows * self.row_len) if self.rows else 0.0

    @property
    def row_bounds(self) -> Ints:
        """int64[rows + 1]: the members of row r are ``row_bounds[r] : row_bounds[r + 1]``.

        `length` cut at these bounds is the ragged column ``seq_lengths`` of all rows at once, `row_offset` is ``seq_start_id``.
        """
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    @property
    def rooms(self) -> Ints:
        """int64[M], the places that each member takes where a row is laid out for a trainer that splits documents: its length, rounded up."""
        return rounded_up(self.length, self.align)

    def members(self, rows: slice) -> slice:
        """The members of a block of rows, as a slice of the members' arrays.

        Raises:
            ConfigError: `rows` has a step.
        """
        if rows.step not in (None, 1):
            raise ConfigError(f"a block of rows is contiguous, got step {rows.step}: take the rows first, then every {rows.step}th of them")
        first, stop, _ = rows.indices(self.rows)
        low, high = np.searchsorted(self.row, [first, max(first, stop)])
        return slice(int(low), int(high))

    def check(self, lengths: npt.ArrayLike) -> None:
        """Prove the plan against the lengths it was made from.

        Holds when every token of every record is exactly once in a member or in `dropped`; no row overflows; the members of a row
        neither overlap nor leave a gap and begin at offset 0, and their rooms fit as well; no row is empty; the pieces of a record are in
        order over the rows.

        Args:
            lengths: int[N], tokens per record.

        Raises:
            CheckFailed: one of these does not hold; the message says which, where, and the numbers.
        """
        shapes = {getattr(self, name).shape for name in ("row", "record", "start", "length", "row_offset")}
        if shapes != {(self.row.size,)} or self.dropped.shape != (len(self.dropped), 3):
            raise _wrong(f"members have the shapes {sorted(shapes)} and not one (M,), or what is dropped, {self.dropped.shape}, not (K, 3)")
        _check_rows(self)
        _check_tokens(self, np.asarray(lengths, dtype=np.int64))


def _check_rows(plan: PackPlan) -> None:
    """Check that each member stands where the one before it ends, or at the beginning of the next row."""
    row, offset, length = plan.row, plan.row_offset, plan.length
    for part in stretches(row.size):
        steps = row[part] - predecessors(row, part, -1)
        free = np.where(steps > 0, 0, predecessors(offset, part, 0) + predecessors(length, part, 0))
        wrong = (steps < 0) | (steps > 1) | (offset[part] != free) | (length[part] < 1) | (offset[part] + length[part] > plan.row_len)
        if wrong.any():
            at = int(wrong.argmax())
            i, place = part.start + at, f"place {free[at]} of {plan.row_len} comes next, {steps[at]} rows after the one before"
            raise _wrong(f"member {i} has {length[i]} tokens at {offset[i]} of row {row[i]}, where {place}")
    if plan.align > 1 and plan.rows:
        taken = np.bincount(row, plan.rooms)
        if (over := taken > plan.row_len).any():
            i = int(over.argmax())
            raise _wrong(f"row {i} needs {taken[i]:.0f} of {plan.row_len} places where each member takes a multiple of {plan.align}")
    if plan.rows != (filled := int(row[-1]) + 1 if row.size else 0):
        raise _wrong(f"members are in {filled} of {plan.rows} rows")


def _check_tokens(plan: PackPlan, lengths: Ints) -> None:
    """Check that the pieces of each record, members and dropped ones, follow each other from its first token to its last, members in the order of rows."""
    record, start, length = (
        concatenate([getattr(plan, name), plan.dropped[:, column]]) for column, name in enumerate(("record", "start", "length"))
    )
    reached = zeros(lengths.size)
    for places in sorted_groups(record):
        members = places[places < plan.record.size]
        turned = (np.diff(record[members]) == 0) & (np.diff(start[members]) < 0)
        in_order = places[np.lexsort((start[places], record[places]))]
        numbers, starts, ends = record[in_order], start[in_order], (start + length)[in_order]
        free = np.where(np.diff(numbers, prepend=-1) > 0, 0, np.roll(ends, 1))
        wrong = (numbers < 0) | (numbers >= lengths.size) | (starts != free) | (ends <= starts)
        if wrong.any():
            i = int(wrong.argmax())
            piece = f"a piece of tokens {starts[i]} to {ends[i] - 1}, where {free[i]} comes next"
            raise _wrong(f"record {numbers[i]} of {lengths.size}: {piece}")
        if turned.any():
            raise _wrong(f"record {record[members[int(turned.argmax())]]} of {lengths.size}: pieces out of order")
        np.maximum.at(reached, numbers, ends)
    for part in stretches(lengths.size):
        if (short := reached[part] != lengths[part]).any():
            i = part.start + int(short.argmax())
            raise _wrong(f"record {i}: its pieces end at {reached[i]}, it has {lengths[i]} tokens")


def _wrong(fault: str) -> CheckFailed:
    return CheckFailed(f"the pack plan is wrong: {fault}. Build the plan again from the same lengths")


class PerToken(Protocol):
    """A long 1-D array that is read in slices: an array, an `np.memmap`, or several of them read as one."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


def gather_rows(
    flat: PerToken, record_starts: npt.NDArray[np.integer[Any]], plan: PackPlan, rows: slice, fill: complex
) -> npt.NDArray[Any]:
    """A block of rows of any per-token array: tokens, loss mask, weights.

    One copy per member: documents are contiguous on both sides. An index of every token would take 8 bytes for each token of 2, and as long. Members
    are copied in the order in which `flat` has them, and mapped pages are given back on the way: a block takes the memory of its rows, however long `flat` is.

    Args:
        flat: [T], the values of all records one after another; an `np.memmap` is read only where the rows need it.
        record_starts: int[N], where in `flat` each record begins, in the order of the lengths that were packed.
        rows: a contiguous block of the plan's rows.
        fill: what stands in the padding.

    Returns:
        `flat`'s dtype, [R, row_len].

    Raises:
        ConfigError: `fill` is not a value of `flat`'s dtype, the records reach beyond `flat`, or members stand over one another.
    """
    first, stop, _ = rows.indices(plan.rows)
    members = plan.members(rows)
    begin = np.asarray(record_starts, dtype=np.int64)[plan.record[members]] + plan.start[members]
    end = begin + plan.length[members]
    if end.size and int(end.max()) > len(flat):
        raise ConfigError(f"records reach to token {int(end.max())}, the flat array has {len(flat)}: they are of two stores")
    place = (plan.row[members] - first) * plan.row_len + plan.row_offset[members]
    total = max(0, stop - first) * plan.row_len
    if (np.append(place, total) < np.concatenate([[0], place + end - begin])).any():
        raise ConfigError("members of the plan stand over one another. Build the plan again from the same lengths")
    out = np.full(total, _checked_fill(fill, flat.dtype))
    parts: Sequence[Any] = flat.parts if isinstance(flat, Segmented) else [flat]
    bounds = np.cumsum([0, *map(len, parts)])
    # Slices of a memory view are several times cheaper than an array's, and these than those of anything else. Views are of bytes: Python assigns no
    # slices of a format that names its byte order, as numpy gives it to some types.
    width = flat.dtype.itemsize
    plain = all(isinstance(array, np.ndarray) and array.dtype == flat.dtype for array in parts)
    views = [np.ascontiguousarray(array).view(np.uint8).data for array in parts] if plain else []
    into = out.view(np.uint8).data
    order = np.argsort(begin, kind="stable")
    for chunk in stretches(len(order), _AT_A_TIME):
        members_in_order = order[chunk]
        low, high, to = begin[members_in_order], end[members_in_order], place[members_in_order]
        part = np.searchsorted(bounds[1:-1], low, "right")
        to_end = to + high - low
        if views and (high <= bounds[part + 1]).all():
            base = bounds[part]
            pieces = [(array * width).tolist() for array in (to, to_end, low - base, high - base)]
            for at, end_at, origin, stop, part_number in zip(*pieces, part.tolist(), strict=True):
                into[at:end_at] = views[part_number][origin:stop]
        else:
            for at, end_at, origin, stop in zip(to.tolist(), to_end.tolist(), low.tolist(), high.tolist(), strict=True):
                out[at:end_at] = flat[origin:stop]
        note_mapped_bytes(int(high[-1] - low[0]) * width)
    return out.reshape(-1, plan.row_len)


def _checked_fill(fill: complex, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= fill <= np.iinfo(dtype).max:  # type: ignore[operator]
        raise ConfigError(f"fill {fill} does not fit into {dtype}; widen the array first, e.g. to int32 for labels with -100")
    return np.array(fill, dtype=dtype)
