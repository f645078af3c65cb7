"""NumPy's arrays as tensors of their own: nothing written into them reaches a store."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def long(array: npt.NDArray[Any]) -> Tensor:
    """int64 tensor; a copy, so that nothing written into it reaches the store."""
    return torch.from_numpy(array.astype(np.int64))


def loss_weights(array: npt.NDArray[Any]) -> Tensor:
    """bool tensor, or float32 where the store's numbers are floating-point: all items of a store have one type."""
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array != 0)
