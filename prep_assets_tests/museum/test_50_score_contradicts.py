"""An answer's overall score of 1 was written as 10 (`> 1` for `>= 1`), and about 2,000 of the worst answers became the chosen ones.

Year: 2023
Hit: UltraFeedback#8, and data sets made of it
Cost: Preference for the worst answer.
Stopped by: an overall score that its own ratings contradict is refused
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.museum.gallery import Stand
from prep_assets_tests.pipelines.workspaces import build, domain, jsonl, minimal, refusals, workspace_in


def answer(text: str, overall: float, rating: int) -> dict[str, object]:
    """A completion with four ratings by aspect, as UltraFeedback has them."""
    aspects = ("instruction_following", "honesty", "truthfulness", "helpfulness")
    return {"response": text, "overall_score": overall, "annotations": {name: {"Rating": str(rating)} for name in aspects}}


SOUND = {"instruction": "What is 2 + 2?", "completions": [answer("4", 9.0, 5), answer("5", 2.0, 1)]}
WRONG = {"instruction": "What is 3 + 3?", "completions": [answer("9", 10.0, 1), answer("6", 8.5, 4)]}


def test_it_is_refused(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "feedback.jsonl", [SOUND, WRONG])
    workspace = workspace_in(tmp_path, minimal("preference", {"feedback": domain(source, "ultrafeedback")}, test_fraction=0.0))
    build(workspace, "preference_raw", "feedback")
    stand = Stand(workspace, build(workspace, "preferences"))
    assert stand.failing() == []
    assert [each.reason for each in refusals(stand.published)] == ["score_contradicts"]
