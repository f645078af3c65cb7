"""Prompts whose verifiers are told something, from rows to stores, proofs and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prep_assets import export
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, part_of, refusals, resealed, verdicts, workspace_in

NO_COMMA = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]}


def rows(count: int = 12) -> list[dict[str, Any]]:
    """Programs, texts and rubrics in turn; the tests of every sixth program say something else than it does, every sixth text has a comma."""
    made: list[dict[str, Any]] = []
    for n in range(count):
        wrong = n % 6 > 2
        tests = {"inputs": [f"{n}\n", "5\n"], "outputs": [f"{n + 1}", "7" if wrong else "6"]}
        rubric = [{"criterion": f"Names {n}.", "points": 5}, {"criterion": "Is rude.", "points": -1}]
        made.append(
            (
                {"v": "code", "gold": "print(int(input()) + 1)", "told": json.dumps(tests)},
                {"v": "ifeval", "gold": f"{n}{', ' * wrong} it is", "told": NO_COMMA},
                {"v": "rubric", "gold": "An ideal answer.", "told": rubric[wrong:]},
            )[n % 3]
            | {"prompt": f"Task {n}."}
        )
    return made


def of(folder: Path, count: int = 12, **quality: Any) -> Workspace:
    options = {"verifier_key": "v", "arguments_key": "told"}
    source = domain(jsonl(folder / "tasks.jsonl", rows(count)), "rl_prompt", options=options)
    return workspace_in(folder, minimal("rl", {"tasks": source}, test_fraction=0.0, arithmetic={"n": 3}, **quality))


def test_golds_that_fail_are_refused_and_what_is_told_reaches_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="the extra `quality`")
    workspace = of(tmp_path, quality={"steps": {"verified_golds": {"code_seconds": 20.0}}})
    published = build(workspace, "rl_prompts")
    part = part_of(workspace, "rl_prompts", "tasks")
    assert sorted((each.id, each.reason) for each in refusals(part)) == [
        ("tasks.jsonl:10", "gold_rejected"),
        ("tasks.jsonl:11", "gold_rejected"),
        ("tasks.jsonl:12", "bad_arguments"),
        ("tasks.jsonl:4", "gold_rejected"),
        ("tasks.jsonl:5", "gold_rejected"),
        ("tasks.jsonl:6", "bad_arguments"),
    ]
    stored = {row["prompt"]: row for row in open_stream(published.directory, "rl_prompts_train")}
    for number in (0, 1, 2, 6, 7, 8):
        row, line = rows()[number], stored.pop(f"Task {number}.")
        assert (line["verifier"], line["gold"]) == (row["v"], row["gold"])
        assert json.loads(line["arguments"]) == (json.loads(row["told"]) if row["v"] == "code" else row["told"])
    assert not stored
    export(published, "open_instruct", tmp_path / "out", stream="rl_prompts_train")


def test_every_corruption_of_what_verifiers_are_told_is_caught(tmp_path: Path) -> None:
    workspace = of(tmp_path, 60)
    build(workspace, "rl_prompts")
    trials = selftest(workspace, part_of(workspace, "rl_prompts", "tasks"))
    assert [trial for trial in trials if not trial.passed] == []
    caught = {trial.mutation for trial in trials if trial.caught}
    assert {"what the next verifier is told", "a verifier that is not told its last test", "a verifier that is told nothing"} <= caught


def test_what_a_store_tells_is_compared_with_a_second_reading(tmp_path: Path) -> None:
    workspace = of(tmp_path)
    build(workspace, "rl_prompts")
    published = part_of(workspace, "rl_prompts", "tasks")
    assert verdicts(workspace, published)["gold_answers"].numbers == {"golds_checked": 10, "golds_agreed": 10}
    path = published.directory / "rl_prompts_train.jsonl"
    text = path.read_text("utf-8")
    path.write_text(text.replace(r"\"5\\n\"", r"\"4\\n\"", 1), "utf-8")
    assert path.read_text("utf-8") != text
    assert failing(workspace, resealed(published)) == ["gold_answers", "source_match", "source_texts"]
