"""AstrAI's memory-mapped layout: ``shard_0000/{meta.json, <key>.bin}``, everything int32 but rewards, which are float32.

``loss_mask`` is unshifted: its SFT data set takes ``loss_mask[begin + 1 : end + 1]`` with the targets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, StoreError
from prep_assets.exports.blocks import Block, group_blocks, rows, sides
from prep_assets.exports.readable import Options, Pairs, Readable, Source, Tokens, cut
from prep_assets.exports.registry import Count, Progress, TokenId, exporter
from prep_assets.stores.groups import LOGPROBS, GroupStore
from prep_assets.stores.open import open_store
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.segments import BinShard
from prep_assets.stores.tokens import BinWriter, TokenStore

READ_BY = "AstrAI"
LINES = {
    "PackedStore": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("sft", "{folder}", window_size={row_len})',
        'dataset[0]["input_ids"]  # with loss_mask, position_ids: a row of the table',
    ),
    "TokenStore": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("seq", "{folder}", window_size=2048)  # "sft" where the stream has a mask',
        'dataset[0]["input_ids"]',
    ),
    "Pairs": (
        "from astrai.dataset import DatasetFactory",
        'dataset = DatasetFactory.load("dpo", "{folder}", window_size=2048)',
        'dataset[0]["chosen"]  # with chosen_mask, rejected, rejected_mask',
    ),
    "GroupStore": (
        "from prep_assets.training import DatasetFactory  # AstrAI's own reader does not tell responses apart",
        'dataset = DatasetFactory.load("grpo", "{folder}")',
        'dataset[0]["responses"]  # with prompts, masks, rewards',
    ),
}


@exporter(
    "astrai",
    *(PackedStore, TokenStore, Pairs, GroupStore),
    keeps_borders=False,
    only={
        "pad_id": lambda kind, _: kind is PackedStore,
        "max_tokens_per_shard": lambda kind, _: kind in (PackedStore, TokenStore),
    },
)
def astrai(
    source: PackedStore | TokenStore | Pairs | GroupStore,
    out: Path,
    progress: Progress,
    *,
    pad_id: TokenId = 0,
    max_tokens_per_shard: Count = 100_000_000,
) -> None:
    """``sequence`` of a token stream, with ``loss_mask, position_ids`` where it has a mask; the four keys of pairs or of scored groups, with offsets.

    The rows of a packed table stand end to end, padded with `pad_id`, and one token more: a window must have a next token, so that without
    it ``window_size=row_len`` would lose the last row. Pairs and groups are one shard, because offsets are honoured in single shards only;
    ``element_offsets`` say where each response ends.
    """
    if isinstance(source, Pairs):
        _pairs(source, out, progress)
        return
    if isinstance(source, GroupStore):
        _groups(source, out, progress)
        return
    masked = isinstance(source, PackedStore) or "loss_mask" in source.arrays
    keys = ("tokens", "loss_mask", "position_ids") if masked else ("tokens",)
    writer = BinWriter(out / "train", dict.fromkeys(keys, "int32"), max_tokens_per_shard=max_tokens_per_shard)
    for block in rows(source):
        if isinstance(source, PackedStore):
            arrays, lengths = _rows(block, source.row_len, pad_id, last=block.done == len(source))
        else:
            arrays = {"tokens": block.tokens, "loss_mask": block.trained, "position_ids": block.position_ids}
            lengths = block.row_lengths
        writer.append({key: arrays[key] for key in keys}, lengths)
        progress(block.done, len(source))
    writer.close()


def _rows(block: Block, width: int, pad_id: int, *, last: bool) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
    parts = {"tokens": (block.tokens, pad_id), "loss_mask": (block.trained, 0), "position_ids": (block.position_ids, 0)}
    arrays = {key: block.padded(values, width, fill).reshape(-1) for key, (values, fill) in parts.items()}
    lengths = np.full(len(block.row_lengths), width)
    if last:
        arrays = {key: np.append(array, parts[key][1]) for key, array in arrays.items()}
        lengths[-1] += 1
    return arrays, lengths


def _pairs(source: Pairs, out: Path, progress: Progress) -> None:
    keys = ("chosen", "chosen_mask", "rejected", "rejected_mask")
    offsets: dict[str, list[int]] = {key: [0] for key in keys}
    with BinShard(out / "shard_0000", dict.fromkeys(keys, "int32")) as shard:
        for both in sides(source):
            for side, block in zip(("chosen", "rejected"), both, strict=True):
                for key, values in ((side, block.tokens), (f"{side}_mask", block.trained)):
                    shard.append(key, values)
                    offsets[key] += (np.cumsum(block.row_lengths) + offsets[key][-1]).tolist()
            progress(both[0].done, len(source))
        shard.borders = {key: {"offsets": ends} for key, ends in offsets.items()}


def _groups(source: GroupStore, out: Path, progress: Progress) -> None:
    if LOGPROBS in source.responses.arrays:
        raise ConfigError("AstrAI's files have no place for log-probabilities. Export these groups as hf_arrow")
    dtypes = {"prompts": "int32", "responses": "int32", "masks": "int32", "rewards": "float32"}
    offsets: dict[str, list[int]] = {key: [0] for key in dtypes}
    elements = [0]
    with BinShard(out / "shard_0000", dtypes) as shard:
        for block in group_blocks(source):
            values = {"prompts": block.prompts, "responses": block.responses, "masks": block.masks, "rewards": block.rewards}
            per_group = (block.prompt_lengths, block.group_lengths, block.group_lengths, block.sizes)
            for (key, array), lengths in zip(values.items(), per_group, strict=True):
                shard.append(key, array)
                offsets[key] += (np.cumsum(lengths) + offsets[key][-1]).tolist()
            elements += (np.cumsum(block.response_lengths) + elements[-1]).tolist()
            progress(block.done, len(source))
        nested = {"element_offsets": elements}
        shard.borders = {key: {"offsets": ends, **(nested if key in ("responses", "masks") else {})} for key, ends in offsets.items()}


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    store = open_store(folder, "bin")
    if isinstance(source, Pairs):

        def pair(number: int) -> tuple[Tokens, ...]:
            found = store.fetch_record(number, store.keys)
            return tuple(Tokens(found[side].astype(np.int64), found[f"{side}_mask"] != 0) for side in ("chosen", "rejected"))

        return Readable(store.num_records, pair)
    if isinstance(source, GroupStore):

        def group(number: int) -> tuple[Tokens, ...]:
            found = store.fetch_record(number, ("prompts", "responses", "masks", "rewards"))
            responses = [Tokens(ids.astype(np.int64), mask != 0) for ids, mask in zip(found["responses"], found["masks"], strict=True)]
            return (Tokens(found["prompts"].astype(np.int64)), *responses, Tokens(found["rewards"]))

        return Readable(store.num_records, group)
    assert isinstance(source, PackedStore | TokenStore)
    # one token more than the rows of a packed table: a window must have a next token
    expected = len(source) * source.row_len + 1 if isinstance(source, PackedStore) else source.tokens
    if len(store) != expected:
        raise StoreError(f"{len(store):,} tokens, {expected:,} are expected")
    arrays = store.data.arrays
    return Readable(len(source), cut(arrays["sequence"], arrays.get("loss_mask"), source))
