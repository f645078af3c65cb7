"""Position ids of a packed table: from 0 in each piece, 0 in the padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.verdict import Verdict, Worst

BLOCK = 1 << 20
"""Places that are looked at at a time."""


def check_positions(positions: Any, documents: Mapping[str, npt.NDArray[Any]], row_len: int) -> Verdict:
    """Compare every place.

    Args:
        positions: (N, row_len), read in slices.
        documents: fields of the pieces, ordered by row and place.
    """
    row, offset, length = (np.asarray(documents[field]) for field in ("row", "row_offset", "length"))
    step = max(1, BLOCK // row_len)
    for first in range(0, len(positions), step):
        block = np.asarray(positions[first : first + step])
        low, high = np.searchsorted(row, [first, first + len(block)])
        begin = ((row[low:high] - first) * row_len + offset[low:high]).astype(np.int64)
        wanted = np.zeros_like(block).ravel()
        for start, size in zip(begin.tolist(), length[low:high].tolist(), strict=True):
            wanted[start : start + size] = np.arange(size)
        wrong = block != wanted.reshape(block.shape)
        if wrong.any():
            at, place = (int(number) for number in np.argwhere(wrong)[0])
            what = f"position id {int(block[at, place])} at place {place}, its piece begins {int(wanted.reshape(block.shape)[at, place])} before"
            return Verdict(False, f"row {first + at:,}: {what}", {"positions": block.size}, Worst(f"row {first + at:,}", what))
    return Verdict(True, f"{len(positions) * row_len:,} position ids count from 0 in each piece", {"positions": len(positions) * row_len})
