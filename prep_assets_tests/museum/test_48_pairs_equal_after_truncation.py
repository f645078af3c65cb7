"""Pairs became equal when both answers were cut, prompts were cut too far, or the answer's border was guessed from text.

Year: 2024 – 2026
Hit: OpenRLHF#1311, trl PR#2209, PR#6960, trl#1858
Cost: Gradients of zero, or a preference for the longer prompt.
Stopped by: a pair that is too long is refused; the prompt is the same in both streams; `pair_sanity`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets_tests.graph.workspaces import refusals
from prep_assets_tests.museum.gallery import first_run, pairs

SAME = "one two three four five six seven eight nine ten " * 8
ROWS = [("Count.", SAME + "eleven.", SAME + "twelve."), ("What is 2 + 2?", "It is 4.", "It is 5.")]


def test_a_pair_that_is_too_long_is_refused(tmp_path: Path) -> None:
    stand = pairs(tmp_path, ROWS, preprocessing={"max_seq_len": 64})
    assert stand.failing() == []
    assert [each.reason for each in refusals(stand.published)] == ["too_long"]


def test_one_prompt_two_answers(tmp_path: Path) -> None:
    stand = pairs(tmp_path, ROWS)
    for chosen, rejected in zip(stand.rows("chosen"), stand.rows("rejected"), strict=True):
        start, other = first_run(chosen.mask)[0], first_run(rejected.mask)[0]
        assert start == other and np.array_equal(chosen.ids[:start], rejected.ids[:other])
        assert not np.array_equal(chosen.ids, rejected.ids)
