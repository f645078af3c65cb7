"""Train a tiny model on a packed table, record which rows each step sees, stop, and go on from the checkpoint.

    python examples/record_steps.py data/stores/sft_packed runs/a
    prep-assets step runs/a        # the steps with the highest loss
    prep-assets step runs/a 6      # the rows of one, each with its source

The model here predicts a token from the one before it. Everything else is as in a real loop, on one rank or on many.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from prep_assets.training import ROWS, PackedDataset, PaddingFree, ResumableDistributedSampler, RowRecord

BATCH = 4


def train(path: str, run: str, until: int, checkpoint: Path) -> None:
    """Train up to a step, from the checkpoint where there is one."""
    torch.manual_seed(0)
    dataset = PackedDataset(path)
    model = torch.nn.Sequential(torch.nn.Embedding(4096, 32), torch.nn.Linear(32, 4096))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = ResumableDistributedSampler(dataset, batch_size=BATCH, seed=7)
    state: dict[str, Any] = torch.load(checkpoint) if checkpoint.exists() else {"step": 0}
    step = state["step"]
    if step:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])

    record = RowRecord(run, dataset)
    record.begin(after=step)
    loader = DataLoader(record.numbered, batch_size=BATCH, sampler=sampler, collate_fn=record.collate(PaddingFree()))
    while step < until:
        for batch in loader:
            step, rows = step + 1, batch.pop(ROWS)
            labels = batch["labels"][:, 1:]
            losses = cross_entropy(model(batch["input_ids"])[0, :-1], labels[0], reduction="none")[None]
            trained = labels != -100
            optimizer.zero_grad()
            (losses.sum() / trained.sum()).backward()
            optimizer.step()
            sampler.consume()
            record.step(step, rows, losses, trained)
            if step == until:
                break
    record.sync()
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "sampler": sampler.state_dict()}, checkpoint
    )
    record.close()
    print(f"step {step}: recorded in {run}")


def main(path: str, run: str) -> None:
    """Train five steps, and then five more from the checkpoint."""
    for until in (5, 10):
        train(path, run, until, Path(f"{run}.pt"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
