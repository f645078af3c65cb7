"""Packed Parquet, read as Megatron-Bridge does: what it trains on is what the store says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import Table, some


def test_columns(table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "packed_parquet", tmp_path / "out", split="valid")
    path = out / "splits" / "valid" / "shard_000000.idx.parquet"
    schema = pq.read_schema(path)
    assert {name: str(schema.field(name).type.value_type) for name in schema.names} == {
        "input_ids": "int32",
        "loss_mask": "uint8",
        "seq_start_id": "int32",
    }
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    found = pq.read_table(path).to_pylist()
    assert len(found) == len(table.rows)
    for row in some(len(found)):
        lengths = table.lengths(row)
        assert found[row]["input_ids"] == table.tokens(row)
        assert found[row]["seq_start_id"] == [sum(lengths[:k]) for k in range(len(lengths))]


def test_what_megatron_bridge_trains_on(table: Table, tmp_path: Path) -> None:
    """Its collator: inputs, labels and mask of each document, all of one token less; the mask is taken at the places of the inputs."""
    out = export(table.folder, "packed_parquet", tmp_path / "out")
    for found, documents in zip(pq.read_table(out / "splits" / "train").to_pylist(), table.rows, strict=True):
        borders = [*found["seq_start_id"], len(found["input_ids"])]
        for begin, end, (tokens, mask) in zip(borders[:-1], borders[1:], documents, strict=True):
            assert found["input_ids"][begin : end - 1] == tokens[:-1]
            assert found["input_ids"][begin + 1 : end] == tokens[1:]
            assert found["loss_mask"][begin : end - 1] == mask[1:]
            assert found["loss_mask"][end - 1] == 0


def test_row_groups_and_files(table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "packed_parquet", tmp_path / "out", rows_per_file=60)
    files = sorted((out / "splits" / "train").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [60, 60, 10]
    assert [row for file in files for row in pq.read_table(file)["input_ids"].to_pylist()] == [table.tokens(row) for row in range(130)]
