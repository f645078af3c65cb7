"""Messages were rendered one by one, so the reasoning of earlier turns was trained, though the model never sees it again.

Year: 2025 – 2026
Hit: verl#7807, prime-rl#1334, ms-swift#4939, #4390, LLaMA-Factory#8634, #10336
Cost: Histories that no server writes.
Stopped by: one render of the whole conversation; reasoning that the template leaves out of history is counted
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
LONG = [
    said(USER, "2 + 2?"),
    said(ASSISTANT, "", reasoning_content="I shall use the tool.", tool_calls=[CALL]),
    said("tool", "4"),
    said(ASSISTANT, "It is 4.", reasoning_content="The tool says 4."),
    said(USER, "And 3 + 3?"),
    said(ASSISTANT, "It is 6."),
]


def test_history_is_as_the_template_has_it(tmp_path: Path) -> None:
    stand = chats(tmp_path, [{"messages": LONG, "tools": [TOOL]}], template="qwen3")
    assert stand.failing() == []
    text = stand.text(stand.row().ids)
    assert "I shall use the tool." not in text and "The tool says 4." not in text
    assert text.count("<think>") == 1
    assert stand.published.manifest.counts["reasoning_dropped_by_template"] == 2
