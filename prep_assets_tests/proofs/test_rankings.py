"""Lists of answers and labelled answers, read a second time and judged by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.plain_reading import ranking_lines
from prep_assets.proofs.rows import check_pairs

ROW: dict[str, Any] = {"prompt": "q?", "responses": ["a", "b", "c"], "rewards": [0.1, 0.3, 0.2]}


def listed(answers: list[str], rewards: list[float]) -> dict[str, Any]:
    return {"prompt": "q?", "responses": answers, "rewards": rewards}


def labels(*said: tuple[str, bool]) -> list[dict[str, Any]]:
    return [{"prompt": "q?", "completion": text, "label": label} for text, label in said]


@pytest.mark.parametrize(
    ("schema", "row", "options", "expected"),
    [
        ("group_list", ROW, {}, listed(["b", "c", "a"], [0.3, 0.2, 0.1])),
        ("group_list", {**ROW, "rewards": [1, 2, 2]}, {}, listed(["b", "c", "a"], [2.0, 2.0, 1.0])),
        (
            "group_list",
            {"p": "q?", "r": ["a", "b", "c"], "k": [2, 3, 1]},
            {"prompt_key": "p", "responses_key": "r", "ranks_key": "k"},
            listed(["c", "a", "b"], [-1.0, -2.0, -3.0]),
        ),
        ("group_list", {"prompt": "q?", "responses": ["a", "b"], "s": [1, 2]}, {"rewards_key": "s"}, listed(["b", "a"], [2.0, 1.0])),
        ("group_kto", ROW, {}, labels(("a", False), ("b", True))),
        ("group_kto", {**ROW, "rewards": [1, 2, 4]}, {}, labels(("a", False), ("b", False), ("c", True))),
        ("group_kto", ROW, {"desirable_from": 0.2}, labels(("a", False), ("b", True), ("c", True))),
        (
            "group_kto",
            {"prompt": "q?", "responses": ["a", "b", "c"], "k": [1, 2, 3]},
            {"ranks_key": "k", "desirable_from": -1},
            labels(("a", True), ("b", False), ("c", False)),
        ),
        ("group_list", {**ROW, "more": 1}, {}, None),
        ("group_list", ROW, {"marked_prompt": True}, None),
        ("group_list", {**ROW, "prompt": [{"role": "user", "content": "q?"}]}, {}, None),
        ("group_list", {**ROW, "prompt": " "}, {}, None),
        ("group_list", {**ROW, "responses": ["a", "\n", "c"]}, {}, None),
        ("group_list", {**ROW, "responses": ["a", 1, "c"]}, {}, None),
        ("group_list", {**ROW, "responses": ["a", "<t>b", "c"]}, {}, None),
        ("group_list", {**ROW, "prompt": "q<t>?"}, {}, None),
    ],
)
def test_lines_of_a_row(schema: str, row: dict[str, Any], options: dict[str, Any], expected: Any) -> None:
    found = ranking_lines(row, schema, options, "text", ["<t>", "<s>"])
    assert found == expected
    if isinstance(found, dict):
        assert list(found) == ["prompt", "responses", "rewards"] and {*map(type, found["rewards"])} == {float}


def test_lines_of_messages() -> None:
    def said(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    row = {"prompt": "q?", "responses": ["a", "b"], "rewards": [1, 2]}
    assert ranking_lines(row, "group_list", {}, "messages", []) == {
        "prompt": said("user", "q?"),
        "responses": [said("assistant", "b"), said("assistant", "a")],
        "rewards": [2.0, 1.0],
    }
    assert ranking_lines(row, "group_kto", {}, "messages", []) == [
        {"prompt": said("user", "q?"), "completion": said("assistant", text), "label": label} for text, label in (("a", False), ("b", True))
    ]


GOOD, TIED = listed(["b", "a"], [2.0, 1.0]), {**listed(["b", "c", "a"], [2.0, 2.0, 1.0]), "prompt": "r?"}
SPOKEN = {
    "prompt": [{"role": "user", "content": "s?"}],
    "responses": [[{"role": "assistant", "content": text}] for text in "ab"],
    "rewards": [1.0, 0.0],
}


def test_sound_lists() -> None:
    verdict = check_pairs([], [], (), (), [GOOD, TIED, SPOKEN], [{**GOOD, "prompt": "t?"}])
    numbers = {"pairs_checked": 0, "pairs_failed": 0, "longer_chosen": 0, "prompts_in_both": 0, "labelled_checked": 0, "desirable": 0}
    assert verdict.passed and verdict.numbers == {**numbers, "lists_checked": 4, "tied": 1}
    summary = "0 pairs are sound; in 0% the chosen answer is the longer one; 4 lists are in the order of their rewards, 1 with equal ones"
    assert verdict.summary == summary


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (listed(["a", "b"], [1.0, 2.0]), "rewards [1.0, 2.0], not from the best to a worse one"),
        (listed(["a", "b"], [1.0, 1.0]), "rewards [1.0, 1.0], not from the best to a worse one"),
        (listed(["a", "b", "c"], [3.0, 1.0, 2.0]), "rewards [3.0, 1.0, 2.0], not from the best to a worse one"),
        (listed(["a", "b"], [2.0]), "1 rewards of 2 responses"),
        (listed(["a"], [2.0]), "1 rewards of 1 responses"),
        (listed(["a", "b"], [2, 1]), "rewards [2, 1], which are no floats"),
        (listed(["a", "b", " "], [2.0, 1.0, 0.0]), "response 2 is empty"),
        ({**GOOD, "prompt": ""}, "prompt is empty"),
        ({**GOOD, "responses": SPOKEN["responses"]}, "strings and lists of messages are mixed"),
        ({**GOOD, "margin": 1.0, "x": 1}, "fields ['prompt', 'responses', 'rewards', 'margin', 'x']"),
    ],
)
def test_lists_that_are_not(row: dict[str, Any], says: str) -> None:
    verdict = check_pairs([], [], (), (), [TIED, row])
    assert verdict.worst is not None and verdict.worst.where == "ranked line 2" and verdict.worst.note.startswith(says)
    assert verdict.summary.startswith("1 of 2 pairs fail") and not verdict.passed
    held_out = check_pairs([], [], (), (), [TIED], [row])
    assert held_out.worst is not None and held_out.worst.where == "ranked_test line 1"


def test_a_prompt_of_a_list_on_both_sides() -> None:
    verdict = check_pairs([], [], (), (), [GOOD], [GOOD])
    assert not verdict.passed and verdict.numbers["prompts_in_both"] == 1
    across = check_pairs([], [{"prompt": "q?", "chosen": "x", "rejected": "y"}], (), (), [GOOD])
    assert not across.passed and across.numbers["prompts_in_both"] == 1
