"""Stores of known content, and what is in them as plain lists."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.stores.table import LINES, TOKENS
from prep_assets.stores.writer import TableWriter
from prep_assets_tests.stores.payload import write_table

ROW_LEN, PAD = 32, 99
Document = tuple[list[int], list[int]]
"""Tokens and loss mask."""


@dataclass(frozen=True)
class Table:
    """A packed table on disk, and its rows as lists of documents."""

    folder: Path
    rows: list[list[Document]]

    @property
    def documents(self) -> list[Document]:
        return [document for row in self.rows for document in row]

    def tokens(self, row: int) -> list[int]:
        """Without padding."""
        return [token for tokens, _ in self.rows[row] for token in tokens]

    def labels(self, row: int) -> list[int]:
        """Unshifted; -100 at the first token of each document."""
        return [label for document in self.rows[row] for label in labels_of(document)]

    def lengths(self, row: int) -> list[int]:
        return [len(tokens) for tokens, _ in self.rows[row]]


def labels_of(document: Document) -> list[int]:
    return [-100 if place == 0 or not mask else token for place, (token, mask) in enumerate(zip(*document, strict=True))]


def draw_document(rng: random.Random, length: int) -> Document:
    return [rng.randrange(0, 90) for _ in range(length)], [rng.randrange(2) for _ in range(length)]


def some(count: int) -> list[int]:
    """First, last and 100 random places."""
    return sorted({0, count - 1, *random.Random(1).sample(range(count), min(100, count))})


@pytest.fixture(params=["h5", "bin"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Rows of documents that fill them, that leave padding, and one document alone; documents of one token; masks from the first token on."""
    rng = random.Random(0)
    lengths = [[20, 12], [32], [1, 1, 30], [7], [31], [10, 10, 10]] + [[rng.randint(1, 8) for _ in range(4)] for _ in range(124)]
    rows = [[draw_document(rng, length) for length in row] for row in lengths]
    return Table(write_table(tmp_path / "sft_packed", request.param, rows, ROW_LEN, PAD), rows)


@dataclass(frozen=True)
class Stream:
    """A token stream on disk, and its documents."""

    folder: Path
    documents: list[Document]

    @property
    def tokens(self) -> list[int]:
        return [token for tokens, _ in self.documents for token in tokens]


def write_stream(folder: Path, name: str, documents: list[Document], *, masked: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dtypes = {"tokens": "int32", **({"loss_mask": "uint8"} if masked else {})}
    with TableWriter(folder, name, TOKENS, dtypes, max_tokens_per_shard=200) as writer:
        for number, (tokens, mask) in enumerate(documents):
            block = {"tokens": np.array(tokens, "int32"), "loss_mask": np.array(mask, "uint8")}
            writer.append({key: block[key] for key in dtypes}, np.array([len(tokens)]), [0], [number])


def draw_documents(seed: int, count: int = 130) -> list[Document]:
    rng = random.Random(seed)
    return [draw_document(rng, rng.randint(1, 30)) for _ in range(count)]


@pytest.fixture
def text(tmp_path: Path) -> Stream:
    """A pretraining stream: no loss mask."""
    found = Stream(tmp_path / "pretrain", draw_documents(1))
    write_stream(found.folder, "train", found.documents, masked=False)
    return found


@pytest.fixture
def chats(tmp_path: Path) -> Stream:
    """A stream of SFT documents with a loss mask."""
    found = Stream(tmp_path / "chats", draw_documents(2))
    write_stream(found.folder, "train", found.documents, masked=True)
    return found


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[Path, list[Document], list[Document]]:
    """Preference pairs: folder, chosen, rejected."""
    sides = draw_documents(3), draw_documents(4)
    for name, documents in zip(("chosen", "rejected"), sides, strict=True):
        write_stream(tmp_path / "pairs", name, documents, masked=True)
    return tmp_path / "pairs", *sides


def write_lines(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    with TableWriter(folder, name, LINES, domains=("d",)) as lines:
        for number, row in enumerate(rows):
            lines.append_object(row, 0, number)
    return folder
