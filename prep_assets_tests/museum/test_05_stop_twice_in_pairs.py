"""The trainer appended a stop token to answers whose template had written one.

Year: 2025
Hit: trl#4481, unsloth#3228
Cost: Answers that end twice.
Stopped by: `preferences.jsonl` holds the source's words and no stop token; the check of pairs against their source sees one. TRL's
    own preparation is tried by `make test-readers`
"""

from __future__ import annotations

import json
from pathlib import Path

from prep_assets_tests.graph.workspaces import resealed
from prep_assets_tests.museum.gallery import Stand, pairs
from prep_assets_tests.proofs import corruption


def test_no_stop_token_in_the_text(tmp_path: Path) -> None:
    stand = pairs(tmp_path, [("What is 2 + 2?", "It is 4.", "It is 5."), ("What is 3 + 3?", "It is 6.", "It is 7.")])
    published = stand.workspace.published("preferences_by_domain", "pairs")
    assert published is not None
    right = Stand(stand.workspace, published)
    assert right.failing() == []
    lines = [json.loads(line) for line in (published.directory / "preferences.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == 2 and all("<|im_end|>" not in json.dumps(row) for row in lines)

    def stopped(rows: list[dict[str, str]]) -> list[dict[str, str]]:
        return [{**row, "chosen": row["chosen"] + "<|im_end|>"} for row in rows]

    corruption.lines(published, "preferences", stopped)
    assert Stand(stand.workspace, resealed(published)).failing() != []
