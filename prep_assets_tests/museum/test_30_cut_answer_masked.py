"""An answer that was cut at the maximum length got a mask of zeros.

Year: 2024
Hit: transformers#34494
Cost: Long answers trained nothing at all.
Stopped by: `mask_alignment`, or `row_integrity` where nothing else of the row is trained
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said

LONG = [
    said(USER, "Hi"),
    said(ASSISTANT, "Yes."),
    said(USER, "Count."),
    said(ASSISTANT, "one two three four five six seven eight nine ten " * 3),
]


def test_a_cut_answer_is_trained_as_far_as_it_goes(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path, [LONG], truncation="end", preprocessing={"max_seq_len": 48})
    assert right.failing() == []
    before = right.row()
    assert len(before.ids) == 48 and before.mask[-1] == 1

    def cut_off(_: Any, mask: Any) -> Any:
        mask[int(np.flatnonzero(np.diff(mask, append=0) == 1)[-1]) + 1 :] = 0
        return mask

    wrong = right.with_masks(cut_off)
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
