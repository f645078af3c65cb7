"""Exhibits of control tokens that content spells."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.museum.gallery import ASSISTANT, USER, Row, chats, documents, said, tokenizer


def test_24_placeholder_in_tool_output(tmp_path: Path) -> None:
    """An image placeholder's text in a tool's output became the image token.

    Hit: renderers PR#116, prime-rl PR#3198
    Stopped by: content never becomes a control token; `special_in_content` decides.
    """
    typed = [said(USER, "Use {type<image>|bold} here."), said(ASSISTANT, "Done.")]
    folder = tokenizer(tmp_path / "tokenizer", special=["<image>"])
    stand = chats(tmp_path / "text", [typed], tokenizer=folder)
    assert stand.token("<image>") not in stand.row().ids
    assert stand.text(stand.row().ids).count("<image>") == 1
    assert stand.published.manifest.counts["control_tokens_in_content"] == 1
    plain = [said(USER, "Hi"), said(ASSISTANT, "Hello.")]
    refusing = chats(tmp_path / "refuse", [typed, plain], tokenizer=folder, special_in_content="refuse")
    assert refusing.published.manifest.counts["kept"] == 1


def test_25_typed_think_tags(tmp_path: Path) -> None:
    """`<think>` is not flagged special, so typing it gave the real id.

    Hit: transformers PR#47386, #48052, PR#47853
    Stopped by: every added token that the template writes is a control token; typed in content it is text.
    """
    typed = [said(USER, "a <think> b </tool_call> c"), said(ASSISTANT, "Odd.")]
    folder = tokenizer(tmp_path / "tokenizer", structural=("<think>", "</think>", "<tool_call>", "</tool_call>"))
    stand = chats(tmp_path, [typed], tokenizer=folder, template="qwen3")
    row = stand.row()
    assert "a <think> b </tool_call> c" in stand.text(row.ids)
    assert (row.ids == stand.token("<think>")).sum() == 1, "the template's own"
    assert (row.ids == stand.token("</tool_call>")).sum() == 0
    assert stand.published.manifest.counts["control_tokens_in_content"] == 2


def test_26_stop_in_web_text(tmp_path: Path) -> None:
    """`</s>` and `<|endoftext|>` in web text became the control tokens.

    Hit: Long-Context-Data-Engineering#14, dolma PR#176; 1,075 tokens of 53 million in a study of our own
    Stopped by: typed control tokens are encoded as text and counted.
    """
    typed = "<|endoftext|>"
    texts = [f"SSML says {typed} in its manual.", "An ordinary document."]
    right = documents(tmp_path, texts)
    rows = right.rows("docs_train")
    eos = rows[0].ids[-1]
    assert [int((row.ids == eos).sum()) for row in rows] == [1, 1]
    assert right.text(rows[0].ids[:-1]) == texts[0]

    def as_it_was(rows: list[Row]) -> list[Row]:
        pieces = right.texts(rows[0])
        start = next(at for at in range(len(pieces)) if "".join(pieces[at:]).startswith((typed, " " + typed)))
        stop = next(at for at in range(start, len(pieces)) if typed in "".join(pieces[start:at]))
        ids = np.concatenate([rows[0].ids[:start], [eos], rows[0].ids[stop:]])
        return [Row(ids, np.ones(len(ids), np.uint8)), *rows[1:]]

    wrong = right.caught("row_integrity", as_it_was, "docs_train")
    assert wrong.text(wrong.row(stream="docs_train").ids).count(typed) == 2
