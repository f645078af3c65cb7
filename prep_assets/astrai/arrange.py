"""The order in which a shard's records are written: one after another, or packed into bins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.astrai.task import Column, Task
from prep_assets.packing import PackPlan, gather_rows, pack, position_ids
from prep_assets.packing.pieces import within

BLOCK = 1 << 22
"""Elements written at a time."""
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arranged:
    """A shard, ready to be written.

    Attributes:
        sizes: number of elements of each key.
        blocks: the elements of a key, in blocks.
        bins: how many bins of `max_packed_len` it has; `None` where records are not packed.
        left_out: tokens of records longer than a bin that are in none.
    """

    sizes: Mapping[str, int]
    blocks: Callable[[str], Iterator[Array]]
    bins: int | None = None
    left_out: int = 0


def arrange(task: Task, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64], pad_id: int) -> Arranged:
    """The shard of records whose values stand one after another in `raw`.

    Args:
        raw: values of each key except position ids.
        lengths: int64[n], tokens of each record of a single-output task; unused with several outputs.
        pad_id: the token that fills the bins; it is never trained.
    """
    if not task.is_binned:
        total = int(lengths.sum())
        sizes = {key: total if column.kind == "positions" else len(raw[key]) for key, column in task.columns.items()}
        return Arranged(sizes, lambda key: _flat(task, key, raw, lengths))
    plan = bin_plan(task, lengths)
    starts = np.cumsum(lengths) - lengths
    sizes = dict.fromkeys(task.columns, plan.rows * plan.row_len)
    left_out = int(plan.dropped[:, 2].sum())
    return Arranged(sizes, lambda key: _binned(task, key, raw, plan, starts, pad_id), plan.rows, left_out)


def bin_plan(task: Task, lengths: npt.NDArray[np.int64]) -> PackPlan:
    """Bins of ``max_packed_len``: best fit, longest first, ties to the earliest record and bin, as AstrAI's ``bfd`` and ``bfd_split``."""
    steps = task.pipeline.preprocessing
    if steps.packing_strategy == "bfd_split":
        return pack(lengths, steps.max_packed_len, "bfd_split")
    plan = pack(lengths, steps.max_packed_len, "bfd", overlong="truncate")
    if steps.truncation_mode == "keep_start":
        return plan
    # the same pieces, taken from the other end of the documents that are too long
    dropped = plan.dropped.copy()
    dropped[:, 1] = 0
    return replace(plan, start=lengths[plan.record] - plan.length, dropped=dropped)


def _flat(task: Task, key: str, raw: Mapping[str, Array], lengths: npt.NDArray[np.int64]) -> Iterator[Array]:
    if task.columns[key].kind != "positions":
        yield from (raw[key][at : at + BLOCK] for at in range(0, len(raw[key]), BLOCK))
        return
    ends = np.cumsum(lengths)
    first = begin = 0
    while first < len(lengths):
        stop = max(first + 1, int(np.searchsorted(ends, begin + BLOCK, "right")))
        continuous = task.pipeline.output.position_ids_mode == "continuous"
        yield np.arange(begin, ends[stop - 1]) if continuous else within(lengths[first:stop])
        first, begin = stop, int(ends[stop - 1])


def _binned(task: Task, key: str, raw: Mapping[str, Array], plan: PackPlan, starts: npt.NDArray[np.int64], pad_id: int) -> Iterator[Array]:
    column: Column = task.columns[key]
    step = max(1, BLOCK // plan.row_len)
    for first in range(0, plan.rows, step):
        rows = slice(first, min(first + step, plan.rows))
        if column.kind != "positions":
            yield gather_rows(raw[key], starts, plan, rows, fill=pad_id if column.kind == "ids" else 0).ravel()
        elif task.pipeline.output.position_ids_mode == "doc_reset":
            yield position_ids(plan, rows, "doc_reset").ravel()
        else:
            yield np.arange(first * plan.row_len, rows.stop * plan.row_len)
