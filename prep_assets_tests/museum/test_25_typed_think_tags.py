"""`<think>` and other structural tokens are not flagged special, so a user who typed them wrote the real ids.

Year: 2026
Hit: transformers PR#47386, #48052, PR#47853
Cost: Users who open and close reasoning blocks, and training on it.
Stopped by: every added token that the template writes is a control token; typed in content it is text, and counted
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

TYPED = [said(USER, "a <think> b </tool_call> c"), said(ASSISTANT, "Odd.")]


def test_a_typed_tag_is_text(tmp_path: Path) -> None:
    names = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    folder = tokenizer(tmp_path / "tokenizer", structural=names)
    stand = chats(tmp_path / "stores", [TYPED], tokenizer=folder, template="qwen3")
    assert stand.failing() == []
    row = stand.row()
    assert "a <think> b </tool_call> c" in stand.text(row.ids)
    assert (row.ids == stand.token("<think>")).sum() == 1, "the template's own"
    assert (row.ids == stand.token("</tool_call>")).sum() == 0
    assert stand.published.manifest.counts["control_tokens_in_content"] == 2
