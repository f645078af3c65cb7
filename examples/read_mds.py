"""Read an MDS export with MosaicML's own reader (`pip install mosaicml-streaming`): packed rows with labels and positions.

prep-assets export sft_packed --to mds --out out/mds
python examples/read_mds.py out/mds
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from streaming.base import StreamingDataset
from torch.utils.data import DataLoader

from prep_assets.training import PaddingFree


def tensors(rows: list[dict[str, object]]) -> dict[str, Any]:
    """The documents of all rows, end to end."""
    return PaddingFree()([{key: torch.as_tensor(value, dtype=torch.int64) for key, value in row.items()} for row in rows])


def main(folder: str) -> None:
    dataset = StreamingDataset(local=folder, batch_size=2, shuffle=False)
    print(f"{len(dataset):,} rows; the first begins with {dataset[0]['input_ids'][:8].tolist()}")
    batch = next(iter(DataLoader(dataset, batch_size=2, collate_fn=tensors)))
    trained = int((batch["labels"] != -100).sum())
    documents = len(batch["cu_seqlens"]) - 1
    print(f"input_ids {tuple(batch['input_ids'].shape)}, labels unshifted, {trained:,} trained, {documents} documents")


if __name__ == "__main__":
    main(sys.argv[1])
