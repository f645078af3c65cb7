"""Packed Parquet: Nemotron's data preparation for Megatron-Bridge (`GPTSFTPackedParquetDataset`) and NeMo-RL.

Columns ``input_ids`` list<int32>, ``loss_mask`` list<uint8>, ``seq_start_id`` list<int32>, without padding; and where some tokens are not attended
``attention_mask`` list<uint8>, 0 at the places of those.

The trainer takes tokens ``start … end - 2`` of each document as inputs, the tokens after them as labels, and the mask at the places of the
**inputs**. So ``loss_mask`` is shifted by one to the left: ``loss_mask[i]`` says whether the prediction of token i + 1 counts, and the last
token of each document has 0 (Megatron-Bridge, ``fill_packing_strategy``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from prep_assets.exports.arrow import parquet_files, ragged
from prep_assets.exports.blocks import rows
from prep_assets.exports.readable import Options, Readable, Source, Tokens, has_unattended, parquet
from prep_assets.exports.registry import Count, FileName, Progress, exporter
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore

READ_BY = "Megatron-Bridge, NeMo-RL"
LINES = {
    "": (
        "PackedSequenceSpecs(",
        '    packed_train_data_path="{folder}/splits/{split}",',
        "    packed_sequence_size={row_len})  # of rows, in tokens",
    )
}


@exporter("packed_parquet", PackedStore, TokenStore, attention=True, kind="parquet")
def packed_parquet(
    source: PackedStore | TokenStore, out: Path, progress: Progress, *, split: FileName = "train", rows_per_file: Count = 100_000
) -> None:
    """``splits/<split>/shard_000000.idx.parquet`` …: zstd, row groups of 1000 rows. A token stream gives one document a row."""
    import pyarrow as pa

    folder = out / "splits" / split
    folder.mkdir(parents=True)
    kinds = {"input_ids": "int32", "loss_mask": "uint8", "seq_start_id": "int32"}
    if has_unattended(source):
        kinds["attention_mask"] = "uint8"
    schema = pa.schema([(name, pa.list_(getattr(pa, kind)())) for name, kind in kinds.items()])

    def tables() -> Iterator[Any]:
        for block in rows(source):
            columns = [
                ragged(block.tokens, block.row_lengths, "int32"),
                ragged(block.next_trained, block.row_lengths, "uint8"),
                ragged(block.document_starts, block.row_documents, "int32"),
            ]
            if block.attended is not None:
                columns.append(ragged(block.attended, block.row_lengths, "uint8"))
            yield pa.table(columns, schema=schema)
            progress(block.done, len(source))

    parquet_files(tables(), rows_per_file, lambda number: folder / f"shard_{number:06d}.idx.parquet")


def read(folder: Path, source: Source, options: Options) -> Readable:
    """The files of an export, opened by code that did not write them."""
    table = parquet(sorted((folder / "splits" / options["split"]).glob("*.parquet")))

    def row(number: int) -> tuple[Tokens]:
        found = {name: np.asarray(values[0], np.int64) for name, values in table.slice(number, 1).to_pydict().items()}
        # the mask stands where the prediction is made, one place before the token that it is about
        attended = found.get("attention_mask", np.ones_like(found["input_ids"]))
        return (Tokens(found["input_ids"], np.roll(found["loss_mask"] != 0, 1), found["seq_start_id"], attended=attended),)

    return Readable(len(table), row)
