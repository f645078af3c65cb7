"""An added token with `rstrip` swallowed the line break that the template writes after it.

Year: 2024
Hit: transformers#32136, #30590, unsloth#1501 (Phi-3)
Cost: Other ids in training than in serving, at every turn.
Stopped by: the build stops and names the token and its flag
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import CHAT, chats, tokenizer


def greedy(described: dict[str, Any]) -> None:
    for token in described["added_tokens"]:
        if token["content"] == "<|im_start|>":
            token["lstrip"] = token["rstrip"] = True


def test_it_is_not_built_with(tmp_path: Path) -> None:
    folder = tokenizer(tmp_path / "tokenizer", edit=greedy)
    with pytest.raises(PrepAssetsError, match="strip"):
        chats(tmp_path / "stores", [CHAT], tokenizer=folder)
