"""Read a Cerebras export: each example of the packed form is (5, L): inputs, mask, labels, attention span, positions.

prep-assets export sft_packed --to cerebras --out out/cerebras
python examples/read_cerebras.py out/cerebras
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import torch

VOCABULARY, WIDTH = 4096, 16


def main(folder: str) -> None:
    path = sorted(Path(folder).glob("*.h5"))[0]
    with h5py.File(path) as file:
        data = torch.from_numpy(file["data"][:2]).long()
    inputs, mask, labels = data[:, 0], data[:, 1], data[:, 2]
    print(f"{path.name}: examples {tuple(data.shape[1:])}; the first begins with {inputs[0, :8].tolist()}")
    torch.manual_seed(0)
    logits = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY))(inputs)
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    print(f"labels shifted already, {int(mask.sum()):,} trained, loss {((losses * mask.flatten()).sum() / mask.sum()).item():.3f}")


if __name__ == "__main__":
    main(sys.argv[1])
