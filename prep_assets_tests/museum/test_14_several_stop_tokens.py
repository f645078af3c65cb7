"""gpt-oss ends the last turn with `<|return|>`, earlier ones with `<|end|>`, and calls with `<|call|>`: one stop token was assumed.

Year: 2025 – 2026
Hit: unsloth#3437, trl PR#5109, Megatron-Bridge PR#5389
Cost: Turns that never end, or renders that do not grow.
Stopped by: `mask_alignment`: each kind of turn has its own stop, found by rendering
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer

TOKENS = ("<|start|>", "<|message|>", "<|end|>", "<|return|>")
HARMONY = (
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '<|message|>' + m['content'] }}"
    "{{ '<|return|>' if loop.last and m['role'] == 'assistant' else '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant<|message|>' }}{% endif %}"
)


def test_each_answer_has_the_stop_that_the_template_writes(tmp_path: Path, show: Any) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=HARMONY, special=TOKENS)
    right = chats(tmp_path / "stores", [CHAT], tokenizer=folder)
    assert right.failing() == []
    row, texts = right.row(), right.texts(right.row())
    trained = "".join(text if on else "|" for text, on in zip(texts, row.mask, strict=True))
    assert [part for part in trained.split("|||") if part.strip("|")] and "It is 4.<|end|>" in trained and "It is 6.<|return|>" in trained
    end = right.token("<|end|>")
    wrong = right.with_masks(lambda ids, mask: np.where(ids == end, 0, mask))
    assert "mask_alignment" in wrong.failing()
    show(as_it_was=(texts, wrong.row().mask), here=(texts, row.mask))
