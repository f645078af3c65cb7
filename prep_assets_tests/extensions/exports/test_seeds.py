"""The layouts of train-llm-from-scratch and AstrAI, read the way their loaders do."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from prep_assets import export
from prep_assets.training import DatasetFactory
from prep_assets_tests.extensions.exports.conftest import PAD, ROW_LEN, Document, Stream, Table, some, write_lines


def unshifted(document: Document) -> list[int]:
    """The loss mask without the first token."""
    return [0, *document[1][1:]]


def test_tlfs_packed(table: Table, tmp_path: Path) -> None:
    out = export(table.folder, "tlfs", tmp_path / "out", pad_id=PAD)
    with h5py.File(out / "sft_packed.h5") as file:
        tokens, mask = file["tokens"], file["loss_mask"]
        assert (tokens.dtype, mask.dtype, tokens.shape, mask.shape) == ("int32", "int8", (130, ROW_LEN), (130, ROW_LEN))
        for row in some(130):
            pad = ROW_LEN - len(table.tokens(row))
            assert tokens[row].tolist() == table.tokens(row) + [PAD] * pad
            assert mask[row].tolist() == [value for document in table.rows[row] for value in unshifted(document)] + [0] * pad


def test_tlfs_pretraining(text: Stream, tmp_path: Path) -> None:
    with h5py.File(export(text.folder, "tlfs", tmp_path / "out", name="pile_dev") / "pile_dev.h5") as file:
        assert (file["tokens"].dtype, file["tokens"][:].tolist()) == ("int32", text.tokens)


def test_tlfs_lines(tmp_path: Path) -> None:
    rows = [{"prompt": "é", "gold": 72.0}, {"prompt": "b", "gold": -1.0}]
    folder = write_lines(tmp_path / "rl", "rl_prompts_train", rows)
    path = export(folder, "tlfs", tmp_path / "out") / "rl_prompts_train.jsonl"
    assert path.read_bytes() == b'{"prompt": "\\u00e9", "gold": 72.0}\n{"prompt": "b", "gold": -1.0}\n'


def test_astrai_rows_are_windows(table: Table, tmp_path: Path) -> None:
    """With window_size = row_len each window is a row, the last one too, and each is trained on its own documents only."""
    out = export(table.folder, "astrai", tmp_path / "out", pad_id=PAD)
    meta = (out / "train" / "shard_0000" / "meta.json").read_text()
    entry = '{"shape": [4161], "dtype": "int32"}'
    assert meta == f'{{"sequence": {entry}, "loss_mask": {entry}, "position_ids": {entry}}}'
    dataset = DatasetFactory.load("sft", out, ROW_LEN)
    assert len(dataset) == len(table.rows)
    for row in some(len(table.rows)):
        pad = ROW_LEN - len(table.tokens(row))
        item = dataset[row]
        assert item["input_ids"].tolist() == table.tokens(row) + [PAD] * pad
        masks = [value for document in table.rows[row] for value in unshifted(document)]
        assert item["loss_mask"].int().tolist() == [*masks[1:], 0, *[0] * pad]
        assert item["position_ids"].tolist() == [place for length in table.lengths(row) for place in range(length)] + [0] * pad


@pytest.mark.parametrize("limit", [100, 10_000])
def test_astrai_streams(text: Stream, chats: Stream, tmp_path: Path, limit: int) -> None:
    plain = export(text.folder, "astrai", tmp_path / "plain", max_tokens_per_shard=limit)
    assert (len(list((plain / "train").iterdir())) > 1) == (limit == 100)
    parts = [np.fromfile(path, "int32") for path in sorted((plain / "train").glob("*/sequence.bin"))]
    assert np.concatenate(parts).tolist() == text.tokens
    assert not list(plain.rglob("loss_mask.bin"))
    masked = export(chats.folder, "astrai", tmp_path / "masked", max_tokens_per_shard=limit)
    masks = [np.fromfile(path, "int32") for path in sorted((masked / "train").glob("*/loss_mask.bin"))]
    assert np.concatenate(masks).tolist() == [value for document in chats.documents for value in unshifted(document)]


def test_astrai_pairs_have_offsets(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, chosen, rejected = pairs
    out = export(folder, "astrai", tmp_path / "out")
    meta = json.loads((out / "shard_0000" / "meta.json").read_text())
    assert list(meta) == ["chosen", "chosen_mask", "rejected", "rejected_mask"]
    dataset = DatasetFactory.load("dpo", out)
    assert len(dataset) == len(chosen)
    for row in some(len(chosen)):
        for side, documents in (("chosen", chosen), ("rejected", rejected)):
            begin, end = meta[side]["offsets"][row : row + 2]
            assert np.fromfile(out / "shard_0000" / f"{side}.bin", "int32")[begin:end].tolist() == documents[row][0]
            assert dataset[row][f"{side}_mask"].int().tolist() == unshifted(documents[row])
