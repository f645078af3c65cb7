"""Parquet for ``datasets.load_dataset`` and the Hugging Face Hub: ``data/<split>-00000-of-00001.parquet`` …

Columns are those of `hf_arrow` with layout ``trl``: labels unshifted, -100 where there is no loss; and
``attention_mask``, 0 at tokens that are not attended, where there are some.
"""

from __future__ import annotations

from pathlib import Path

from prep_assets.disk.ledger import rename
from prep_assets.exports.arrow import parquet_files
from prep_assets.exports.hf_arrow.write import hf_tables
from prep_assets.exports.registry import Count, Progress, Split, exporter
from prep_assets.exports.source import Pairs
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore


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
