"""Read a packed Parquet export as Megatron-Bridge and NeMo do: each document gives inputs, labels and mask of one token less.

prep-assets export sft_packed --to packed_parquet --out out/bridge
python examples/read_megatron_bridge.py out/bridge/splits/train
"""

from __future__ import annotations

import sys
from itertools import pairwise

import pyarrow.parquet as pq
import torch


def shifted(row: dict[str, list[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[int]]:
    """Inputs, labels, loss mask at the places of the inputs, and cu_seqlens."""
    tokens, mask = torch.tensor(row["input_ids"]), torch.tensor(row["loss_mask"])
    borders = list(pairwise([*row["seq_start_id"], len(tokens)]))
    inputs, labels, kept = (
        torch.cat([values[begin + more : end - 1 + more] for begin, end in borders])
        for values, more in ((tokens, 0), (tokens, 1), (mask, 0))
    )
    return inputs, labels, kept, [begin - number for number, (begin, _) in enumerate(borders)] + [len(inputs)]


def main(folder: str) -> None:
    table = pq.read_table(folder)
    print(f"{len(table):,} rows; the first begins with {table['input_ids'][0].as_py()[:8]}")
    inputs, labels, kept, borders = shifted(table.slice(0, 1).to_pylist()[0])
    print(
        f"inputs {tuple(inputs.shape)}, labels {tuple(labels.shape)} shifted by one, {int(kept.sum()):,} trained, cu_seqlens {borders[:4]} …"
    )


if __name__ == "__main__":
    main(sys.argv[1])
