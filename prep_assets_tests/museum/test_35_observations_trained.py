"""What tools answered was trained as if the model had said it.

Year: 2025 – 2026
Hit: post-training-experiments#19, prime-rl PR#978
Cost: Models that invent the results of their tools.
Stopped by: `mask_alignment`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
USED = [said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", "the sum is 4"), said(ASSISTANT, "It is 4.")]


def test_a_result_is_masked(tmp_path: Path, show: Any) -> None:
    folder = tokenizer(tmp_path / "tokenizer")
    right = chats(tmp_path / "stores", [{"messages": USED, "tools": [TOOL]}], tokenizer=folder, template="qwen3")
    assert right.failing() == []
    before, texts = right.row(), right.texts(right.row())
    assert "the sum is 4" in "".join(texts)
    assert "the sum is 4" not in "".join(text for text, on in zip(texts, before.mask, strict=True) if on)
    start = "".join(texts).find("the sum")

    def with_result(_: Any, mask: Any) -> Any:
        at = 0
        for number, text in enumerate(texts):
            mask[number] = mask[number] or start <= at < start + len("the sum is 4")
            at += len(text)
        return mask

    wrong = right.with_masks(with_result)
    assert "mask_alignment" in wrong.failing()
    first = next(number for number, text in enumerate(texts) if "sum" in text) - 12
    tail = slice(first, None)
    show(as_it_was=(texts[tail], wrong.row().mask[tail]), here=(texts[tail], before.mask[tail]))
