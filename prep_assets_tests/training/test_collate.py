"""Collators on small batches, written out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import default_collate

from prep_assets.errors import ConfigError
from prep_assets.extensions.training.collate import padded
from prep_assets.training import DatasetFactory, PackedDataset, Pad, PaddingFree, PadGroups, PadPairs
from prep_assets_tests.training.conftest import LENGTHS, ROW_LEN


def t(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def test_pad() -> None:
    batch = Pad(pad_id=9, multiple_of=4)([{"input_ids": t(0, 1, 2), "labels": t(-100, 1, 2)}, {"input_ids": t(5), "labels": t(5)}])
    assert batch["input_ids"].tolist() == [[0, 1, 2, 9], [5, 9, 9, 9]]
    assert batch["labels"].tolist() == [[-100, 1, 2, -100], [5, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


def test_padding_free() -> None:
    batch = PaddingFree()([{"input_ids": t(0, 1, 2), "labels": t(0, 1, 2)}, {"input_ids": t(5, 6), "labels": t(-100, 6)}])
    assert batch["input_ids"].tolist() == [[0, 1, 2, 5, 6]]
    assert batch["labels"].tolist() == [[-100, 1, 2, -100, 6]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert (batch["cu_seqlens"].tolist(), batch["cu_seqlens"].dtype, batch["max_seqlen"]) == ([0, 3, 5], torch.int32, 3)


def test_padding_free_leaves_out_the_padding_of_packed_rows(table: Path) -> None:
    items = list(PackedDataset(table))
    batch = PaddingFree()(items)
    lengths = [length for row in LENGTHS for length in row]
    assert batch["cu_seqlens"].diff().tolist() == lengths
    assert batch["position_ids"][0].tolist() == [place for length in lengths for place in range(length)]
    assert batch["input_ids"][0].tolist() == [
        token for item, row in zip(items, LENGTHS, strict=True) for token in item["input_ids"][: sum(row)].tolist()
    ]


def test_pairs_pad_to_one_length() -> None:
    first = {"chosen": t(0, 1, 2), "chosen_mask": t(0, 0, 1).bool(), "rejected": t(0), "rejected_mask": t(1).bool()}
    second = {"chosen": t(3), "chosen_mask": t(1).bool(), "rejected": t(4, 5), "rejected_mask": t(0, 1).bool()}
    batch = PadPairs()([first, second])
    assert batch["chosen"].tolist() == [[0, 1, 2], [3, 0, 0]]
    assert batch["rejected"].tolist() == [[0, 0, 0], [4, 5, 0]]
    assert batch["rejected_attention_mask"].int().tolist() == [[1, 0, 0], [1, 1, 0]]
    assert batch["chosen_mask"].int().tolist() == [[0, 0, 1], [1, 0, 0]]


def test_groups() -> None:
    first = {
        "prompts": t(7, 8, 9),
        "responses": [t(1), t(2, 3)],
        "masks": [t(1).bool(), t(1, 0).bool()],
        "rewards": torch.tensor([0.5, -1.0]),
    }
    second = {"prompts": t(10, 11), "responses": [t(0, 4, 5)], "masks": [t(1, 1, 1).bool()], "rewards": torch.tensor([2.0])}
    batch = PadGroups()([first, second])
    assert batch["prompts"].tolist() == [[7, 8, 9], [0, 10, 11]]
    assert batch["prompt_mask"].tolist() == [[True, True, True], [False, True, True]]
    assert batch["responses"].tolist() == [[[1, 0, 0], [2, 3, 0]], [[0, 4, 5], [0, 0, 0]]]
    assert batch["masks"].int().tolist() == [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]]]
    assert batch["response_mask"].int().tolist() == [[[1, 0, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 0]]]
    assert batch["rewards"].tolist() == [[0.5, -1.0], [2.0, 0.0]]
    assert batch["group_mask"].tolist() == [[True, True], [True, False]]


def test_weights_beside_a_mask_stay_weights() -> None:
    """Of JSONL each record has the type of its own numbers."""
    mask, weights = torch.tensor([True, False]), torch.tensor([0.5, 0.25, 1.0])
    assert padded([mask, weights], 0).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.25, 1.0]]


@pytest.mark.parametrize("collate", [Pad(), PaddingFree()])
@pytest.mark.parametrize(("kind", "lost"), [("sft", "loss_mask and target_ids"), ("seq", "target_ids")])
def test_windows_are_not_trained_whole(stream: Path, text: Path, collate: Pad | PaddingFree, kind: str, lost: str) -> None:
    items = list(DatasetFactory.load(kind, {"seq": text, "sft": stream}[kind], 8))
    with pytest.raises(ConfigError, match=f"items have input_ids.*: {lost} would be lost"):
        collate(items)
    assert default_collate(items)["target_ids"].tolist() == [item["target_ids"].tolist() for item in items]


@pytest.mark.parametrize("collate", [Pad(), PaddingFree()])
def test_labels_of_some_items_only(collate: Pad | PaddingFree) -> None:
    with pytest.raises(ConfigError, match="1 of 2 items"):
        collate([{"input_ids": t(1), "labels": t(-100)}, {"input_ids": t(2)}])
    assert collate([{"input_ids": t(1)}, {"input_ids": t(2)}])["input_ids"].flatten().tolist() == [1, 2]


def test_the_padding_inside_packed_rows_is_not_attended(table: Path) -> None:
    alone = [item for item in PackedDataset(table) if len(item["seq_lengths"]) == 1]
    batch = Pad(multiple_of=ROW_LEN + 3)(alone)
    expected = [[int(place < sum(row)) for place in range(ROW_LEN + 3)] for row in LENGTHS if len(row) == 1]
    assert batch["attention_mask"].tolist() == expected
    assert batch["attention_mask"].dtype == torch.int64


def test_rows_of_several_documents_are_not_padded(table: Path) -> None:
    """Their documents attended to each other: a mask of ones has no borders in it."""
    several = [item for item in PackedDataset(table) if len(item["seq_lengths"]) > 1]
    with pytest.raises(ConfigError, match=r"item 0 holds 2 documents, which would attend to each other.*PaddingFree"):
        Pad()(several)
    # nor where positions alone say so, as in rows of MDS files
    bare = [{key: item[key][: int(item["seq_lengths"].sum())] for key in ("input_ids", "labels", "position_ids")} for item in several]
    with pytest.raises(ConfigError, match="item 0 holds 2 documents"):
        Pad()(bare)
    whole, positions = PaddingFree()(several), PaddingFree()(bare)
    assert all(torch.equal(torch.as_tensor(whole[key]), torch.as_tensor(positions[key])) for key in whole)


def test_padding_free_has_transformers_names(table: Path) -> None:
    """`cu_seqlens` alone is taken by no model of transformers: documents attended to each other with FlashAttention."""
    from transformers.modeling_flash_attention_utils import FlashAttentionKwargs

    batch = PaddingFree()(list(PackedDataset(table)))
    taken = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"}
    assert taken <= set(FlashAttentionKwargs.__annotations__) and taken <= set(batch)
    for end in "qk":
        assert torch.equal(batch[f"cu_seq_lens_{end}"], batch["cu_seqlens"])
        assert batch[f"max_length_{end}"] == batch["max_seqlen"] == max(map(max, LENGTHS))
