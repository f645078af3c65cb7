"""The first token of each answer carried no loss: `loss_mask[:, :-1]` beside labels that were already shifted.

Year: 2025
Hit: OpenRLHF#973, minimind#395, PR#621
Cost: The model never learns how an answer begins.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, chats


def test_an_answer_without_its_first_token(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [CHAT])
    assert right.failing() == []
    before = right.row()

    def without_first(_: Any, mask: Any) -> Any:
        mask[np.flatnonzero(np.diff(mask, prepend=0) == 1)] = 0
        return mask

    wrong = right.with_masks(without_first)
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
