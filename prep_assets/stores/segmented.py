"""Several arrays read as one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt


class Segmented:
    """Several arrays read as one, without copying them together. Only slices are supported."""

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        # slices of a memmap as a plain array are several times cheaper
        self._arrays = [np.asarray(array) if isinstance(array, np.memmap) else array for array in arrays]
        self._bounds = [0, *accumulate(len(array) for array in arrays)]
        self.dtype = self._arrays[0].dtype

    def __len__(self) -> int:
        return self._bounds[-1]

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise IndexError("a segmented array is read in steps of 1")
        if start >= stop:
            return np.zeros(0, self.dtype)
        first = bisect_right(self._bounds, start) - 1
        low = self._bounds[first]
        if stop <= self._bounds[first + 1]:
            return self._arrays[first][start - low : stop - low]
        last = bisect_right(self._bounds, stop - 1) - 1
        return np.concatenate(
            [
                array[max(0, start - low) : stop - low]
                for array, low in zip(self._arrays[first : last + 1], self._bounds[first : last + 1], strict=True)
            ]
        )
