"""Pairs and labelled answers, each fault named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from prep_assets.extensions.preference.proofs.pairs import Margin, check_margins, check_pairs
from prep_assets.proofs.verdict import Verdict, Worst


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


MESSAGES = [{"role": "user", "content": "x"}]
FIELDS = "needs ['prompt', 'chosen', 'rejected'] and may have tools, chat_template_kwargs, margin"
LABELLED = "needs ['prompt', 'completion', 'label'] and may have tools, chat_template_kwargs, margin"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (pair(chosen="no"), "chosen equals rejected"),
        (pair(prompt=" "), "prompt is empty"),
        (pair(chosen=""), "chosen is empty"),
        (pair(rejected="\n"), "rejected is empty"),
        (pair(chosen=MESSAGES), "strings and lists of messages are mixed"),
        (pair(prompt=[], chosen=MESSAGES, rejected=[]), "prompt is empty"),
        (pair(extra=1), f"fields ['prompt', 'chosen', 'rejected', 'extra'], {FIELDS}"),
        ({"chosen": "a", "prompt": "p", "rejected": "b"}, f"fields ['chosen', 'prompt', 'rejected'], {FIELDS}"),
        (pair(tools=[]), "tools and variables of a chat template stand beside strings, which no template renders"),
        (pair(chat_template_kwargs={}), "tools and variables of a chat template stand beside strings, which no template renders"),
    ],
)
def test_pairs_that_are_not(row: dict[str, Any], says: str) -> None:

    verdict = check_pairs([pair(), row, row], [])
    note = f"{says}: {json.dumps(row, ensure_ascii=False)}"
    numbers = {"pairs_checked": 3, "pairs_failed": 2, "longer_chosen": 1, "prompts_in_both": 0, "labelled_checked": 0, "desirable": 0}
    worst = Worst("train line 2", note)
    assert verdict == Verdict(False, f"2 of 3 pairs fail; first train line 2: {note}", numbers, worst)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (labelled("yes"), "label is 'yes', needs true or false"),
        (labelled(1), "label is 1, needs true or false"),
        (labelled(completion=MESSAGES), "strings and lists of messages are mixed"),
        (labelled(completion=" "), "completion is empty"),
        (labelled(extra=1), f"fields ['prompt', 'completion', 'label', 'extra'], {LABELLED}"),
        (labelled(tools=[]), "tools and variables of a chat template stand beside strings, which no template renders"),
    ],
)
def test_labelled_answers_that_are_not(row: dict[str, Any], says: str) -> None:
    verdict = check_pairs([], [], [labelled(), row])
    assert verdict.worst is not None and verdict.worst.where == "unpaired line 2" and verdict.worst.note.startswith(f"{says}: ")
    assert verdict.summary.startswith(f"1 of 2 pairs fail; first unpaired line 2: {says}")
    assert (verdict.numbers["labelled_checked"], verdict.numbers["desirable"]) == (2, 1)


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
    sides = {"chosen": MESSAGES, "rejected": [*MESSAGES, *MESSAGES]}
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
    row = pair(prompt=MESSAGES, chosen=[*MESSAGES, message], rejected=MESSAGES)
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


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (listed(["a", "b"], [1.0, 2.0]), "rewards [1.0, 2.0], not from the best to a worse one"),
        (listed(["a", "b"], [1.0, 1.0]), "rewards [1.0, 1.0], not from the best to a worse one"),
        (listed(["a", "b"], [2.0]), "1 rewards of 2 responses"),
        (listed(["a"], [2.0]), "1 rewards of 1 responses"),
        (listed(["a", "b"], [2, 1]), "rewards [2, 1], which are no floats"),
        (listed(["a", "b", " "], [2.0, 1.0, 0.0]), "response 2 is empty"),
        ({**RANKING_GOOD, "responses": SPOKEN["responses"]}, "strings and lists of messages are mixed"),
        ({**RANKING_GOOD, "margin": 1.0, "x": 1}, "fields ['prompt', 'responses', 'rewards', 'margin', 'x']"),
    ],
)
def test_lists_that_are_not(row: dict[str, Any], says: str) -> None:
    verdict = check_pairs([], [], (), (), [TIED, row])
    assert verdict.worst is not None and verdict.worst.where == "ranked line 2" and verdict.worst.note.startswith(says)
    assert verdict.summary.startswith("1 of 2 pairs fail") and not verdict.passed
    held_out = check_pairs([], [], (), (), [TIED], [row])
    assert held_out.worst is not None and held_out.worst.where == "ranked_test line 1"


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


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Margin("x", None, 0.5), "its margin is none, its line says 0.5"),
        (Margin("x", 0.0, None), "its margin is 0, its line says none"),
        (Margin("x", 0.5 + 1e-7, 0.5), "its margin is 0.5, its line says 0.5"),
    ],
)
def test_another_margin(wrong: Margin, says: str) -> None:
    verdict = check_margins([*RIGHT, wrong, *RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"x: {says}", Worst("x", says))
    assert verdict.numbers == {"pairs_checked": 4, "margins_checked": 2 + (wrong.stored is not None)}
