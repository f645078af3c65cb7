"""Reasoning in the text of answers, read a second time."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.second_reading import group_again, read_again
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, Group, Region, Turn
from prep_assets_tests.proofs.conversations import chat, user

OPTIONS: dict[str, Any] = {"reasoning": "auto", "reasoning_tags": [("<think>", "</think>"), ("[R]", "[/R]")]}


def answer(*regions: Region) -> Turn:
    return Turn("assistant", regions)


def text(words: str, weight: float | None = None) -> Region:
    return Region(TEXT, words, weight)


def thought(words: str, weight: float | None = None) -> Region:
    return Region(THINKING, words, weight)


PLAIN = answer(text("<think> Hm.\n</think>\n\nOne. ", 0.5))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (PLAIN, answer(thought("Hm.", 0.5), text("One. ", 0.5))),
        (answer(text(" \n[R]Hm.[/R]One.")), answer(thought("Hm."), text("One."))),
        (answer(text("<think>Hm.</think> ")), answer(thought("Hm."))),
        (answer(text("<think> </think>One.")), answer(text("One."))),
        (answer(thought("Hm."), text("<think>Hm.</think>One.")), answer(thought("Hm."), text("One."))),
        (answer(thought(" "), text("<think>Hm.</think>One.")), answer(thought(" "), thought("Hm."), text("One."))),
        (
            answer(Region(THINKING, "x", drop=True), text("<think>Hm.</think>One.")),
            answer(Region(THINKING, "x", drop=True), thought("Hm."), text("One.")),
        ),
        (
            answer(Region(IMAGE, "a.png"), text("<think>Hm.</think>One."), Region(TOOL_CALL, "{}")),
            answer(Region(IMAGE, "a.png"), thought("Hm."), text("One."), Region(TOOL_CALL, "{}")),
        ),
        (
            answer(Region(TEXT, "<think>", drop=True), text("<think>Hm.</think>One."), text("<think>no</think>")),
            answer(Region(TEXT, "<think>", drop=True), thought("Hm."), text("One."), text("<think>no</think>")),
        ),
    ],
)
def test_a_block_becomes_reasoning(given: Turn, wanted: Turn) -> None:
    assert read_again(chat(user("x"), given), OPTIONS, shown=True) == chat(user("x"), wanted)


@pytest.mark.parametrize(
    "given",
    [
        Turn("user", (text("<think>Hm.</think>One."),)),
        answer(text("One.")),
        answer(text("First <think>Hm.</think>One.")),
        answer(text("<think>Hm. One.")),
        answer(text("<think>Hm.<think></think>One.")),
        answer(text("<think>Hm.</think>One.</think>")),
        answer(text("<think>Hm.</think>One.<think>")),
        answer(text("One."), text("<think>Hm.</think>Two.")),
        answer(thought("Hm.")),
        answer(),
    ],
)
def test_what_stays(given: Turn) -> None:
    assert read_again(chat(given), OPTIONS, shown=True) == chat(given)


@pytest.mark.parametrize(("options", "shown"), [({"reasoning": "inline"}, True), ({"reasoning": "field"}, True), ({}, False)])
def test_blocks_stay_where_nothing_shows_reasoning(options: dict[str, Any], shown: bool) -> None:
    """Reasoning that is given beside the block as well is shown once: in the block."""
    both = answer(thought("Hm."), text("<think>Hm.</think>One."), thought("So."))
    found = read_again(chat(PLAIN, both), {**OPTIONS, **options}, shown=shown)
    assert found == chat(PLAIN, answer(text("<think>Hm.</think>One.")))


def test_reasoning_that_is_not_shown_stays_beside_a_block() -> None:
    hidden = answer(Region(THINKING, "x", drop=True), thought(" "), text("<think>Hm.</think>One."))
    assert read_again(chat(hidden), OPTIONS, shown=False) == chat(hidden)


def test_groups() -> None:
    group = Group((user("x"), PLAIN), ((PLAIN,), (answer(text("Two.")),)), (1.0, 0.0))
    read = answer(thought("Hm.", 0.5), text("One. ", 0.5))
    assert group_again(group, OPTIONS, shown=True) == Group((user("x"), read), ((read,), (answer(text("Two.")),)), (1.0, 0.0))
    assert group_again(group, OPTIONS, shown=False) == group
