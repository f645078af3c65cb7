"""Read a Megatron pair with Megatron-core's own reader (`pip install megatron-core`): a document, and a batch as GPTDataset cuts it.

    dagster asset materialize --select +pretrain_tokens
    prep-assets export pretrain_tokens --partition docs --to megatron --out out/megatron
    python examples/read_megatron.py out/megatron

To train: ``--data-path out/megatron/train_text_document``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset

BATCH, LENGTH = 4, 64


def main(folder: str) -> None:
    prefix = next(Path(folder).glob("*.idx")).with_suffix("")
    data = IndexedDataset(str(prefix))
    print(f"{len(data):,} documents, {int(data.sequence_lengths.sum()):,} tokens; the first begins with {data[0][:8].tolist()}")
    longest = int(np.argmax(data.sequence_lengths))
    begins = np.linspace(0, int(data.sequence_lengths[longest]) - LENGTH - 1, BATCH).astype(int).tolist()
    windows = [data.get(longest, offset=begin, length=LENGTH + 1).astype(np.int64) for begin in begins]
    batch = torch.from_numpy(np.stack(windows))
    print(f"tokens {tuple(batch[:, :-1].shape)}, labels {tuple(batch[:, 1:].shape)}, shifted by one")


if __name__ == "__main__":
    main(sys.argv[1])
