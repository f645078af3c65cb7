"""A template without generation tags gave a mask of all ones, and no line in the log said so.

Year: 2026
Hit: Megatron-Bridge#3359
Cost: Users' questions were trained with the answers.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer

UNTAGGED = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_a_template_without_tags(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path / "stores", [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", template=UNTAGGED))
    assert right.failing() == []
    before = right.row()
    wrong = right.with_masks(lambda _, mask: np.ones_like(mask))
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
