"""Read an AstrAI export through its training types' keys: windows of the length of a row are rows.

    prep-assets export sft_packed --to astrai --out out/astrai
    python examples/read_astrai.py out/astrai 1024

AstrAI's own: ``from astrai.dataset import DatasetFactory``, with the same arguments.
"""

from __future__ import annotations

import sys

from torch.utils.data import DataLoader

from prep_assets.training import DatasetFactory


def main(folder: str, row_len: int) -> None:
    dataset = DatasetFactory.load("sft", folder, window_size=row_len)
    print(f"{len(dataset):,} rows; the first begins with {dataset[0]['input_ids'][:8].tolist()}")
    batch = next(iter(DataLoader(dataset, batch_size=2)))
    trained = int(batch["loss_mask"].sum())
    print(f"input_ids {tuple(batch['input_ids'].shape)}, target_ids shifted by one, {trained:,} trained")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
