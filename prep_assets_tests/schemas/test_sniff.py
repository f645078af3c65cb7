"""Which schema fits."""

from __future__ import annotations

import pytest

from prep_assets.schemas.registry import schemas
from prep_assets.schemas.sniff import sniff


@pytest.mark.parametrize(
    "name",
    [
        "text",
        "messages",
        "instruction",
        "alpaca",
        "dolly",
        "gsm8k",
        "sharegpt",
        "moss",
        "leetcode_python",
        "prompt_completion",
        "semantic",
        "llava",
        "image_captions",
        "interleaved",
        "hh",
        "alpaca_pairwise",
        "sharegpt_pairwise",
        "kto",
        "group",
        "arithmetic",
    ],
)
def test_the_example_of_a_schema_is_recognised_as_its_own(name: str) -> None:
    best = sniff([schemas()[name].example] * 2)[0]
    assert (best.schema, best.fitting, best.rows, best.refusal) == (name, 2, 2, "")


def test_every_schema_is_tried_and_says_why_not() -> None:
    fits = sniff([{"text": "a"}, {"text": ""}, {"text": None}])
    assert {fit.schema for fit in fits} == set(schemas())
    assert (fits[0].schema, fits[0].fitting, fits[0].rows) == ("text", 1, 3)
    assert fits[0].refusal == "empty_text: 'text' is empty"
    assert all(fit.fitting == 0 and fit.refusal for fit in fits[2:])


def test_fields_that_a_schema_leaves_unread_are_named_and_count_against_it() -> None:
    row = {"id": 7, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "label": True}
    fits = {fit.schema: fit for fit in sniff([row])}
    assert [(fits[name].unread, fits[name].passed_over) for name in ("kto", "messages")] == [((), ("id",))] * 2
    assert next(iter(fits)) == "kto"
    both = {"instruction": "q", "input": "", "output": "a", "chosen": "a", "rejected": "b"}
    assert [(fit.schema, fit.unread) for fit in sniff([both])[:1]] == [("alpaca_pairwise", ("output",))]


def test_fields_inside_messages_count_as_well() -> None:
    row = {"messages": [{"role": "user", "content": "q", "mood": "good"}, {"role": "assistant", "content": "a", "id": 3}]}
    (fit,) = (fit for fit in sniff([row, row]) if fit.schema == "messages")
    assert (fit.unread, fit.passed_over) == (("messages.mood",), ("messages.id",))


def test_a_schema_goes_before_another_projects_name_for_it() -> None:
    order = [fit.schema for fit in sniff([schemas()["alpaca"].example])]
    assert order[:3] == ["alpaca", "AlpacaStyleInstructionHandler", "GeneralInstructionHandler"]


def test_no_rows() -> None:
    assert all(fit.fitting == fit.rows == 0 for fit in sniff([]))
