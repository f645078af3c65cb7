"""Parquet for ``datasets.load_dataset`` and the Hugging Face Hub: ``data/<split>-00000-of-00001.parquet`` …

Columns are those of `hf_arrow` with layout ``trl``: labels unshifted, -100 where there is no loss; and
``attention_mask``, 0 at tokens that are not attended, where there are some.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.exports.arrow import parquet_files
from prep_assets.exports.hf_arrow import hf_tables
from prep_assets.exports.readable import Options, Pairs, Readable, Source, hf_row, parquet, said_in_columns
from prep_assets.exports.registry import Count, Progress, Split, exporter
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.verification import rename

READ_BY = "datasets, TRL"
_OPEN = (
    "from datasets import load_dataset",
    'dataset = load_dataset("parquet", data_files="{folder}/data/{split}-*.parquet", split="train")',
)
LINES = {
    "PackedStore": (
        *_OPEN,
        'SFTConfig(packing=False, padding_free=True, max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})  # FlashAttention',
    ),
    "TokenStore": (*_OPEN, 'SFTConfig(max_length=None, dataset_kwargs={{"skip_prepare_dataset": True}})'),
    "Pairs": (*_OPEN, "RewardTrainer(model=model, args=RewardConfig(max_length=None), train_dataset=dataset)"),
    "GroupStore": (*_OPEN, 'dataset[0]["responses"]  # with prompt_ids, masks, rewards: offline GRPO'),
    "Lines": (*_OPEN, "{trl_trainer}, processing_class=tokenizer, train_dataset=dataset)"),
}


@exporter("hf_parquet", *(PackedStore, TokenStore, Pairs, GroupStore, Lines), attention=True, kind="parquet")
def hf_parquet(
    source: PackedStore | TokenStore | Pairs | GroupStore | Lines,
    out: Path,
    progress: Progress,
    *,
    split: Split = "train",
    rows_per_file: Count = 100_000,
) -> None:
    """Parquet files for ``datasets.load_dataset``, with the columns that TRL reads; zstd, row groups of 1000 rows."""
    folder = out / "data"
    folder.mkdir(parents=True)
    written = parquet_files(hf_tables(source, progress), rows_per_file, lambda number: folder / f"{split}-{number:05d}.parquet")
    for number, path in enumerate(written):
        rename(path, folder / f"{split}-{number:05d}-of-{len(written):05d}.parquet")


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet(sorted((folder / "data").glob(f"{options['split']}-*-of-*.parquet")))

    def row(number: int) -> Any:
        found = table.slice(number, 1).to_pylist()[0]
        read = hf_row(found)
        if "labels" not in found:
            return read
        return (replace(read[0], attended=np.array(found.get("attention_mask", np.ones(len(found["labels"]))))),)

    return Readable(len(table), row, expected=said_in_columns)
