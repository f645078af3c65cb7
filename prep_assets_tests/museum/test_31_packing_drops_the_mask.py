"""Packing was rewritten, and the mask fell away on the way: every token of every row was trained.

Year: 2026
Hit: nanochat#570, PR#582
Cost: ChatCORE 0.315 where the mask gives 0.355.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, chats


def test_a_mask_of_ones_is_caught(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [CHAT])
    assert right.failing() == []
    before = right.row()
    wrong = right.with_masks(lambda _, mask: np.ones_like(mask))
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
