"""The examples that one conversation becomes: one for each answer where its render loses reasoning."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.derive import examples_again
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets_tests.proofs.conversations import chat, says, user

OPTIONS: dict[str, Any] = {"mask": {"assistant": "train"}, "mask_default": "mask", "train_thinking": True, "train_tool_calls": True}
ROUNDS = chat(user("1?"), says("~Hm.", "One."), user("2?"), says("~So.", "Two."), user("3?"), says("Three."), user("Bye"))


def whole(sample: Sample) -> str:
    return " ".join(region.text for turn in sample.turns for region in turn.regions)


def last_only(sample: Sample) -> str:
    """Shows reasoning of the last turn alone."""
    last = len(sample.turns) - 1
    return " ".join(r.text for at, turn in enumerate(sample.turns) for r in turn.regions if at == last or r.kind != THINKING)


def shown(samples: list[Sample]) -> list[list[tuple[str, float | None]]]:
    return [[(turn.text, turn.regions[0].loss_weight) for turn in sample.turns] for sample in samples]


def test_a_conversation_that_shows_everything_stays_one() -> None:
    assert examples_again(ROUNDS, OPTIONS, whole) == [ROUNDS]
    bare = chat(user("1?"), says("One."), user("2?"), says("~ ", "Two."))
    assert examples_again(bare, OPTIONS, last_only) == [bare]


def test_one_example_for_each_answer() -> None:
    found = examples_again(ROUNDS, OPTIONS, last_only)
    assert shown(found) == [
        [("1?", None), ("Hm.One.", None)],
        [("1?", 0.0), ("Hm.One.", 0.0), ("2?", None), ("So.Two.", None)],
        [("1?", 0.0), ("Hm.One.", 0.0), ("2?", 0.0), ("So.Two.", 0.0), ("3?", None), ("Three.", None)],
    ]
    assert [region.loss_weight for turn in found[1].turns for region in turn.regions] == [0.0, 0.0, 0.0, None, None, None]
    assert all(each.tools == ROUNDS.tools for each in found)


def test_what_follows_the_last_trained_answer_does_not_take_its_reasoning() -> None:
    """Rendered with it, the answer was trained without its thought."""
    one = chat(user("1?"), says("~Hm.", "One."), user("2?"))
    assert shown(examples_again(one, OPTIONS, last_only)) == [[("1?", None), ("Hm.One.", None)]]
    masked = chat(*one.turns, says("~So.", "Two.", weights={0: 0.0, 1: 0.0}))
    assert shown(examples_again(masked, OPTIONS, last_only)) == [[("1?", None), ("Hm.One.", None)]]
    asks = {**OPTIONS, "mask": {"assistant": "train", "user": "train"}}
    assert shown(examples_again(one, asks, last_only)) == [
        [("1?", None), ("Hm.One.", None)],
        [("1?", 0.0), ("Hm.One.", 0.0), ("2?", None)],
    ]
    untrained = chat(user("1?"), says("~Hm.", "One.", weights={0: 0.0, 1: 0.0}), user("2?"))
    assert examples_again(untrained, OPTIONS, last_only) == [untrained]


def dropped(text: str) -> Turn:
    return Turn("assistant", (Region(TEXT, text, drop=True),))


@pytest.mark.parametrize(
    ("first", "options", "examples"),
    [
        (says("~Hm.", "One."), {}, 2),
        (says("~Hm.", "One.", weights={0: 0.0, 1: 0.0}), {}, 1),
        (says("~Hm.", "One.", weights={0: 0.0}), {}, 2),
        (says("~Hm.", "One.", weights={0: 0.5, 1: 0.0}), {}, 2),
        (says("~Hm.", "One.", weights={1: 0.0}), {"train_thinking": False}, 1),
        (says("~Hm.", "!f", weights={0: 0.0}), {"train_tool_calls": False}, 1),
        (says("~Hm.", "!f", weights={0: 0.0}), {}, 2),
        (Turn("assistant", (Region(THINKING, "Hm.", 0.0), Region(IMAGE, "a.png", 1.0))), {}, 1),
        (Turn("assistant", (Region(THINKING, "Hm.", 0.0), Region(TEXT, "x", drop=True))), {}, 1),
        (says("~Hm.", "One."), {"mask": {}, "mask_default": "train"}, 2),
        (says("~Hm.", "One."), {"mask": {"assistant": "mask"}}, 1),
        (says("~Hm.", "One.", role="narrator"), {"mask_default": "train"}, 1),
    ],
)
def test_which_answers_are_trained(first: Turn, options: dict[str, Any], examples: int) -> None:
    second = says("Two.", weights={0: 1.0})
    assert len(examples_again(chat(user("1?"), first, user("2?"), second), {**OPTIONS, **options}, last_only)) == examples


def test_dropped_reasoning_is_not_looked_for() -> None:
    turn = Turn("assistant", (Region(THINKING, "Hm.", drop=True), Region(TEXT, "One.")))
    sample = chat(user("1?"), turn, user("2?"), says("Two."))
    assert examples_again(sample, OPTIONS, last_only) == [sample]
    seen: list[str] = []

    def render(given: Sample) -> str:
        seen.append(whole(given))
        return seen[-1]

    several = Turn("assistant", (Region(THINKING, "a"), Region(THINKING, "b"), Region(TOOL_CALL, "{}"), Region(TEXT, "One.")))
    examples_again(chat(user("1?"), several, user("2?"), says("~c", "Two.")), OPTIONS, render)
    assert seen == ["1? zqreason1zq zqreason1zq {} One. 2? zqreason3zq Two."]
