"""Where runs of tokens that must stay whole, those of images, come to stand in packed rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.packing.plan import Ints, PackPlan


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRuns:
    """K runs, in the order in which they were given.

    Attributes:
        row: int64[K], its row, -1 where its tokens are in none.
        row_offset: int64[K], place of its first token in the row.
        cut: bool[K], whether the border of a row or of what is left out goes through it.
    """

    row: Ints
    row_offset: Ints
    cut: npt.NDArray[np.bool_]


def place_runs(plan: PackPlan, record: Ints, start: Ints, length: Ints) -> PlacedRuns:
    """Find runs of tokens in a plan.

    Every token of every record is in one member or one dropped piece, so with the records laid end to end a run stands in the last piece that
    begins at or before it.

    Args:
        record, start, length: int64[K]: tokens ``start … start + length - 1`` of the record at that position in the lengths that were packed.
    """
    pieces = np.concatenate([np.stack([plan.record, plan.start, plan.length], axis=1), plan.dropped])
    nowhere = np.full(len(plan.dropped), -1)
    row, offset = np.concatenate([plan.row, nowhere]), np.concatenate([plan.row_offset, nowhere])
    sizes = np.zeros(int(pieces[:, 0].max(initial=-1)) + 1, np.int64)
    np.add.at(sizes, pieces[:, 0], pieces[:, 2])
    base = np.cumsum(sizes) - sizes
    begins = base[pieces[:, 0]] + pieces[:, 1]
    order = np.argsort(begins)
    at = base[record] + start
    piece = order[np.searchsorted(begins[order], at, "right") - 1]
    into = at - begins[piece]
    gone = row[piece] < 0
    return PlacedRuns(row[piece], np.where(gone, -1, offset[piece] + into), into + length > pieces[piece, 2])
