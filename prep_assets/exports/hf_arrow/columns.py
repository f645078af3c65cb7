"""The columns of each layout of `hf_arrow`, from a block of rows. Labels are unshifted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prep_assets.errors import ConfigError
from prep_assets.exports.arrow import ragged
from prep_assets.exports.blocks import IGNORE, Block, GroupBlock
from prep_assets.stores.images import Images

NO_MEDIA = 1 << 32
"""What LLaMA-Factory puts into an empty list of media positions."""


def trl(block: Block) -> dict[str, Any]:
    """TRL, one document a row: ``input_ids, labels``; and ``attention_mask`` where some tokens are not attended."""
    attended = {} if block.attended is None else {"attention_mask": ragged(block.attended, block.row_lengths, "int8")}
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
        **attended,
    }


def trl_packed(block: Block) -> dict[str, Any]:
    """TRL, packed: with ``seq_lengths``, the lengths of the row's documents, whose sum is the row's length."""
    return {**trl(block), "seq_lengths": ragged(block.document_lengths, block.row_documents, "int64")}


def masked(block: Block) -> dict[str, Any]:
    """axolotl, open-instruct: ``input_ids, attention_mask, labels``."""
    ones = np.ones(len(block.tokens), np.int8)
    return {
        "input_ids": ragged(block.tokens, block.row_lengths, "int32"),
        "attention_mask": ragged(ones, block.row_lengths, "int8"),
        "labels": ragged(block.labels, block.row_lengths, "int64"),
    }


def llama_factory(block: Block) -> dict[str, Any]:
    """LLaMA-Factory's SFT: ``input_ids, attention_mask, labels`` and empty ``images, videos, audios``."""
    return {**masked(block), **_no_media(block)}


def llama_factory_images(block: Block, images: Images, folder: str | None) -> dict[str, Any]:
    """The same with the paths of each row's images, below `folder` where they are local."""
    import pyarrow as pa

    first = block.done - len(block.row_lengths)
    here = images.of(first, block.done)
    paths: list[list[str] | None] = [None] * len(block.row_lengths)
    for row, image in zip(np.asarray(images.record[here]).tolist(), images.references(np.arange(here.start, here.stop)), strict=True):
        local = folder is not None and "://" not in image.path
        paths[row - first] = [*(paths[row - first] or []), f"{folder}/{image.path}" if local else image.path]
    return {**llama_factory(block), "images": pa.array(paths, pa.list_(pa.string()))}


def llama_factory_packed(block: Block, width: int, pad_id: int) -> dict[str, Any]:
    """LLaMA-Factory's neat packing: rows of `width`, which is one more than the longest row, so that each ends with padding.

    ``attention_mask`` counts documents from 1 and is 0 in the padding; ``position_ids`` restart in each document;
    ``packing_params.sequence_boundaries`` has the padding as a last document.
    """
    import pyarrow as pa

    columns = {"input_ids": (block.tokens, pad_id), "attention_mask": (block.document_numbers, 0), "labels": (block.labels, IGNORE)}
    columns["position_ids"] = (block.position_ids, 0)
    count = len(block.row_lengths)
    full = np.full(count, width)
    table = {key: ragged(block.padded(values, width, fill).reshape(-1), full, "int64") for key, (values, fill) in columns.items()}
    none = ragged(np.full(count, NO_MEDIA), np.ones(count, np.int64), "int64")
    params = [_boundaries(block, width), none, none, none, pa.array(width - block.row_lengths)]
    names = ["sequence_boundaries", "image_subseq_ids", "video_subseq_ids", "audio_subseq_ids", "right_padding_length"]
    return {**table, "packing_params": pa.StructArray.from_arrays(params, names), **_no_media(block)}


def _boundaries(block: Block, width: int) -> Any:
    """0, where each document starts but the first, where the padding starts, `width`."""
    starts = np.split(block.document_starts, np.cumsum(block.row_documents)[:-1])
    values = [np.concatenate([start, [length, width]]) for start, length in zip(starts, block.row_lengths, strict=True)]
    return ragged(np.concatenate(values), block.row_documents + 2, "int64")


def _no_media(block: Block) -> dict[str, Any]:
    import pyarrow as pa

    return {name: pa.nulls(len(block.row_lengths), pa.list_(pa.string())) for name in ("images", "videos", "audios")}


def pairs(blocks: Mapping[str, Block], layout: str) -> dict[str, Any]:
    """Preference pairs. TRL's reward trainer: ``chosen_ids, rejected_ids``. The others: ``chosen_`` and ``rejected_`` before
    ``input_ids, attention_mask, labels``.

    Raises:
        ConfigError: axolotl, which reads preference pairs as text only.
    """
    if layout == "trl":
        return {f"{side}_ids": ragged(block.tokens, block.row_lengths, "int32") for side, block in blocks.items()}
    if layout == "axolotl":
        raise ConfigError("layout 'axolotl': axolotl reads preference pairs as text only. Give it preferences.jsonl")
    table = {f"{side}_{key}": values for side, block in blocks.items() for key, values in masked(block).items()}
    return {**table, **_no_media(blocks["chosen"])} if layout == "llama_factory" else table


def groups(block: GroupBlock) -> dict[str, Any]:
    """Scored groups: ``prompt_ids``, lists of lists ``responses, masks`` (and ``logprobs`` where there are some), and ``rewards`` as float32."""
    import pyarrow as pa

    borders = np.concatenate([[0], np.cumsum(block.sizes)]).astype(np.int32)
    nested: dict[str, tuple[Any, str]] = {"responses": (block.responses, "int32"), "masks": (block.masks, "int8")}
    if block.logprobs is not None:
        nested["logprobs"] = (block.logprobs, "float32")
    lists = {
        key: pa.ListArray.from_arrays(borders, ragged(values, block.response_lengths, dtype)) for key, (values, dtype) in nested.items()
    }
    return {
        "prompt_ids": ragged(block.prompts, block.prompt_lengths, "int32"),
        **lists,
        "rewards": ragged(block.rewards, block.sizes, "float32"),
    }


COLUMNS: Mapping[str, Callable[[Block], dict[str, Any]]] = {
    "trl": trl,
    "axolotl": masked,
    "llama_factory": llama_factory,
    "open_instruct": masked,
}
