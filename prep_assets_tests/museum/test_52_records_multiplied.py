"""A shard was listed twice, and records were trained up to 32 times; or a cache was kept though the template had changed.

Year: 2021 – 2026
Hit: Nemotron#260, Soup#1067, open-instruct PR#1518, LMFlow PR#394, AReaL PR#1598, datasets#3847
Cost: 5.5 GB became 497 GB; runs on yesterday's template.
Stopped by: `accounting`; the build key is made of contents, not of names and times
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.museum.gallery import CHAT, Row, chats, documents, tokenizer

TEXTS = ["One document.", "Another one.", "And a third one."]


def test_a_shard_that_is_listed_twice(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "shard.jsonl", [{"text": text} for text in TEXTS])
    shutil.copy(source, tmp_path / "shard_again.jsonl")
    listed = {**domain(source, "text"), "files": [str(source), str(source), str(tmp_path / "shard_again.jsonl")]}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"docs": listed}, engine="reference"))
    build(workspace, "pretrain_raw", "docs")
    counts = build(workspace, "pretrain_tokens", "docs").manifest.counts
    assert counts["kept"] == len(TEXTS)
    assert counts["refused"] == {"deduplicate/duplicate": len(TEXTS)}


def test_a_store_that_holds_its_records_twice(tmp_path: Path) -> None:
    right = documents(tmp_path, TEXTS)

    def joined(rows: list[Row]) -> list[Row]:
        return [Row(np.concatenate([row.ids, row.ids]), np.concatenate([row.mask, row.mask])) for row in rows]

    assert right.with_rows(joined, "docs_train").failing() != []


def test_a_template_edited_under_its_path(tmp_path: Path) -> None:
    plain = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    folder = tmp_path / "tokenizer"
    keys = {
        chats(tmp_path / str(number), [CHAT], tokenizer=tokenizer(folder, template=template)).published.manifest.build_key
        for number, template in enumerate((plain, plain.replace(": ", ":\\n")))
    }
    assert len(keys) == 2
