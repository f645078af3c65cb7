"""Qwen2.5's template writes its default system prompt once for each conversation: rendered message by message, once for each message.

Year: 2024 – 2025
Hit: verl, AstrAI
Cost: Four-turn chats held the same sentence four times, and the model learned a layout that no server writes.
Stopped by: one render of the whole conversation; `tokenization_identity`
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.museum.gallery import CHAT, Row, chats, tokenizer

DEFAULT = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
QWEN = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + DEFAULT + "<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_it_stands_there_once(tmp_path: Path) -> None:
    right = chats(tmp_path / "stores", [CHAT], tokenizer=tokenizer(tmp_path / "tokenizer", template=QWEN))
    assert right.failing() == []
    row = right.row()
    assert "".join(right.texts(row)).count(DEFAULT) == 1
    alone = chats(tmp_path / "rounds", [CHAT[:2], CHAT[2:]], tokenizer=tmp_path / "tokenizer").rows()

    def by_messages(rows: list[Row]) -> list[Row]:
        import numpy as np

        return [Row(np.concatenate([each.ids for each in alone]), np.concatenate([each.mask for each in alone])) for _ in rows]

    wrong = right.with_rows(by_messages)
    assert "".join(right.texts(wrong.row())).count(DEFAULT) == 2
    assert "tokenization_identity" in wrong.failing()
