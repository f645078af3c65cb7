"""`WARNING: tokenization mismatch: 55 vs. 52 (ignored)`: whole conversations were set to -100, and only the log said so.

Year: 2024
Hit: FastChat#2992, PR#2996
Cost: Runs on a part of the data, without anybody knowing which.
Stopped by: the record is refused with a reason, counted, and listed in quarantine
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.graph.workspaces import refusals
from prep_assets_tests.museum.gallery import ASSISTANT, CHAT, USER, chats, said, tokenizer

CHANGING = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] | replace('\\t', '    ')) + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_content_that_the_template_changes(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=CHANGING)
    stand = chats(tmp_path / "stores", [CHAT, [said(USER, "Indent."), said(ASSISTANT, "\tif x:\n\t\tpass?")]], tokenizer=folder)
    assert stand.failing() == []
    refused = refusals(stand.published)
    assert stand.published.manifest.counts["kept"] == 1
    assert [(each.id, each.stage) for each in refused] == [("chats.jsonl:1", "render")]
