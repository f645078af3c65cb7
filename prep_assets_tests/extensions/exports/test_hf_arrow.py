"""Arrow data sets, read by `datasets` and given to TRL's collator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets.errors import ConfigError
from prep_assets_tests.extensions.exports.conftest import Document, Stream, Table, labels_of, some, write_lines
from prep_assets_tests.extensions.exports.readers import reader

pytestmark = pytest.mark.readers
datasets = reader("datasets")


def load(path: Path) -> Any:
    return datasets.load_from_disk(str(path))


def test_trl_packed(table: Table, tmp_path: Path) -> None:
    found = load(export(table.folder, "hf_arrow", tmp_path / "out"))
    assert (len(found), sorted(found.column_names)) == (len(table.rows), ["input_ids", "labels", "seq_lengths"])
    for row in some(len(table.rows)):
        assert found[row] == {"input_ids": table.tokens(row), "labels": table.labels(row), "seq_lengths": table.lengths(row)}


def test_trl_documents(chats: Stream, tmp_path: Path) -> None:
    found = load(export(chats.folder, "hf_arrow", tmp_path / "out"))
    for row in some(len(chats.documents)):
        assert found[row] == {"input_ids": chats.documents[row][0], "labels": labels_of(chats.documents[row])}


@pytest.mark.parametrize("layout", ["axolotl", "open_instruct"])
def test_trainers_that_pack_get_documents(layout: str, table: Table, tmp_path: Path) -> None:
    found = load(export(table.folder, "hf_arrow", tmp_path / "out", layout=layout))
    assert len(found) == len(table.documents)
    for row in some(len(found)):
        tokens = table.documents[row][0]
        assert found[row] == {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": labels_of(table.documents[row])}


def test_llama_factory_neat_packing(table: Table, tmp_path: Path) -> None:
    found = load(export(table.folder, "hf_arrow", tmp_path / "out", layout="llama_factory", pad_id=7))["train"]
    for row in some(len(table.rows)):
        lengths, pad = table.lengths(row), 33 - len(table.tokens(row))
        assert found[row] == {
            "input_ids": table.tokens(row) + [7] * pad,
            "attention_mask": [number for number, length in enumerate(lengths, 1) for _ in range(length)] + [0] * pad,
            "labels": table.labels(row) + [-100] * pad,
            "position_ids": [place for length in lengths for place in range(length)] + [0] * pad,
            "packing_params": {
                "sequence_boundaries": [sum(lengths[:k]) for k in range(len(lengths) + 1)] + [33],
                "image_subseq_ids": [2**32],
                "video_subseq_ids": [2**32],
                "audio_subseq_ids": [2**32],
                "right_padding_length": pad,
            },
            "images": None,
            "videos": None,
            "audios": None,
        }


def test_llama_factory_documents(chats: Stream, tmp_path: Path) -> None:
    found = load(export(chats.folder, "hf_arrow", tmp_path / "out", layout="llama_factory", split="validation"))["validation"]
    tokens = chats.documents[-1][0]
    assert found[-1] == {
        "input_ids": tokens,
        "attention_mask": [1] * len(tokens),
        "labels": labels_of(chats.documents[-1]),
        "images": None,
        "videos": None,
        "audios": None,
    }


def test_pairs(pairs: tuple[Path, list[Document], list[Document]], tmp_path: Path) -> None:
    folder, chosen, rejected = pairs
    trl = load(export(folder, "hf_arrow", tmp_path / "trl"))
    other = load(export(folder, "hf_arrow", tmp_path / "oi", layout="open_instruct"))
    for row in some(len(chosen)):
        assert trl[row] == {"chosen_ids": chosen[row][0], "rejected_ids": rejected[row][0]}
        assert other[row]["chosen_labels"] == labels_of(chosen[row])
        assert other[row]["rejected_input_ids"] == rejected[row][0]
        assert other[row]["rejected_attention_mask"] == [1] * len(rejected[row][0])
    assert sorted(other.column_names) == [
        f"{side}_{key}" for side in ("chosen", "rejected") for key in ("attention_mask", "input_ids", "labels")
    ]
    with pytest.raises(ConfigError, match="axolotl reads preference pairs as text"):
        export(folder, "hf_arrow", tmp_path / "ax", layout="axolotl")


def test_text(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{i}", "chosen": "c", "rejected": "é"} for i in range(3)]
    folder = write_lines(tmp_path / "lines", "preferences", rows)
    assert load(export(folder, "hf_arrow", tmp_path / "out")).to_list() == rows
    with pytest.raises(ConfigError, match="has no text data set"):
        export(folder, "hf_arrow", tmp_path / "ax", layout="axolotl")


def test_several_shards(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prep_assets.extensions.exports import arrow, blocks

    monkeypatch.setattr(arrow, "SHARD_BYTES", 0)
    monkeypatch.setattr(blocks, "BLOCK", 32)
    out = export(table.folder, "hf_arrow", tmp_path / "out")
    assert (out / f"data-00003-of-{len(table.rows):05d}.arrow").is_file()
    assert load(out)["input_ids"][:] == [table.tokens(row) for row in range(len(table.rows))]
