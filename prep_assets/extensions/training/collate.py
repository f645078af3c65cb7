"""Collators. Attention masks are explicit, so token id 0 is a token like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from prep_assets.errors import ConfigError

IGNORE = -100


def padded(rows: Sequence[Tensor], fill: float, *, width: int | None = None, left: bool = False) -> Tensor:
    """[B, width]: rows right-padded with `fill`, left-padded if `left`. `width` defaults to that of the longest row.

    Rows of different types (a mask and weights) are promoted to a common one.
    """
    size = max(len(row) for row in rows) if width is None else width
    dtype = reduce(torch.promote_types, {row.dtype for row in rows})
    table = torch.full((len(rows), size), fill, dtype=dtype)
    for line, row in zip(table, rows, strict=True):
        first = size - len(row) if left else 0
        line[first : first + len(row)] = row
    return table


def _ones(rows: Sequence[Tensor]) -> list[Tensor]:
    """A bool tensor of ones for each row, of its length."""
    return [torch.ones_like(row, dtype=torch.bool) for row in rows]


def unshifted_labels(items: Sequence[dict[str, Tensor]]) -> list[Tensor]:
    """The ``labels`` of each item; if no item has any, the inputs, so that every token is trained.

    Raises:
        ConfigError: an item has ``loss_mask`` or shifted ``target_ids`` instead of labels, as windows do; or only some items have labels.
    """
    for item in items:
        unsupported = sorted({"loss_mask", "target_ids"} & item.keys())
        if "labels" not in item and unsupported:
            raise ConfigError(
                f"items have {', '.join(sorted(item))}: {' and '.join(unsupported)} would be lost, since only unshifted `labels` are read here. Windows "
                "of SequenceDataset and SftDataset have one length: batch them with the DataLoader's own collate_fn, i.e. give none"
            )
    labelled = sum("labels" in item for item in items)
    if labelled not in (0, len(items)):
        raise ConfigError(f"{labelled} of {len(items)} items of a batch have `labels`; all have them or none has")
    return [item.get("labels", item["input_ids"]) for item in items]


def document_lengths(item: dict[str, Tensor]) -> Tensor:
    """int64[k]: tokens of each document, with the padding of a row that is laid out for ranks that split it (``cu_seqlens_padded``); from ``seq_lengths`` or
    the zeros of ``position_ids``; without either, one document."""
    if "cu_seqlens_padded" in item:
        return item["cu_seqlens_padded"].diff().long()
    if "seq_lengths" in item:
        return item["seq_lengths"]
    size = len(item["input_ids"])
    if "position_ids" not in item:
        return torch.tensor([size])
    starts = torch.nonzero(item["position_ids"] == 0).flatten()
    return torch.cat([starts[starts > 0], torch.tensor([size])]).diff(prepend=torch.zeros(1, dtype=torch.int64))


def tokens_of(item: Mapping[str, Tensor]) -> Tensor:
    """The inputs of an item without padding between documents."""
    if "cu_seqlens_padded" not in item:
        return item["input_ids"]
    starts = item["cu_seqlens_padded"][:-1].tolist()
    return torch.cat([item["input_ids"][start : start + size] for start, size in zip(starts, item["seq_lengths"].tolist(), strict=True)])


def _token_count(item: dict[str, Tensor]) -> int:
    """The number of tokens of a row, without padding."""
    return int(item["seq_lengths"].sum()) if "seq_lengths" in item else len(item["input_ids"])


def _used_length(item: dict[str, Tensor]) -> int:
    """The number of places before the padding that no document has."""
    return len(item["input_ids"]) if "cu_seqlens_padded" in item else _token_count(item)


def _attended(item: dict[str, Tensor]) -> Tensor:
    """bool[n]: which tokens before the padding are attended; all, if the item has no attention mask."""
    mask = item.get("attention_mask", torch.ones_like(item["input_ids"]))
    return mask[: _used_length(item)] != 0


def _document_attention_mask(lengths: Tensor, attended: Tensor) -> Tensor:
    """bool[1, 1, T, T], query by key: a token attends to itself and to the attended tokens before it in its document."""
    document, position = torch.repeat_interleave(torch.arange(len(lengths)), lengths), torch.arange(len(attended))
    earlier = (document[:, None] == document) & (position[:, None] > position)
    return ((earlier & attended) | (position[:, None] == position))[None, None]


class Pad(Struct, frozen=True):
    """Right-pads ``input_ids`` and ``labels`` (unshifted; the inputs themselves where no item has any), one document a row.

    Batch: ``input_ids, labels`` int64[B, L], ``attention_mask`` int64[B, L], 1 on tokens, 0 on padding (also that of a packed row, after its
    ``seq_lengths``) and on tokens that the item's ``attention_mask`` excludes; ``position_ids`` if items have them.

    Raises:
        ConfigError: items with ``loss_mask`` or ``target_ids`` and no ``labels``, as windows; an item with several documents, which would
            attend to each other under this mask: `PaddingFree` separates them.

    Attributes:
        pad_id: the padding of the inputs.
        multiple_of: L is rounded up to a multiple of this.
    """

    pad_id: int = 0
    multiple_of: int = 1

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        inputs, labels = [item["input_ids"] for item in items], unshifted_labels(items)
        for number, item in enumerate(items):
            if (count := len(document_lengths(item))) > 1:
                raise ConfigError(
                    f"item {number} holds {count} documents, which would attend to each other under a mask of ones. Use PaddingFree, or data "
                    "sets of one document a row"
                )
        width = -(-max(len(row) for row in inputs) // self.multiple_of) * self.multiple_of
        batch = {
            "input_ids": padded(inputs, self.pad_id, width=width),
            "labels": padded(labels, IGNORE, width=width),
            "attention_mask": padded([_attended(item)[: _token_count(item)].to(inputs[0].dtype) for item in items], 0, width=width),
        }
        if "position_ids" in items[0]:
            batch["position_ids"] = padded([item["position_ids"] for item in items], 0, width=width)
        return batch


class PaddingFree(Struct, frozen=True):
    """Concatenates all documents of a batch, for variable-length kernels (FlashAttention). Padding of packed rows is dropped, but for that of documents in
    rows that are laid out for ranks that split them (``packing.align``): there borders count it, and remain what ranks can split.

    Items have ``input_ids``, ``labels`` (unshifted) and, if they hold several documents, ``seq_lengths`` or ``position_ids``.

    Batch of T tokens in D documents: ``input_ids, labels, position_ids`` int64[1, T], positions from 0 in each document, and -100 at each
    document's first label; ``cu_seqlens`` int32[D + 1]; ``max_seqlen`` int, the longest document; and both under the names that models of
    transformers take: ``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q``, ``max_length_k``. There is no attention mask: a mask of ones would
    disable transformers' handling of restarting positions.

    Only if the ``attention_mask`` of an item excludes a token, which those kernels cannot express, the batch has ``attention_mask`` bool[1, 1, T, T],
    true where a token (row) attends to another (column) of its document. Models of transformers take it with ``attn_implementation="sdpa"``.

    Raises:
        ConfigError: as `Pad`.
    """

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        lengths = torch.cat([document_lengths(item) for item in items])
        used = [_used_length(item) for item in items]
        tokens = torch.cat([item["input_ids"][:stop] for item, stop in zip(items, used, strict=True)])
        labels = torch.cat([row[:stop] for row, stop in zip(unshifted_labels(items), used, strict=True)])
        ends = lengths.cumsum(0)
        borders = torch.cat([torch.zeros(1, dtype=torch.int32), ends.to(torch.int32)])
        positions = torch.arange(len(tokens)) - torch.repeat_interleave(ends - lengths, lengths)
        attended = torch.cat([_attended(item) for item in items])
        return {
            "input_ids": tokens[None],
            "labels": torch.where(positions == 0, IGNORE, labels)[None],
            "position_ids": positions[None],
            **dict.fromkeys(("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"), borders),
            **dict.fromkeys(("max_seqlen", "max_length_q", "max_length_k"), int(lengths.max())),
            **({} if attended.all() else {"attention_mask": _document_attention_mask(lengths, attended)}),
        }


class PadPairs(Struct, frozen=True):
    """Right-pads both sides of preference pairs to one length.

    Batch: ``chosen, rejected`` int64[B, L]; ``chosen_mask, rejected_mask`` bool[B, L], true on the answer (unshifted);
    ``chosen_attention_mask, rejected_attention_mask`` bool[B, L], true on tokens; ``margin`` float32[B], if items have one.

    Raises:
        ConfigError: only some items have a margin.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        width = max(len(item[side]) for item in items for side in ("chosen", "rejected"))
        batch = {}
        for side in ("chosen", "rejected"):
            rows = [item[side] for item in items]
            batch[side] = padded(rows, self.pad_id, width=width)
            batch[f"{side}_mask"] = padded([item[f"{side}_mask"] for item in items], 0, width=width)
            batch[f"{side}_attention_mask"] = padded(_ones(rows), 0, width=width)
        margins = [item["margin"] for item in items if "margin" in item]
        if len(margins) not in (0, len(items)):
            raise ConfigError(f"{len(margins)} of {len(items)} items of a batch have a `margin`; all have one or none has")
        return {**batch, "margin": torch.stack(margins)} if margins else batch


