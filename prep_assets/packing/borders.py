"""Where documents begin and end inside packed rows, in every dialect that trainers read.

A row of 8 with documents of 3 and 4 tokens and one place of padding::

    tokens                       a  a  a  b  b  b  b  .
    position_ids, doc_reset      0  1  2  0  1  2  3  0
    position_ids, continuous     0  1  2  3  4  5  6  0
    segment_ids                  1  1  1  2  2  2  2  0
    first_of_document            T  F  F  T  F  F  F  F
    seq_lengths                  3, 4
    seq_start_id                 0, 3
    cu_seqlens                   0, 3, 7        (padding as a segment: 0, 3, 7, 8)

Segments are members of the plan. The rest of a document that began in an earlier row is a segment of its own: attention cannot reach back
over rows, so its positions begin at 0 again.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Int32s, Ints
from prep_assets.errors import ConfigError
from prep_assets.packing.plan import PackPlan
from prep_assets.packing.strategies import within

PositionMode = Literal["none", "doc_reset", "continuous"]


@overload
def position_ids(plan: PackPlan, rows: slice, mode: Literal["doc_reset", "continuous"]) -> Int32s: ...
@overload
def position_ids(plan: PackPlan, rows: slice, mode: Literal["none"]) -> None: ...
@overload
def position_ids(plan: PackPlan, rows: slice, mode: PositionMode) -> Int32s | None: ...
def position_ids(plan: PackPlan, rows: slice, mode: PositionMode) -> Int32s | None:
    """int32[R, row_len] of a block of rows; 0 in the padding.

    Args:
        mode: ``"doc_reset"`` counts from 0 in each segment; ``"continuous"`` counts through the row from 0; ``"none"`` means that the
            store has no position ids, and gives `None`.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode == "none":
        return None
    members = plan.members(rows)
    if mode == "doc_reset":
        return _over_rows(plan, rows, within(plan.length[members]))
    if mode == "continuous":
        used = np.add.reduceat(plan.length[members], _row_begins(plan, members)) if members.start < members.stop else plan.length[:0]
        return _over_rows(plan, rows, within(used))
    raise ConfigError(f"position ids {mode!r} are not one of none, doc_reset, continuous")


def segment_ids(plan: PackPlan, rows: slice) -> Int32s:
    """int32[R, row_len]: 1 for the first segment of a row, 2 for the second, …; 0 in the padding (LLaMA-Factory's neat packing)."""
    members = plan.members(rows)
    begins = _row_begins(plan, members)
    number = within(np.diff(begins, append=members.stop - members.start)) + 1
    return _over_rows(plan, rows, np.repeat(number, plan.length[members]))


def first_of_document(plan: PackPlan, rows: slice) -> npt.NDArray[np.bool_]:
    """bool[R, row_len]: true at the first token of each segment, false in the padding.

    These tokens would be predicted from another document, or from nothing: a trainer that does not know the borders must not have
    them as targets.
    """
    members = plan.members(rows)
    first = np.zeros(_block_shape(plan, rows), dtype=bool)
    first[plan.row[members] - rows.indices(plan.rows)[0], plan.row_offset[members]] = True
    return first


def used_places(plan: PackPlan, rows: slice) -> npt.NDArray[np.bool_]:
    """bool[R, row_len]: true where a token stands, false in the padding (a plain attention mask)."""
    first, stop, _ = rows.indices(plan.rows)
    members = plan.members(rows)
    last = np.searchsorted(plan.row[members], np.arange(first, stop), side="right") - 1 + members.start
    used = plan.row_offset[last] + plan.length[last]
    places: npt.NDArray[np.bool_] = np.arange(plan.row_len) < used[:, None]
    return places


def seq_lengths(plan: PackPlan, row: int) -> Int32s:
    """int32[k], tokens in each segment of one row (TRL). Of all rows at once: `plan.length` cut at `plan.row_bounds`."""
    return plan.length[plan.members(_one_row(plan, row))].astype(np.int32)


def seq_start_id(plan: PackPlan, row: int) -> Int32s:
    """int32[k], where each segment of one row begins (packed Parquet of NeMo and Megatron-Bridge)."""
    return plan.row_offset[plan.members(_one_row(plan, row))].astype(np.int32)


def cu_seqlens(plan: PackPlan, row: int, *, padding_segment: bool = False) -> Int32s:
    """int32[k + 1], cumulative segment lengths of one row, from 0 (FlashAttention's variable-length kernels).

    Args:
        padding_segment: count the padding, where there is any, as a last segment, so that the last number is `row_len`.
    """
    ends = np.cumsum(seq_lengths(plan, row))
    pad = [plan.row_len] if padding_segment and ends[-1] < plan.row_len else []
    return np.concatenate([[0], ends, pad]).astype(np.int32)


def _one_row(plan: PackPlan, row: int) -> slice:
    if not 0 <= row < plan.rows:
        raise ConfigError(f"row {row} of a plan with {plan.rows} rows: give a number from 0 to {plan.rows - 1}")
    return slice(row, row + 1)


def _row_begins(plan: PackPlan, members: slice) -> Ints:
    """Return the indices of the members that are the first of their row."""
    return np.flatnonzero(plan.row_offset[members] == 0)


def _block_shape(plan: PackPlan, rows: slice) -> tuple[int, int]:
    first, stop, _ = rows.indices(plan.rows)
    return max(0, stop - first), plan.row_len


def _over_rows(plan: PackPlan, rows: slice, values: Ints) -> Int32s:
    """Scatter the values of tokens, in the order of the rows, into a block; 0 in the padding."""
    block = np.zeros(_block_shape(plan, rows), dtype=np.int32)
    block[used_places(plan, rows)] = values
    return block
