"""Messages with slots: in each form that a template may read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Slot, slotted
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.text.environment import MessageForm
from prep_assets_tests.proofs.conversations import chat, result, says, user

FORM = MessageForm(reasoning="thought")
PARTS = replace(FORM, content="parts")
IMAGES = replace(FORM, image_parts=True)


def filled(sample: Sample, form: MessageForm = FORM, image: str = "<i>") -> list[dict[str, Any]]:
    """Each slot filled with its number."""
    made = slotted(sample, form, {"image": image})
    return made.filled([f"#{number}" for number in range(len(made.slots))])


def slots(sample: Sample, form: MessageForm = FORM) -> tuple[Slot, ...]:
    return slotted(sample, form, {"image": "<i>"}).slots


def function(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", **more, "function": {"name": name, "arguments": arguments}}


def test_a_plain_chat() -> None:
    sample = chat(user("Hi"), says("~Hm.", "Hel", "lo."))
    assert filled(sample) == [{"role": "user", "content": "#0"}, {"role": "assistant", "content": "#2", "thought": "#1"}]
    assert slots(sample) == (
        Slot(0, TEXT, "Hi", ((0, 0, 2),)),
        Slot(1, THINKING, "Hm.", ((0, 0, 3),)),
        Slot(1, TEXT, "Hello.", ((1, 0, 3), (2, 3, 6))),
    )


def test_names_and_ids() -> None:
    sample = Sample((Turn("tool", (Region(TEXT, "4"),), "f", "id1"), Turn("user", (Region(TEXT, "x"),))))
    assert filled(sample) == [{"role": "tool", "content": "#0", "name": "f", "tool_call_id": "id1"}, {"role": "user", "content": "#1"}]


CALL = says('!f {"n": 2, "s": "a", "l": ["b", {"c": "d"}], "t": true, "o": null}')
ARGUMENTS = {"n": 2, "s": "#1", "l": ["#2", {"c": "#3"}], "t": True, "o": None}


@pytest.mark.parametrize(("no_content", "content"), [("text", {"content": "#0"}), ("null", {"content": None}), ("absent", {})])
def test_calls_without_text(no_content: Any, content: dict[str, Any]) -> None:
    shift = 1 if no_content == "text" else 0
    form = replace(FORM, no_content=no_content)
    arguments = {"n": 2, "s": f"#{1 + shift}", "l": [f"#{2 + shift}", {"c": f"#{3 + shift}"}], "t": True, "o": None}
    assert filled(chat(CALL), form) == [{"role": "assistant", **content, "tool_calls": [function(f"#{shift}", arguments)]}]
    wanted = [Slot(0, TOOL_CALL, text, ((0, 0, len(text)),)) for text in ("f", "a", "b", "d")]
    assert list(slots(chat(CALL), form)) == ([Slot(0, TEXT, "", ())] if shift else []) + wanted


def test_calls_beside_text_and_reasoning() -> None:
    sample = chat(says("~Hm.", "Let me.", "!f", "!g"), result("4"))
    forms = [replace(FORM, no_content=no_content) for no_content in ("text", "null", "absent")]  # there is content
    assert filled(sample, forms[0]) == filled(sample, forms[1]) == filled(sample, forms[2])
    assert filled(sample) == [
        {"role": "assistant", "content": "#1", "thought": "#0", "tool_calls": [function("#2", {}), function("#3", {})]},
        {"role": "tool", "content": "#4"},
    ]
    assert [(slot.kind, slot.text, slot.parts) for slot in slots(sample)] == [
        (THINKING, "Hm.", ((0, 0, 3),)),
        (TEXT, "Let me.", ((1, 0, 7),)),
        (TOOL_CALL, "f", ((2, 0, 1),)),
        (TOOL_CALL, "g", ((3, 0, 1),)),
        (TEXT, "4", ((0, 0, 1),)),
    ]


def test_arguments_as_text() -> None:
    form = replace(FORM, arguments="text", no_content="absent")
    assert filled(chat(says('!f {"é": ["a"]}')), form) == [{"role": "assistant", "tool_calls": [function("#0", '{"é": ["#1"]}')]}]
    own = chat(Turn("assistant", (Region(TOOL_CALL, '{"name": "f", "arguments": "n=2"}'),)))
    assert filled(own, form) == [{"role": "assistant", "tool_calls": [function("#0", "#1")]}]


def test_ids_of_calls() -> None:
    with_id, without = ('{"name": "f", "arguments": {}, "id": "x"}', '{"name": "f", "arguments": {}, "id": ""}')
    sample = chat(Turn("assistant", (Region(TOOL_CALL, with_id), Region(TOOL_CALL, without))))
    form = replace(FORM, no_content="absent")
    assert filled(sample, form) == [{"role": "assistant", "tool_calls": [function("#0", {}, id="x"), function("#1", {})]}]


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "f"}', '"' + "x" * 90 + '"', "7"])
def test_what_is_not_a_tool_call(text: str) -> None:
    with pytest.raises(CheckFailed) as raised:
        slots(chat(user("x"), Turn("assistant", (Region(TOOL_CALL, text),))))
    assert str(raised.value) == f"turn 1: {text[:80]!r} is not a tool call"


PICTURES = chat(says("See ", "@a.png", "@b.png", " there", role="user"))


def test_images_as_text() -> None:
    assert filled(PICTURES) == [{"role": "user", "content": "#0"}]
    assert slots(PICTURES) == (Slot(0, TEXT, "See <i><i> there", ((0, 0, 4), (1, 4, 7), (2, 7, 10), (3, 10, 16))),)


@pytest.mark.parametrize("form", [IMAGES, replace(PARTS, image_parts=True)])
def test_images_as_parts(form: MessageForm) -> None:
    content = [{"type": "text", "text": "#0"}, {"type": "image"}, {"type": "image"}, {"type": "text", "text": "#1"}]
    assert filled(PICTURES, form) == [{"role": "user", "content": content}]
    assert slots(PICTURES, form) == (Slot(0, TEXT, "See ", ((0, 0, 4),)), Slot(0, TEXT, " there", ((3, 0, 6),)))


def test_texts_as_parts() -> None:
    assert filled(PICTURES, PARTS) == [{"role": "user", "content": [{"type": "text", "text": "#0"}]}]
    assert filled(chat(user("Hi")), PARTS) == [{"role": "user", "content": [{"type": "text", "text": "#0"}]}]
    assert filled(chat(user("Hi")), IMAGES) == [{"role": "user", "content": "#0"}]
    assert filled(chat(Turn("user", ())), PARTS) == [{"role": "user", "content": [{"type": "text", "text": ""}]}]
    assert filled(chat(Turn("user", ()))) == [{"role": "user", "content": "#0"}]


def test_dropped_regions() -> None:
    regions = (Region(TEXT, "x", drop=True), Region(IMAGE, "a", drop=True), Region(THINKING, "t", drop=True), Region(TEXT, "Hi"))
    assert slots(chat(Turn("user", regions)), IMAGES) == (Slot(0, TEXT, "Hi", ((3, 0, 2),)),)
    assert filled(chat(Turn("user", regions)), IMAGES) == [{"role": "user", "content": "#0"}]
