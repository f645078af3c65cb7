"""The class named in `tokenizer_config.json` replaced the pre-tokenizer of `tokenizer.json`, so that numbers were split otherwise.

Year: 2026
Hit: transformers#45812, #45701, mellea#947 (all Granite models); 83 of 7,473 rows of GSM8K with SmolLM's tokenizer
Cost: `2023` becomes other tokens than the base model knows; it decodes all the same.
Stopped by: `tokenizer.json` is the reference; where the class makes something else of it the build stops and names both
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said, tokenizer

NUMBERS = [said(USER, "When was 2023 and 1999?"), said(ASSISTANT, "In 2023 and 1999.")]


def by_digits(described: dict[str, Any]) -> None:
    described["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ],
    }


def test_the_published_file_decides(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", edit=by_digits, tokenizer_class="GPT2Tokenizer")
    with pytest.raises(PrepAssetsError, match="tokenizer_loader"):
        chats(tmp_path / "open", [NUMBERS], tokenizer=folder)
    stand = chats(tmp_path / "stores", [NUMBERS], tokenizer=folder, tokenizer_loader="file")
    assert stand.failing() == []
    row = stand.row()
    published = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert row.ids.tolist() == published.encode(stand.text(row.ids), add_special_tokens=False).ids
