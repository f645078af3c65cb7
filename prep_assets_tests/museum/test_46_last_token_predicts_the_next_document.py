"""In packed rows the last token of one document was trained to predict the first of the next.

Year: 2024 – 2026
Hit: torchtitan PR#4075, torchtune#1177, profam PR#504
Cost: A small, steady push towards nonsense at every border.
Stopped by: the first token of a document is never a label; `row_integrity` proves the borders
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prep_assets_tests.museum.gallery import ASSISTANT, USER, packed, said, tokenizer

ANSWER_FIRST = "{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"


def test_no_label_at_the_first_token_of_a_document(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from prep_assets.training import PackedDataset

    chats = [[said(ASSISTANT, f"I am number {number}."), said(USER, "Good.")] for number in range(6)]
    stand = packed(tmp_path / "stores", chats, tokenizer=tokenizer(tmp_path / "tokenizer", template=ANSWER_FIRST), row_len=64)
    assert stand.failing() == []
    data = PackedDataset(stand.published.directory)
    firsts = 0
    for row in range(len(data)):
        item = {key: value.numpy() for key, value in data[row].items()}
        begins = np.concatenate([[0], np.cumsum(item["seq_lengths"])[:-1]])
        firsts += len(begins)
        assert (item["labels"][begins] == -100).all()
        assert (item["position_ids"][begins] == 0).all()
    assert firsts == len(chats) > len(data)
