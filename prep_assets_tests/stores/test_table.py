"""One kind of store more is one schema: what reads tables asks for the roles of its columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from prep_assets import load
from prep_assets.errors import ConfigError
from prep_assets.extensions.explain.figures import measure
from prep_assets.extensions.explain.rows import read
from prep_assets.extensions.exports.compared import compare
from prep_assets.extensions.exports.registry import export, exports
from prep_assets.stores.table import LINES, TOKENS, Column, Schema, Table, open_table
from prep_assets.stores.writer import TableWriter

GRADED = Schema(
    "graded tokens", (Column("tokens", "ids"), Column("grade", "weight", of="tokens"), Column("surprise", "value", of="tokens"))
)
"""Tokens with a grade, by which they are trained, and a number for each."""
RECORDS = [([5, 6, 7, 8], [0, 1, 0, 1]), ([9, 10, 11], [0, 0, 1]), ([12, 13], [0, 0])]


@pytest.fixture(params=["bin", "h5"])
def graded(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A store of graded tokens, whose columns no code knows."""
    ids, grades = (np.concatenate(list(each)) for each in zip(*RECORDS, strict=True))
    lengths = np.array([len(tokens) for tokens, _ in RECORDS])
    with TableWriter(
        tmp_path, "graded", GRADED, {"tokens": "int32", "grade": "uint8", "surprise": "float32"}, storage=request.param
    ) as writer:
        block = {"tokens": ids, "grade": grades, "surprise": ids / 2}
        writer.append(block, lengths, np.zeros(len(lengths)), np.arange(len(lengths)))
    return open_table(tmp_path, "graded", "d", schema=GRADED)


def test_lengths_figures_and_pages_know_its_weights(graded: Table) -> None:
    assert graded.lengths.tolist() == [4, 3, 2] and graded.trained is not None and graded.trained.tolist() == [2, 1, 0]
    [figures] = measure([graded])
    assert (figures.domain, figures.documents, figures.total, figures.trained) == ("d", 3, 9, 3)
    assert [(list(row.ids), list(row.weights or ())) for row in read(graded, range(3))] == RECORDS
    assert graded.columns["surprise"].arrays(1)[0].tolist() == [4.5, 5, 5.5]


def test_open_store_gives_its_columns(graded: Table, tmp_path: Path) -> None:
    store = load(tmp_path)
    assert store.keys == ("grade", "position_ids", "sequence", "surprise")
    assert store.fetch_record(1, "grade").tolist() == RECORDS[1][1]


def test_formats_of_token_streams_write_it_and_its_masks(graded: Table, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no place for surprise"):
        export(graded, "hf_parquet", tmp_path / "out")
    graded = replace(graded, columns={name: graded.columns[name] for name in ("tokens", "grade")})
    out = export(graded, "hf_parquet", tmp_path / "out")
    rows = pq.read_table(out / "data").to_pylist()
    assert [row["labels"] for row in rows] == [[-100, 6, -100, 8], [-100, -100, 11], [-100, -100]]
    options = {name: option.default for name, option in exports()["hf_parquet"].options.items()}
    verdict = compare(out, graded, "hf_parquet", options)
    assert verdict.passed and verdict.numbers["trained_tokens_checked"] == 3


def test_a_schema_fits_another_with_the_same_sequences(graded: Table, tmp_path: Path) -> None:
    assert GRADED.fits(TOKENS) and not GRADED.fits(LINES)
    with pytest.raises(ConfigError, match="verl takes JSONL, not graded tokens"):
        export(graded, "verl", tmp_path / "out")
