"""The pack plan: an index that says which tokens of which record go where in which row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.errors import CheckFailed, ConfigError

Ints = npt.NDArray[np.int64]


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
    """

    row_len: int
    rows: int
    row: Ints
    record: Ints
    start: Ints
    length: Ints
    row_offset: Ints
    dropped: Ints

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
        neither overlap nor leave a gap and begin at offset 0; no row is empty; the pieces of a record are in order over the rows.

        Args:
            lengths: int[N], tokens per record.

        Raises:
            CheckFailed: one of these does not hold; the message says which, where, and the numbers.
        """
        _check_shapes(self)
        _check_rows(self)
        _check_tokens(self, np.asarray(lengths, dtype=np.int64))
        _check_order(self)


def _check_shapes(plan: PackPlan) -> None:
    shapes = {name: getattr(plan, name).shape for name in ("row", "record", "start", "length", "row_offset")}
    if len(set(shapes.values())) > 1 or plan.row.ndim != 1:
        raise CheckFailed(f"the members' arrays must all have shape (M,), got {shapes}")
    if plan.dropped.ndim != 2 or plan.dropped.shape[1] != 3:
        raise CheckFailed(f"dropped must have shape (K, 3), got {plan.dropped.shape}")
    dropped = plan.dropped[:, 2]
    _require(plan.length >= 1, lambda i: f"member {i} has length {plan.length[i]}, must be at least 1")
    _require(dropped >= 1, lambda i: f"dropped piece {i} has length {dropped[i]}, must be at least 1")


def _check_rows(plan: PackPlan) -> None:
    row, offset, end = plan.row, plan.row_offset, plan.row_offset + plan.length
    _require((row >= 0) & (row < plan.rows), lambda i: f"member {i} is in row {row[i]} of {plan.rows}")
    _require(np.diff(row) >= 0, lambda i: f"members are not ordered by row: member {i} is in {row[i]}, the next in {row[i + 1]}")
    members = np.bincount(row, minlength=plan.rows)
    _require(members > 0, lambda i: f"row {i} of {plan.rows} has no member")
    before = np.where(np.diff(row, prepend=-1) > 0, 0, np.roll(end, 1))
    _require(offset >= before, lambda i: f"row {row[i]}: member {i} begins at {offset[i]} and overlaps the one that ends at {before[i]}")
    _require(offset <= before, lambda i: f"row {row[i]}: a gap from {before[i]} to {offset[i]}, before member {i}")
    _require(end <= plan.row_len, lambda i: f"row {row[i]} overflows: member {i} ends at {end[i]}, the row has {plan.row_len} places")


def _check_tokens(plan: PackPlan, lengths: Ints) -> None:
    record = np.concatenate([plan.record, plan.dropped[:, 0]])
    start = np.concatenate([plan.start, plan.dropped[:, 1]])
    length = np.concatenate([plan.length, plan.dropped[:, 2]])
    _require((record >= 0) & (record < lengths.size), lambda i: f"piece of record {record[i]}, but there are {lengths.size} records")
    order = np.lexsort((start, record))
    record, start, end = record[order], start[order], (start + length)[order]
    new = np.diff(record, prepend=-1) > 0
    before = np.where(new, 0, np.roll(end, 1))
    _require(start >= before, lambda i: f"record {record[i]}: tokens {start[i]} to {min(before[i], end[i]) - 1} are in two pieces")
    _require(start <= before, lambda i: f"record {record[i]}: tokens {before[i]} to {start[i] - 1} are in no row and not in dropped")
    reached = np.zeros(lengths.size, dtype=np.int64)
    np.maximum.at(reached, record, end)
    _require(reached <= lengths, lambda i: f"record {i}: pieces end at {reached[i]}, the record has {lengths[i]} tokens")
    _require(reached >= lengths, lambda i: f"record {i}: tokens {reached[i]} to {lengths[i] - 1} are in no row and not in dropped")


def _check_order(plan: PackPlan) -> None:
    order = np.argsort(plan.record, kind="stable")
    record, start = plan.record[order], plan.start[order]
    ordered = (np.diff(record) > 0) | (np.diff(start) > 0)
    _require(ordered, lambda i: f"record {record[i]}: the piece from {start[i + 1]} comes after the one from {start[i]}")


def _require(holds: npt.NDArray[np.bool_], message: Callable[[int], str]) -> None:
    """Raise with the message of the first place where `holds` is false, and how many there are."""
    if not holds.all():
        wrong = np.flatnonzero(~holds)
        more = f" (and {wrong.size - 1} more like it)" if wrong.size > 1 else ""
        raise CheckFailed(f"the pack plan is wrong: {message(int(wrong[0]))}{more}. Build the plan again from the same lengths")
