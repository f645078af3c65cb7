"""In GLM's format the token of the next role ends a turn: `<|observation|>` closes a tool call, and it was masked with the tool's turn.

Year: 2026
Hit: prime-rl PR#2644, slime#514 (GLM-4.5 and 5)
Cost: 26 % of turns had more than one call, one had 283.
Stopped by: `mask_alignment`: stops are found by rendering, for each kind of turn and the role that follows
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

TOKENS = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
USED = [said(USER, "2 + 2?"), said(ASSISTANT, "", tool_calls=[CALL]), said("tool", "4"), said(ASSISTANT, "It is 4.")]


def test_the_call_ends_with_it(tmp_path: Path, show: Any) -> None:
    folder = tokenizer(tmp_path / "tokenizer", special=TOKENS)
    right = chats(tmp_path / "stores", [{"messages": USED, "tools": [TOOL]}], tokenizer=folder, template="glm4")
    assert right.failing() == []
    row, texts = right.row(), right.texts(right.row())
    stop = right.token("<|observation|>")
    assert row.mask[row.ids == stop].all() and (row.ids == stop).sum() == 1
    wrong = right.with_masks(lambda ids, mask: np.where(ids == stop, 0, mask))
    assert "mask_alignment" in wrong.failing()
    tail = slice(int(np.flatnonzero(row.ids == stop)[0]) - 16, None)
    show(as_it_was=(texts[tail], wrong.row().mask[tail]), here=(texts[tail], row.mask[tail]))
