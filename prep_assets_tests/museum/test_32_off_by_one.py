"""A mend of an off-by-one made the opposite one: the last token of the prompt was trained and the stop was not.

Year: 2025 – 2026
Hit: verl PR#3287, #3562, PR#5362
Cost: Models that begin badly and never stop.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets_tests.museum.gallery import CHAT, chats


@pytest.mark.parametrize("step", [-1, 1])
def test_a_mask_that_is_shifted(tmp_path: Path, show: Any, step: int) -> None:
    right = chats(tmp_path, [CHAT])
    assert right.failing() == []
    before = right.row()
    wrong = right.with_masks(lambda _, mask: np.roll(mask, step))
    assert "mask_alignment" in wrong.failing()
    if step == -1:
        show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
