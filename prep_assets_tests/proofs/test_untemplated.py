"""Turns that stand end to end: `⟦ ⟧` around what is trained, `‹ ›` around what truncation may shorten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prep_assets.proofs.derive import Derived, MaskOptions, joined, untemplated
from prep_assets.samples import COMPLETION, DOCUMENT, IMAGE, PROMPT, TEXT, THINKING, TOOL_CALL, Region, Turn
from prep_assets_tests.proofs.conversations import chat, marked, says, template

ASKED = says("Why?", role=PROMPT)
TEXTS = MaskOptions({"document": "train", "completion": "train"})


def derived(*turns: Turn, image: str = "", eos: str = "<|end|>", **options: Any) -> Derived:
    policy = MaskOptions(**{"mask": TEXTS.mask, **options})
    return untemplated(chat(*turns), policy, template(image=image, eos=eos))


@pytest.mark.parametrize(
    ("turns", "options", "shown"),
    [
        ([says("One.", role=DOCUMENT)], {}, "⟦One.<|end|>⟧"),
        ([says("One.", role=DOCUMENT)], {"mask": {}}, "‹One.›<|end|>"),
        ([says("One.", role=DOCUMENT)], {"train_on_eos": "none"}, "⟦One.⟧…<|end|>"),
        ([says("One.", role=DOCUMENT)], {"eos": ""}, "⟦One.⟧…"),
        ([ASKED, says("So.", role=COMPLETION)], {}, "‹Why?›⟦So.<|end|>⟧"),
        ([ASKED, says("So.", role=COMPLETION)], {"mask": {}, "mask_default": "train"}, "⟦Why?So.<|end|>⟧"),
        ([ASKED, says("So.", role=COMPLETION)], {"mask": {}, "train_on_eos": "all"}, "‹Why?›‹So.›⟦<|end|>⟧"),
        ([says("a", "b", weights={0: 0.5}, role=DOCUMENT)], {}, "0.5⟦a⟧…⟦b<|end|>⟧"),
        ([says("a", "b", "c", weights={0: 0.0, 1: 0.0}, role=DOCUMENT)], {}, "‹ab›⟦c<|end|>⟧"),
        ([says("a", "b", "c", weights={0: 0.0, 2: 0.0}, role=DOCUMENT)], {}, "‹a›⟦b⟧…‹c›<|end|>"),
        ([says("~a", "b", role=DOCUMENT)], {}, "⟦ab<|end|>⟧"),
        ([says("~a", "b", role=DOCUMENT)], {"train_thinking": False}, "a⟦b<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {}, "⟦One.<|end|>Two.<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {"train_turns": "last"}, "‹One.›<|end|>⟦Two.<|end|>⟧"),
        ([says("One.", role=COMPLETION), says("Two.", role=COMPLETION)], {"train_on_eos": "last"}, "⟦One.⟧…<|end|>⟦Two.<|end|>⟧"),
        ([Turn(DOCUMENT, (Region(TEXT, "gone", drop=True),))], {"train_on_eos": "all"}, "<|end|>"),
        ([Turn(DOCUMENT, (Region(TEXT, "gone", drop=True), Region(TEXT, "kept")))], {}, "⟦kept<|end|>⟧"),
        ([Turn(DOCUMENT, (Region("quote", "own kind", 0.0),))], {}, "‹own kind›<|end|>"),
        ([Turn(DOCUMENT, (Region(TOOL_CALL, "{}"), Region(THINKING, "t", 0.0)))], {"train_tool_calls": False}, "{}t<|end|>"),
        ([says("See ", "@1.png", ".", role=DOCUMENT)], {"image": "<img>"}, "⟦See ⟧…<img>⟦.<|end|>⟧"),
        ([says("See ", "@1.png", ".", role=DOCUMENT)], {"image": "<img>", "mask": {}}, "‹See ›<img>‹.›<|end|>"),
    ],
)
def test_what_is_trained(turns: list[Turn], options: dict[str, Any], shown: str) -> None:
    assert marked(derived(*turns, **options)) == shown


def test_a_tokenizer_without_an_end_of_text_token() -> None:
    found = untemplated(chat(says("One.", role=DOCUMENT)), TEXTS, replace(template(), special={}))
    assert marked(found) == "⟦One.⟧…"


def test_roles_of_what_may_be_shortened() -> None:
    assert derived(ASKED, says("So.", role=COMPLETION), mask={}).shortenable == ((0, 4, PROMPT), (4, 7, COMPLETION))


@pytest.mark.parametrize(
    ("turns", "options", "controls", "typed"),
    [
        ([says("One.", role=DOCUMENT)], {}, ["<|end|>"], 0),
        ([says("One.", role=DOCUMENT)], {"eos": "</s>"}, [], 0),  # no control token ends it
        ([says("One.", role=DOCUMENT)], {"eos": ""}, [], 0),
        ([says("<|s|>One<img>", role=DOCUMENT)], {}, ["<|end|>"], 2),
        ([says("<|s|>", "@1.png", "<img>", "@2.png", role=DOCUMENT)], {"image": "<img>"}, ["<img>", "<img>", "<|end|>"], 2),
        ([ASKED, says("So.", role=COMPLETION), says("@1.png", role=DOCUMENT)], {"image": "<img>"}, ["<|end|>", "<img>", "<|end|>"], 0),
    ],
)
def test_control_tokens(turns: list[Turn], options: dict[str, Any], controls: list[str], typed: int) -> None:
    found = derived(*turns, **options)
    assert ([found.text[slice(*where)] for where in found.controls], found.typed) == (controls, typed)
    assert list(found.controls) == sorted(found.controls)


def test_an_image_is_the_token_once() -> None:
    """However many stand for it in the end."""
    found = derived(Turn(DOCUMENT, (Region(IMAGE, "1.png"),)), image="<img><img>")
    assert (found.text, found.controls) == ("<img><|end|>", ((0, 5), (5, 12)))


def test_texts_end_to_end_are_one() -> None:
    assert joined([(0, 2), (2, 3), (4, 5), (5, 5)], "user") == [(0, 3, "user"), (4, 5, "user")]
    assert joined([], "user") == []
