"""Rules about rows against the schema: all small rows of a kind, each with one thing right or wrong about it, are taken or refused by both, for one reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from prep_assets.proofs.formats import format_of
from prep_assets.proofs.rejected_rows import kept_fault, ruling
from prep_assets_tests.proofs.test_formats import judged

Case = tuple[str, Mapping[str, Any], dict[str, Any]]
"""Schema, options, row."""


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


USER, ANSWER, OTHER = message("user", "q"), message("assistant", "a"), message("assistant", "b")


def chat(*messages: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [*messages], **more}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def calls(*asked: tuple[str, str | None], content: str | None = None) -> dict[str, Any]:
    return message("assistant", content, tool_calls=[function(name, **({} if id is None else {"id": id})) for name, id in asked])


WRITTEN = '{"name": "f", "arguments": {}}'
SAID = [
    *(message("system", "s"), USER, ANSWER, message("critic", "c"), message("assistant", WRITTEN), message("assistant", "<tool>")),
    *(calls(*asked) for asked in ([("f", "1")], [("f", "1"), ("g", "2")], [("f", None), ("g", None)], [("f", "1"), ("f", "1")])),
    *(message("tool", "r", **more) for more in ({"tool_call_id": "1"}, {"tool_call_id": "2"}, {}, {"name": "g"}, {"name": "f"})),
]
RESULTS = [each for each in SAID if each["role"] == "tool"]


def orders() -> Iterator[Case]:
    """Chats of every order, with calls and their results."""
    for order in ("any", "alternate"):
        options = {"order": order, "roles": {"critic": "judge"}}
        for size in (1, 2):
            for said in product(SAID if order == "any" else SAID[:6], repeat=size):
                yield from (("messages", options, chat(USER, *said, *end)) for end in ([], [ANSWER])[size == 2 :])
    for asks, *results in product(SAID[4:10], RESULTS, RESULTS):
        yield "messages", {}, chat(USER, asks, *results, ANSWER)
    for first, then in product(SAID[6:9], SAID[2:9]):
        yield "messages", {}, chat(USER, first, then, *RESULTS[:2], ANSWER)
    for asks, result, id in product(SAID[4:10], RESULTS, "12"):
        yield "messages", {}, chat(USER, calls(("f", id)), RESULTS[int(id) - 1], asks, result, ANSWER)
    for said, before in product([*SAID[:3], *SAID[6:8], *RESULTS[:1]], ([], [USER], [USER, SAID[6]])):
        yield "rl_prompt", {}, {"prompt": [*before, said], "gold": "5"}
        yield "rl_prompt", {}, {"prompt": said, "gold": "5"}
    for one, two in product(RESULTS, RESULTS):
        yield "messages", {}, chat(USER, calls(("f", "1")), one, *(calls(("g", "2")), two) * 2, ANSWER)
        yield "messages", {}, chat(USER, calls(("f", "1")), one, calls(("g", "2")), two, calls(("g", "2")), RESULTS[1], ANSWER)


CALL_TURN = {"from": "function_call", "value": WRITTEN}
SHARED = [
    {"from": "human", "value": "q"},
    {"from": "gpt", "value": "a"},
    CALL_TURN,
    {"from": "observation", "value": "r"},
    {"from": "system", "value": "s"},
]


def orders_of_sharegpt() -> Iterator[Case]:
    """Calls that are turns of their own."""
    for size in (2, 3, 4):
        yield from (("sharegpt", {}, {"conversations": [SHARED[0], *said]}) for said in product(SHARED, repeat=size - 1))
    for results in (1, 2, 3):
        yield "sharegpt", {}, {"conversations": [SHARED[0], SHARED[1], CALL_TURN, CALL_TURN, *[SHARED[3]] * results, SHARED[1]]}


def files() -> Iterator[Case]:
    """Marks of files and parts that stand for them, and columns of files."""
    for kind in ("image", "audio", "video"):
        said: list[Any] = [f"<{kind}>", f"a<{kind}><{kind}>", "a", [{"type": kind}], [{"type": kind, kind: "p"}]]
        said += [[{"type": f"{kind}_url", "index": 0}], [{"type": kind, "index": 1}, {"type": kind, "index": 0}]]
        said += [[{"type": "text", "text": f"<{kind}>"}, {"type": kind}], [{"type": "input_text", "value": f"<{kind}>"}]]
        for column, content in product((None, [], "1", "", ["1"], ["1", "2"]), said):
            yield from (("messages", {}, chat(message("user", content), ANSWER, **{key: column})) for key in (f"{kind}s", kind))
        for content in said[:4]:
            given, asked, said_back = {f"{kind}s": ["1"]}, [message("user", content)], [message("assistant", content)]
            yield "messages", {}, chat(USER, *said_back, **given)
            yield "messages", {}, chat(USER, message("assistant", None, refusal=f"no <{kind}>"), **given)
            for sides in ({"prompt": asked}, {"chosen": said_back}, {"rejected": said_back}):
                yield "preference", {}, {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER], **sides, **given}
            yield "rl_prompt", {}, {"prompt": asked, "gold": "5", **given}
            yield "prompt_completion", {}, {"prompt": asked, "completion": [ANSWER], **given}
            yield "prompt_completion", {}, {"prompt": [USER], "completion": said_back, **given}
    for token, text, key in product(("<img>", "<image>"), ("<img>", "<image>", "<audio>"), ("images", "audios", "files")):
        options = {"image_token": token, **({"images_key": "files"} if key == "files" else {})}
        yield "messages", options, chat(message("user", text), ANSWER, **{key: ["1"]})
    yield "sharegpt", {}, {"conversations": [{"from": "human", "value": "<image>"}, *SHARED[1:2]], "images": ["1"]}


TOOLS: list[Any] = [
    None,
    [],
    "",
    " ",
    {"name": "f"},
    [{"name": "f", "description": "d"}],
    [{"name": "f"}, {"name": "g"}],
    [{"type": "web_search"}],
]
TOOLS += [[function("f")], json.dumps([function("f")]), [function("f"), {"type": "web_search"}]]
ASKS: list[Any] = [
    *(calls(("f", None)), calls(("g", None))),
    message("assistant", None, function_call={"name": "g", "arguments": "{}"}),
    *(
        message("assistant", [part])
        for part in ({"type": "tool_use", "name": "g", "input": {}}, {"type": "tool_call", "value": function("g")})
    ),
    *(message("assistant", json.dumps(call)) for call in ({"name": "g", "arguments": {}}, [{"function": {"name": "g", "arguments": {}}}])),
]


def tools() -> Iterator[Case]:
    """Tools on offer, under each name and in each form, and calls of them."""
    for offer, asks in product(TOOLS, ASKS):
        for key in ("tools", "functions", "available_tools")[: 3 if asks is ASKS[1] else 1]:
            yield "messages", {}, chat(USER, asks, RESULTS[2], ANSWER, **{key: offer})
    for offer in TOOLS:
        yield "messages", {}, chat(USER, ASKS[5], ANSWER, tools=offer)  # which no result makes a call
        yield "messages", {}, chat({**USER, "tools": offer}, ASKS[1], RESULTS[2], ANSWER)
        yield "messages", {"tools_key": "offer"}, chat(USER, ASKS[1], RESULTS[2], ANSWER, offer=offer)
        for options in ({"builtin_tools": ["g"]}, '{"builtin_tools": ["g"]}', " ", {}):
            yield "messages", {}, chat(USER, ASKS[1], RESULTS[2], ANSWER, tools=offer, chat_template_kwargs=options)
        for second in TOOLS:
            yield "messages", {}, chat(USER, ANSWER, tools=offer, functions=second)
        yield "messages", {}, chat({**USER, "tools": offer}, ANSWER, tools=TOOLS[4])
        yield "messages", {}, chat({**USER, "tools": offer}, {**ANSWER, "functions": TOOLS[4]})
        yield "messages", {"tools_key": "offer"}, chat(USER, ANSWER, offer=offer, tools=TOOLS[4])


WEIGHTS = ("weight", "loss_weight", "loss_mask", "loss_scale", "train", "training", "loss")


def weights() -> Iterator[Case]:
    """Weights at the ends of what a store holds, stretches at those of a text."""
    for key in WEIGHTS:
        for value in (0, 1, True, 0.5, 1e-30, 0.9e-30, 1e30, 1.1e30, 1e-15, 0.9e-15, 1e15, 1.1e15, -1, None, "1"):
            yield "messages", {}, chat(USER, {**ANSWER, key: value})
        for value in (1e-15, 1e30, 1.1e30):
            yield "messages", {}, chat(USER, ANSWER, **{key: value})
            yield "messages", {}, chat(USER, message("assistant", [{"type": "text", "text": "a", key: value}]))
        yield from (("messages", {}, chat(USER, {**ANSWER, key: 1.0, other: value})) for other in WEIGHTS[:2] for value in (1, 2))
    for value in (0, 0.5, 1e-30, 0.9e-30, 1e30, 1.1e30, -1):
        for name, key in (("tokenized", "loss_mask"), ("tokenized", "assistant_masks"), ("distilled", "completion_mask")):
            yield name, {}, {"input_ids": [65, 66, 67], key: [0, 1, value]}
    places = [[], [(0, 0)], [(0, 4)], [(0, 3)], [(3, 3)], [(4, 4)], [(5, 6)], [(2, 1)], [(0, 1), (2, 3)], [(2, 3), (0, 1)]]
    places += [[(0, 1), (1, 2)], [(0, 1), (0, 1)], [(1, 2), (3, 9)], [(0, 4), (4, 5)]]
    for key, listed in product(("train_detail", "training_detail"), places):
        detail = [{"begin_offset": begin, "end_offset": end, "train": 1} for begin, end in listed]
        yield "messages", {}, chat(USER, {**message("assistant", "abcd"), key: detail})
        yield "messages", {}, chat(USER, {**message("assistant", None, refusal="abcd"), key: detail})


THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT")
KINDS = {
    **dict.fromkeys(("text", "input_text", "output_text"), ("text", "value")),
    **{kind: (kind, "text", "value") for kind in ("reasoning", "thinking")},
    **dict.fromkeys(("tool_call", "tool_use"), ("value", "tool_call")),
    **{
        name: (f"{kind}_url", kind, "path", "url", "value", "source", "uri")
        for kind in ("image", "audio", "video")
        for name in (kind, f"{kind}_url")
    },
}


def said_twice() -> Iterator[Case]:
    """What an object says under two names: reasoning, the content of a part, a system prompt, and whose it is."""
    for one, two, value in product(THOUGHTS, THOUGHTS[:2], ("x", "y", " ", "", None)):
        yield "messages", {}, chat(USER, {**ANSWER, one: "x", two: value})
    details = [("reasoning.text", "text", "x"), ("reasoning.summary", "summary", "y")]
    for kinds, value in product((details[:1], details[1:], details, []), ("x", "xy", " ", None)):
        yield (
            "messages",
            {},
            chat(USER, {**ANSWER, "thought": value, "reasoning_details": [{"type": kind, key: text} for kind, key, text in kinds]}),
        )
    for kind, keys in KINDS.items():
        values = ("x", "y", None) if kind[:4] != "tool" else ({"name": "f", "arguments": "{}"}, {"name": "g", "arguments": "{}"}, None)
        for key, value in product(keys[1:], values):
            parts = [{"type": kind, keys[0]: values[0], key: value}, {"type": "text", "text": "a"}]
            yield "messages", {}, chat(message("user", parts), ANSWER) if kind[0] in "iav" else chat(USER, message("assistant", parts))
    firsts = [message("system", "s"), message("developer", "t"), message("system", [{"type": "text", "text": "s"}]), message("system", " ")]
    for first, system, options in product([*firsts, USER], (None, "", " ", "s", "t"), ({}, {"system_key": "told"})):
        yield "messages", options, chat(first, USER, ANSWER, **{options.get("system_key", "system"): system})
    for key, one, two in product(("conversation_id", "prompt_id", "question_id", "id"), (None, 1, "2"), (None, "", "1", "2")):
        yield "messages", {}, chat({**USER, key: one}, {**ANSWER, key: two})
        yield "messages", {}, chat(USER, {**ANSWER, "conversation_id": two}, **{key: one})


NAMED = {
    "group_best": ({"at_least": 2}, {"at_least": -1}, {}),
    "group_pair": ({"min_margin": 1}, {"min_margin": 2}, {"ties": "refuse"}, {}),
    "group_list": ({"ties": "refuse"}, {}),
    "group_kto": ({"desirable_from": 2}, {"desirable_from": -1}, {}),
}


def groups() -> Iterator[Case]:
    """Answers with rewards or ranks, of which the better one is chosen."""
    for (name, listed), key, said in product(NAMED.items(), ("rewards", "ranks"), ("ab", "abc", "a")):
        for options, scores in product(listed, product((1, 2), repeat=2)):
            for more in ([], [3])[: 1 if said != "abc" else 2]:
                row = {"prompt": "q", "responses": [*said], key: [*scores, *more]}
                yield name, {**options, **({"ranks_key": "ranks"} if key == "ranks" else {})}, row
    for marked in (" Human: q", "\n\nHuman: q", "\n\nHuman: q\n\nAssistant: ", "\n\nHuman:", "\n\nHuman: q\n\nAssistant:\n\nHuman: r", "q"):
        yield "group_best", {"marked_prompt": True}, {"prompt": marked, "responses": ["a", "b"], "rewards": [1, 2]}


@pytest.mark.parametrize(
    ("cases", "reasons"),
    [
        (orders, ("role_order", "unknown_tool_call", "unanswered_tool_call")),
        (orders_of_sharegpt, ("role_order", "unknown_tool_call", "unanswered_tool_call")),
        (files, ("image_count", "audio_count", "video_count")),
        (tools, ("unknown_tool", "conflicting_tools")),
        (weights, ("conflicting_weights",)),
        (groups, ("length_mismatch",)),
        (said_twice, ("conflicting_reasoning", "conflicting_content", "two_systems", "mixed_conversations")),
    ],
)
def test_small_rows_are_judged_as_their_schema_does(cases: Any, reasons: Sequence[str]) -> None:
    taken = refused = 0
    for name, options, row in cases():
        definition, (reason, read) = format_of(name, options), judged(name, options, row)
        assert definition is not None
        if reason is not None:
            refused += 1
            assert ruling(definition, read, reason) == "", (reason, options, row)
            continue
        taken += 1
        assert kept_fault(definition, read) == "", (options, row)
        for reason in reasons:
            assert ruling(definition, read, reason), (reason, options, row)  # it may not be refused for any of them
    assert taken and refused
