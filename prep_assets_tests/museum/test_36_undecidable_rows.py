"""Every row was undecidable, or every mask false, and a million warnings hid that nothing was left.

Year: 2025 – 2026
Hit: open-instruct#1800, #1804, NeMo-Aligner#57
Cost: Runs on nothing, or on a handful of rows.
Stopped by: the build stops with one message that counts the reasons and shows an example
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prep_assets.errors import PrepAssetsError
from prep_assets_tests.museum.gallery import USER, chats, said


def test_one_message_for_all_rows(tmp_path: Path) -> None:
    with pytest.raises(PrepAssetsError, match=r"all 40 records were refused \(.*: 40\)"):
        chats(tmp_path, [[said(USER, f"What is {number}?")] for number in range(40)])


def test_a_few_rows_are_refused_and_counted(tmp_path: Path) -> None:
    answered = [said(USER, "What is 2 + 2?"), {"role": "assistant", "content": "4"}]
    stand = chats(tmp_path, [answered, [said(USER, "And now?")]])
    counts = stand.published.manifest.counts
    assert (counts["read"], counts["kept"], sum(counts["refused"].values())) == (2, 1, 1)
    assert stand.failing() == []
