from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.sampled import FILE, MOST_FORMS, ONE_IN, SELDOM, Sampled, form_of, numbers_of


def _chat(*roles: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": f"Words of {role}"} for role in roles], **fields}


@pytest.mark.parametrize(
    "other",
    [
        _chat("system", "user", "assistant"),
        _chat("user", "assistant", "tool"),
        _chat("user", "assistant", weight=1.0),
        _chat("user", "assistant", train=True),
        _chat("user", "assistant", tools=[{"name": "add"}]),
        _chat("assistant", "user"),
        {"messages": [{"role": "user", "content": "Words"}, {"role": "assistant", "content": "<think>Hm.</think>Words"}]},
        {"messages": [{"role": "user", "content": ["Words"]}, {"role": "assistant", "content": "Words"}]},
        {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "Words"}]},
        {"messages": []},
    ],
)
def test_rows_of_another_form_are_told_apart(other: dict[str, Any]) -> None:
    assert form_of(other) != form_of(_chat("user", "assistant"))
    sampled = Sampled(every=False)
    assert [sampled.takes(number, row) for number, row in enumerate([_chat("user", "assistant"), other, other], 1)] == [True, True, False]


def test_other_words_and_missing_values_are_no_other_form() -> None:
    one = {"prompt": "What?", "gold": 5, "note": None}
    assert form_of(one) == form_of({"prompt": "Who?", "gold": 7})
    assert form_of({"weight": 0.5}) != form_of({"weight": 0}) and form_of({"train": True}) != form_of({"train": 1})
    assert len({*map(form_of, (True, False, None, 0, 0.0, 1, 0.25, -1, "", "x", [], {}, [1], {"x": 1}, b"x", date(2026, 1, 1)))}) == 16
    assert form_of({"a": "", "b": 1}) != form_of({"a": "x", "b": 1}), "a text before what is none counts as well"
    assert form_of([1]) != form_of([1, 1]) == form_of([1, 2, 3]) and form_of(["x", 1, 1]) == form_of([1, "x", 1]) != form_of([1, 1, "x"])
    assert form_of(1) == form_of(2) and form_of(0.25) == form_of(1.5)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_forms_are_as_deep_as_said(wrap: Callable[[Any], Any]) -> None:
    told_apart, one, other = list[bool](), 1, "x"
    for _ in range(8):
        one, other = wrap(one), wrap(other)
        told_apart.append(form_of(one) != form_of(other))
    assert told_apart == [True] * 6 + [False] * 2


def test_rows_are_numbered_from_elsewhere_in_each_file() -> None:
    assert numbers_of(np.array([5, 1 << FILE, (2 << FILE) + 3])).tolist() == [5, 37, 77]


def test_one_row_in_so_many_is_chosen_and_all_of_a_small_store() -> None:
    row = _chat("user", "assistant")
    sampled, every = Sampled(every=False), Sampled(every=True)
    assert [number for number in range(1, 5 * ONE_IN) if sampled.takes(number, row)] == [1, *range(ONE_IN, 5 * ONE_IN, ONE_IN)]
    assert all(every.takes(number, row) and every.is_counted(number) for number in range(3))
    assert [sampled.is_counted(number) for number in (0, 1, ONE_IN)] == [True, False, True]
    assert [number for number in range(2, 3 * SELDOM) if sampled.takes(number, row, SELDOM)] == [SELDOM, 2 * SELDOM]
    assert [sampled.is_counted(number, SELDOM) for number in (0, ONE_IN, SELDOM)] == [True, False, True]


def test_rows_that_are_each_of_another_form_stay_a_sample() -> None:
    sampled = Sampled(every=False)
    chosen = [sampled.takes(number * ONE_IN + 1, {f"field {number}": "Words"}) for number in range(MOST_FORMS + 5)]
    assert sum(chosen) == MOST_FORMS
