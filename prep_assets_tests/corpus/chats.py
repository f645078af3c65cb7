"""Chats with tools, calls, reasoning and weights: some that are written out, and strategies that draw others."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from prep_assets.samples import ASSISTANT, SYSTEM, THINKING, TOOL, TOOL_CALL, USER, PlainChat, Region, Sample, Turn, turn

ODD = ["<|im_end|>", "</think>", "<think>x</think>y", "<tool_response>", "</tool_call>", "a\ufdd0", "\udc80", "[/INST]", "", " \n", "null"]


WORDS = st.sampled_from(["Hi", "é中😀", 'a "b" \\', "\n\nSo.", "Well. ", "\tx\n", "{}", '{"name": 1}', "1"])


TEXTS = st.one_of(*[WORDS] * 9, st.sampled_from(ODD))


NAMES = st.sampled_from(["get", "add up", "a-b", '"'])


VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.just(-1.5e-9)),
    lambda of: st.lists(of, max_size=2) | st.dictionaries(TEXTS, of, max_size=2),
    max_leaves=3,
)


ARGUMENTS = st.dictionaries(st.sampled_from(["x", "path", "é"]) | TEXTS, VALUES, max_size=2)


WEIGHTS = st.sampled_from([None, None, None, 0.0, 0.5])


@st.composite
def answers(draw: st.DrawFn, calls: int) -> Turn:
    weight = draw(WEIGHTS)
    thoughts = [Region(THINKING, draw(TEXTS), weight)] if draw(st.booleans()) else []
    texts = [Region("text", draw(TEXTS), weight)] if not calls or draw(st.booleans()) else []
    made = [_call(draw, weight) for _ in range(calls)]
    return Turn(ASSISTANT, (*thoughts, *texts, *made))


def _call(draw: st.DrawFn, weight: float | None) -> Region:
    identity = {"id": "call12345"} if draw(st.booleans()) else {}
    call = {**identity, "name": draw(NAMES), "arguments": draw(ARGUMENTS)}
    return Region(TOOL_CALL, json.dumps(call, ensure_ascii=draw(st.booleans())), weight)


@st.composite
def rich_chats(draw: st.DrawFn) -> Sample:
    turns = [turn(SYSTEM, draw(TEXTS))] if draw(st.booleans()) else []
    for calls in draw(st.lists(st.sampled_from([0, 0, 1, 1, 2]), min_size=1, max_size=2)):
        turns += [turn(USER, draw(TEXTS)), draw(answers(calls))]
        for _ in range(calls):
            turns.append(Turn(TOOL, (Region("text", draw(TEXTS)),), draw(st.none() | NAMES), draw(st.sampled_from([None, "call12345"]))))
        turns += [draw(answers(0))] if calls else []
    tools = [
        {"type": "function", "function": {"name": draw(NAMES), "description": draw(TEXTS), "parameters": draw(ARGUMENTS)}}
        for _ in range(draw(st.integers(0, 2)))
    ]
    return Sample(tuple(turns), tuple(tools))


CALLS = json.dumps({"name": "get", "arguments": {"path": "/tmp/é", "lines": [1, 2.5]}}, ensure_ascii=False)


TOOLS = ({"type": "function", "function": {"name": "get", "description": "Reads.", "parameters": {"b": {}, "a": []}}},)


ACTS = Sample(
    (
        turn(USER, "Read it."),
        Turn(ASSISTANT, (Region(THINKING, "Hm.\n"), Region("text", "I look."), Region(TOOL_CALL, CALLS), Region(TOOL_CALL, CALLS))),
        *(Turn(TOOL, (Region("text", '{"é": "ok"}'),), "get") for _ in range(2)),
        Turn(ASSISTANT, (Region("text", "\nDone. "),)),
    ),
    TOOLS,
)


CALLED = Sample((ACTS.turns[0], Turn(ASSISTANT, (Region(TOOL_CALL, CALLS),)), Turn(TOOL, (Region("text", "ok"),)), ACTS.turns[-1]), TOOLS)


PLAIN_TEXTS = st.text("aé中 \n<|>.", max_size=6) | st.sampled_from(
    ["Hi", "<|im_end|>", "</think>", "x</s>", " Hello! ", "\n\nWell.", "a\ufdd0", "\udc80"]
)


ROLES = st.sampled_from([(USER, ASSISTANT), (SYSTEM, USER, ASSISTANT), (USER, ASSISTANT, USER, ASSISTANT)])


@st.composite
def chats(draw: st.DrawFn) -> Sample:
    made = PlainChat(roles := draw(ROLES), tuple(draw(PLAIN_TEXTS) for _ in roles)).sample()
    if draw(st.integers(0, 5)):
        return made
    thoughtful = Turn(ASSISTANT, (Region(THINKING, "Hm."), Region("text", "So it is.")))
    return Sample((*made.turns, turn(USER, "Why?"), thoughtful))


NESTED = "v is mapping or (v is sequence and v is not string)"


WAYS = {
    "text unless nested": "{{ v | tojson if " + NESTED + " else v | string }}",
    "JSON unless text": "{{ v if v is string else v | tojson }}",
    "JSON": "{{ v | tojson }}",
    "tight JSON": "{{ v | tojson(separators=(',', ':')) if v is not string else v }}",
    "text in quotes": '{{ "\'" + v + "\'" if v is string else v | tojson }}',
    "shown as it is": "{% if v is mapping or v is not string and v is iterable %}{{ v | tojson }}{% else %}{{ v }}{% endif %}",
}


def source(value: str, loop: str = "c.function.arguments | items") -> str:
    """A template that writes arguments one by one, with `value` for each."""
    return (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call={{ c.function.name }}>\n{% for k, v in " + loop + " %}<p={{ k }}>\n" + value + "\n</p>\n"
        "{% endfor %}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    )


def calls(*listed: dict[str, Any]) -> Sample:
    """A chat with a turn that makes these calls."""
    texts = [json.dumps({"name": "get", "arguments": each}, ensure_ascii=False) for each in listed]
    results = [Turn(TOOL, (Region("text", "ok"),)) for _ in listed]
    called = Turn(ASSISTANT, (Region("text", "I look."), *(Region(TOOL_CALL, text) for text in texts)))
    return Sample((turn(USER, "Go."), called, *results, turn(ASSISTANT, "Done.")), TOOLS)


EVERY = [
    {"city": "Rome", "days": 3},
    {"city": 'Ro"me\n\\ é中', "days": 0, "at": -1.5e-7, "far": 1e22, "big": 10**30},
    {"yes": True, "no": False, "none": None, "": 1} | {"nothing": "", "list": [], "object": {}},
    {"b": [1, {"c": None, "é": ["x", []]}], "a": {"z": [], "d": {"e": "f\n"}}, "items": "k", "x": ' "y'.strip()},
]
