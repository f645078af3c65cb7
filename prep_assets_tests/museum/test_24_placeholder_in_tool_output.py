"""A tool's output held the text of an image placeholder, which became the image token.

Year: 2026
Hit: renderers PR#116, prime-rl PR#3198
Cost: A 64-GPU job crashed on multimodal models; text models trained on it in silence.
Stopped by: content never becomes a control token: `special_in_content` says what happens to it, and it is counted
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

TYPED = [said(USER, "Use {type<image>|bold} here."), said(ASSISTANT, "Done.")]


def test_a_typed_placeholder_is_text(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", special=["<image>"])
    stand = chats(tmp_path / "stores", [TYPED], tokenizer=folder)
    assert stand.failing() == []
    vocabulary_id = stand.token("<image>")
    assert vocabulary_id not in stand.row().ids
    assert stand.text(stand.row().ids).count("<image>") == 1
    assert stand.published.manifest.counts["control_tokens_in_content"] == 1


def test_it_can_be_refused(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", special=["<image>"])
    stand = chats(
        tmp_path / "stores", [TYPED, [said(USER, "Hi"), said(ASSISTANT, "Hello.")]], tokenizer=folder, special_in_content="refuse"
    )
    assert stand.failing() == []
    assert stand.published.manifest.counts["kept"] == 1
