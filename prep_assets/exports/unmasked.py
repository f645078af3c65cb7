"""Formats that have no place for a loss mask never get a stream that needs one."""

from __future__ import annotations

import numpy as np

from prep_assets.errors import ConfigError
from prep_assets.stores.tokens import TokenStore

BLOCK = 1 << 24
REMEDIES = {"megatron": "Set the option layout: instruction"}


def lost_mask(format: str, what: str) -> ConfigError:
    """The error that says so. `what` has the mask."""
    remedy = REMEDIES.get(format, "Export a packed table, or to another format")
    return ConfigError(f"{format} would lose the loss mask of {what}, and every token would be trained. {remedy}")


def refuse_lost_mask(source: TokenStore, format: str) -> None:
    """Raises:
    ConfigError: the stream has tokens that are not trained.
    """
    if "loss_mask" not in source.arrays:
        return
    mask = source.arrays["loss_mask"]
    untrained = sum(int(np.count_nonzero(np.asarray(mask[at : at + BLOCK]) == 0)) for at in range(0, source.tokens, BLOCK))
    if untrained:
        raise lost_mask(format, f"this stream, in which {untrained:,} of {source.tokens:,} tokens are not trained")
