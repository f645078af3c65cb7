"""Ids of texts with control tokens between them: those of the texts, and each token's own, whatever it spells and whichever its number is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.proofs import reference_ids as module
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets_tests.effort import examples
from prep_assets_tests.proofs.shipped import SHIPPED, rows
from prep_assets_tests.proofs.test_reference_ids_by_hand import noting, whole

Piece = str | tuple[int, str]
"""A text, or the id of a control token and what it spells."""
TALK: list[Piece] = [(3, "<u>"), "the cat sat", (0, "</u> x"), (3, "<u>"), "", " cat, the dog", (7, "cat"), (0, "</u> x")]


def encoded(again: ReferenceIds, pieces: list[Piece], first: list[bool] | None = None) -> list[list[int]]:
    data = [(piece if isinstance(piece, str) else piece[1]).encode() for piece in pieces]
    token = np.array([-1 if isinstance(piece, str) else piece[0] for piece in pieces], np.int64)
    begins = np.ones(len(pieces), bool) if first is None else np.array(first)
    return rows(again.encode_pieces(b"".join(data), np.cumsum([0, *map(len, data)]), token, begins))


def expected(pieces: list[Piece]) -> list[list[int]]:
    return [whole([piece])[0] if isinstance(piece, str) else [piece[0]] for piece in pieces]


def apart(monkeypatch: pytest.MonkeyPatch, again: ReferenceIds) -> None:
    """As where a tokenizer begins a document otherwise."""
    monkeypatch.setattr(again, "_first", module.choose_engine(SHIPPED, reference_only=True).reference)
    assert again._first is not again._rest


def test_control_tokens_are_their_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_EVERY", 1)
    again, _ = noting(monkeypatch)
    assert encoded(again, TALK) == expected(TALK) and again.cuts
    assert {*again.words.known} == {b"the", b" cat", b" sat", b",", b" the", b" dog"}, "what a control token spells is no word"
    assert encoded(again, TALK[:1]) == [[3]] and encoded(again, []) == []


def test_so_they_are_where_texts_are_not_cut_or_begin_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    again, rest = noting(monkeypatch)
    again.cuts = False
    assert encoded(again, TALK) == expected(TALK)
    assert rest.texts == [[], ["the cat sat", "", " cat, the dog"]]
    again, _ = noting(monkeypatch)
    apart(monkeypatch, again)
    assert encoded(again, TALK) == expected(TALK) and again.cuts


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(["the cat", "", " a b", "x, y!\n"]) | st.tuples(st.integers(0, 5), st.sampled_from(["<u>", "a b", "é"]))))
def test_any_pieces(pieces: list[Piece]) -> None:
    assert encoded(ReferenceIds(SHIPPED), pieces) == expected(pieces)


def test_texts_that_do_not_hold_are_given_to_the_library_whole_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    again, rest = noting(monkeypatch)
    encoded(again, ["the cat"])
    again.words.held.ids[again.words.held.offsets[again.words.known[b" cat"]]] += 1
    rest.texts.clear()
    assert encoded(again, ["a cat", (0, "<u>"), "the cat"]) == expected(["a cat", (0, "<u>"), "the cat"]) and not again.cuts
    assert rest.texts == [["a"], ["a cat"], [], ["a cat", "the cat"]]


def test_texts_of_which_none_begins_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    again, _ = noting(monkeypatch)
    apart(monkeypatch, again)
    joined: Any = None
    monkeypatch.setattr(module, "one_after_the_other", joined)
    assert encoded(again, TALK, [False] * len(TALK)) == expected(TALK)


@pytest.mark.parametrize(("token", "parts"), [([-1, 0, -1], [0, 2, 4, 9, 10, 12, 13]), ([0, -1, 1], [0, 4, 6, 7, 9, 13])])
def test_a_control_token_is_one_part_whichever_its_number_is(token: list[int], parts: list[int]) -> None:
    data = b"ab c<u> xf g!"
    assert module._cuts(data, np.array([0, 4, 9, 13]), np.array(token), (), False).tolist() == parts
