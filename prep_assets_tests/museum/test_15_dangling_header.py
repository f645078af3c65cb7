"""The template writes the assistant's header even where nobody asks for it, so every chat ended in an open one.

Year: 2025
Hit: Phi-4's first upload
Cost: Rows that end in a header which nothing follows.
Stopped by: the certificate finds it, and rows that end in an open header are refused
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer

OPEN_END = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}"
)


def test_it_is_not_stored(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", template=OPEN_END)
    with pytest.raises(PrepAssetsError, match=r"header|generation prompt"):
        chats(tmp_path / "stores", [CHAT], tokenizer=folder)
