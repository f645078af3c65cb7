"""Scored groups, read in blocks.

A response goes on from its prompt, so its first token is predicted like any other and keeps its mask, unlike that of a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.exports.blocks import RECORDS, Ints
from prep_assets.stores.groups import LOGPROBS, GroupStore
from prep_assets.stores.tokens import TokenStore


@dataclass(frozen=True, slots=True, eq=False)
class GroupBlock:
    """N groups of M responses in all.

    Attributes:
        prompts: int[…], tokens of the prompts. prompt_lengths: int64[N].
        responses: int[…], tokens of the responses. masks: bool[…] of the same length. response_lengths: int64[M].
        logprobs: float32[…], of each token of the responses; `None` where the store has none.
        rewards: float32[M]. sizes: int64[N], responses of each group.
        done: groups read with this block and before it.
    """

    prompts: npt.NDArray[Any]
    prompt_lengths: Ints
    responses: npt.NDArray[Any]
    masks: npt.NDArray[np.bool_]
    response_lengths: Ints
    rewards: npt.NDArray[np.float32]
    sizes: Ints
    done: int
    logprobs: npt.NDArray[np.float32] | None = None

    @property
    def group_lengths(self) -> Ints:
        """int64[N], tokens of all responses of each group."""
        ends: Ints = np.concatenate([[0], np.cumsum(self.response_lengths)])[np.cumsum(self.sizes)]
        return np.diff(ends, prepend=0)


def group_blocks(source: GroupStore) -> Iterator[GroupBlock]:
    """The groups of a store, block by block."""
    for first in range(0, len(source), RECORDS):
        stop = min(first + RECORDS, len(source))
        low, high = source.responses_of(first).start, source.responses_of(stop - 1).stop
        prompts, prompt_lengths = _part(source.prompts, first, stop, "tokens")
        responses, response_lengths = _part(source.responses, low, high, "tokens")
        masks, _ = _part(source.responses, low, high, "loss_mask")
        rewards, sizes = _part(source.rewards, first, stop, "rewards")
        logprobs = _part(source.responses, low, high, LOGPROBS)[0] if LOGPROBS in source.responses.arrays else None
        yield GroupBlock(prompts, prompt_lengths, responses, masks != 0, response_lengths, rewards, sizes, stop, logprobs)


def _part(store: TokenStore, first: int, stop: int, key: str) -> tuple[npt.NDArray[Any], Ints]:
    """One key of records ``first … stop - 1``, and their lengths."""
    begin = int(store.ends[first - 1]) if first else 0
    lengths = np.diff(store.ends[first:stop], prepend=begin)
    return np.asarray(store.arrays[key][begin : begin + int(lengths.sum())]), lengths
