"""An aligned table of known content."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from prep_assets_tests.extensions.exports.conftest import Document, draw_document
from prep_assets_tests.stores.payload import write_table

ROW_LEN, ALIGN, PAD = 32, 4, 99


@dataclass(frozen=True)
class Aligned:
    """A packed table on disk whose rows have room for documents padded to multiples of `ALIGN`, and its rows as lists of documents."""

    folder: Path
    rows: list[list[Document]]


def rooms_of(row: list[Document]) -> list[int]:
    """Places of each document: the least multiple that holds it, and for the last what is left of the row."""
    rooms = [next(n for n in range(ALIGN, ROW_LEN + 1, ALIGN) if n >= len(tokens)) for tokens, _ in row]
    return [*rooms[:-1], ROW_LEN - sum(rooms[:-1])]


LENGTHS = [[32], [31], [1], [4, 4, 8, 16], [5, 3, 9, 1, 2], [30], [1] * 8, [16, 13], [7, 7, 7, 7], [12, 5, 11], [28, 1], [3], [9, 9]]


@pytest.fixture(params=["h5", "bin"])
def aligned(request: pytest.FixtureRequest, tmp_path: Path) -> Aligned:
    """Rows that fill, rows with padding at the end, documents that need none, and documents of one token."""
    rng = random.Random(0)
    rows = [[draw_document(rng, length) for length in row] for row in LENGTHS]
    rows = [[([token % 40 for token in tokens], mask) for tokens, mask in row] for row in rows]
    return Aligned(write_table(tmp_path / "sft_packed", request.param, rows, ROW_LEN, PAD, ALIGN), rows)
