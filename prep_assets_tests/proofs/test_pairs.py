"""Pairs and labelled answers, each fault named."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.rows import check_pairs
from prep_assets.proofs.verdict import Verdict, Worst


def pair(**changes: Any) -> dict[str, Any]:
    return {"prompt": "p", "chosen": "long answer", "rejected": "no", **changes}


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ([pair()], [pair(prompt="q")], None),
        ([pair(), pair()], [], None),
        ([pair()], [pair()], "its prompt is in the training file as well"),
        ([pair(chosen="no")], [], "chosen equals rejected"),
        ([pair(prompt=" ")], [], "prompt is empty"),
        ([pair(chosen=[])], [], "mixed"),
        ([{"prompt": "p", "chosen": "a"}], [], "fields"),
        ([pair(extra=1)], [], "fields"),
        ([], [pair(rejected="\n")], "rejected is empty"),
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
    import json

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
        (labelled(prompt=""), "prompt is empty"),
        (labelled(extra=1), f"fields ['prompt', 'completion', 'label', 'extra'], {LABELLED}"),
        (labelled(tools=[]), "tools and variables of a chat template stand beside strings, which no template renders"),
    ],
)
def test_labelled_answers_that_are_not(row: dict[str, Any], says: str) -> None:
    verdict = check_pairs([], [], [labelled(), row])
    assert verdict.worst is not None and verdict.worst.where == "unpaired line 2" and verdict.worst.note.startswith(f"{says}: ")
    assert verdict.summary.startswith(f"1 of 2 pairs fail; first unpaired line 2: {says}")
    assert (verdict.numbers["labelled_checked"], verdict.numbers["desirable"]) == (2, 1)


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


def test_a_long_row_is_shown_by_its_beginning() -> None:
    verdict = check_pairs([pair(chosen="é" * 500, rejected="é" * 500)] * 1500, [])
    assert verdict.worst is not None and verdict.worst.note == 'chosen equals rejected: {"prompt": "p", "chosen": "' + "é" * 373
    assert verdict.summary.startswith("1,500 of 1,500 pairs fail; first train line 1: ")
    late = check_pairs([pair()] * 1000 + [pair(chosen="")], [])
    assert late.worst is not None and late.worst.where == "train line 1,001"


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
