"""The denominator of the loss, or a kernel, ignored the mask, and rows with few labels gave gradients of zero.

Year: 2026
Hit: mlx-vlm PR#1392, unsloth#5230
Cost: Steps that teach nothing.
Stopped by: every packed row trains something (`row_integrity`), and its labels give a gradient
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets_tests.museum.gallery import CHAT, packed


def test_each_row_moves_the_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from prep_assets.training import PackedDataset

    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=64)
    assert stand.failing() == []
    data = PackedDataset(stand.published.directory)
    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(4096, 8), torch.nn.Linear(8, 4096)
    for row in range(len(data)):
        item = data[row]
        head.zero_grad()
        logits = head(embed(item["input_ids"] % 4096))[:-1]
        torch.nn.functional.cross_entropy(logits, torch.where(item["labels"] < 0, -100, item["labels"] % 4096)[1:]).backward()
        assert float(head.weight.grad.abs().sum()) > 0
