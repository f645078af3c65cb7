"""A template without generation tags gave a mask of all zeros: the run trained on nothing.

Year: 2025 – 2026
Hit: liquid-finetune PR#37, trl PR#4201, transformers' own warning
Cost: Whole runs without a gradient.
Stopped by: `row_integrity`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, chats


def test_a_row_that_trains_nothing(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [CHAT])
    assert right.failing() == []
    before = right.row()
    wrong = right.with_masks(lambda _, mask: np.zeros_like(mask))
    assert "row_integrity" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
