"""The padding token was the stop token, so a collator that masks padding masked every stop.

Year: 2023 – 2025
Hit: transformers#23530, trl#976, #1623, PR#3091, open-r1 PR#494, Phi-4's first upload
Cost: Models that never stop.
Stopped by: masks come from positions, never from ids, and our collators keep the stop; `DataCollatorForLanguageModeling` builds its
    own labels and would undo it
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets_tests.museum.gallery import CHAT, chats, packed, tokenizer


def test_the_stop_is_a_label_though_it_pads(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from prep_assets.training import PackedDataset, Pad

    folder = tokenizer(tmp_path / "tokenizer", pad_token="<|im_end|>", eos_token="<|im_end|>")
    stand = packed(tmp_path / "stores", [CHAT], tokenizer=folder, row_len=128)
    assert stand.failing() == []
    item = PackedDataset(stand.published.directory)[0]
    labels = Pad(int(item["input_ids"][-1]))([item])["labels"].numpy()[0]
    assert stand.text(item["input_ids"][-1:].numpy()) == "<|im_end|>"
    assert stand.text(labels[labels != -100]).count("<|im_end|>") == 2


def test_a_mask_without_stops(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [CHAT])
    assert right.failing() == []
    row = right.row()
    stop = row.ids[np.flatnonzero(row.mask)[-1]]
    wrong = right.with_masks(lambda ids, mask: np.where(ids == stop, 0, mask))
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(row), wrong.row().mask), here=(right.texts(row), row.mask))
