"""Ids of parts, put together as lists would be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.proofs.reference_ids import assemble, between, interleaved, one_after_the_other
from prep_assets.stores import arrays as columns
from prep_assets.text.ids import Flat
from prep_assets_tests.effort import examples

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=4)


def flat(texts: Sequence[Sequence[int]]) -> Flat:
    ids = np.array([id for each in texts for id in each], np.uint32)
    return Flat(ids, np.cumsum([0, *map(len, texts)]))


def lists(found: Flat) -> list[list[int]]:
    assert found.ids.dtype == np.uint32 and found.offsets[0] == 0 and found.offsets[-1] == len(found.ids)
    return [found.ids[begin:end].tolist() for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@given(st.lists(st.one_of(st.integers(0, 2**31), IDS), max_size=8))
def test_control_tokens_between_texts(parts: list[int | list[int]]) -> None:
    texts = flat([each for each in parts if isinstance(each, list)])
    token = np.array([-1 if isinstance(each, list) else each for each in parts], np.int64)
    assert lists(between(texts, token)) == [each if isinstance(each, list) else [each] for each in parts]


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    known=st.lists(IDS, min_size=1, max_size=5),
    texts=st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=6),
    step=st.integers(1, 7),
)
def test_parts_put_together(known: list[list[int]], texts: list[list[int]], step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "STRETCH", step)
    parts = flat(known)
    which = np.array([part % len(known) for text in texts for part in text], np.int32)
    borders = np.cumsum([0, *map(len, texts)])
    found = assemble(parts, np.diff(parts.offsets).astype(np.int32), which, borders)
    assert lists(found) == [[id for part in text for id in known[part % len(known)]] for text in texts]


def test_parts_of_which_some_are_not_used_are_found_where_they_begin() -> None:
    known = Flat(np.array([9, 5, 6, 9, 7], np.uint32), np.array([1, 4]))  # what lies between them is another's
    found = assemble(known, np.array([2, 1], np.int32), np.array([1, 0], np.int32), np.array([0, 2]))
    assert lists(found) == [[7, 5, 6]]


@given(st.lists(st.tuples(st.booleans(), IDS), max_size=8))
def test_two_results_as_one(texts: list[tuple[bool, list[int]]]) -> None:
    yes, no = (flat([ids for first, ids in texts if first is side]) for side in (True, False))
    assert lists(interleaved(yes, no, np.array([first for first, _ in texts], bool))) == [ids for _, ids in texts]


@given(st.lists(st.tuples(st.none() | IDS, IDS), max_size=8))
def test_heads_before_tails(texts: list[tuple[list[int] | None, list[int]]]) -> None:
    heads, tails = flat([head for head, _ in texts if head is not None]), flat([tail for _, tail in texts])
    found = one_after_the_other(heads, tails, np.array([head is not None for head, _ in texts], bool))
    assert lists(found) == [[*(head or []), *tail] for head, tail in texts]
