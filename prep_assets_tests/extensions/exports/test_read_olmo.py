"""OLMo-core's data sets on our files, after its own label shift."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets import export
from prep_assets_tests.extensions.exports.conftest import PAD, ROW_LEN, Document, Stream, Table, some
from prep_assets_tests.extensions.exports.learned import lessons, lessons_of
from prep_assets_tests.extensions.exports.readers import olmo, reader

pytestmark = pytest.mark.readers


def packed(out: Path, work: Path, **options: Any) -> Any:
    """Rows that OLMo-core packs by itself. Without ``use_array_if_local=False`` it takes each end token for a document's end."""
    dataset = olmo().NumpyPackedFSLDataset(
        *sorted(map(str, out.glob("token_ids_part_*.npy"))),
        sequence_length=ROW_LEN,
        pad_token_id=PAD,
        eos_token_id=3,
        vocab_size=100,
        dtype=np.uint8,
        generate_doc_lengths=True,
        use_array_if_local=False,
        **options,
    )
    dataset.work_dir, dataset.fs_local_rank = work, 0
    dataset.prepare()
    return dataset


def documents_of(item: dict[str, Any]) -> list[Document]:
    """Tokens and targets of each document of a row, by the lengths that its attention uses; targets as `get_labels` shifts them."""
    get_labels = reader("olmo_core.data.utils").get_labels
    labels = get_labels({key: item[key][None] for key in ("input_ids", "label_mask")})[0].tolist()
    found, at, tokens = [], 0, item["input_ids"].tolist()
    for length in item["doc_lens"].tolist():
        found.append((tokens[at : at + length], labels[at : at + length]))
        at += length
    assert at == len(tokens)
    return found


@pytest.mark.parametrize("part_bytes", [500, 1_000_000])
def test_packed_documents(table: Table, tmp_path: Path, part_bytes: int) -> None:
    out = export(table.folder, "olmo", tmp_path / "out", vocab_size=100, part_bytes=part_bytes)
    masks = sorted(map(str, out.glob("labels_mask_part_*.npy")))
    dataset = packed(out, tmp_path / "work", label_mask_paths=masks)
    taught = []
    for i in range(len(dataset)):
        for tokens, targets in documents_of(dataset[i]):
            taught += lessons_of(tokens, targets, range(len(tokens)))
    assert sorted(taught) == sorted(lessons(table.documents))


def test_packed_text(text: Stream, tmp_path: Path) -> None:
    dataset = packed(export(text.folder, "olmo", tmp_path / "out", vocab_size=100), tmp_path / "work")
    found = {tuple(tokens) for i in range(len(dataset)) for tokens, _ in documents_of(dataset[i])}
    assert {tuple(text.documents[i][0]) for i in some(len(text.documents))} <= found


def test_windows_of_the_stream(text: Stream, tmp_path: Path) -> None:
    out = export(text.folder, "olmo", tmp_path / "out", vocab_size=100)
    dataset = olmo().NumpyFSLDataset(
        str(out / "token_ids_part_0000.npy"), sequence_length=ROW_LEN, pad_token_id=PAD, eos_token_id=3, vocab_size=100, dtype=np.uint8
    )
    assert len(dataset) == len(text.tokens) // ROW_LEN
    for i in random.Random(0).sample(range(len(dataset)), min(100, len(dataset))):
        assert dataset[i]["input_ids"].tolist() == text.tokens[i * ROW_LEN : (i + 1) * ROW_LEN]
