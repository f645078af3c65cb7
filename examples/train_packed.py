"""Train a tiny model on a packed table, stop in the middle of an epoch, and go on from the checkpoint.

    python examples/train_packed.py stores/sft_packed

Padding-free batches: documents stand end to end, `cu_seqlens` says where each ends. The model here attends with a mask made from it; with
FlashAttention give it to ``flash_attn_varlen_func``.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from prep_assets.training import PackedDataset, PaddingFree, ResumableDistributedSampler

BATCH, STEPS, WIDTH = 2, 6, 32


class Model(nn.Module):
    """One layer of attention that does not cross documents."""

    def __init__(self, vocabulary: int, longest: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(longest, WIDTH)
        self.project, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, vocabulary)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Logits [1, T, V]."""
        lengths = batch["cu_seqlens"].diff()
        document = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        allowed = (document[:, None] == document[None]).tril()
        hidden = self.tokens(batch["input_ids"]) + self.positions(batch["position_ids"])
        query, key, value = self.project(hidden).chunk(3, -1)
        hidden = hidden + nn.functional.scaled_dot_product_attention(query, key, value, allowed)
        logits: Tensor = self.head(hidden)
        return logits


def loss_of(model: Model, batch: dict[str, Any]) -> Tensor:
    """Labels are unshifted: the prediction at place i is compared with the label at i + 1."""
    logits = model(batch)[:, :-1].flatten(0, 1)
    return nn.functional.cross_entropy(logits, batch["labels"][:, 1:].flatten(), ignore_index=-100)


def main(path: str) -> None:
    """Train, stop, go on."""
    torch.manual_seed(0)
    dataset = PackedDataset(path)
    vocabulary = 1 + max(int(item["input_ids"].max()) for item in dataset)
    model = Model(vocabulary, len(dataset[0]["input_ids"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state: dict[str, Any] | None = None
    for run in ("first run", "second run"):
        sampler = ResumableDistributedSampler(dataset, batch_size=BATCH, seed=7)
        if state is not None:
            sampler.load_state_dict(state)
        loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, collate_fn=PaddingFree())
        for batch in islice(loader, STEPS):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sampler.consume()
            print(f"{run}: {batch['input_ids'].shape[1]:,} tokens, loss {loss.item():.3f}")
        state = sampler.state_dict()
        print(f"{run} stops at {state}")


if __name__ == "__main__":
    main(sys.argv[1])
