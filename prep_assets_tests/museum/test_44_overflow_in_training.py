"""Training a tokenizer on large corpora of code overflowed a 32-bit count, and the pair of two spaces was never merged.

Year: 2026
Hit: tokenizers#2058
Cost: Code that takes many more tokens than it should.
Stopped by: training tokenizers is outside this project; the file's content is part of the build key, so that another tokenizer is
    never mistaken for the old one
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer


def without_last_merge(described: dict[str, Any]) -> None:
    described["model"]["merges"].pop()


def test_another_tokenizer_is_another_store(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    keys = [
        chats(tmp_path / name, [CHAT], tokenizer=tokenizer(folder, edit=edit)).published.manifest.build_key
        for name, edit in (("before", None), ("after", without_last_merge))
    ]
    assert keys[0] != keys[1]
