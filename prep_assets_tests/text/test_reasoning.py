"""Reasoning in the text of answers, against templates that read it themselves and against a second reading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.config.family import REASONING_TAGS
from prep_assets.errors import Refused
from prep_assets.proofs.second_reading import read_again
from prep_assets.samples import ASSISTANT, TEXT, THINKING, TOOL_CALL, USER, Pair, Region, Sample, Turn, turn
from prep_assets.text.render import InlineReasoning

ASKED = turn(USER, "2 + 2?")


def answered(*regions: Region) -> Sample:
    return Sample((ASKED, Turn(ASSISTANT, regions)))


def read(sample: Sample, mode: Any = "auto", *, shown: bool = True) -> list[tuple[str, str]]:
    found = InlineReasoning(mode, REASONING_TAGS, shown).read(sample)
    return [(region.kind, region.text) for region in found.turns[-1].regions]


@pytest.mark.parametrize(("opening", "closing"), REASONING_TAGS)
def test_a_block_at_the_beginning_is_reasoning_in_every_spelling(opening: str, closing: str) -> None:
    sample = answered(Region(TEXT, f"{opening}\nTwo twos.\n{closing}\n\n4.", 0.5))
    found = InlineReasoning("auto", REASONING_TAGS, shown=True).read(sample).turns[-1].regions
    assert found == (Region(THINKING, "Two twos.", 0.5), Region(TEXT, "4.", 0.5))


def test_a_template_without_reasoning_leaves_the_block_in_the_text() -> None:
    assert read(answered(Region(TEXT, "<think>a</think>b")), shown=False) == [(TEXT, "<think>a</think>b")]
    assert read(answered(Region(TEXT, "<think>a</think>b")), "inline") == [(TEXT, "<think>a</think>b")]


@pytest.mark.parametrize("shown", [True, False])
def test_the_same_reasoning_in_field_and_text_is_shown_once(shown: bool) -> None:
    """Audit W20: it was rendered twice."""
    found = read(answered(Region(THINKING, "a\n"), Region(TEXT, "<think>\na\n</think>\n\nb")), shown=shown)
    assert found == ([(THINKING, "a\n"), (TEXT, "b")] if shown else [(TEXT, "<think>\na\n</think>\n\nb")])


@pytest.mark.parametrize("mode", ["auto", "inline"])
@pytest.mark.parametrize("shown", [True, False])
def test_reasoning_that_differs_from_the_field_is_refused(mode: str, shown: bool) -> None:
    with pytest.raises(Refused, match="conflicting_reasoning"):
        read(answered(Region(THINKING, "a"), Region(TEXT, "<think>c</think>b")), mode, shown=shown)


@pytest.mark.parametrize(
    "text",
    [
        "2+2=4.\n</think>\n\n4.",  # the prompt opened it, and the completion alone was kept
        "<think>never closed",
        "<think>a</think>b<think>c</think>d",
        "<think>a<think>b</think>c</think>d",
        "</think><think>a",
    ],
)
def test_tags_that_do_not_pair_up_are_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(Refused, match=r"unbalanced_reasoning.*reasoning: inline"):
        read(answered(Region(TEXT, text)))
    assert read(answered(Region(TEXT, text)), "inline") == [(TEXT, text)]


def test_field_takes_no_block_in_the_text() -> None:
    with pytest.raises(Refused, match="inline_reasoning"):
        read(answered(Region(TEXT, "<think>a</think>b")), "field")
    assert read(answered(Region(THINKING, "a"), Region(TEXT, "b")), "field") == [(THINKING, "a"), (TEXT, "b")]


@pytest.mark.parametrize("text", ["The tag <think> opens it, </think> closes it.", "plain", "", "<thinks>a</thinks>b"])
def test_text_that_speaks_of_tags_stays_text(text: str) -> None:
    assert read(answered(Region(TEXT, text))) == [(TEXT, text)]


def test_users_may_type_tags() -> None:
    sample = Sample((turn(USER, "<think>I am a user</think>Hi"), turn(ASSISTANT, "Hi")))
    assert InlineReasoning("auto", REASONING_TAGS, shown=True).read(sample) == sample


def test_an_empty_block_is_no_reasoning_and_reasoning_alone_is_no_answer() -> None:
    assert read(answered(Region(TEXT, "<think>\n\n</think>\n\n4"))) == [(TEXT, "4")]
    with pytest.raises(Refused, match="empty_answer"):
        read(answered(Region(TEXT, "<think>a</think> ")))
    call = Region(TOOL_CALL, '{"name":"f","arguments":{}}')
    assert read(answered(Region(TEXT, "<think>a</think>"), call)) == [(THINKING, "a"), (TOOL_CALL, call.text)]


def test_both_sides_of_a_pair_are_read() -> None:
    pair = Pair((ASKED,), (turn(ASSISTANT, "<think>a</think>4"),), (turn(ASSISTANT, "<think>b</think>5"),))
    found = InlineReasoning("auto", REASONING_TAGS, shown=True).read(pair)
    assert [side[0].regions[0] for side in (found.chosen, found.rejected)] == [Region(THINKING, "a"), Region(THINKING, "b")]


PARTS = st.lists(st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "a", " ", "\n", "b c"]), max_size=7).map("".join)


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, THINKING]), PARTS), min_size=1, max_size=3),
    st.sampled_from(["auto", "inline"]),
    st.booleans(),
)
def test_the_second_reading_agrees_wherever_the_first_does_not_refuse(parts: list[tuple[str, str]], mode: Any, shown: bool) -> None:
    sample = answered(*(Region(kind, text) for kind, text in parts))
    try:
        first = InlineReasoning(mode, REASONING_TAGS, shown).read(sample)
    except Refused:
        return
    assert read_again(sample, {"reasoning": mode, "reasoning_tags": REASONING_TAGS}, shown=shown) == first
