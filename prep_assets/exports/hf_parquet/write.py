"""Parquet for ``datasets.load_dataset`` and the Hugging Face Hub: ``data/<split>-00000-of-00001.parquet`` …

Columns are those of `hf_arrow` with layout ``trl``: labels unshifted, -100 where there is no loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prep_assets.disk.ledger import rename
from prep_assets.disk.written import WrittenFile
from prep_assets.exports.arrow import storable
from prep_assets.exports.hf_arrow.write import hf_tables
from prep_assets.exports.registry import Count, Progress, Split, exporter
from prep_assets.exports.source import Pairs
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

ROW_GROUP = 1000


@exporter("hf_parquet", *(PackedStore, TokenStore, Pairs, GroupStore, Lines), kind="parquet")
def hf_parquet(
    source: PackedStore | TokenStore | Pairs | GroupStore | Lines,
    out: Path,
    progress: Progress,
    *,
    split: Split = "train",
    rows_per_file: Count = 100_000,
) -> None:
    """Parquet files for ``datasets.load_dataset``, with the columns that TRL reads; zstd, row groups of 1000 rows."""
    import pyarrow.parquet as pq

    folder = out / "data"
    folder.mkdir(parents=True)
    written: list[Path] = []
    for part in _parts(hf_tables(source, progress), rows_per_file):
        written.append(folder / f"{split}-{len(written):05d}.parquet")
        with WrittenFile(written[-1]) as file:
            pq.write_table(part, file, compression="zstd", row_group_size=ROW_GROUP)
    for number, path in enumerate(written):
        rename(path, folder / f"{split}-{number:05d}-of-{len(written):05d}.parquet")


def _parts(tables: Iterator[Any], rows: int) -> Iterator[Any]:
    """The rows of all tables in tables of exactly so many rows, and the rest."""
    import pyarrow as pa

    waiting = None
    for table in tables:
        storable(table.schema)
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while len(waiting) >= rows:
            yield waiting.slice(0, rows)
            waiting = waiting.slice(rows)
    if waiting is not None and len(waiting):
        yield waiting
