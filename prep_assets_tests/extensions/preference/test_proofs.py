"""Pairs and labelled answers, each fault named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.extensions.preference.proofs.pairs import Margin, check_margins, check_pairs
from prep_assets.proofs.verdict import Verdict

MESSAGES = [{"role": "user", "content": "x"}]
SAID = [{"role": "assistant", "content": "y"}]


def pair(**changes: Any) -> dict[str, Any]:
    return {"prompt": "p", "chosen": "long answer", "rejected": "no", **changes}


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ([pair()], [pair(prompt="q")], None),
        ([pair(), pair()], [], None),
        ([pair()], [pair()], "its prompt is in the training file as well"),
    ],
)
def test_pairs(train: list[dict[str, Any]], test: list[dict[str, Any]], says: str | None) -> None:
    verdict = check_pairs(train, test)
    assert verdict.passed == (says is None)
    assert says is None or says in verdict.summary
    assert verdict.numbers["pairs_checked"] == len(train) + len(test)


def test_pairs_of_messages() -> None:
    def said(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    good = {"prompt": said("user", "p"), "chosen": said("assistant", "a"), "rejected": said("assistant", "b")}
    assert check_pairs([good, {**good, "tools": [], "chat_template_kwargs": {}, "margin": 1.0}], []).passed
    assert not check_pairs([{**good, "chosen": said("assistant", " ")}], []).passed
    assert not check_pairs([{**good, "rejected": good["chosen"]}], []).passed
    assert not check_pairs([good], [{**good, "chosen": said("assistant", "c")}]).passed


@pytest.mark.parametrize(
    ("file", "row", "fault"),
    [
        (
            "train",
            {**pair(), "more": 1},
            "fields ['prompt', 'chosen', 'rejected', 'more'], needs ['prompt', 'chosen', 'rejected'] and may have",
        ),
        ("train", pair(tools=[]), "tools and variables of a chat template stand beside strings"),
        ("train", pair(chosen=[]), "strings and lists of messages are mixed"),
        ("train", {"prompt": [], "chosen": [], "rejected": []}, "prompt is empty"),
        ("train", pair(rejected=" "), "rejected is empty"),
        ("unpaired", {"prompt": "p", "completion": "c", "label": 1}, "label is 1, needs true or false"),
        ("unpaired", {"prompt": MESSAGES, "completion": [*MESSAGES, *SAID], "label": True}, "an answer begins with what the user says"),
        ("train", pair(prompt=MESSAGES, chosen=SAID, rejected=MESSAGES), "an answer begins with what the user says"),
        ("ranked", {"prompt": "p", "responses": ["a", "b"], "rewards": [1.0]}, "1 rewards of 2 responses"),
        ("ranked", {"prompt": "p", "responses": ["a", "b"], "rewards": [1, 0]}, "rewards [1, 0], which are no floats"),
        ("ranked", {"prompt": "p", "responses": ["a", "b"], "rewards": [1.0, 1.0]}, "rewards [1.0, 1.0], not from the best to a worse one"),
        ("ranked", {"prompt": "p", "responses": ["a", []], "rewards": [1.0, 0.0]}, "strings and lists of messages are mixed"),
        ("ranked", {"prompt": "p", "responses": ["a", " "], "rewards": [1.0, 0.0]}, "response 1 is empty"),
    ],
)
def test_a_line_that_is_wrong_in_itself(file: str, row: dict[str, Any], fault: str) -> None:
    verdict = check_pairs(**{"train": [], "test": [], file: [row]})
    assert not verdict.passed and f"{file} line 1: {fault}" in verdict.summary


GOOD = {"pairs_checked": 3, "pairs_failed": 0, "longer_chosen": 2, "prompts_in_both": 0, "labelled_checked": 2, "desirable": 1}


def labelled(label: Any = True, **changes: Any) -> dict[str, Any]:
    return {"prompt": "u", "completion": "c", "label": label, **changes}


def test_sound_pairs_in_the_words_of_the_verdict() -> None:
    short = pair(prompt="s", chosen="a", rejected="bb", margin=1.0)
    verdict = check_pairs([pair(), short], [pair(prompt="q")], [labelled()], [labelled(False, prompt="v")])
    summary = "3 pairs are sound; in 67% the chosen answer is the longer one; 2 labelled answers are sound, 1 of them desirable"
    assert verdict == Verdict(True, summary, GOOD)
    assert check_pairs([pair(), pair(chosen="ab")], []).summary.startswith("2 pairs are sound; in 50% ")
    assert check_pairs([pair()], []).summary.startswith("1 pairs are sound; in 100% ")
    assert check_pairs([], []).summary == "0 pairs are sound; in 0% the chosen answer is the longer one"
    many = check_pairs([pair()] * 2000, [], [labelled()] * 3000)
    assert many.summary == (
        "2,000 pairs are sound; in 100% the chosen answer is the longer one; 3,000 labelled answers are sound, 3,000 of them desirable"
    )


def test_an_answer_with_both_labels() -> None:
    first, other = labelled(), {**labelled(), "label": not labelled()["label"]}
    found = check_pairs([], [], [first, other], one_domain=True)
    assert found.worst is not None and found.worst.where == "unpaired line 2"
    assert found.worst.note.startswith("the same answer has the other label as well: ")
    assert check_pairs([], [], [first, other]).passed, "those of several domains may differ"
    assert check_pairs([], [], [first, first, {**other, "completion": "else"}], one_domain=True).passed


def test_a_prompt_on_both_sides() -> None:
    both = check_pairs([pair()], [pair(prompt="q"), pair(chosen="other")])
    assert check_pairs([pair()], [pair(), pair()]).numbers["prompts_in_both"] == 2
    assert both.numbers["prompts_in_both"] == 1 and both.worst is not None and both.worst.where == "test line 2"
    across = check_pairs([pair(prompt="u")], [], [], [labelled()])
    assert across.numbers["prompts_in_both"] == 1 and across.worst is not None and across.worst.where == "unpaired_test line 1"
    reverse = check_pairs([], [pair(prompt="u")], [labelled()])
    assert reverse.worst is not None and reverse.worst.note.startswith("its prompt is in the training file as well: ")
    one, other = {"role": "user", "content": "x"}, {"content": "x", "role": "user"}
    sides = {"chosen": SAID, "rejected": [*SAID, *SAID]}
    order = check_pairs([pair(prompt=[one], **sides)], [pair(prompt=[other], **sides)])
    assert order.numbers["prompts_in_both"] == 1
    assert check_pairs([], [pair(), pair()]).passed, "twice on one side"


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        ({"content": " "}, True),
        ({"content": "", "tool_calls": [1]}, False),
        ({"tool_calls": [1]}, False),
        ({}, True),
        ({"content": [{"text": " "}, {"text": "x"}]}, False),
        ({"content": [{"text": " "}, {"text": ""}]}, True),
    ],
)
def test_messages_that_say_nothing(message: dict[str, Any], empty: bool) -> None:
    row = pair(prompt=MESSAGES, chosen=[*SAID, message], rejected=SAID)
    assert check_pairs([row], []).passed is not empty


# -- Lists of answers and labelled answers, read a second time and judged by themselves ---------------------------------------------------


def listed(answers: list[str], rewards: list[float]) -> dict[str, Any]:
    return {"prompt": "q?", "responses": answers, "rewards": rewards}


RANKING_GOOD, TIED = listed(["b", "a"], [2.0, 1.0]), {**listed(["b", "c", "a"], [2.0, 2.0, 1.0]), "prompt": "r?"}
SPOKEN = {
    "prompt": [{"role": "user", "content": "s?"}],
    "responses": [[{"role": "assistant", "content": text}] for text in "ab"],
    "rewards": [1.0, 0.0],
}


def test_sound_lists() -> None:
    verdict = check_pairs([], [], (), (), [RANKING_GOOD, TIED, SPOKEN], [{**RANKING_GOOD, "prompt": "t?"}])
    numbers = {"pairs_checked": 0, "pairs_failed": 0, "longer_chosen": 0, "prompts_in_both": 0, "labelled_checked": 0, "desirable": 0}
    assert verdict.passed and verdict.numbers == {**numbers, "lists_checked": 4, "tied": 1}
    summary = "0 pairs are sound; in 0% the chosen answer is the longer one; 4 lists are in the order of their rewards, 1 with equal ones"
    assert verdict.summary == summary


def test_a_prompt_of_a_list_on_both_sides() -> None:
    verdict = check_pairs([], [], (), (), [RANKING_GOOD], [RANKING_GOOD])
    assert not verdict.passed and verdict.numbers["prompts_in_both"] == 1
    across = check_pairs([], [{"prompt": "q?", "chosen": "x", "rejected": "y"}], (), (), [RANKING_GOOD])
    assert not across.passed and across.numbers["prompts_in_both"] == 1


# -- Margins of pairs: what is stored, and what the line says -----------------------------------------------------------------------------

RIGHT = (Margin("a", float(np.float32(0.1)), 0.1), Margin("b", None, None), Margin("c", -0.0, 0.0))


def test_margins_as_float32() -> None:
    numbers = {"pairs_checked": 3, "margins_checked": 2}
    assert check_margins(RIGHT) == Verdict(True, "2 margins of 3 pairs are those of their lines, as float32", numbers)
