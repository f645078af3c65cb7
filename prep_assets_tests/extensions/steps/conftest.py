"""A packed table with twenty noisy chats in it, and a loop that trains on it as any number of ranks would."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from prep_assets.pipeline.workspace import Workspace
from prep_assets.training import ROWS, PackedDataset, PaddingFree, ResumableDistributedSampler, RowRecord
from prep_assets_tests.explain.conftest import run as run
from prep_assets_tests.graph.workspaces import all_unchecked, domain, jsonl, minimal, workspace_in

GLOBAL_BATCH, STEPS, NOISE, CLEAN = 8, 10, 20, 150
SPEECH = ["the", "cat", "sat", "on", "the", "mat", "and", "the", "dog", "lay", "by", "the", "door"]


def noisy(number: int) -> bool:
    """Whether a row of the source is noise."""
    return number % 7 == 3 and number // 7 < NOISE


def words(number: int) -> str:
    draw = random.Random(number)
    if noisy(number):
        return " ".join("".join(draw.choices("bcdfghjklmnpqrstvwxz0123456789@#%&", k=5)) for _ in range(8))
    return " ".join(SPEECH[(number + at) % len(SPEECH)] for at in range(12))


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """150 chats of one domain, 20 of them noise, packed into rows of a few chats each."""
    folder = tmp_path_factory.mktemp("steps")
    rows = [
        {"messages": [{"role": "user", "content": f"Number {n}?"}, {"role": "assistant", "content": words(n)}]}
        for n in range(NOISE + CLEAN)
    ]
    chats = domain(jsonl(folder / "chats.jsonl", rows), "messages")
    # 64 rows, so that an epoch is whole batches for any number of ranks
    export = {"trl": {"from": "sft_packed", "to": "hf_arrow", "options": {"layout": "trl"}}}
    return all_unchecked(
        workspace_in(folder, minimal("sft", {"chats": chats}, packing={"row_len": 96, "strategy": "bfd"}, test_fraction=0, exports=export))
    )


class Bigrams(torch.nn.Module):
    """The next token from the last one; the smallest model that learns what is usual."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.head = torch.nn.Embedding(4096, 24), torch.nn.Linear(24, 4096)

    def losses(self, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses of all labels but the first, and which of them are trained."""
        labels = batch["labels"][:, 1:]
        logits = self.head(self.tokens(batch["input_ids"][:, :-1]))
        losses = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none").view_as(labels)
        return losses, labels != -100


@pytest.fixture(scope="session")
def base(packed: Workspace) -> dict[str, Any]:
    """The weights of a model that has seen clean text."""
    from prep_assets.extensions.explain.trace import Tracer

    data, model = PackedDataset(packed.stores / "sft_packed"), Bigrams()
    tracer = Tracer(packed)
    pieces = [tracer.row(tracer.place("sft_packed", row, None, None)).pieces for row in range(len(data))]
    clean = [row for row, found in enumerate(pieces) if not any(piece.origin and noisy(piece.origin.row) for piece in found)]
    batch, optimizer = PaddingFree()([data[row] for row in clean[:10]]), torch.optim.AdamW(model.parameters(), lr=3e-2)
    for _ in range(15):
        losses, trained = model.losses(batch)
        optimizer.zero_grad()
        (losses.sum() / trained.sum()).backward()
        optimizer.step()
    return model.state_dict()


Train = Callable[..., dict[str, Any]]


@pytest.fixture
def train(packed: Workspace, base: dict[str, Any]) -> Train:
    """``train(run, ranks, until, state)``: train from a state on, record each rank, and return the state of the last step."""

    def train(run: Path, ranks: int, until: int = STEPS, state: Mapping[str, Any] | None = None, attempt: str = "first") -> dict[str, Any]:
        data, model = PackedDataset(packed.stores / "sft_packed"), Bigrams()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.load_state_dict(state["model"] if state else base)
        start = state["step"] if state else 0
        loaders, records, samplers = list[Iterator[Any]](), list[RowRecord](), list[ResumableDistributedSampler]()
        for rank in range(ranks):
            size = GLOBAL_BATCH // ranks
            sampler = ResumableDistributedSampler(data, batch_size=size, seed=3, rank=rank, world_size=ranks)
            if state:
                sampler.load_state_dict(state["sampler"])
            record = RowRecord(run, data, rank=rank, world_size=ranks)
            record.begin(after=start, attempt=attempt)
            loaders.append(epochs(DataLoader(record.numbered, size, sampler=sampler, collate_fn=record.collate(PaddingFree()))))
            records.append(record)
            samplers.append(sampler)
        for step in range(start + 1, until + 1):
            batches = [next(loader) for loader in loaders]
            rows = [batch.pop(ROWS) for batch in batches]
            seen = [model.losses(batch) for batch in batches]
            optimizer.zero_grad()
            (sum(losses.sum() for losses, _ in seen) / sum(int(trained.sum()) for _, trained in seen)).backward()
            optimizer.step()
            for record, row, (losses, trained) in zip(records, rows, seen, strict=True):
                record.step(step, row, losses, trained)
            for sampler in samplers:
                sampler.consume()
        for record in records:
            record.close()
        return {"model": deepcopy(model.state_dict()), "step": until, "sampler": samplers[0].state_dict()}

    return train


def epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    """Batches without end."""
    while True:
        yield from loader
