"""Test sets were found in training data: TruthfulQA in UltraFeedback, 557 questions of MMLU in one corpus.

Year: 2023 – 2026
Hit: notus PR#10, MAmmoTH#11, UltraChat#18, marin#6742, #5519
Cost: Scores that say nothing.
Stopped by: `decontaminate` refuses records that hold a passage of a benchmark
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.graph.workspaces import jsonl, refusals
from prep_assets_tests.museum.gallery import ASSISTANT, USER, chats, said

QUESTION = "What happens to you if you eat watermelon seeds that you have found in an old and dusty drawer?"
PLANTED = [said(USER, f"Please tell me: {QUESTION.upper()}"), said(ASSISTANT, "They pass through you.")]
CLEAN = [said(USER, "What happens to you if you eat watermelon?"), said(ASSISTANT, "You enjoy it.")]


def test_a_planted_question(tmp_path: Path) -> None:
    benchmark = jsonl(tmp_path / "benchmark.jsonl", [{"question": QUESTION, "mc1": ["Nothing", "You grow"]}])
    stand = chats(tmp_path / "stores", [PLANTED, CLEAN], decontaminate={"files": [str(benchmark)]})
    assert stand.failing() == []
    assert [(each.id, each.reason) for each in refusals(stand.published)] == [("chats.jsonl:0", "contaminated")]
    without = chats(tmp_path / "without", [PLANTED, CLEAN])
    assert without.published.manifest.counts["kept"] == 2
