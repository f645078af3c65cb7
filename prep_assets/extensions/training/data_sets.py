"""Torch data sets, collators and the sampler.

dataset = DatasetFactory.load("sft", "stores/sft_tokens", window_size=2048)
sampler = ResumableDistributedSampler(dataset, batch_size=8, seed=42)
for batch in DataLoader(dataset, batch_size=8, sampler=sampler):
    ...
    sampler.consume()
"""

from pathlib import Path
from typing import Any

try:
    from prep_assets.extensions.training.blends import BlendDataset
    from prep_assets.extensions.training.collate import Pad, PaddingFree, PadGroups, PadPairs
    from prep_assets.extensions.training.documents import DocumentSource
    from prep_assets.extensions.training.items import (
        ContrastiveDataset,
        DatasetFactory,
        GroupDataset,
        PackedDataset,
        PadPrompts,
        PairDataset,
        PromptDataset,
        RowDataset,
        SequenceDataset,
        SftDataset,
    )
    from prep_assets.extensions.training.items import in_shared_memory as share_memory
    from prep_assets.extensions.training.recording import ROWS, RowRecord
    from prep_assets.extensions.training.sampler import ResumableDistributedSampler
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("PyTorch is not installed. Install it with: pip install 'prep-assets[train]'", name=error.name) from error

__all__ = [
    "ROWS",
    "BlendDataset",
    "ContrastiveDataset",
    "DatasetFactory",
    "DocumentSource",
    "GroupDataset",
    "PackedDataset",
    "Pad",
    "PadGroups",
    "PadPairs",
    "PadPrompts",
    "PaddingFree",
    "PairDataset",
    "PromptDataset",
    "ResumableDistributedSampler",
    "RowDataset",
    "RowRecord",
    "SequenceDataset",
    "SftDataset",
    "record_rows",
    "share_memory",
]


def record_rows(trainer: Any, run: Path | str, store: Path | str) -> Any:
    """Record which rows each step of a `transformers.Trainer`, or of TRL's, sees; see `recorded_trainer`, which imports transformers."""
    from prep_assets.extensions.training.recorded_trainer import record_rows as record

    return record(trainer, run, store)
