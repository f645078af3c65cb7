"""Read a nanotron export with datatrove's reader (`pip install datatrove`): windows with positions that restart in each document.

dagster asset materialize --select +pretrain_tokens
prep-assets export pretrain_tokens --partition docs --to nanotron --out out/nanotron --option tokenizer=configs/tokenizer
python examples/read_nanotron.py out/nanotron
"""

from __future__ import annotations

import sys

import torch
from datatrove.utils.dataset import DatatroveFolderDataset
from torch.utils.data import DataLoader

LENGTH = 64


def main(folder: str) -> None:
    dataset = DatatroveFolderDataset(folder, seq_len=LENGTH, token_size=4, filename_pattern="*.ds", return_positions=True)
    print(f"{len(dataset):,} windows; the first begins with {dataset[0]['input_ids'][:8].tolist()}")
    batch = next(iter(DataLoader(dataset, batch_size=4)))
    tokens = batch["input_ids"].to(torch.int64)
    documents = int((batch["positions"] == 0).sum())
    print(f"inputs {tuple(tokens[:, :-1].shape)}, labels {tuple(tokens[:, 1:].shape)}, shifted by one; {documents} documents begin")


if __name__ == "__main__":
    main(sys.argv[1])
