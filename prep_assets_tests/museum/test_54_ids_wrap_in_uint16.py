"""Ids above 65,535 were stored in sixteen bits and wrapped around.

Year: 2020
Hit: transformers#2825, knnlm#6
Cost: Half a vocabulary became other words.
Stopped by: the configuration is refused before anything is written; `auto` takes the smallest type that holds the vocabulary
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer


def enlarge(described: dict[str, Any]) -> None:
    """66,000 tokens that no text has, so that the last id is above 65,535."""
    vocabulary = described["model"]["vocab"]
    first = 1 + max([*vocabulary.values(), *(token["id"] for token in described["added_tokens"])])
    vocabulary.update({f"unused{number}": first + number for number in range(66_000)})


def test_a_vocabulary_that_does_not_fit(tmp_path: Path) -> None:
    large = tokenizer(tmp_path / "tokenizer", edit=enlarge)
    with pytest.raises(PrepAssetsError, match="uint16"):
        chats(tmp_path / "narrow", [CHAT], tokenizer=large, output={"storage_format": "bin", "dtype": "uint16"})
    stand = chats(tmp_path / "wide", [CHAT], tokenizer=large, output={"storage_format": "bin", "dtype": "auto"})
    assert stand.failing() == []
    assert stand.row().ids.dtype == "uint32"
