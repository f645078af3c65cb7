"""An answer that begins at token 0, or ends in stripped white space, was masked up to the end of the sequence.

Year: 2026
Hit: transformers#47325, PR#47326
Cost: `end_token + 1 if end_token else len`: later users' turns were trained.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, first_run, said, tokenizer

BARE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim + '<|im_end|>' }}"
    "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)
GREETED = [said(ASSISTANT, "How can I help?  "), said(USER, "What is 2 + 2?"), said(ASSISTANT, "It is 4.  ")]


def test_a_chat_that_begins_with_an_answer(tmp_path: Path, show: Any) -> None:
    right = chats(tmp_path / "stores", [GREETED], tokenizer=tokenizer(tmp_path / "tokenizer", template=BARE))
    assert right.failing() == []
    before = right.row()
    assert first_run(before.mask)[0] == 0

    def to_the_end(_: Any, mask: Any) -> Any:
        mask[first_run(mask)[0] :] = 1
        return mask

    wrong = right.with_masks(to_the_end)
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(right.texts(before), wrong.row().mask), here=(right.texts(before), before.mask))
