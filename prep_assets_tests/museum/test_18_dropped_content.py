"""Templates drop what they do not know: a chat of a system message alone, tool calls in history, the system prompt.

Year: 2024 – 2026
Hit: chat_templates#15, SmolLM3's template, Gemma's template in unsloth#5087
Cost: Custom system prompts and tool calls that were never trained, without an error from Jinja.
Stopped by: the record is refused: every region must be found in the render
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

FORGETFUL = (
    "{% for m in messages if m['role'] != 'system' %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ASKED = [said(USER, "Who are you?"), said(ASSISTANT, "A pirate.")]


def test_a_system_prompt_that_is_dropped(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=FORGETFUL)
    stand = chats(tmp_path / "stores", [ASKED, [said("system", "Talk like a pirate."), *ASKED]], tokenizer=folder)
    assert stand.failing() == []
    assert stand.published.manifest.counts["kept"] == 1
    assert stand.published.manifest.counts["refused"] == {"render/template_drops_content": 1}


def test_all_of_them(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=FORGETFUL)
    with pytest.raises(PrepAssetsError, match="template_drops_content"):
        chats(tmp_path / "stores", [[said("system", "Talk like a pirate."), *ASKED]], tokenizer=folder)
