"""Samples as an outline and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from prep_assets.samples import ASSISTANT, TOOL, TOOL_CALL, USER, Region, Sample, Tokenized, Turn, changed, turn
from prep_assets.text.chats import MOST_BLANKS, outline_of, outlined, plain_chat
from prep_assets_tests.effort import examples
from prep_assets_tests.masks.test_shaped_batches import ACTS, TOOLS, rich_chats


def asks(*regions: Region, tools: Any = (), **more: Any) -> Sample:
    return Sample((turn(USER, "Hi"), Turn(ASSISTANT, regions or (Region("text", "Well"),))), tools, **more)


def call(**parts: Any) -> Region:
    return Region(TOOL_CALL, json.dumps({"name": "get", "arguments": {"x": "é"}} | parts))


def test_what_is_a_text_and_what_is_not() -> None:
    sample = Sample(
        (
            turn(USER, " So?\n"),
            Turn(ASSISTANT, (Region("thinking", "Hm", 0.5), Region("text", "\t"), call(id="c1"), call(arguments={}))),
            Turn(TOOL, (Region("text", "x x"),), "get", "c1"),
        ),
        TOOLS,
    )
    found = outlined(sample)
    assert found is not None
    tool = json.dumps(TOOLS[0], ensure_ascii=False)
    assert found.texts == (tool, "So?", "Hm", "c1", "get", '{"x": "é"}', "get", "get", "c1", "x x")
    form = found.form
    assert (form.size, form.json, form.tools) == (10, (0, 5), 1)
    assert form.turns == (
        (USER, False, False, (("text", None, (" ", "\n")),)),
        (
            ASSISTANT,
            False,
            False,
            (
                ("thinking", 0.5, ("", "")),
                ("text", None, ("\t",)),
                (TOOL_CALL, None, ("id", "name", "arguments")),
                (TOOL_CALL, None, ("name",)),
            ),
        ),
        (TOOL, True, True, (("text", None, ("", "")),)),
    )
    again = form.sample(found.texts)
    assert again.turns[0] == sample.turns[0] and again.turns[2] == sample.turns[2] and again.tools == sample.tools
    assert [json.loads(region.text) for region in again.turns[1].regions[2:]] == [
        {"id": "c1", "name": "get", "arguments": {"x": "é"}},
        {"name": "get", "arguments": {}},
    ]
    assert outline_of(form) is form


def test_the_outline_of_a_plain_chat_takes_any_texts() -> None:
    sample = Sample((turn(USER, " Hi\n"), turn(ASSISTANT, "")))
    chat = plain_chat(sample)
    assert chat is not None and chat.roles == (USER, ASSISTANT) and chat.sample() == sample
    outline = outline_of(chat.roles)
    assert (outline.size, outline.json, outline.tools, outline.sample(chat.texts)) == (2, (), 0, sample)


@pytest.mark.parametrize(
    "sample",
    [
        asks(Region("image", "x.png")),
        asks(Region("text", "a", drop=True)),
        asks(Region("text", "a", attend=False)),
        asks(Region(TOOL_CALL, "{}")),
        asks(Region(TOOL_CALL, "{")),
        asks(Region(TOOL_CALL, "[]")),
        asks(call(arguments="{}")),
        asks(call(name="")),
        asks(call(name=" get")),
        asks(call(id=7)),
        asks(Region("text", "a" + " " * (MOST_BLANKS + 1))),
        asks(Region("text", " " * (MOST_BLANKS + 1))),
        asks(tools=({},)),
        asks(tools=({"a": {1}},)),
        asks(label=True),
        asks(documents=({"text": "a"},)),
        asks(template_options={"thinking": True}),
        asks(tokenized=Tokenized((1,), (1.0,))),
        Sample((Turn(USER, (Region("text", "Hi"),), "Ann "),)),
        Sample((Turn(USER, (Region("text", "Hi"),), None, ""),)),
        Sample((turn(USER, " "),)),
    ],
)
def test_what_has_no_outline(sample: Sample) -> None:
    assert outlined(sample) is None


def test_white_space_up_to_a_limit() -> None:
    for text in (" " * MOST_BLANKS + "a", "a" + " " * MOST_BLANKS):
        sample = asks(Region("text", text))
        found = outlined(sample)
        assert found is not None and found.form.sample(found.texts) == sample


def test_another_outline_where_anything_but_a_text_differs() -> None:
    forms = set()
    for other in (
        ACTS,
        changed(ACTS, tools=()),
        changed(ACTS, tools=TOOLS * 2),
        changed(ACTS, turns=ACTS.turns[:-1]),
        changed(ACTS, turns=(changed(ACTS.turns[0], name="Ann"), *ACTS.turns[1:])),
        changed(ACTS, turns=(changed(ACTS.turns[0], tool_call_id="Ann"), *ACTS.turns[1:])),
        changed(ACTS, turns=(turn(USER, "Read it.\n"), *ACTS.turns[1:])),
        changed(ACTS, turns=(Turn(USER, (Region("text", "Read it.", 1.0),)), *ACTS.turns[1:])),
        changed(ACTS, turns=(Turn(USER, (Region("thinking", "Read it."),)), *ACTS.turns[1:])),
        changed(ACTS, turns=(turn("system", "Read it."), *ACTS.turns[1:])),
    ):
        found = outlined(other)
        assert found is not None
        forms.add(found.form)
    assert len(forms) == 10
    same = outlined(changed(ACTS, turns=(turn(USER, "Write it."), *ACTS.turns[1:])))
    assert same is not None and same.form in forms


def in_full(sample: Sample) -> tuple[Any, ...]:
    """The sample with its calls as JSON; an id that is not there and one that is blank are the same to every reader."""
    turns = [
        changed(
            own,
            regions=tuple(
                changed(each, text=json.dumps(json.loads(each.text))) if each.kind == TOOL_CALL else each for each in own.regions
            ),
        )
        for own in sample.turns
    ]
    return turns, sample.tools


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(rich_chats())
def test_outline_and_texts_are_the_sample(sample: Sample) -> None:
    found = outlined(sample)
    if found is not None:
        assert in_full(found.form.sample(found.texts)) == in_full(sample)
        assert len(found.texts) == found.form.size and all(text == text.strip() != "" for text in found.texts)
