"""Turns of plain rows, one by one and of a block at once; chats with calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prep_assets.config.family import Domain
from prep_assets.errors import Refused
from prep_assets.pipeline.examples import converter
from prep_assets.proofs.plain_reading import CallingChats, plain_turns, turns_of_rows
from prep_assets.samples import Region, Sample, Turn
from prep_assets.schemas.reader import apply


@pytest.mark.parametrize(
    ("value", "turns"),
    [
        (" p", (("r",), (" p",))),
        ([{"who": "a", "what": "x"}, {"what": "y ", "who": "b"}], (("a", "b"), ("x", "y "))),
        *((value, None) for value in (" ", None, 7, {"who": "a", "what": "x"}, [], ["xy"], [{"who": "a", "what": "x", "n": 1}])),
        *(([{"who": "a", "what": "x"}, other], None) for other in ({"who": "a", "text": "x"}, {"who": "a"}, {"who": 1, "what": "x"}, None)),
        *(([{"who": "a", "what": what}], None) for what in (None, "", " \n", ["x"])),
    ],
)
def test_turns_of_texts(value: Any, turns: Any) -> None:
    assert plain_turns(value, "who", "what", role="r") == turns
    assert plain_turns([{"role": "a", "content": "x"}]) == (("a",), ("x",)) and plain_turns("x") == (("",), ("x",))


TEXTS = st.sampled_from(["", " ", "x", "y z", 1, None])
MESSAGES = st.dictionaries(st.sampled_from(["who", "what", "n"]), TEXTS, max_size=3) | st.fixed_dictionaries(
    {"who": st.just("a"), "what": st.just("x")}
)
PLAIN = st.lists(st.fixed_dictionaries({"who": st.sampled_from("ab"), "what": st.sampled_from(["x", "y z"])}), min_size=1, max_size=3)


@example([[{"who": "a", "what": "x"}], [{"who": "a", "what": " "}]])
@example([[{"who": "a", "what": "x"}], [{"who": "a", "what": 1}]])
@example([[{"who": "a", "what": "x", "n": "y"}]])
@example([({"who": "a", "what": "x"},)])
@given(st.lists(PLAIN, max_size=4) | st.lists(st.one_of(PLAIN, st.lists(MESSAGES, max_size=3), TEXTS), max_size=4))
def test_turns_of_a_block_are_those_of_each_row(values: list[Any]) -> None:
    assert turns_of_rows(values, "who", "what") == [plain_turns(value, "who", "what") for value in values]


# Chats with calls, against the schema.

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Wetter in °C", "parameters": {"type": "object", "properties": {}}},
}
ASKS = {"role": "user", "content": "Is it warm?"}
CALL = {"type": "function", "id": "a", "function": {"name": "weather", "arguments": '{"city": "Köln", "n": 1.0}'}}
OTHER = {"id": "b", "function": {"name": "weather", "arguments": {"city": ["<Oslo>"]}}}
BARE = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
ANSWER = {"role": "assistant", "content": "Yes.", "reasoning_content": "4 °C"}


def calls(*listed: Any, **beside: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [*listed], **beside}


def result(call_id: str | None = None, **beside: Any) -> dict[str, Any]:
    return {"role": "tool", "content": '{"c": 4}', **({} if call_id is None else {"tool_call_id": call_id}), **beside}


def row(*messages: Any, **beside: Any) -> dict[str, Any]:
    return {"messages": [ASKS, *messages], "tools": json.dumps([WEATHER], ensure_ascii=False), **beside}


def reader(options: Mapping[str, Any] | None = None, ignore: Sequence[str] = ()) -> CallingChats:
    found = CallingChats.of("messages", options or {}, ignore)
    assert found is not None
    return found


def by_schema(payload: Mapping[str, Any], options: Mapping[str, Any] | None = None, ignore: Sequence[str] = ()) -> Any:
    domain = Domain(files=("x",), schema="messages", options=options or {}, ignore=ignore)
    try:
        return apply(converter(domain, Sample), payload)
    except Refused:
        return None


USUAL = [
    row(calls(BARE), result(), ANSWER),
    row(calls(CALL, OTHER, content="I look."), result("a", name="weather"), result("b"), ANSWER),
    row(calls(CALL, reasoning_content="so"), result("a"), calls(OTHER, content=""), result("b", name=None), ANSWER),
    row(calls(CALL), result("a"), ANSWER, ASKS, calls(CALL)),
    row(calls(CALL), result("a")),
    row(ANSWER, tools=[WEATHER, WEATHER]),
    row(ANSWER, tools=None) | {"id": 7},
    row({**ANSWER, "tool_calls": [], "name": None, "tool_call_id": None, "reasoning_content": ""}, tools=""),
    {"messages": [{"role": "developer", "content": " s "}, ASKS, ANSWER]},
]


@pytest.mark.parametrize("payload", USUAL)
def test_usual_chats_are_read_as_their_schema_does(payload: dict[str, Any]) -> None:
    read = reader().read(payload)
    assert read is not None and read == by_schema(payload)
    assert [tool.json for tool in read.tools] == [json.dumps(tool, ensure_ascii=False) for tool in read.tools]  # type: ignore[attr-defined]


def test_a_call_is_read_with_its_texts() -> None:
    read = reader().read(USUAL[1])
    assert read is not None
    assert read.turns[1] == Turn(
        "assistant",
        (
            Region("text", "I look."),
            Region("tool_call", '{"name":"weather","arguments":{"city":"Köln","n":1.0},"id":"a"}'),
            Region("tool_call", '{"name":"weather","arguments":{"city":["<Oslo>"]},"id":"b"}'),
        ),
    )
    assert read.turns[2:4] == (
        Turn("tool", (Region("text", '{"c": 4}'),), "weather", "a"),
        Turn("tool", (Region("text", '{"c": 4}'),), None, "b"),
    )


UNUSUAL = [
    row(calls(CALL), ANSWER),
    row(calls(CALL), result("b"), ANSWER),
    row(calls(CALL), result(), ANSWER),
    row(calls(CALL, OTHER), result("b"), result("a"), ANSWER),
    row(calls(CALL, BARE), result("a"), result(), ANSWER),
    row(calls(CALL, CALL), result("a"), result("a"), ANSWER),
    row(calls(CALL), result("a"), result("a"), ANSWER),
    row(calls(BARE), result(name="other"), ANSWER),
    row(calls(CALL), result("a"), ASKS, result("a"), ANSWER),
    row(result("a"), ANSWER),
    row(calls({**CALL, "type": "code"}), result("a"), ANSWER),
    row(calls({**CALL, "index": 0}), result("a"), ANSWER),
    row(calls({**CALL, "function": {**CALL["function"], "strict": True}}), result("a"), ANSWER),
    row(calls({**CALL, "function": {"name": "other", "arguments": "{}"}}), result("a"), ANSWER),
    *(
        row(calls({**CALL, "function": {"name": "weather", "arguments": text}}), result("a"), ANSWER)
        for text in ("", "[]", '{"a":1,"a":2}', '{"a":NaN}', "x", None)
    ),
    row(calls({**CALL, "id": 1}), result("1"), ANSWER),
    row({**ANSWER, "name": "Bo"}),
    row(calls(BARE), result("", name=""), ANSWER),
    row({"role": "assistant", "tool_calls": {}}),
    row({**ANSWER, "weight": 0}),
    row({**ANSWER, "reasoning": "4 °C"}),
    row({**ANSWER, "content": " "}),
    row({**ANSWER, "content": [{"type": "text", "text": "Yes."}]}),
    row({"role": "assistant", "reasoning_content": "so"}),
    row({**ASKS, "tool_calls": [CALL]}),
    row({"role": "tool_call", "content": "{}"}),
    row({"role": ["user"], "content": "x"}, ANSWER),
    row(ASKS),
    row(ANSWER, tools="[{}]"),
    row(ANSWER, tools=[{"name": "weather"}]),
    row(ANSWER, tools='[{"function": {"name": "a", "name": "b"}}]'),
    row(ANSWER, tools=WEATHER),
    row(ANSWER, system_prompt="s"),
    row(ANSWER, images=["a.png"]),
    {"messages": "x", "tools": None},
    {"tools": []},
]


@pytest.mark.parametrize("payload", UNUSUAL)
def test_unusual_chats_are_left_to_their_schema(payload: dict[str, Any]) -> None:
    assert reader().read(payload) is None


def test_of_which_domains_chats_are_read() -> None:
    options = {"messages_key": "turns", "role_key": "who", "content_key": "said", "tools_key": "can", "roles": {"bot": "assistant"}}
    said = {"turns": [{"who": "user", "said": "a"}, {"who": "bot", "said": "b", "tool_calls": [BARE]}], "can": [WEATHER], "x": 1}
    assert reader(options, ["x"]).read(said) == by_schema(said, options, ["x"])
    assert reader(options, ["y"]).read(said) is None and reader(options, ["x"]).read({**said, "messages": []}) is None
    assert all(CallingChats.of("messages", {}, [path]) is None for path in ("messages", "messages.tool_calls", "tools", "*.name", "*"))
    assert CallingChats.of("messages", {"order": "alternate"}, []) is None and CallingChats.of("messages", {"tools_key": None}, []) is None
    assert all(CallingChats.of("messages", {key: "a.b"}, []) is None for key in ("messages_key", "role_key", "content_key"))
    assert CallingChats.of("openai", {}, []) is None and CallingChats.of("sharegpt", {}, []) is None
    assert CallingChats.of("OpenAIInstructionHandler", {}, []) is not None


ARGUMENTS = st.sampled_from(["{}", "", '{"a": [1, 2.50, "é\\u0000"]}', {"a": None}, [], "1"])
SOME_CALLS = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": st.sampled_from(["weather", "x"]), "arguments": ARGUMENTS})},
        optional={"id": st.sampled_from(["a", "b", None, 1]), "type": st.sampled_from(["function", "code"])},
    ),
    max_size=2,
)
CALLING = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool", "function_call"])},
    optional={
        "content": st.sampled_from(["x", " y\n", "", " ", None, "<b>", ["x"]]),
        "tool_calls": SOME_CALLS | st.sampled_from([None, "", {}]),
        "tool_call_id": st.sampled_from(["a", "b", None, ""]),
        "name": st.sampled_from(["weather", "x", None, ""]),
        "reasoning_content": st.sampled_from(["r", "", " ", None]),
        "weight": st.sampled_from([1, None]),
    },
)
LISTED = st.sampled_from(
    [None, "", "[]", [], "x", [WEATHER], json.dumps([WEATHER, WEATHER]), [{"name": "weather"}], [{"type": "function"}]]
)


@given(st.lists(CALLING, max_size=5), LISTED, st.sampled_from(["id", "system_prompt", "images", "label", "x"]))
def test_what_is_read_is_what_the_schema_gives(messages: list[Any], tools: Any, beside: str) -> None:
    payload = {"messages": messages, "tools": tools, **({} if beside == "x" else {beside: None})}
    read = reader().read(payload)
    if read is not None:
        assert read == by_schema(payload)
