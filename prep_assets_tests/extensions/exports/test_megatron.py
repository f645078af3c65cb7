"""Megatron's pairs: its own reader, its own builder's bytes, and ModelLink's sets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets import export, load
from prep_assets.extensions.exports.megatron import IndexedWriter
from prep_assets_tests.extensions.exports.conftest import PAD, ROW_LEN, Document, Stream, Table, labels_of, some
from prep_assets_tests.extensions.exports.readers import reader


def read(prefix: Path) -> Any:
    """Megatron-core's own reader."""
    return reader("megatron.core.datasets.indexed_dataset").IndexedDataset(str(prefix))


@pytest.mark.parametrize(
    ("dtype", "documents", "data", "index"),
    [
        ("int32", [[1, 2, 3], [4, 5]], "0100000002000000030000000400000005000000", "9f72f8d411fbab536ce8e7ea21e865db"),
        ("int32", [[-100, 7]], "9cffffff07000000", "dffe110292cc5f41b6676cfc3abd6404"),
    ],
)
def test_the_bytes_of_megatrons_builder(tmp_path: Path, dtype: str, documents: list[list[int]], data: str, index: str) -> None:
    with IndexedWriter(tmp_path / "x", dtype) as writer:
        for document in documents:
            writer.append(np.array(document), np.array([len(document)]))
    assert (tmp_path / "x.bin").read_bytes().hex() == data
    assert hashlib.md5((tmp_path / "x.idx").read_bytes()).hexdigest() == index


@pytest.mark.readers
@pytest.mark.parametrize(("vocab_size", "dtype"), [(None, "int32"), (100, "uint16"), (65_499, "uint16"), (65_500, "int32")])
def test_text(text: Stream, tmp_path: Path, vocab_size: int | None, dtype: str) -> None:
    out = export(text.folder, "megatron", tmp_path / "out", name="c4", vocab_size=vocab_size)
    assert sorted(path.name for path in out.iterdir()) == ["c4_text_document.bin", "c4_text_document.idx"]
    found = read(out / "c4_text_document")
    assert len(found) == len(text.documents)
    assert found.document_indices.tolist() == list(range(len(text.documents) + 1))
    for row in some(len(text.documents)):
        assert (found[row].tolist(), found[row].dtype) == (text.documents[row][0], np.dtype(dtype))


@pytest.mark.readers
@pytest.mark.parametrize("neat", [True, False])
def test_modellink_packed(table: Table, tmp_path: Path, neat: bool) -> None:
    out = export(table.folder, "megatron", tmp_path / "out", pad_id=PAD, neat=neat)
    keys = {key: read(out / f"train_packed_{key}_document") for key in ("input_ids", "attention_mask", "labels")}
    for row in some(len(table.rows)):
        pad = ROW_LEN - len(table.tokens(row))
        numbers = [number for number, length in enumerate(table.lengths(row), 1) for _ in range(length)] + [0] * pad
        assert keys["input_ids"][row].tolist() == table.tokens(row) + [PAD] * pad
        assert keys["labels"][row].tolist() == table.labels(row) + [-100] * pad
        assert keys["attention_mask"][row].tolist() == (numbers if neat else [1] * ROW_LEN)
        assert {keys[key][row].dtype for key in keys} == {np.dtype("int32")}


def test_modellink_documents(chats: Stream, tmp_path: Path) -> None:
    out = export(chats.folder, "megatron", tmp_path / "out", layout="instruction")
    store = load(out)
    assert store.keys == ("attention_mask", "input_ids", "labels")
    for row in some(len(chats.documents)):
        tokens = chats.documents[row][0]
        assert store.fetch_record(row, "input_ids").tolist() == tokens
        assert store.fetch_record(row, "labels").tolist() == labels_of(chats.documents[row])
        assert store.fetch_record(row, "attention_mask").tolist() == [1] * len(tokens)


@pytest.mark.readers
def test_modellink_pairs(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, *sides = pairs
    out = export(folder, "megatron", tmp_path / "out")
    for side, documents in zip(("chosen", "rejected"), sides, strict=True):
        tokens, labels = (read(out / f"train_packed_{side}_{key}_document") for key in ("input_ids", "labels"))
        for row in some(len(documents)):
            assert (tokens[row].tolist(), labels[row].tolist()) == (documents[row][0], labels_of(documents[row]))
