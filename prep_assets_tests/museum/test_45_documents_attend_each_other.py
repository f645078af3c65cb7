"""A two-dimensional mask of ones switched the detection of packed rows off, and documents attended each other.

Year: 2024 – 2026
Hit: transformers PR#46634, axolotl PR#3796, torchforge#546, nanoVLM#201, #204, LLaMA-Factory PR#4224
Cost: Every packed run on that kernel.
Stopped by: borders are in the store and in what our collators give; `row_integrity` proves them. Trainers' own collators are tried by
    `make test-readers`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets_tests.museum.gallery import CHAT, packed


def test_each_document_as_if_it_were_alone(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from prep_assets.training import PackedDataset, PaddingFree

    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=128)
    assert stand.failing() == []
    batch = PaddingFree()([PackedDataset(stand.published.directory)[0]])
    ids, lengths = batch["input_ids"][0], batch["cu_seqlens"].diff().tolist()
    assert len(lengths) == 3
    torch.manual_seed(0)
    values = torch.nn.Embedding(int(ids.max()) + 1, 16, dtype=torch.float64)(ids)

    def attended(hidden: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        at = torch.arange(len(hidden))
        allowed = (documents[:, None] == documents[None]) & (at[:, None] >= at[None])
        return torch.nn.functional.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None], allowed)[0]

    alone = torch.cat([attended(part, torch.zeros(len(part))) for part in values.split(lengths)])
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert torch.allclose(attended(values, number), alone, atol=1e-12)
    assert not torch.allclose(attended(values, torch.zeros(len(ids))), alone, atol=1e-3)
