"""Each corruption of lines does what its name says, or nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.mutations import PAIR_MUTATIONS, PROMPT_MUTATIONS, Mutation
from prep_assets.proofs.rows import Line


def line(name: str, **stored: Any) -> Line:
    return Line(name, stored, stored, None)


PARTS = [{"role": "assistant", "content": [{"type": "text", "text": "four", "loss_weight": 0.25}, {"type": "text", "text": "5"}]}]
PAIRS = [
    line("a", prompt="p", chosen="good", rejected="bad"),
    line("b", prompt=[{"role": "user", "content": "q"}], chosen=PARTS, rejected=[{"role": "assistant", "tool_calls": [1]}]),
    line("c", prompt="r", completion="x", label=True),
]
TURNED = [{**PARTS[0], "content": [{"type": "text", "text": "four", "loss_weight": 0.75}, {"type": "text", "text": "5"}]}]
LOST = [{**PARTS[0], "content": [{"type": "text", "text": "four"}, {"type": "text", "text": "5"}]}]
SHORT = [{**PARTS[0], "content": [PARTS[0]["content"][0], {"type": "text", "text": "55"}]}]  # type: ignore[index]
Q = PAIRS[1].stored["prompt"]


def mutation(name: str, kits: tuple[Mutation, ...] = PAIR_MUTATIONS) -> Mutation:
    [found] = [each for each in kits if each.name == name]
    return found


@pytest.mark.parametrize(
    ("name", "caught_by", "at", "changes"),
    [
        ("one pair swapped", "source_match", 0, {"chosen": "bad", "rejected": "good"}),
        ("one pair swapped", "source_match", 2, None),
        ("a prompt altered", "source_match", 0, {"prompt": "p Hurry."}),
        ("a prompt altered", "source_match", 1, {"prompt": [{"role": "user", "content": "q Hurry."}]}),
        ("a better answer truncated", "source_match", 0, {"chosen": "go"}),
        ("a better answer truncated", "source_match", 1, {"chosen": SHORT}),
        ("a better answer truncated", "source_match", 2, None),
        ("a worse answer truncated", "source_match", 0, {"rejected": "b"}),
        ("a worse answer truncated", "source_match", 1, None),
        ("a label turned round", "source_match", 2, {"label": False}),
        ("a label turned round", "source_match", 0, None),
        ("loss weights of an answer lost", "source_match", 1, {"chosen": LOST}),
        ("loss weights of an answer lost", "source_match", 0, None),
        ("loss weights of an answer turned round", "source_match", 1, {"chosen": TURNED}),
        ("an empty prompt", "pair_sanity", 0, {"prompt": " "}),
        ("an empty prompt", "pair_sanity", 1, {"prompt": [{"role": "user", "content": " "}]}),
        ("an empty answer", "pair_sanity", 0, {"chosen": " "}),
        ("both answers the same", "pair_sanity", 0, {"chosen": "bad"}),
        ("both answers the same", "pair_sanity", 2, None),
    ],
)
def test_each_corruption_of_a_pair(name: str, caught_by: str, at: int, changes: dict[str, Any] | None) -> None:
    wanted = None
    if changes is not None:
        wanted = [replace(each, stored={**each.stored, **changes}) if number == at else each for number, each in enumerate(PAIRS)]
    assert mutation(name).change(PAIRS, at) == wanted
    assert mutation(name).caught_by == caught_by


def test_what_is_lost() -> None:
    without = replace(PAIRS[0], stored={"prompt": "p", "chosen": "good"})
    assert mutation("a worse answer lost").change(PAIRS, 0) == [without, *PAIRS[1:]]
    assert mutation("a worse answer lost").change(PAIRS, 2) is None
    assert mutation("a pair that nobody wrote").change(PAIRS, 1) == [PAIRS[0], replace(PAIRS[1], made=None), PAIRS[2]]


def test_all_pairs_swapped() -> None:
    found = mutation("all pairs swapped").change(PAIRS, 1)
    assert found is not None and [each.stored.get("chosen") for each in found] == ["bad", PAIRS[1].stored["rejected"], None]
    assert found[2] == PAIRS[2]
    assert mutation("all pairs swapped").change(PAIRS[2:], 0) is None


def test_fields_of_the_next_line() -> None:
    found = mutation("prompts of the next pair").change(PAIRS, 0)
    assert found is not None and [each.stored["prompt"] for each in found] == [Q, "r", "p"]
    assert kit._taken_from_next_line("prompt")(PAIRS[:1], 0) is None
    assert kit._taken_from_next_line("prompt")([PAIRS[0], replace(PAIRS[0])], 0) is None
    some = kit._taken_from_next_line("label")(PAIRS, 0)
    assert some is not None and [each.stored.get("label") for each in some] == [None, True, True]
    two = kit._taken_from_next_line("prompt")(PAIRS[:2], 0)
    assert two is not None and [each.stored["prompt"] for each in two] == [Q, "p"]


GOLDS = [line("a", prompt="What is 2?", gold=2.0), line("b", prompt="x", gold=2.5), line("c", prompt="y", gold="Lima")]


@pytest.mark.parametrize(
    ("name", "caught_by", "golds"),
    [
        ("a gold as a whole number", "source_match", [2, None, None]),
        ("a gold as text", "gold_answers", ["2.0", "2.5", None]),
        ("a gold off by one", "gold_answers", [3.0, 3.5, None]),
        ("a gold of the other sign", "gold_answers", [-2.0, -2.5, None]),
        ("a gold tenfold", "gold_answers", [20.0, 25.0, None]),
    ],
)
def test_each_corruption_of_a_gold(name: str, caught_by: str, golds: list[Any]) -> None:
    change = mutation(name, PROMPT_MUTATIONS)
    assert change.caught_by == caught_by
    for at, gold in enumerate(golds):
        found = change.change(GOLDS, at)
        assert (found is None) is (gold is None)
        if found is not None:
            assert repr(found[at].stored["gold"]) == repr(gold)
            assert [each for number, each in enumerate(found) if number != at] == [g for number, g in enumerate(GOLDS) if number != at]


def test_a_gold_that_is_no_number() -> None:
    found = mutation("a gold that is no number", PROMPT_MUTATIONS).change(GOLDS, 0)
    assert found is not None and math.isnan(found[0].stored["gold"])


def test_the_factories() -> None:
    """They are called when the module is read, so they are called here again."""
    assert [(each.name, each.caught_by) for each in PROMPT_MUTATIONS[:5]] == [
        ("a prompt altered", "source_match"),
        ("prompts shifted against golds", "source_match"),
        ("golds shifted against prompts", "source_match"),
        ("a prompt truncated", "source_match"),
        ("a prompt that nobody wrote", "source_match"),
    ]
    assert kit._field("label", lambda label: not label)(PAIRS, 2) == [
        *PAIRS[:2],
        replace(PAIRS[2], stored={**PAIRS[2].stored, "label": False}),
    ]
    assert kit._field("label", lambda label: label)(PAIRS, 2) is None and kit._field("label", bool)(PAIRS, 0) is None
    without = kit._without("label")(PAIRS, 2)
    assert without == [*PAIRS[:2], replace(PAIRS[2], stored={"prompt": "r", "completion": "x"})] and kit._without("label")(PAIRS, 0) is None
    assert kit._without("rejected")(PAIRS, 0) == [replace(PAIRS[0], stored={"prompt": "p", "chosen": "good"}), *PAIRS[1:]]
    assert kit._number(lambda gold: gold + 1)(1.0) == 2.0 and kit._number(lambda gold: gold + 1)(1) == 1
    longer = kit._last(lambda text: text + "!")
    assert longer("a") == "a!" and longer([{"content": "a"}, {"content": "b"}]) == [{"content": "a"}, {"content": "b!"}]
    assert longer([{"content": [{"text": "a"}, {"text": "b"}]}]) == [{"content": [{"text": "a"}, {"text": "b!"}]}]
    assert longer([{"tool_calls": [1], "content": ""}]) == [{"tool_calls": [1], "content": ""}]
    assert kit._half_as_long("a") == "aa" and kit._half_as_long("abc") == "a"
    assert kit._blank([{"role": "x", "content": "a"}, {"role": "y", "content": "b"}]) == [{"role": "y", "content": " "}]
    halved = kit._reweighed(lambda weight: weight / 2)
    found = halved(PAIRS, 1)
    assert found is not None and found[1].stored["chosen"][0]["content"][0] == {"type": "text", "text": "four", "loss_weight": 0.125}
    assert halved([line("a", chosen=[{"role": "assistant", "content": "plain"}])], 0) is None and halved(PAIRS, 0) is None
    assert kit._with_line(GOLDS, 0, {"gold": 2}) is not None and kit._with_line(GOLDS, 0, {"gold": 2.0}) is None
    unweighted = kit._reweighed(lambda _: None)(PAIRS, 1)
    assert unweighted is not None and unweighted[1].stored["chosen"] == LOST
    texts = [line("a", query="q", negatives=["x"]), line("b", query="r", negatives=[])]
    changed = kit._side("negatives", lambda side, stored: [*side, stored["query"]])
    both = changed(texts, 0)
    assert both is not None and [each.stored["negatives"] for each in both] == [["x", "q"], []]
    assert changed(texts, 1) is None and changed(PAIRS, 0) is None
