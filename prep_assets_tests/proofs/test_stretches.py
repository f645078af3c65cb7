"""The policies that give a text its loss weight, and how stretches are joined."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prep_assets.proofs.derive import Expected, MaskOptions, Part, only_last, pattern, stop_weights, stretches, weight_of
from prep_assets.samples import ASSISTANT, COMPLETION, IMAGE, TEXT, THINKING, TOOL_CALL, USER, Region


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert MaskOptions() == MaskOptions({"assistant": "train", "completion": "train"}, "mask", "turn", "all", True, True, False)
    assert Expected("x") == Expected("x", 1.0, "", 0, 0)


@pytest.mark.parametrize(
    ("region", "role", "options", "weight"),
    [
        (Region(TEXT, "x"), ASSISTANT, {}, 1.0),
        (Region(TEXT, "x"), COMPLETION, {}, 1.0),
        (Region(TEXT, "x"), USER, {}, 0.0),
        (Region(TEXT, "x"), USER, {"mask_default": "train"}, 1.0),
        (Region(TEXT, "x"), ASSISTANT, {"mask": {ASSISTANT: "mask"}, "mask_default": "train"}, 0.0),
        (Region(TEXT, "x", 0.25), USER, {}, 0.25),
        (Region(TEXT, "x", 0.0), ASSISTANT, {}, 0.0),
        (Region(IMAGE, "x", 1.0), ASSISTANT, {}, 0.0),
        (Region(THINKING, "x"), ASSISTANT, {}, 1.0),
        (Region(THINKING, "x", 1.0), ASSISTANT, {"train_thinking": False}, 0.0),
        (Region(TOOL_CALL, "x", 1.0), ASSISTANT, {"train_thinking": False}, 1.0),
        (Region(TOOL_CALL, "x", 1.0), ASSISTANT, {"train_tool_calls": False}, 0.0),
        (Region(TEXT, "x"), ASSISTANT, {"train_tool_calls": False, "train_thinking": False}, 1.0),
    ],
)
def test_the_weight_of_a_region(region: Region, role: str, options: dict[str, Any], weight: float) -> None:
    assert weight_of(region, role, MaskOptions(**options)) == weight


def parts(*weights: float, kind: str = TEXT) -> list[Part]:
    return [Part(0, 1, kind, 0, weight) for weight in weights]


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        ([[1.0], [0.0], [0.5, 1.0], [0.0]], [[0.0], [0.0], [0.5, 1.0], [0.0]]),
        ([[1.0], [0.0, 1.0]], [[0.0], [0.0, 1.0]]),
        ([[0.0], [0.0]], [[0.0], [0.0]]),
        ([[1.0]], [[1.0]]),
        ([[1.0], []], [[1.0], []]),
    ],
)
def test_only_the_last_trained_turn(turns: list[list[float]], left: list[list[float]]) -> None:
    listed = [parts(*weights) for weights in turns]
    only_last(listed)
    assert [[part.weight for part in each] for each in listed] == left


@pytest.mark.parametrize(
    ("train_on_eos", "weights"),
    [("turn", [0.0, 0.5, 0.0, 1.0, 0.0]), ("last", [0.0, 0.0, 0.0, 1.0, 0.0]), ("none", [0.0] * 5), ("all", [1.0, 0.5, 1.0, 1.0, 1.0])],
)
def test_the_weight_of_what_ends_a_turn(train_on_eos: str, weights: list[float]) -> None:
    assert stop_weights([parts(1.0), parts(1.0), parts(1.0)], "last") == [0.0, 0.0, 1.0]
    turns = [parts(0.0), parts(1.0, 0.5), parts(1.0, 0.0), [*parts(1.0), *parts(0.0, kind=IMAGE)], []]
    assert stop_weights(turns, train_on_eos) == weights


def test_no_turn_is_trained() -> None:
    assert stop_weights([parts(0.0), parts(0.0)], "last") == [0.0, 0.0]


TEXTS = "Hello, you<e>\nBye<e>"


@pytest.mark.parametrize(
    ("steps", "stops", "found"),
    [
        ([], [], []),
        ([(0, 10, 1.0), (10, 13, 1.0)], [(10, 13)], [Expected("Hello, you<e>", 1.0, "<e>", 0, 13)]),
        ([(0, 10, 1.0), (10, 13, 0.0)], [(10, 13)], [Expected("Hello, you", 1.0, "", 0, 10)]),
        ([(0, 6, 1.0), (6, 10, 0.5)], [], [Expected("Hello,", 1.0, "", 0, 6), Expected(" you", 0.5, "", 6, 10)]),
        ([(0, 6, 1.0), (7, 10, 1.0)], [], [Expected("Hello,", 1.0, "", 0, 6), Expected("you", 1.0, "", 7, 10)]),
        ([(0, 6, 1.0), (6, 6, 1.0), (9, 7, 1.0), (14, 17, 1.0)], [], [Expected("Hello,", 1.0, "", 0, 6), Expected("Bye", 1.0, "", 14, 17)]),
        ([(0, 6, 1.0), (8, 8, 1.0)], [], [Expected("Hello,", 1.0, "", 0, 6)]),
        ([(0, 3, 1.0), (3, 6, 1.0), (6, 10, 1.0)], [(17, 20)], [Expected("Hello, you", 1.0, "", 0, 10)]),
    ],
)
def test_neighbours_of_one_weight_are_one(steps: list[Any], stops: list[Any], found: list[Expected]) -> None:
    assert stretches(TEXTS, steps, stops) == tuple(found)


def test_control_tokens_are_found_the_longest_first() -> None:
    chatml: Any = SimpleNamespace(control=("<e>", "<e>>", "a.c"))
    assert [found[0] for found in pattern(chatml).finditer("<e>>, <e>, abc, a.c")] == ["<e>>", "<e>", "a.c"]
    none: Any = SimpleNamespace(control=())
    assert pattern(none).search("anything") is None


def test_a_recipe_that_is_older_than_an_option_has_its_default() -> None:
    assert MaskOptions.of({"train_turns": "last", "expand": "none"}) == MaskOptions(train_turns="last")
