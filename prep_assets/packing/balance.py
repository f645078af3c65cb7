"""Rows in an order in which the ranks of a data-parallel step have like work.

Attention costs the square of a document's length, so of two full rows one document is more work than many. Every rank waits for the slowest, so a
step costs its heaviest row. Sorted by work, consecutive rows of N ranks have the least sum of these costs that any grouping of the rows has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prep_assets.array_types import Ints
from prep_assets.packing.mixing import drawn, stream_of
from prep_assets.packing.plan import PackPlan
from prep_assets.stores.arrays import argsort, fill_column, take


def work_of(plan: PackPlan) -> Ints:
    """int64[rows], the sum of squared lengths of each row's members."""
    # exact: the squares of a row sum up to less than 2**53
    return np.bincount(plan.row, plan.length.astype(np.float64) ** 2, plan.rows).astype(np.int64)


def by_work(plan: PackPlan, ranks: int, seed: int | None) -> PackPlan:
    """The same rows in steps of `ranks`, each of neighbours in work. Rows that fill no step are last, the lightest.

    Args:
        seed: of the order of steps; `None`: the heaviest first.
    """
    heaviest_first = argsort(-work_of(plan))
    steps, rest = np.split(heaviest_first, [plan.rows - plan.rows % ranks])
    steps = steps.reshape(-1, ranks)
    if seed is not None:
        steps = steps[argsort(drawn(stream_of(seed, "/steps"), len(steps)))]
    number = np.empty(plan.rows, np.int64)
    number[np.concatenate([steps.reshape(-1), rest])] = np.arange(plan.rows)
    row = fill_column(len(plan.row), lambda part: number[plan.row[part]])
    order = argsort(row)
    record, start, length, row_offset = (take(column, order) for column in (plan.record, plan.start, plan.length, plan.row_offset))
    return replace(plan, row=take(row, order), record=record, start=start, length=length, row_offset=row_offset)


def evenness(plan: PackPlan, ranks: int) -> float:
    """The mean work of rows over that of the heaviest row of each step of `ranks`: 1.0 where no rank waits. Rows that fill no step are not counted."""
    steps = work_of(plan)[: plan.rows - plan.rows % ranks].reshape(-1, ranks)
    return float(steps.sum() / (ranks * steps.max(axis=1).sum())) if steps.size else 1.0
