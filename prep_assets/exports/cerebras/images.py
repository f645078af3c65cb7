"""Cerebras' multimodal samples: the five rows of ``data``, and which image stands where in them. What they mean: `prep_assets.exports.cerebras`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.exports.blocks import Block, rows
from prep_assets.exports.cerebras.rows import Table, shifted
from prep_assets.stores.images import Images
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

MULTIMODAL = ("text_input_ids", "loss_mask", "labels", "key_padding_mask", "token_modality_idx")
NO_PATH = "None"
"""What the Model Zoo writes where a sample has fewer images than its most."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the data sets: `width` is S, `images` max_num_img, `patches` num_patches."""

    width: int
    images: int
    patches: int


def layout_of(images: Images, width: int, max_num_img: int | None) -> Layout:
    """The sizes that fit a source.

    Raises:
        ConfigError: images of different numbers of tokens, or a row with more images than `max_num_img`.
    """
    lengths, counts = np.unique(images.length), np.unique(images.record, return_counts=True)[1]
    if len(lengths) != 1:
        raise ConfigError(f"images have {', '.join(map(str, lengths.tolist()))} tokens; all of them need one num_patches")
    most = int(counts.max())
    if max_num_img is not None and most > max_num_img:
        over = int((counts > max_num_img).sum())
        raise ConfigError(f"{over:,} rows have more images than max_num_img {max_num_img}, the most has {most}. Raise it, or leave it out")
    return Layout(width, max_num_img or most, int(lengths[0]))


def multimodal_samples(source: TokenStore | PackedStore, layout: Layout, pad_id: int) -> Iterator[tuple[Table, Mapping[str, Any]]]:
    """Blocks of R samples: int32[R, 5, S], and the arrays ``img_path``, ``has_img``, ``img_data_loc``.

    Raises:
        ConfigError: an image at the very end of a row, whose last token is no input.
    """
    for block in rows(source):
        count = len(block.row_lengths)
        places = _places(source.images, block, layout)
        modality = np.zeros((count, layout.width + 1), np.int32)
        modality[np.arange(count)[:, None, None], places["img_data_loc"]] = 1
        padding = np.arange(layout.width) >= block.row_lengths[:, None] - 1
        extra = np.stack([padding, modality[:, :-1]], axis=1).astype(np.int32)
        yield np.concatenate([shifted(block, layout.width, pad_id), extra], axis=1), places


def _places(images: Images, block: Block, layout: Layout) -> dict[str, npt.NDArray[Any]]:
    count = len(block.row_lengths)
    here = images.of(block.done - count, block.done)
    row, start = np.asarray(images.record[here]) - (block.done - count), np.asarray(images.start[here])
    if (late := np.flatnonzero(start + layout.patches > block.row_lengths[row] - 1)).size:
        at = block.done - count + int(row[late[0]])
        raise ConfigError(
            f"row {at:,} ends with an image, and the last token of a row is a label and no input. End it with text or a stop token"
        )
    begins = (np.cumsum(block.row_lengths) - block.row_lengths)[row] + start
    tokens = block.tokens[begins[:, None] + np.arange(layout.patches)]
    if (mixed := np.flatnonzero((tokens != tokens[:, :1]).any(axis=1))).size:
        at = block.done - count + int(row[mixed[0]])
        raise ConfigError(
            f"row {at:,}: tokens of {len(np.unique(tokens[mixed[0]]))} kinds stand for an image; this format has patches and nothing beside them"
        )
    slot = np.arange(len(row)) - np.searchsorted(row, row)
    location = np.full((count, layout.images, layout.patches), layout.width, np.int32)
    location[row, slot] = start[:, None] + np.arange(layout.patches)
    path = np.full((count, layout.images), NO_PATH, object)
    path[row, slot] = paths = [image.path for image in images.references(np.arange(here.start, here.stop))]
    if NO_PATH in paths:
        raise ConfigError(f"an image is named {NO_PATH!r}, which stands for no image in this format. Rename it")
    return {"img_path": path, "has_img": np.bincount(row, minlength=count)[:, None] > 0, "img_data_loc": location}
