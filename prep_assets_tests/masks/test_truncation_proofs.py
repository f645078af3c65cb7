"""Rows at the limit are proven as exactly as others: what is left of them, and nothing else, passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prep_assets.config.models import Keep
from prep_assets.proofs.derive import MaskOptions, derive
from prep_assets.proofs.mask import Truncation, left_of, prove_identity, prove_masks
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets_tests.effort import examples
from prep_assets_tests.masks import chatml
from prep_assets_tests.masks.bound import SHIPPED, Bound, bind, run
from prep_assets_tests.masks.test_arbitrary_conversations import POLICIES
from prep_assets_tests.masks.test_truncation import CHATS, KEEPS, chat

MODES = ["end", "start", "turns", "prompt"]
LONG = "a" + " a" * 19


def verdicts(
    bound: Bound, sample: Sample, truncation: Truncation, ids: Any, mask: Any, options: MaskOptions | None = None
) -> tuple[bool, bool]:
    """Whether mask and ids of a row are proven."""
    policy = options or MaskOptions()
    left = left_of(sample, len(ids), truncation, lambda each: derive(each, policy, bound.template), bound.vocabulary)
    rows, renders = [left.row("row", ids, mask)], [left.conversation("row", ids)]
    return prove_masks(rows, bound.vocabulary).passed, prove_identity(renders, bound.vocabulary).passed


@settings(max_examples=examples(150))
@given(CHATS, st.integers(4, 80), st.sampled_from(MODES), st.booleans(), KEEPS)
def test_what_is_left_is_proven(sample: Sample, limit: int, mode: str, keep_stop: bool, keeps: Mapping[str, Keep]) -> None:
    bound = chatml.bound()
    found = run(bound, [sample], max_seq_len=limit, truncation=mode, keep_stop=keep_stop, keeps=keeps)
    assume(found.kept)
    truncation = Truncation(mode, limit, keep_stop, {role: each.model_dump() for role, each in keeps.items()})
    assert verdicts(bound, sample, truncation, found.ids(0), found.loss(0)) == (True, True)
    left = left_of(sample, len(found.ids(0)), truncation, lambda each: derive(each, MaskOptions(), bound.template), bound.vocabulary)
    assert left.taken == found.encoded.taken[0]


@settings(max_examples=examples(100))
@given(CHATS, st.integers(8, 80), st.sampled_from(MODES), st.booleans(), st.data())
def test_any_other_mask_is_found(sample: Sample, limit: int, mode: str, keep_stop: bool, data: st.DataObject) -> None:
    """One token more or fewer is trained, unless it is white space beside what is trained."""
    bound = chatml.bound()
    found = run(bound, [sample], max_seq_len=limit, truncation=mode, keep_stop=keep_stop)
    assume(found.kept)
    ids = found.ids(0)
    at = data.draw(st.sampled_from([at for at in range(len(ids)) if bound.vocabulary.decode(ids[at : at + 1]).strip(" \n\ufffd")]))
    mask = found.loss(0).copy()
    mask[at] = 1 - mask[at]
    assert not verdicts(bound, sample, Truncation(mode, limit, keep_stop), found.ids(0), mask)[0]


def test_all_prompts_reversed(bound: Bound) -> None:
    """Audit W2: with `turns` nothing of a row was compared with its source, even where nothing was cut."""
    sample = chat("One two three", LONG, "Four five six", LONG)
    found = run(bound, [sample], max_seq_len=500, truncation="turns")
    swapped = found.ids(0).copy()
    start = int(np.flatnonzero(found.loss(0))[0])
    swapped[:start] = swapped[:start][::-1]
    truncation = Truncation("turns", 500)
    assert verdicts(bound, sample, truncation, found.ids(0), found.loss(0)) == (True, True)
    assert verdicts(bound, sample, truncation, swapped, found.loss(0)) == (True, False)


@pytest.mark.parametrize("mode", ["turns", "end", "start"])
@pytest.mark.parametrize("over", [0, 3])
def test_all_turns_but_the_last_untrained(bound: Bound, mode: str, over: int) -> None:
    """Audit W2: the check asked only for as many of the newest answers as were trained. The row is at the limit, or was cut."""
    sample = chat("One", "1 1 1 1 1 1", "Two", "2 2 2 2", "Three", "3 3 3 3", system="Count.")
    limit = len(run(bound, [sample]).ids(0)) - over
    found = run(bound, [sample], max_seq_len=limit, truncation=mode)
    starts = np.flatnonzero(np.diff(found.loss(0), prepend=0) > 0)
    assert len(starts) > 1
    mask = np.where(np.arange(len(found.loss(0))) < starts[-1], 0, found.loss(0))
    truncation = Truncation(mode, limit)
    assert verdicts(bound, sample, truncation, found.ids(0), found.loss(0)) == (True, True)
    assert not verdicts(bound, sample, truncation, found.ids(0), mask)[0]


def test_a_round_too_few(bound: Bound) -> None:
    """More rounds are gone than must be."""
    sample = chat("One", LONG, "Two", LONG, "Three", "3")
    limit = len(run(bound, [sample]).ids(0)) - 1
    fewer = run(bound, [chat("Three", "3")])
    assert verdicts(bound, sample, Truncation("turns", limit), fewer.ids(0), fewer.loss(0)) == (False, False)


def test_a_shortened_prompt_that_lost_something_else(bound: Bound) -> None:
    """With `prompt`, the end of the longest question goes, and neither its beginning nor a header."""
    sample = Sample((turn(SYSTEM, "Be brief."), turn(USER, "one two three four five six"), turn(ASSISTANT, "Well.")))
    whole = run(bound, [sample])
    limit = len(whole.ids(0)) - 2
    found = run(bound, [sample], max_seq_len=limit, truncation="prompt")
    assert verdicts(bound, sample, Truncation("prompt", limit), found.ids(0), found.loss(0)) == (True, True)
    header = int(np.flatnonzero(whole.ids(0) == bound.vocabulary.control["<|im_start|>"])[1])
    for gone in (slice(0, 2), slice(header + 1, header + 3)):
        ids, mask = np.delete(whole.ids(0), gone), np.delete(whole.loss(0), gone)
        assert not verdicts(bound, sample, Truncation("prompt", limit), ids, mask)[1]


@pytest.mark.parametrize("changed", [{"part": "start"}, {"least": 5}, {"least": 3}])
def test_another_part_of_a_prompt_is_found(bound: Bound, changed: dict[str, Any]) -> None:
    """The proof follows what the recipe says of each role: the other end, or a text more or less, is another row."""
    sample = chat(LONG, "1", "b" + " b" * 14, "2")
    keeps: dict[str, Any] = {"part": "end", "least": 4}
    limit = len(run(bound, [sample]).ids(0)) - 20
    found = run(bound, [sample], max_seq_len=limit, truncation="prompt", keeps={"user": Keep(**keeps)})
    said, wrong = (Truncation("prompt", limit, keeps={"user": each}) for each in (keeps, {**keeps, **changed}))
    assert verdicts(bound, sample, said, found.ids(0), found.loss(0)) == (True, True)
    assert not verdicts(bound, sample, wrong, found.ids(0), found.loss(0))[1]


PARTS = st.lists(st.sampled_from(["one two three four five", " 1 2\n3 4 ", "a b c", "\u00d9\U0003d66c"]), min_size=1, max_size=2)


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(["qwen3", "glm4"]), st.integers(1, 12), st.sampled_from(["no reasoning", "no tool calls", "last turn"]))
def test_reasoning_and_calls_are_never_shortened(data: st.DataObject, template: str, less: int, policy: str) -> None:
    """Untrained reasoning and calls stay whole, and so does what a template writes around an untrained answer: both derivations say so."""
    bound, options = bind(SHIPPED, template), POLICIES[policy]
    weight = st.sampled_from([None, 0.0])

    def text(kind: str = TEXT) -> tuple[Region, ...]:
        return tuple(Region(kind, each, data.draw(weight)) for each in data.draw(PARTS))

    call = Region(TOOL_CALL, '{"name": "get", "arguments": {"city": "one two three four"}}')
    thought = text(THINKING)[:1] if template == "qwen3" else ()
    acting = (Turn(ASSISTANT, (*thought, call)), Turn(TOOL, text())) if data.draw(st.booleans()) else ()
    asked = [Turn(USER, text()), Turn(ASSISTANT, text()), Turn(USER, text()), *acting, Turn(ASSISTANT, (*thought, *text()))]
    sample = Sample(tuple(asked))
    whole = run(bound, [sample], options)
    assume(whole.kept)
    limit = len(whole.ids(0)) - less
    found = run(bound, [sample], options, max_seq_len=limit, truncation="prompt")
    assume(found.kept)
    assert verdicts(bound, sample, Truncation("prompt", limit), found.ids(0), found.loss(0), options) == (True, True)
    shown = bound.vocabulary.decode(found.ids(0))
    kept = [bound.vocabulary.decode(whole.ids(0)).count(each) == shown.count(each) for each in ('one two three four"}', "</think>", "<|")]
    assert all(kept)
