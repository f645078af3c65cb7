"""Showing tokens: nothing is lost, nothing steers the terminal, marks are exact."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prep_assets.cli.terminal import BAR, CLOSE, HIDE, OPEN, SHOW, flowing, joined, listed
from prep_assets.pipeline.workspace import Workspace
from prep_assets.text.visible import token_texts, visible
from prep_assets_tests.effort import examples
from prep_assets_tests.graph.workspaces import TOKENIZER

FEW = settings(max_examples=examples(60), deadline=None)
WEIGHTED = st.lists(
    st.tuples(st.text(alphabet="ab \n", min_size=1, max_size=3), st.sampled_from([0.0, 0.5, 1.0, -1.0])), min_size=1, max_size=30
)


MARKS = {OPEN: 1, CLOSE: 0, HIDE: -1, SHOW: 0}


def unmark(shown: str) -> list[tuple[str, int]]:
    """Each character with the brackets that it stands in, 1 and -1, from what a person sees: the way back, written on its own."""
    found, state = [], 0
    for char in "".join(line for line in shown.splitlines() if not line.startswith(f"{BAR} ")):
        if char in MARKS:
            state = MARKS[char]
        else:
            found.append(("\n" if char == "⏎" else char, state))
    return found


def expected(tokens: Sequence[str], weights: Sequence[float]) -> list[tuple[str, int]]:
    return [(char, int(np.sign(weight))) for token, weight in zip(tokens, weights, strict=True) for char in token]


@FEW
@given(WEIGHTED, st.data())
def test_brackets_hold_exactly_the_trained_and_the_hidden_characters(row: list[tuple[str, float]], data: st.DataObject) -> None:
    tokens, weights = zip(*row, strict=True)
    borders = {at: f"record {at}" for at in data.draw(st.sets(st.integers(0, len(row) - 1)))}
    shown = flowing(tokens, weights, borders, colour=False).plain
    assert unmark(shown) == expected(tokens, weights)
    assert [line for line in shown.splitlines() if line.startswith(BAR)] == [f"{BAR} record {at}" for at in sorted(borders)]


@FEW
@given(WEIGHTED)
def test_colour_covers_exactly_the_trained_and_the_hidden_characters(row: list[tuple[str, float]]) -> None:
    tokens, weights = zip(*row, strict=True)
    text = flowing(tokens, weights, {}, colour=True)
    marks = np.zeros(len(text.plain), int)
    for span in text.spans:
        marks[span.start : span.end] += {"bold green": 1, "dim strike": -1}.get(str(span.style), 0)
    seen = [(char, int(mark)) for char, mark in zip(text.plain, marks, strict=True) if char != "\n"]
    assert [("\n" if char == "⏎" else char, mark) for char, mark in seen] == expected(tokens, weights)


@FEW
@given(st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    shown = visible(text + "\x1b[31m\r\x00\x9b\u202e")
    steering = {char for char in shown if unicodedata.category(char) == "Cc"} | {char for char in shown if "\u202a" <= char <= "\u202e"}
    assert steering <= {"\n"}


def test_white_space_is_visible() -> None:
    assert visible("a\tb\nc\x1b") == "a⇥b⏎\nc␛"


@FEW
@given(st.text(alphabet="a é€🎉漢", max_size=8))
def test_bytes_of_a_character_in_several_tokens_are_shown_as_the_character(text: str) -> None:
    tokens = [chr(byte) if byte < 0x80 else f"⟨{byte:02x}⟩" for byte in text.encode()]
    assert joined(tokens) == text


def test_bytes_that_are_no_character_stay_bytes() -> None:
    assert joined(["a", "⟨e6⟩", "⟨bc⟩", "b⟨a2⟩"]) == "a⟨e6⟩⟨bc⟩b⟨a2⟩"


def test_without_a_mask_nothing_is_marked() -> None:
    assert flowing(["a", "b"], (), {}, colour=False).plain == "ab"


def test_listed_has_one_line_for_each_token() -> None:
    shown = listed(["a", "\n"], [0.0, 0.5], [0, 1], [7, 8], {0: "x"}, colour=False).plain.splitlines()
    assert [line.split() for line in shown[1:]] == [[BAR, "x"], ["0", "0", "7", "0", "a"], ["1", "1", "8", "0.5", f"{OPEN}⏎{CLOSE}"]]


def test_ids_outside_the_vocabulary_are_shown_as_numbers(built: Workspace) -> None:
    from prep_assets.config.models import Sft

    vocabulary = built.vocabulary(built.family(Sft))
    reference = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    ids = reference.encode("plain words").ids
    shown = token_texts(vocabulary, [-1, *ids, vocabulary.size])
    assert (shown[0], "".join(shown[1:-1]), shown[-1]) == ("⟨no token -1⟩", "plain words", f"⟨no token {vocabulary.size}⟩")
