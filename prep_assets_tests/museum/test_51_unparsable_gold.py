"""A gold answer that nobody could parse was rewarded with 1.0.

Year: 2025
Hit: open-r1#215, #503, PR#566, cookbook#335
Cost: Reinforcement of whatever the model said.
Stopped by: the record is refused; `gold_answers` compares each gold with a second reading
"""

from __future__ import annotations

from pathlib import Path

from prep_assets_tests.graph.workspaces import build, domain, jsonl, minimal, workspace_in
from prep_assets_tests.museum.gallery import Stand

ROWS = [
    {"question": "What is 2 + 2?", "answer": "It is <<2+2=4>>4.\n#### 4"},
    {"question": "How long is a rope?", "answer": "Twice its half.\n#### half a rope"},
]


def test_it_never_becomes_a_prompt(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "sums.jsonl", ROWS)
    workspace = workspace_in(tmp_path, minimal("rl", {"sums": domain(source, "gsm8k")}, arithmetic={"n": 10}))
    build(workspace, "rl_raw", "sums")
    stand = Stand(workspace, build(workspace, "rl_prompts_by_domain", "sums"))
    assert stand.failing() == []
    counts = stand.published.manifest.counts
    assert (counts["read"], counts["kept"]) == (2, 1)
    assert sum(counts["refused"].values()) == 1
