"""The kept examples of a block and the records that they come from: in their order, and which is the first of its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from prep_assets.assets.reading.examples import Item
from prep_assets.tokenization.encode import Encoded

Part = tuple[list[Item], Encoded]
"""Kept items with their tokens."""


def in_order(items: Sequence[Item], texts: Part, brought: Part) -> Part:
    """Two parts of a block as one.

    Args:
        items: the whole block.
        texts: the part that was tokenized; images stand in it alone.
        brought: the part that brings its ids.
    """
    places, parts = {id(item.record): number for number, item in enumerate(items)}, (texts, brought)
    found = sorted((places[id(item.record)], part, at) for part, (kept, _) in enumerate(parts) for at, item in enumerate(kept))
    spans = [(parts[part][1], *parts[part][1].offsets[at : at + 2].tolist()) for _, part, at in found]
    ids = np.concatenate([texts[1].ids[:0], *(each.ids[low:high] for each, low, high in spans)])
    loss = np.concatenate([texts[1].loss[:0], *(each.loss[low:high] for each, low, high in spans)])
    offsets = np.cumsum([0, *(high - low for _, low, high in spans)], dtype=np.int64)
    taken = np.array([parts[part][1].taken[at] for _, part, at in found], np.int64)
    images = texts[1].images
    if len(images):
        numbers = np.array([new for new, (_, part, _) in enumerate(found) if part == 0], np.int64)
        images = replace(images, record=numbers[images.record])
    return [parts[part][0][at] for _, part, at in found], Encoded(ids, loss, offsets, np.arange(len(found)), (), images, taken)


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """Which of the kept examples are the first of their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)
