"""Chats in columns: outlines and texts, what is found in many texts at once, and strings in bytes."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, TOOL_CALL, USER, PlainChat, Region, Sample, Tokenized, Turn, changed, turn
from prep_assets.text.chats import MOST_BLANKS, ChatColumns, any_of, outline_of, outlined, plain_chat
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus.chats import rich_chats
from prep_assets_tests.effort import examples

# Samples as an outline and texts.


def asks(*regions: Region, tools: Any = (), **more: Any) -> Sample:
    return Sample((turn(USER, "Hi"), Turn(ASSISTANT, regions or (Region("text", "Well"),))), tools, **more)


def call(**parts: Any) -> Region:
    return Region(TOOL_CALL, json.dumps({"name": "get", "arguments": {"x": "é"}} | parts))


def test_the_outline_of_a_plain_chat_takes_any_texts() -> None:
    sample = Sample((turn(USER, " Hi\n"), turn(ASSISTANT, "")))
    chat = plain_chat(sample)
    assert chat is not None and chat.roles == (USER, ASSISTANT) and chat.sample() == sample
    outline = outline_of(chat.roles)
    assert (outline.size, outline.json, outline.tools, outline.sample(chat.texts)) == (2, (), 0, sample)


@cells(
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


# What is found of many texts at once is what each of them says alone.


ASKED = (USER, ASSISTANT)
NONE = PlainChat((), ())


WHITE = "".join(character for character in map(chr, range(0x3001)) if character.isspace())


def chat(*texts: str) -> PlainChat:
    return PlainChat((USER,) * len(texts), texts)


def test_suspects_among_many() -> None:
    plain, half = PlainChat(ASKED, ("a", "b")), PlainChat(ASKED, ("a", "b\ud800"))
    closes, typed = PlainChat(ASKED, ("a</think>", "b")), PlainChat(ASKED, ("a", "<|im_end|>"))
    apart, first, last = PlainChat(ASKED, ("a</thi", "nk>")), chat("</think> a", "b"), chat("a", "</think>")
    texts = ChatColumns.of([plain, None, plain, half, plain, closes, NONE, apart, typed, plain, first, last])
    search = any_of(["</think>", "<|im_end|>"])
    assert np.flatnonzero(texts.holding(search)).tolist() == [3, 5, 7, 8, 10, 11], "what stands across two texts counts"
    assert texts.holding(search).dtype == texts.sampled(3).dtype == np.bool_
    assert np.flatnonzero(ChatColumns.of([first, plain]).holding(search)).tolist() == [0]
    for some in ([], [None], [NONE]):
        assert ChatColumns.of(some).holding(search).tolist() == [False] * len(some)


@given(st.lists(st.none() | st.lists(st.text("a \n\0\x7fé中\u200b" + WHITE, max_size=3), max_size=3), max_size=8))
def test_edges_and_blanks_are_those_of_each_text(listed: list[list[str] | None]) -> None:
    columns = ChatColumns.of([None if each is None else chat(*each) for each in listed])
    some = [each or () for each in listed]
    blank, edged = columns.white()
    assert edged.tolist() == [any(text != text.strip() for text in each) for each in some]
    assert blank.tolist() == [not each or not all(map(str.strip, each)) for each in some]
    assert len(columns) == len(listed)
    assert [columns.own(number) for number in range(len(listed))] == list(map(list, some))
    kinds = [None if number < 0 else columns.kinds[number] for number in columns.kind]
    assert kinds == [None if each is None else chat(*each).roles for each in listed]
    assert len({*columns.kinds}) == len(columns.kinds)


def test_one_chat_in_so_many_by_its_last_text() -> None:
    chats = [chat(*"ab"[: number % 3], f"{number} \u00e9") for number in range(40)]
    alone = [zlib.crc32(each.texts[-1].encode()) % 3 == 0 for each in chats]
    assert {*alone} == {True, False} and 5 < sum(alone) < 25
    assert ChatColumns.of([*chats, None, NONE]).sampled(3).tolist() == [*alone, False, False]


# Strings are found as bytes.

CHARACTERS = "<|>a/\0.\\[\n é中\u0fff\ud7ff\ue000"


@given(
    st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=5),
    st.lists(st.lists(st.text(CHARACTERS, max_size=6), max_size=3), max_size=20),
)
def test_strings_are_found_in_the_texts_of_each_chat(strings: list[str], listed: list[list[str]]) -> None:
    expected = [any(string.encode() in "".join(texts).encode() for string in strings) for texts in listed]
    assert ChatColumns.of([chat(*texts) for texts in listed]).holding(any_of(strings)).tolist() == expected


@pytest.mark.parametrize("text", ["\ud800", "\udbff", "\udc00", "\udfff", "é\udfff", "\ud800\0"])
def test_half_a_surrogate_pair(text: str) -> None:
    assert ChatColumns.of([chat(text), chat("\ud7ff\ue000 í中")]).holding(any_of(["x"])).tolist() == [True, False]


def test_any_number_of_strings_is_looked_for() -> None:
    strings = [f"<|{zlib.crc32(bytes([number % 256, number // 256])):08x}{number}|>" for number in range(60_000)]
    columns = ChatColumns.of([chat(f"a {strings[0]}"), chat("a <|b|>"), chat(strings[-1], "b")])
    assert columns.holding(any_of(strings)).tolist() == [True, False, True]
