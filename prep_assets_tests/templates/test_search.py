"""Chats that hold one of several strings are found among many."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.samples import USER, PlainChat
from prep_assets.templates.search import Search
from prep_assets_tests.effort import examples

NEEDLES = st.text("<|>k/ 中a", min_size=1, max_size=4) | st.sampled_from(["<think>", "</think>", "◁think▷", "\n"])
TEXTS = st.text("<|>k/ 中a\n", max_size=6) | st.sampled_from(
    ["a <think>", "</think", "x◁think▷", "\ufdd0", "a\ufdef", "\ufdcf\ufdf0", "\udc80"]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(NEEDLES, max_size=6), st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=5))
def test_those_are_found_that_hold_a_string_or_a_noncharacter(needles: list[str], chats: list[list[str]]) -> None:
    expected = {
        number
        for number, texts in enumerate(chats)
        for text in texts
        if any(needle in text for needle in needles) or any("\ufdd0" <= char <= "\ufdef" or "\ud800" <= char <= "\udfff" for char in text)
    }
    assert Search(needles).suspects([PlainChat((USER,) * len(texts), tuple(texts)) for texts in chats]) == expected


@pytest.mark.parametrize("text", ["a\ufdd0b", "a\udc80b", "a needle b"])
def test_suspects_are_found_in_a_batch(text: str) -> None:
    chats = [
        PlainChat((USER,), ("Hi",)),
        None,
        PlainChat((USER, USER), ("é", text)),
        PlainChat((USER,), ("need",)),
        PlainChat((USER,), ("le",)),
    ]
    assert Search(["needle", "a needle", "no"]).suspects(chats) == {2}
