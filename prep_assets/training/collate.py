"""Items to batches. Attention masks are explicit, so token id 0 is a token like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

IGNORE = -100


def padded(rows: Sequence[Tensor], fill: float, *, width: int | None = None, left: bool = False) -> Tensor:
    """[B, width]: rows of any length, then `fill`; with `left`, `fill` first. `width` is the longest row's where it is not given.

    Where rows have different types (a mask beside weights), the table has the one that holds both.
    """
    size = max(len(row) for row in rows) if width is None else width
    dtype = reduce(torch.promote_types, {row.dtype for row in rows})
    table = torch.full((len(rows), size), fill, dtype=dtype)
    for line, row in zip(table, rows, strict=True):
        line[size - len(row) :] = row if left else line[size - len(row) :]
        if not left:
            line[: len(row)] = row
    return table


@dataclass(frozen=True)
class Pad:
    """Right-pads ``input_ids`` and ``labels`` (unshifted; the inputs themselves where an item has none).

    Batch: ``input_ids, labels`` int64[B, L], ``attention_mask`` int64[B, L], 1 on tokens; ``position_ids`` where items have them.

    Attributes:
        pad_id: what fills the inputs.
        multiple_of: L is rounded up to a multiple of this.
    """

    pad_id: int = 0
    multiple_of: int = 1

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        inputs = [item["input_ids"] for item in items]
        width = -(-max(len(row) for row in inputs) // self.multiple_of) * self.multiple_of
        batch = {
            "input_ids": padded(inputs, self.pad_id, width=width),
            "labels": padded([item.get("labels", item["input_ids"]) for item in items], IGNORE, width=width),
            "attention_mask": padded([torch.ones_like(row) for row in inputs], 0, width=width),
        }
        if "position_ids" in items[0]:
            batch["position_ids"] = padded([item["position_ids"] for item in items], 0, width=width)
        return batch


@dataclass(frozen=True)
class PaddingFree:
    """Lays all documents of a batch end to end, for kernels of variable length (FlashAttention). Padding of packed rows is left out.

    Items have ``input_ids``, ``labels`` (unshifted) and, where they hold several documents, ``seq_lengths``.

    Batch of T tokens in D documents: ``input_ids, labels, position_ids`` int64[1, T], positions from 0 in each document, and -100 at each
    document's first label; ``cu_seqlens`` int32[D + 1]; ``max_seqlen`` int, the longest document.
    """

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        lengths = torch.cat([item.get("seq_lengths", torch.tensor([len(item["input_ids"])])) for item in items])
        used = [int(item["seq_lengths"].sum()) if "seq_lengths" in item else len(item["input_ids"]) for item in items]
        tokens = torch.cat([item["input_ids"][:stop] for item, stop in zip(items, used, strict=True)])
        labels = torch.cat([item.get("labels", item["input_ids"])[:stop] for item, stop in zip(items, used, strict=True)])
        ends = lengths.cumsum(0)
        positions = torch.arange(len(tokens)) - torch.repeat_interleave(ends - lengths, lengths)
        return {
            "input_ids": tokens[None],
            "labels": torch.where(positions == 0, IGNORE, labels)[None],
            "position_ids": positions[None],
            "cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.int32), ends.to(torch.int32)]),
            "max_seqlen": int(lengths.max()),
        }


@dataclass(frozen=True)
class PadPairs:
    """Right-pads both sides of preference pairs to one length.

    Batch: ``chosen, rejected`` int64[B, L]; ``chosen_mask, rejected_mask`` bool[B, L], true on the answer (unshifted);
    ``chosen_attention_mask, rejected_attention_mask`` bool[B, L], true on tokens.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        width = max(len(item[side]) for item in items for side in ("chosen", "rejected"))
        batch = {}
        for side in ("chosen", "rejected"):
            rows = [item[side] for item in items]
            batch[side] = padded(rows, self.pad_id, width=width)
            batch[f"{side}_mask"] = padded([item[f"{side}_mask"] for item in items], 0, width=width)
            batch[f"{side}_attention_mask"] = padded([torch.ones_like(row, dtype=torch.bool) for row in rows], 0, width=width)
        return batch


@dataclass(frozen=True)
class PadGroups:
    """Left-pads prompts and right-pads groups of responses.

    Batch: ``prompts`` int64[B, P], ``prompt_mask`` bool[B, P], true on tokens; ``responses`` int64[B, G, R], ``masks`` bool[B, G, R], true
    where trained, ``response_mask`` bool[B, G, R], true on tokens; ``rewards`` float32[B, G], ``group_mask`` bool[B, G], false where a
    smaller group was filled up. Leave those out of the group's mean and deviation.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        prompts = [item["prompts"] for item in items]
        size = max(len(item["rewards"]) for item in items)
        width = max((len(row) for item in items for row in item["responses"]), default=0)
        filled = [torch.ones_like(item["rewards"], dtype=torch.bool) for item in items]
        return {
            "prompts": padded(prompts, self.pad_id, left=True),
            "prompt_mask": padded([torch.ones_like(row, dtype=torch.bool) for row in prompts], 0, left=True),
            "responses": torch.stack([_group(item["responses"], size, width, self.pad_id) for item in items]),
            "masks": torch.stack([_group(item["masks"], size, width, 0) for item in items]),
            "response_mask": torch.stack([_group([torch.ones_like(row) for row in item["masks"]], size, width, 0) for item in items]),
            "rewards": padded([item["rewards"] for item in items], 0),
            "group_mask": padded(filled, 0, width=size),
        }


def _group(rows: Sequence[Tensor], size: int, width: int, fill: int) -> Tensor:
    """[size, width], the last rows empty where there are fewer."""
    return padded([*rows, *([rows[0][:0]] * (size - len(rows)))], fill, width=width)
