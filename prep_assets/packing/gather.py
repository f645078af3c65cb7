"""Rows of tokens from the flat token store: the only place in packing where tokens move.

One copy per member: documents are contiguous on both sides, so this moves memory at its own speed, reads a memory-mapped store in whole
stretches, and needs no index of 8 bytes for each token of 2, which makes a single fancy index many times slower.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.packing.plan import PackPlan


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

    Args:
        flat: [T], the values of all records one after another; an `np.memmap` is read only where the rows need it.
        record_starts: int[N], where in `flat` each record begins, in the order of the lengths that were packed.
        rows: a contiguous block of the plan's rows.
        fill: what stands in the padding.

    Returns:
        `flat`'s dtype, [R, row_len].

    Raises:
        ConfigError: `fill` is not a value of `flat`'s dtype, or the records reach beyond `flat`.
    """
    first, stop, _ = rows.indices(plan.rows)
    members = plan.members(rows)
    length = plan.length[members]
    begin = np.asarray(record_starts, dtype=np.int64)[plan.record[members]] + plan.start[members]
    place = (plan.row[members] - first) * plan.row_len + plan.row_offset[members]
    if length.size and int((begin + length).max()) > len(flat):
        raise ConfigError(f"records reach to token {int((begin + length).max())}, the flat array has {len(flat)}: they are of two stores")
    block = np.full(max(0, stop - first) * plan.row_len, _checked_fill(fill, flat.dtype))
    # slicing a memmap as a plain array is several times cheaper
    source: PerToken = np.asarray(flat) if isinstance(flat, np.ndarray) else flat
    for to, origin, tokens in zip(place.tolist(), begin.tolist(), length.tolist(), strict=True):
        block[to : to + tokens] = source[origin : origin + tokens]
    return block.reshape(-1, plan.row_len)


def _checked_fill(fill: complex, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= fill <= np.iinfo(dtype).max:  # type: ignore[operator]
        raise ConfigError(f"fill {fill} is no {dtype}; widen the array first, e.g. to int32 for labels with -100")
    return np.array(fill, dtype=dtype)