class PadGroups(Struct, frozen=True):
    """Left-pads prompts and right-pads groups of responses.

    Batch: ``prompts`` int64[B, P], ``prompt_mask`` bool[B, P], true on tokens; ``responses`` int64[B, G, R], ``masks`` bool[B, G, R], true
    where trained, ``response_mask`` bool[B, G, R], true on tokens; ``rewards`` float32[B, G], ``group_mask`` bool[B, G], false where a
    smaller group was padded; exclude those from the group's mean and standard deviation. Of rows of agents' runs also ``runs`` int64[B, G],
    -1 where padded: count each run once.
    """

    pad_id: int = 0

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        prompts, rewards = ([item[key] for item in items] for key in ("prompts", "rewards"))
        size = max(map(len, rewards))
        width = max((len(row) for item in items for row in item["responses"]), default=0)

        def table(groups: Sequence[Sequence[Tensor]], fill: int) -> Tensor:
            """[B, size, width], the last rows of a group empty where it is smaller."""
            return torch.stack([padded([*rows, *([rows[0][:0]] * (size - len(rows)))], fill, width=width) for rows in groups])

        return {
            "prompts": padded(prompts, self.pad_id, left=True),
            "prompt_mask": padded(_ones(prompts), 0, left=True),
            "responses": table([item["responses"] for item in items], self.pad_id),
            "masks": table([item["masks"] for item in items], 0),
            "response_mask": table([_ones(item["responses"]) for item in items], 0),
            "rewards": padded(rewards, 0),
            "group_mask": padded(_ones(rewards), 0, width=size),
            **({"runs": padded([item["runs"] for item in items], -1)} if "runs" in items[0] else {}),
        }
