"""A small packed table with its records, whose places can be counted by hand."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

EOS, PAD, SIZE = 0, 3, 10


def store(*records: list[int], masks: list[list[float]] | None = None) -> TokenStore:
    """A token store of these records."""
    lengths = np.array([len(record) for record in records], np.int64)
    arrays: dict[str, npt.NDArray[Any]] = {"tokens": np.array(list(chain(*records)), np.int32)}
    if masks is not None:
        arrays["loss_mask"] = np.array(list(chain(*masks)), np.float32)
    return TokenStore(arrays, np.cumsum(lengths), np.zeros(len(records), np.int32), np.arange(len(records)))


TOKENS = [[5, 6, 7], [8, 9], [5, 5, 5, 5]]


MASKS = [[0.0, 1.0, 1.0], [0.0, 1.0], [1.0, 0.0, 0.0, 1.0]]


def table(**changes: list[Any]) -> PackedStore:
    """Rows of 5: records 0 and 1 in the first, record 2 and one place of padding in the second."""
    rows = {"tokens": [[5, 6, 7, 8, 9], [5, 5, 5, 5, PAD]], "loss_mask": [[0, 1, 1, 0, 1], [1, 0, 0, 1, 0]]}
    pieces = {"row": [0, 0, 1], "row_offset": [0, 3, 0], "length": [3, 2, 4], "source": [0, 0, 0], "record": [0, 1, 2], "start": [0, 0, 0]}
    found = {key: np.array(changes.get(key, value)) for key, value in (rows | pieces).items()}
    return PackedStore(found["tokens"], found["loss_mask"], {key: found[key] for key in pieces}, ("a",), 5)
