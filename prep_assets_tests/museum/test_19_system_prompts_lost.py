"""A setting of null made the pipeline drop every custom system prompt.

Year: 2025
Hit: SmolLM3 (Smol Training Playbook)
Cost: A whole post-training run that ignored system prompts.
Stopped by: every field of a row is read, or the build stops
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import CHAT, chats

PIRATE = "Talk like a pirate."


def test_a_system_column_is_read(tmp_path: Path) -> None:
    stand = chats(tmp_path, [{"messages": list(CHAT), "system": PIRATE}])
    assert stand.failing() == []
    assert stand.text(stand.row().ids).count(PIRATE) == 1


def test_a_column_that_nobody_reads_stops_the_build(tmp_path: Path) -> None:
    rows = [{"messages": list(CHAT), "custom_instructions": PIRATE}]
    with pytest.raises(PrepAssetsError, match=r"ignore: \[custom_instructions\]"):
        chats(tmp_path, rows)
