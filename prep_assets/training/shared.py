"""Stores in memory that processes share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prep_assets.disk.faults import free_bytes
from prep_assets.errors import ConfigError
from prep_assets.stores.open import Store
from prep_assets.stores.segments import Shard

SHARED = Path("/dev/shm")
"""Where Linux keeps it. More than fits ends the process with a signal when it is written."""


class SharedArray:
    """A flat array in torch's shared memory. Sent to a worker process, it is the same memory there."""

    def __init__(self, array: Any) -> None:
        self._tensor = torch.from_numpy(np.array(array[:]))
        self._tensor.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _array(self) -> npt.NDArray[Any]:
        return self._tensor.numpy()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of its elements."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self._tensor)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return self._array[part]


class SharedStore(Store):
    """A store whose arrays are `SharedArray`s; it travels to workers as it is, not as its path."""

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedStore, (self.path, self.format, self.data, self.chosen, self.folders)


def share_memory(store: Store) -> Store:
    """The store with all its arrays copied into shared memory.

    Raises:
        ConfigError: it has values other than arrays (text), which cannot be shared; or there is no shared memory for it.
    """
    if store.data.objects:
        raise ConfigError(
            f"{store.path}: {', '.join(store.data.objects)} are not arrays and cannot be in shared memory; open with keys=[…]"
        )
    needed = sum(len(array) * np.dtype(array.dtype).itemsize for array in store.data.arrays.values())
    if SHARED.is_dir() and needed > (free := free_bytes(SHARED)):
        raise ConfigError(
            f"{store.path}: its arrays have {needed >> 20:,} MiB, and {free >> 20:,} MiB of shared memory are free at {SHARED}. Open it without "
            "share_memory: files that are memory-mapped are shared as they are"
        )
    data: Shard = replace(store.data, arrays={key: SharedArray(array) for key, array in store.data.arrays.items()})
    return SharedStore(store.path, store.format, data, store.chosen, store.folders)
