"""Several arrays read as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Segmented:
    """Several arrays read as one, without copying them together. Only slices are supported."""

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        self._arrays = list(arrays)
        self._bounds = np.concatenate([[0], np.cumsum([len(array) for array in arrays])])
        self.dtype = self._arrays[0].dtype

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise IndexError("a segmented array is read in steps of 1")
        if start >= stop:
            return np.zeros(0, self.dtype)
        first, last = (int(np.searchsorted(self._bounds, at, "right")) - 1 for at in (start, stop - 1))
        pieces = [
            array[max(0, start - low) : stop - low]
            for array, low in zip(self._arrays[first : last + 1], self._bounds[first : last + 1], strict=True)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
