"""With gradient accumulation the loss was a mean of means, so that rows with few trained tokens weighed more.

Year: 2024 – 2025
Hit: transformers#34191, #35438, #37197, #37766
Cost: Other gradients than one large batch gives.
Stopped by: the trainer's to mend; each store and export says how many tokens it trains, row by row
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, packed


def test_trained_tokens_can_be_summed(tmp_path: Path) -> None:
    from prep_assets.stores.packed import open_packed

    stand = packed(tmp_path, [CHAT, CHAT[:2], CHAT[2:]], row_len=64)
    table = open_packed(stand.published.directory, "sft_packed")
    per_row = (np.asarray(table.loss_mask) != 0).sum(axis=1)
    assert stand.published.manifest.counts["trained_tokens"] == per_row.sum() and (per_row > 0).all()
    assert "trained_tokens" in stand.published.manifest.counts
