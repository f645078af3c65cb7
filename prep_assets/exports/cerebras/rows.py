"""The rows of Cerebras' samples, from a block. What they mean: `prep_assets.exports.cerebras`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prep_assets.exports.blocks import Block

Table = npt.NDArray[np.int32]


def _inputs(block: Block, width: int) -> npt.NDArray[np.bool_]:
    """Where inputs stand: every token of the row but the last."""
    inside: npt.NDArray[np.bool_] = np.arange(width) < block.row_lengths[:, None] - 1
    return inside


def shifted(block: Block, width: int, pad_id: int) -> Table:
    """int32[R, 3, width]: all tokens of a row but the last, whether the next one is trained, and the next one."""
    whole, counts = block.padded(block.tokens, width + 1, pad_id), block.padded(block.next_trained, width + 1, 0)
    inside = _inputs(block, width)
    return np.stack([np.where(inside, whole[:, :-1], pad_id), counts[:, :-1], np.where(inside, whole[:, 1:], pad_id)], axis=1).astype(
        np.int32
    )


def pair_side(block: Block, width: int, pad_id: int) -> Table:
    """int32[R, 3, width]: all tokens, whether the next one is trained, and the next one where it is."""
    tokens, counts = block.padded(block.tokens, width, pad_id), block.padded(block.next_trained, width, 0)
    following = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), pad_id)], axis=1)
    return np.stack([tokens, counts, np.where(counts, following, pad_id)], axis=1).astype(np.int32)


def _spans(block: Block) -> npt.NDArray[np.int64]:
    """How many later tokens may attend to this one: down to 0 at the end of each document, one less in a row's last, whose end is no input."""
    lengths = block.document_lengths.copy()
    last = np.cumsum(block.row_documents) - 1
    spans = np.repeat(lengths, lengths) - 1 - block.position_ids
    is_last = np.zeros(len(lengths), bool)
    is_last[last] = True
    found: npt.NDArray[np.int64] = np.maximum(spans - np.repeat(is_last, lengths), 0)
    return found


def spans_and_positions(block: Block, width: int) -> Table:
    """int32[R, 2, width]: attention spans and position ids of the inputs, 0 in the padding."""
    extra = [block.padded(values, width + 1, 0)[:, :-1] for values in (_spans(block), block.position_ids)]
    return np.stack([np.where(_inputs(block, width), values, 0) for values in extra], axis=1).astype(np.int32)
