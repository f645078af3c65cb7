"""Templates print today's date, so that a data set renders differently every day.

Year: 2024 – 2026
Hit: Llama 3.1, SmolLM3, gpt-oss (`strftime_now`)
Cost: Builds that cannot be repeated, caches that never fit.
Stopped by: the clock of templates is frozen; two builds are equal byte for byte
"""

from __future__ import annotations

import datetime as clock
from pathlib import Path

import pytest

from prep_assets_tests.graph.workspaces import tree
from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer

DATED = (
    "{{ '<|im_start|>system\\nToday is ' + strftime_now('%d %B %Y') + '<|im_end|>\\n' }}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Tomorrow(clock.datetime):
    """A clock that is ahead of its time."""

    @classmethod
    def now(cls, tz: clock.tzinfo | None = None) -> Tomorrow:
        return cls(2031, 3, 4, tzinfo=tz)


def test_two_days_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=DATED)
    today = chats(tmp_path / "today", [CHAT], tokenizer=folder)
    assert today.failing() == []
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    tomorrow = chats(tmp_path / "tomorrow", [CHAT], tokenizer=folder)
    assert "2031" not in "".join(tomorrow.texts(tomorrow.row()))
    assert tree(today.published.directory) == tree(tomorrow.published.directory)
