"""Ragged per-token arrays on disk: token streams with, for SFT, a loss mask, and the ends of records.

Two formats hold the same arrays:

    bin   shard_0000/meta.json, shard_0000/<key>.bin …   AstrAI's layout: raw little-endian elements, {"key": {"shape", "dtype"}}
    h5    <name>.h5 with one flat dataset a key          train-llm-from-scratch's layout: ``tokens``

and both have a folder ``<name>.index``, which no trainer reads, with the end and the origin of each record; and, with images, ``<name>.images``
(see `prep_assets.stores.images`); and a folder for each of its lists (see `prep_assets.stores.lists`). Where pairs have
margins, ``chosen.index`` has ``margin.npy``, float32, NaN for a pair without one.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.samples import UNATTENDED

StorageFormat = Literal["bin", "h5"]
BIN_NAMES = {"tokens": "sequence"}
"""AstrAI's name of a key, where it differs."""
ATTENTION = "attention_mask"
"""uint8: 1 where a token is attended, 0 where it is not. A store in which all tokens are attended has no such key."""
STARTS = "sentence_start"
"""uint8: 1 at the first token of each sentence; the tokens around a document belong to its first and last sentence. Only of documents cut into sentences."""
INDEX_FIELDS = {"ends": np.int64, "file": np.int32, "row": np.int64}


def signed(loss: Any, attention: Any) -> npt.NDArray[Any]:
    """Encode loss weight and attention of each token in one number: the loss weight if the token is attended, `UNATTENDED` minus the loss weight if it is
    not. So a token that is trained but not attended, which is invalid, is distinguishable. Without `attention`, return the loss weights."""
    weights = np.asarray(loss)
    return weights if attention is None else np.where(np.asarray(attention) != 0, weights, UNATTENDED - weights.astype(np.float32))


def unsigned(weights: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Decode `signed`: return the loss weights, and whether tokens are attended."""
    attended = weights >= 0
    return weights if attended.all() else np.where(attended, weights, UNATTENDED - weights), attended
