"""The completion held only `</think>`, because the prompt had opened the block: the template wrote an empty block before it, then the
    reasoning as the answer.

Year: 2026
Hit: trl#6361, PR#6363
Cost: Reasoning trained as an answer, with tags that do not match.
Stopped by: unbalanced tags of reasoning are refused
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets.text.load_template import named_templates
from prep_assets_tests.museum.gallery import ASSISTANT, CHAT, USER, chats, said, tokenizer

ORPHAN = [said(USER, "2 + 2?"), said(ASSISTANT, "2 + 2 = 4.\n</think>\n\n4.")]


@pytest.mark.parametrize("template", ["qwen3", "tokenizer"])
def test_half_a_block_is_refused(tmp_path: Path, template: str) -> None:
    """By a shipped template and by a tokenizer's own."""
    folder = tokenizer(tmp_path / "tokenizer", template=named_templates()["qwen3"])
    stand = chats(tmp_path / "both", [CHAT, ORPHAN], tokenizer=folder, template=template)
    assert stand.failing() == []
    assert stand.published.manifest.counts["kept"] == 1
    with pytest.raises(PrepAssetsError, match="</think>"):
        chats(tmp_path / "alone", [ORPHAN], tokenizer=folder, template=template)
