"""An answer's overall score of 1 was written as 10 (`> 1` for `>= 1`), and about 2,000 of the worst answers became the chosen ones.

Year: 2023
Hit: UltraFeedback#8, and data sets made of it
Cost: Preference for the worst answer.
Stopped by: a pair whose chosen answer scores below the rejected one is refused, and a score of 10 that its own ratings contradict
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, refusals, workspace_in
from prep_assets_tests.museum.gallery import ASSISTANT, USER, Stand, said


def pair(prompt: str, chosen: str, rejected: str, scores: tuple[float, float]) -> dict[str, object]:
    """A row as the binarized data set has it."""

    def side(answer: str) -> list[dict[str, str]]:
        return [said(USER, prompt), said(ASSISTANT, answer)]

    return {"prompt": prompt, "chosen": side(chosen), "rejected": side(rejected), "score_chosen": scores[0], "score_rejected": scores[1]}


SOUND = pair("What is 2 + 2?", "4", "5", (9.0, 2.0))
WRONG = pair("What is 3 + 3?", "9", "6", (1.0, 8.5))


RATED = {
    "prompt": "What is 4 + 4?",
    "completions": [
        {"response": "9", "overall_score": 10.0, "annotations": {"helpfulness": {"Rating": "1"}, "honesty": {"Rating": "2"}}},
        {"response": "8", "overall_score": 8.5, "annotations": {"helpfulness": {"Rating": "5"}, "honesty": {"Rating": "4"}}},
    ],
}
"""The worst answer has the best score, so that its ratings alone tell."""


def test_it_is_refused(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "feedback.jsonl", [SOUND, WRONG, RATED])
    workspace = workspace_in(tmp_path, minimal("preference", {"feedback": domain(source, "ultrafeedback")}, test_fraction=0.0))
    build(workspace, "preference_raw", "feedback")
    stand = Stand(workspace, build(workspace, "preferences_by_domain", "feedback"))
    assert stand.failing() == []
    assert [each.reason for each in refusals(stand.published)] == ["score_contradicts"] * 2
