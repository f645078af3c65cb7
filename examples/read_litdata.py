"""Read a litdata export with its own loader (`pip install litdata`), as LitGPT does.

dagster asset materialize --select +pretrain_tokens
prep-assets export pretrain_tokens --partition docs --to litdata --out out/litdata --option block_size=65
python examples/read_litdata.py out/litdata 65
"""

from __future__ import annotations

import sys

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.item_loader import TokensLoader


def main(folder: str, block_size: int) -> None:
    dataset = StreamingDataset(folder, item_loader=TokensLoader(block_size=block_size), shuffle=False)
    print(f"{len(dataset):,} blocks; the first begins with {dataset[0][:8].tolist()}")
    batch = next(iter(StreamingDataLoader(dataset, batch_size=4)))
    print(f"inputs {tuple(batch[:, :-1].shape)}, labels {tuple(batch[:, 1:].shape)}, shifted by one")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
