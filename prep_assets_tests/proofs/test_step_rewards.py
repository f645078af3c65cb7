"""Rewards of steps: each way in which what is stored is not where, or what, the source says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prep_assets.proofs.groups import Stepwise, check_steps
from prep_assets.proofs.verdict import Verdict, Worst

STEPS = (("One.\n", 1.0), ("Two.\n", 0.0), ("Three.", -0.5))
RIGHT = Stepwise("a", ("One.\n", "One.\nTwo.\n", "One.\nTwo.\nThree."), (1.0, 0.0, -0.5), 0, STEPS)


def test_rewards_where_steps_end() -> None:
    numbers = {"responses_checked": 2, "steps_checked": 6}
    assert check_steps([RIGHT, RIGHT]) == Verdict(True, "6 rewards of 2 responses stand where their steps end", numbers)
    none = {"responses_checked": 0, "steps_checked": 0}
    assert check_steps([]) == Verdict(True, "no response is judged step by step", none)


def test_what_a_template_writes_before_all_steps_and_the_space_that_it_takes_away() -> None:
    headed = replace(RIGHT, texts=tuple(f"<think>\n\n</think>\n\n{text}" for text in RIGHT.texts))
    trimmed = replace(RIGHT, texts=("One.", "One.\nTwo.", "One.\nTwo.\nThree."))
    assert check_steps([headed, trimmed]).passed


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(RIGHT, texts=RIGHT.texts[:2]), "2 ends of steps are stored, the source has 3"),
        (replace(RIGHT, texts=(*RIGHT.texts, "x")), "4 ends of steps are stored, the source has 3"),
        (replace(RIGHT, elsewhere=2), "2 tokens that end no step have a reward"),
        (replace(RIGHT, texts=("One", *RIGHT.texts[1:])), "the tokens up to the end of step 0 end 'One', its text 'One.'"),
        (
            replace(RIGHT, texts=(RIGHT.texts[0], "One.\nTwo.\nTh", RIGHT.texts[2])),
            "the tokens up to the end of step 1 end 'One.\\nTwo.\\nTh', its text 'One.\\nTwo.'",
        ),
        (
            replace(RIGHT, texts=(RIGHT.texts[0], "x" + RIGHT.texts[1], RIGHT.texts[2])),
            "the tokens up to the end of step 1 end 'xOne.\\nTwo.', its text 'One.\\nTwo.'",
        ),
        (replace(RIGHT, rewards=(1.0, 0.0, 0.5)), "the reward of step 2 is 0.5, the source says -0.5"),
        (replace(RIGHT, rewards=(0.0, 1.0, -0.5)), "the reward of step 0 is 0, the source says 1"),
        (replace(RIGHT, rewards=(1.0 + 1e-6, 0.0, -0.5)), "the reward of step 0 is 1, the source says 1"),
    ],
)
def test_what_is_stored_is_not_what_was_judged(changed: Stepwise, says: str) -> None:
    verdict = check_steps([RIGHT, replace(changed, id="b"), RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"b: {says}", Worst("b", says))
    assert verdict.numbers == {"responses_checked": 2, "steps_checked": 6}


def test_of_answers_the_places_are_compared_and_not_the_texts() -> None:
    answers = replace(RIGHT, texts=("", "", ""), places=((3, 9, 12), (3, 9, 12)))
    assert check_steps([answers]).passed
    moved = check_steps([replace(answers, places=((3, 8, 12), (3, 9, 12)))])
    assert moved.summary == "a: answers end at the tokens [3, 8, 12], by the source's mask at [3, 9, 12]"
    assert not check_steps([replace(answers, rewards=(1.0, 0.5, -0.5))]).passed


def test_of_long_texts_the_last_40_characters_are_shown() -> None:
    long = Stepwise("a", ("x" * 60 + "y",), (1.0,), 0, (("z" * 60, 1.0),))
    assert check_steps([long]).summary == f"a: the tokens up to the end of step 0 end '{'x' * 39}y', its text '{'z' * 40}'"


def test_rewards_are_float32() -> None:
    exact = -0.1
    source = (("One.", exact),)
    near = Stepwise("a", ("One.",), (float.fromhex("-0x1.99999ap-4"),), 0, source)
    assert check_steps([near]).passed
