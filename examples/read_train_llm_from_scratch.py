"""Read a tlfs export as train-llm-from-scratch's SFT trainer does: ``tokens[:, :-1]`` predict ``tokens[:, 1:]`` under ``loss_mask[:, 1:]``.

prep-assets export sft_packed --to tlfs --out out/tlfs
python examples/read_train_llm_from_scratch.py out/tlfs/sft_packed.h5
"""

from __future__ import annotations

import sys

import h5py
import torch

VOCABULARY, WIDTH = 4096, 16


def main(path: str) -> None:
    with h5py.File(path) as file:
        rows = len(file["tokens"])
        tokens, mask = torch.from_numpy(file["tokens"][:2]).long(), torch.from_numpy(file["loss_mask"][:2]).float()[:, 1:]
    print(f"{rows:,} rows; the first begins with {tokens[0, :8].tolist()}")
    torch.manual_seed(0)
    logits = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY))(tokens[:, :-1])
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    print(
        f"labels {tuple(tokens[:, 1:].shape)}, {int(mask.sum()):,} trained, loss {((losses * mask.flatten()).sum() / mask.sum()).item():.3f}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
