"""Rows of each format, with options and the examples that they become, written in short (see `in_short`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Case = tuple[Mapping[str, Any], str] | tuple[Mapping[str, Any], Mapping[str, Any], str]
"""A row, options where there are any, and what it becomes."""


USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


HUMAN, GPT = {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é", "y": [1, 2.5]}'}}


CALLED = '<tool_call>{"name":"f","arguments":{"x":"é","y":[1,2.5]},"id":"c1"}</tool_call>'


CALLED_AGAIN = CALLED.replace("c1", "c2")


NO_ARGUMENTS = '<tool_call>{"name":"f","arguments":{}}</tool_call>'


def chat(*messages: Mapping[str, Any], **columns: Any) -> dict[str, Any]:
    return {"messages": list(messages), **columns}


def said(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def shares(*messages: Mapping[str, Any], **columns: Any) -> dict[str, Any]:
    return {"conversations": list(messages), **columns}


PARTS = [
    {"type": "reasoning", "value": "hm"},
    {"type": "text", "text": "a"},
    {"type": "text", "value": "b"},
    {"type": "tool_call", "value": '{"name": "f", "arguments": {}}'},
    {"type": "thinking", "thinking": "so"},
    {"type": "text", "text": "c", "weight": 0.5},
]


IMAGES = [
    {"type": "image_url", "image_url": {"url": "1.jpg"}},
    {"type": "image_url", "value": "2.jpg"},
    {"type": "image", "path": "3.jpg"},
    {"type": "image"},
]


RENAMED = {
    "messages_key": "c",
    "role_key": "from",
    "content_key": "value",
    "roles": {"human": "user", "gpt": "assistant", "critic": "critic"},
}


SECOND = {**CALL, "id": "c2"}


RESULTS = [said("tool", "", tool_call_id=name) for name in ("c1", "c2")]


MESSAGES: list[Case] = [
    (chat(said("system", ""), said("user", " q\n"), said("assistant", "\ta ")), "system:  | user:  q\n | assistant: \ta "),
    (
        chat(said("developer", "s"), USER, said("assistant", "<tool_call>f"), said("function", "r", name="f"), ANSWER),
        "system: s | user: q | assistant: <tool_call>f | tool(f): r | assistant: a",
    ),
    ({"c": [HUMAN, GPT, {"from": "critic", "value": "x"}]}, RENAMED, "user: q | assistant: a | critic: x"),
    (chat(USER, ANSWER, persona="p"), {"system_key": "persona"}, "system: p | user: q | assistant: a"),
    (chat(USER, ANSWER, persona=""), {"system_key": "persona"}, "user: q | assistant: a"),
    (chat(USER, ANSWER), {"system_key": None}, "user: q | assistant: a"),
    (
        chat(USER, said("assistant", None, tool_calls=[CALL]), said("tool", "4", tool_call_id="c1"), ANSWER),
        f"user: q | assistant: {CALLED} | tool: 4 | assistant: a",
    ),
    (
        chat(USER, said("assistant", None, tool_calls=[CALL, SECOND]), *RESULTS, ANSWER),
        f"user: q | assistant: {CALLED}{CALLED_AGAIN} | tool:  | tool:  | assistant: a",
    ),
    *(
        (chat(USER, {"role": "assistant", field: value}), f"user: q | assistant: {NO_ARGUMENTS}")
        for call in (
            {"name": "f", "arguments": {}},
            {"name": "f", "arguments": ""},
            {"name": "f"},
            {"function": {"name": "f", "arguments": {}}},
        )
        for field, value in (("tool_calls", [call]), ("function_call", call))
    ),
    (
        chat(USER, said("assistant", "see:", reasoning_content="hm", tool_calls=[CALL])),
        f"user: q | assistant: <thinking>hm</thinking>see:{CALLED}",
    ),
    (chat(USER, {**ANSWER, "reasoning": "hm", "reasoning_content": "hm"}), "user: q | assistant: <thinking>hm</thinking>a"),
    (
        chat(USER, said("assistant", PARTS, weight=0)),
        'user: q | assistant: <thinking>hm</thinking>*0a*0b*0<tool_call>{"name":"f","arguments":{}}</tool_call>*0<thinking>so</thinking>*0c*0.5',
    ),
    (
        chat(said("user", IMAGES), ANSWER, images=[{"path": "4.jpg", "bytes": None}]),
        f"user: {''.join(f'<image>{number}.jpg</image>' for number in (1, 2, 3, 4))} | assistant: a",
    ),
    (
        chat(said("user", "<image>Who?<image>"), ANSWER, said("user", "and <image>"), ANSWER, images=["1.jpg", "2.jpg", "3.jpg"]),
        "user: <image>1.jpg</image>Who?<image>2.jpg</image> | assistant: a | user: and <image>3.jpg</image> | assistant: a",
    ),
    (chat(said("user", "What is <image> in HTML?"), ANSWER), "user: What is <image> in HTML? | assistant: a"),
    *(
        (chat(USER, {**ANSWER, "reasoning_content": "hm", **fields}), f"user: q | assistant: <thinking>hm</thinking>{weight}a{weight}")
        for fields, weight in (
            ({"weight": 0}, "*0"),
            ({"loss_weight": 0.25}, "*0.25"),
            ({"train": False}, "*0"),
            ({"loss": True}, "*1"),
            ({"train": True, "weight": 1}, "*1"),
            ({"weight": None}, ""),
        )
    ),
    # ms-swift's and GLM's calls in messages of their own, and one that `roles` calls the assistant's
    (
        chat(
            USER,
            *(said("tool_call", json.dumps({"name": name, "arguments": {}})) for name in "fg"),
            *(said("tool_response", text) for text in "45"),
            ANSWER,
        ),
        f"user: q | assistant: {NO_ARGUMENTS}{NO_ARGUMENTS.replace('f', 'g')} | tool: 4 | tool: 5 | assistant: a",
    ),
    (
        chat(
            USER, said("assistant", "see:"), said("tool_call", '[{"name": "f", "arguments": "{}"}]', loss=False), said("tool", "4"), ANSWER
        ),
        f"user: q | assistant: see:{NO_ARGUMENTS}*0 | tool: 4 | assistant: a",
    ),
    (
        chat(USER, said("assistant", ' {"name": "f", "parameters": {}}\n', reasoning="hm"), said("observation", "4"), ANSWER),
        f"user: q | assistant: <thinking>hm</thinking>{NO_ARGUMENTS} | tool: 4 | assistant: a",
    ),
    (
        chat(USER, said("tool_call", '{"name": "f"}'), said("seen", "4"), ANSWER),
        {"roles": {"tool_call": "assistant", "seen": "tool"}},
        f"user: q | assistant: {NO_ARGUMENTS} | tool: 4 | assistant: a",
    ),
    # parallel calls in two messages, answered later
    (
        chat(USER, *(said("assistant", None, tool_calls=[{**CALL, "id": name}]) for name in ("c1", "c2")), *RESULTS, ANSWER),
        f"user: q | assistant: {CALLED} | assistant: {CALLED_AGAIN} | tool:  | tool:  | assistant: a",
    ),
    (chat(USER, said("assistant", None, tool_calls=[CALL]), tools=[{"name": "f", "parameters": {}}]), f"user: q | assistant: {CALLED}"),
    (
        chat(
            USER,
            said("assistant", None, tool_calls=[CALL]),
            tools=[{"name": "g", "parameters": {}}],
            chat_template_kwargs={"builtin_tools": ["f"]},
        ),
        f"user: q | assistant: {CALLED}",
    ),
    # axolotl's stretches of a text: both ends are within, what is not named is not trained, a word has the space before it
    (
        chat(
            USER,
            said(
                "assistant",
                "Good day. I am not sure.",
                train_detail=[{"begin_offset": 10, "end_offset": 99, "train": False}, {"begin_offset": 0, "end_offset": 9, "train": True}],
            ),
        ),
        "user: q | assistant: Good day.*1 I am not sure.*0",
    ),
    (
        chat(USER, said("assistant", "one two three", weight=0.5, training_detail=[{"begin_offset": 4, "end_offset": 6, "train": True}])),
        "user: q | assistant: one*0 two*0.5 three*0",
    ),
    (
        chat(USER, said("assistant", "one", train=False, train_detail=[{"begin_offset": 0, "end_offset": 2, "train": True}])),
        "user: q | assistant: one*0",
    ),
    (
        chat(USER, said("assistant", "abc", train_detail=[{"begin_offset": at, "end_offset": at, "train": at != 1} for at in range(3)])),
        "user: q | assistant: a*1b*0c*1",
    ),
    (chat(USER, {**ANSWER, "loss_scale": 0.5}), "user: q | assistant: a*0.5"),
    # the image that a part names
    (
        chat(
            said("user", [{"type": "image", "index": 1}, {"type": "text", "text": "?", "index": None}, {"type": "image", "index": 0}]),
            ANSWER,
            images=["0.jpg", "1.jpg"],
        ),
        "user: <image>1.jpg</image>?<image>0.jpg</image> | assistant: a",
    ),
    # images that the row holds
    (
        chat(said("user", "<image><image>"), ANSWER, images=[{"bytes": b"\x89PNG", "path": None}, "data:image/png;base64,AA=="]),
        "user: <image>data:;base64,iVBORw==</image><image>data:image/png;base64,AA==</image> | assistant: a",
    ),
    # what data sets store as columns of lists, and text in a binary column
    ({"messages": {"role": ["user", "assistant"], "content": ["q", "a"], "weight": [None, 0]}}, "user: q | assistant: a*0"),
    ({"a": {"b": [USER, ANSWER]}}, {"messages_key": "a.b"}, "user: q | assistant: a"),
    (chat({"role": b"user", "content": "q"}, {"role": "assistant", "content": "ä".encode()}), "user: q | assistant: ä"),
    (chat({**USER, "index": 17}, {**ANSWER, "index": 4}), "user: q | assistant: a"),
    (chat({**USER, "timestamp": 1, "index": 0}, {**ANSWER, "timestamp": 1, "index": 1}), "user: q | assistant: a"),
    (
        chat({**USER, "timestamp": "noon", "conversation_id": 7}, {**ANSWER, "timestamp": "morning"}, conversation_id=7),
        "user: q | assistant: a",
    ),
    (chat(USER, USER, ANSWER), "user: q | user: q | assistant: a"),
    (chat(USER, ANSWER, videos=[], audios=None), "user: q | assistant: a"),
    (chat(USER, said("assistant", None, refusal="No.", prefix=False)), "user: q | assistant: No."),
    (
        chat(
            USER,
            {**ANSWER, "reasoning_details": [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.summary", "summary": "so"}]},
        ),
        "user: q | assistant: <thinking>hmso</thinking>a",
    ),
    (
        chat(
            USER,
            ANSWER,
            tools=[{"name": "tide", "description": "Of a port.", "parameters": {"type": "object", "properties": {"harbour": {}}}}],
        ),
        "user: q | assistant: a",
    ),
    (chat(USER, ANSWER, documents=[{"title": "Cats", "text": "They sleep."}, {"contents": "They eat."}]), "user: q | assistant: a"),
    (
        chat(USER, said("assistant", '{"function": {"name": "f", "arguments": {}}}'), said("observation", "4"), ANSWER),
        f"user: q | assistant: {NO_ARGUMENTS} | tool: 4 | assistant: a",
    ),
    # JSON that nothing answers is no call
    (
        chat(USER, said("assistant", '{"name": "g"}'), USER, ANSWER, tools=[{"name": "f"}]),
        'user: q | assistant: {"name": "g"} | user: q | assistant: a',
    ),
    (
        chat(
            said(
                "user",
                [
                    {"type": "audio_url", "audio_url": {"url": "1.wav"}},
                    {"type": "video_url", "video_url": "x.mp4"},
                    {"type": "audio", "path": "3.wav"},
                ],
            ),
            ANSWER,
        ),
        "user: <audio>1.wav</audio><video>x.mp4</video><audio>3.wav</audio> | assistant: a",
    ),
    (
        chat(
            USER,
            said(
                "assistant",
                [
                    {"type": "text", "text": "a"},
                    {"type": "reasoning", "text": "hm"},
                    {"type": "output_text", "text": "c", "loss_weight": 0},
                ],
            ),
        ),
        "user: q | assistant: a<thinking>hm</thinking>c*0",
    ),
    *(
        (
            chat(USER, {"role": "assistant", "content": "", key: "hm", "tool_calls": [CALL]}),
            f"user: q | assistant: <thinking>hm</thinking>{CALLED}",
        )
        for key in ("thinking", "thought", "tool_plan")
    ),
    (
        chat({**said("system", "s"), "tools": [{"name": "f", "parameters": {}}]}, USER, said("assistant", None, tool_calls=[CALL])),
        f"system: s | user: q | assistant: {CALLED}",
    ),
    (
        chat(
            USER,
            said("assistant", None, tool_calls=[{"name": "g"}]),
            tools=[{"name": "f"}],
            chat_template_kwargs='{"builtin_tools": ["g"]}',
        ),
        f"user: q | assistant: {NO_ARGUMENTS.replace('f', 'g')}",
    ),
    # several calls without ids, of which one is answered
    (
        chat(USER, said("assistant", None, tool_calls=[{"name": name} for name in "fff"]), said("tool", "4"), ANSWER),
        f"user: q | assistant: {NO_ARGUMENTS * 3} | tool: 4 | assistant: a",
    ),
    # numbers are compared as numbers, and what is no time says nothing
    (chat({**USER, "index": 2, "date": "x"}, {**ANSWER, "index": 10}), "user: q | assistant: a"),
]


HOOK = {"multi_turn_key": "c", "multi_turn_role_key": "r", "multi_turn_content_key": "v"}


SPOKEN = [{"r": "user", "v": " q "}, {"r": "assistant", "v": " a "}]


TALK = [{"role": "u", "content": "q"}, {"role": "a", "content": "x"}]


TAGS = {"role_tag": "role", "content_tag": "content", "user_tag": "u", "assistant_tag": "a"}


CALLS = {"from": "function_call", "value": '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]'}


ONE_CALL = {"from": "function_call", "value": '{"name": "f", "arguments": {}}'}


SEEN, SYSTEM = {"from": "observation", "value": "4"}, {"from": "system", "value": "s"}


SHAREGPT: list[Case] = [
    (shares(HUMAN, ONE_CALL, SEEN, GPT), f"user: q | assistant: {NO_ARGUMENTS} | tool: 4 | assistant: a"),
    (shares(HUMAN, CALLS), "user: q | assistant: " + NO_ARGUMENTS + NO_ARGUMENTS.replace("f", "g")),
    (
        shares(HUMAN, ONE_CALL, ONE_CALL, SEEN, SEEN, GPT),
        f"user: q | assistant: {NO_ARGUMENTS}{NO_ARGUMENTS} | tool: 4 | tool: 4 | assistant: a",
    ),
    (
        shares({"from": "user", "value": "q"}, GPT, {"from": "tool_call", "value": ONE_CALL["value"]}, {"from": "tool", "value": "4"}, GPT),
        f"user: q | assistant: a{NO_ARGUMENTS} | tool: 4 | assistant: a",
    ),
    ({"conversations": {"from": ["human", "gpt"], "value": ["q", "a"]}}, "user: q | assistant: a"),
    ({"conversations": {"role": ["user", "assistant"], "content": ["q", "a"]}}, "user: q | assistant: a"),
    *(
        (row, "system: s | user: q | assistant: a")
        for row in (shares(SYSTEM, HUMAN, GPT), shares(HUMAN, GPT, system="s"), shares(SYSTEM, HUMAN, GPT, system="s"))
    ),
    (shares(HUMAN, GPT, system=""), "user: q | assistant: a"),
    (
        {"m": TALK, "sys": "s", "fn": "[]"},
        {"messages_key": "m", "system_key": "sys", "tools_key": "fn", **TAGS},
        "system: s | user: q | assistant: x",
    ),
    (shares({"from": "human", "value": "<image>q"}, GPT, images=["1.jpg"]), "user: <image>1.jpg</image>q | assistant: a"),
    (shares(USER, ANSWER), "user: q | assistant: a"),
]


ALPACA = {"instruction": " Sort. ", "input": "3 1 2\n", "output": " 1 2 3"}


PAST = {**ALPACA, "system": "Be brief.", "history": [["a", "b"], ["c", "d"]]}


BEFORE = "system: Be brief. | user: a | assistant: b | user: c | assistant: d"


JUDGED = {"instruction": "i", "input": "j", "system": "s", "history": [["a", "b"]], "chosen": " good", "rejected": "bad"}


DOLLY = {"instruction": "When? ", "context": " In 2000.", "response": "2000\n", "category": "closed_qa"}


LEETCODE = {
    "code_with_problem": "\n# Two sum\nFind them.\n\n```python\nx\n```\n```",
    "code_only": "x = 1",
    "explanation_only": "It is one.",
}


DIALOGUE = "\n\nHuman: a\n\nAssistant: b\n\nHuman: c"


HH = {"chosen": f"{DIALOGUE}\n\nAssistant: good ", "rejected": f"{DIALOGUE}\n\nAssistant:  bad"}


OTHER_PROMPT = {**HH, "rejected": "\n\nHuman: other\n\nAssistant: bad"}


GOOD, BAD = said("assistant", "good"), said("assistant", "bad")


SIDES = {"chosen": [USER, GOOD], "rejected": [USER, BAD]}


PAIR = "user: q >> assistant: good >> assistant: bad"


GSM8K = {"question": " How many? ", "answer": "She sold 48/2 = <<48/2=24>>24 clips.\n#### 1,072"}


HEADERS = "<|start_header_id|>{}<|end_header_id|>\n\n{}"


LLAMA3 = "<|begin_of_text|>" + "".join(
    HEADERS.format(role, text) + "<|eot_id|>" for role, text in (("system", " s "), ("user", "q\n\nq"), ("assistant", " a\n"))
)


IPYTHON = "".join(
    HEADERS.format(*turn)
    for turn in (("user", "q<|eot_id|>"), ("assistant", "f()<|eom_id|>"), ("ipython", "4<|eot_id|>"), ("assistant", "a<|eot_id|>"))
)


LLAVA = {"image": "i.jpg", "conversations": [{"from": "human", "value": "What?\n<image>"}, {"from": "gpt", "value": " It is. "}]}


LLAVA_HOOK = {"p": {"path": "i.jpg"}, "c": [{"r": "user", "v": "<img>What?"}, {"r": "assistant", "v": "a"}]}


LLAVA_KEYS = {**HOOK, "image_key": "p", "image_token": "<img>"}


CAPTION = {"img": {"path": "i.jpg", "bytes": None}, "cap": "A dog."}


CAPTION_KEYS = {"image_key": "img", "caption_key": "cap"}


PICTURE = "<image>i.jpg</image>"


CAT = {"image": ["https://x.org/a/cat.jpg?w=5", None], "caption": [None, "t"]}


DOWNLOADED = hashlib.sha256(b"cat.jpg").hexdigest()[:10] + ".png"


R1 = {"instruction": "And 3 + 3?", "input": "in base 10", "output": "6", "system": "Be brief.", "history": [["2 + 2?", "4"]]}


R1_PROMPT = "system: Be brief. | user: 2 + 2? | assistant: 4 | user: And 3 + 3?\nin base 10"


def typed(kind: str, *content: Mapping[str, Any], **masks: Any) -> dict[str, Any]:
    return {"type": kind, "content": list(content), **{f"semantic_{key}": value for key, value in masks.items()}}


def array(*turns: Mapping[str, Any]) -> dict[str, Any]:
    return {"semantic_data_array": list(turns)}


ANSWERED = typed("assistant", {"text": "a"})


TAGGED = [{"passage": "p", "include_tags": True}, {"image": "i.png", "include_tags": True}, {"text": "t", "include_tags": False}]


BY_NAME = {
    "semantic_loss_weight": {"passage": 1, "text": 0},
    "semantic_drop_mask": {"passage": True},
    "semantic_attention_mask": {"passage": 0},
}


OPENED = [typed("user", {"image": "i.png"}, {"text": "t"}), typed("completion", {"image": "i.png"}, {"text": "t"})]


SEMANTIC: list[Case] = [
    (
        array(typed("user", {"passage": "p"}, {"question": "q"}, loss_weight=[1, 0]), typed("assistant", {"answer": "a"})),
        "user: <passage>p</passage>*1<question>q</question>*0 | assistant: <answer>a</answer>",
    ),
    (array(typed("system", {"text": "s"}), typed("user", {"text": "q"}), ANSWERED), "system: s | user: q | assistant: a"),
    (
        array(typed("prompt", {"text": "p"}), typed("completion", {"a": "x"}, {"b": "y"}, loss_weight=[0.5, True])),
        "prompt: p<<separator>></<separator>>*0 | completion: <a>x</a>*0.5<b>y</b>*1",
    ),
    (
        array(
            typed("user", {"passage": "p"}, {"text": "q"}), typed("assistant", {"passage": "x"}, {"text": "a"}, loss_weight=[0.25, 0.75])
        ),
        BY_NAME,
        "user: ~[<passage>p</passage>*1]q*0 | assistant: ~[<passage>x</passage>*0.25]a*0.75",
    ),
    (
        array(
            typed("prompt", {"image": "i.png"}, {"text": "t"}, drop_mask=[False, True], attention_mask=[1, 0]),
            typed("completion", {"text": "c"}),
        ),
        "prompt: <image>i.png</image>*0~[t]<<separator>></<separator>>*0 | completion: c",
    ),
    (array(OPENED[0], ANSWERED), "user: <image>i.png</image>*0t | assistant: a"),
    (array({**OPENED[0], "semantic_loss_weight": [1, 1]}, ANSWERED), "user: <image>i.png</image>*1t*1 | assistant: a"),
    (array(OPENED[1]), "completion: <image>i.png</image>*0t"),
    (
        array({"content": [{"text": "a"}, {"image": "i.png"}]}, {"content": [{"text": "b"}], "semantic_loss_weight": [0]}),
        "document: a<image>i.png</image>*0b*0",
    ),
    (
        array(typed("user", {"text": "a"}, {"text": ""}, {"text": None}, loss_weight=[1, 0, 0]), ANSWERED),
        {"pretraining": True},
        "document: a*1a",
    ),
    (
        array(typed("user", *TAGGED, loss_weight=[1, 0.5, 0]), ANSWERED),
        "user: <passage><passage>p</passage></passage>*1<image>*0.5<image>i.png</image>*0.5</image>*0.5t*0 | assistant: a",
    ),
    (array({"content": TAGGED}), "document: <passage><|passage|>p<|passage|></passage><|image|>*0<image>i.png</image>*0<|image|>*0t"),
    (
        array(typed("prompt", {"text": "q"}), typed("rejected", {"text": "r"}), typed("chosen", {"text": "c"})),
        "user: q >> assistant: c >> assistant: r",
    ),
]


MASK_P = {"field": "p", "action": "mask", "add_special_tokens": True}


TRAIN_R = {"field": "r", "action": "train", "add_special_tokens": False}


BOTH = {"sections": [MASK_P, TRAIN_R]}


DOCUMENT = {"sections": [{"field": "title", "action": "train"}, {"field": "text", "action": "train"}], "min_chars": 2, "max_chars": 4}


CHATS_IN = {side: {"sections": [{"field": side, "action": "$role", "template": True}], "mask_key": side} for side in ("chosen", "rejected")}


FIELDS_IN = {side: {"sections": [{"field": "p", "action": "mask"}, {"field": side, "action": "train"}]} for side in ("chosen", "rejected")}


def group(template: bool = False) -> dict[str, Any]:
    prompts = {"field": "p", "action": "mask", "template": template}
    responses = {"field": "r", "action": "train", "template": template}
    return {
        "prompts": {"sections": [prompts]},
        "responses": {"sections": [responses], "list_field": True, "mask_key": "masks"},
        "rewards": {"sections": [{"field": "s", "action": "value"}]},
    }


SECTIONS: list[Case] = [
    (chat(USER, ANSWER), "user: q | assistant: a"),
    ({"p": "q: ", "r": "a"}, BOTH, "prompt: q: *0 | completion: a*1"),
    (
        {"p": "q", "r": "a"},
        {"sections": [{"field": "p", "action": "train"}, {"field": "r", "action": "mask"}]},
        "completion: q*1 | prompt: a*0",
    ),
    ({"title": "ab", "text": "cdef"}, DOCUMENT, "document: ab*1cdef*1"),
    ({"title": None, "text": "cdef"}, DOCUMENT, "document: cdef*1"),
    ({"p": None, "r": 4}, BOTH, "completion: 4*1"),
    ({"m": [USER, ANSWER]}, {"sections": [{"field": "m", "action": "$role", "template": True}]}, "user: q | assistant: a"),
    ({"m": [USER, ANSWER]}, {"sections": [{"field": "m", "action": "train", "template": True}]}, "user: q*1 | assistant: a*1"),
    ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, {"sources": CHATS_IN}, PAIR),
    ({"p": "q", "chosen": "a", "rejected": "b"}, {"sources": FIELDS_IN}, "prompt: q*0 >> completion: a*1 >> completion: b*1"),
    ({"p": "q", "r": ["a", "b"], "s": [0.8, -0.3]}, {"sources": group()}, "prompt: q*0 >> completion: a*1 (0.8) >> completion: b*1 (-0.3)"),
    ({"p": [USER], "r": [[ANSWER]], "s": 0.9}, {"sources": group(template=True)}, "user: q*0 >> assistant: a*1 (0.9)"),
]


EXCHANGE = {
    "Human": "<|Human|>: Solve it.<eoh>\n",
    "Inner Thoughts": "<|Inner Thoughts|>: None<eot>\n",
    "Commands": "<|Commands|>: None<eoc>\n",
    "Tool Responses": "<|Results|>: None<eor>\n",
    "MOSS": "<|MOSS|>: Done.<eom>\n",
}


TOOLS = {
    **EXCHANGE,
    "Inner Thoughts": "<|Inner Thoughts|>: I need two numbers.<eot>\n",
    "Commands": '<|Commands|>: Calculate("\\frac{1}{2}"), Search("a \\"b\\", c")<eoc>\n',
    "Tool Responses": "<|Results|>:\nCalculate => 0.5\n<eor>\n",
}


def moss(*exchanges: Mapping[str, Any]) -> dict[str, Any]:
    return {"meta_instruction": "You are MOSS.\n", "chat": {f"turn_{number}": exchange for number, exchange in enumerate(exchanges, 1)}}


def commanded(commands: str, results: str = "x") -> dict[str, Any]:
    return moss({**EXCHANGE, "Commands": f"<|Commands|>: {commands}<eoc>", "Tool Responses": f"<|Results|>: {results}<eor>"})


def searched(*queries: str) -> str:
    calls = "".join(f'<tool_call>{{"name":"Search","arguments":{{"query":"{query}"}}}}</tool_call>' for query in queries)
    return f"user: Solve it. | assistant: {calls} | tool: x | assistant: Done."


SOLVED = '<tool_call>{"name":"Solve","arguments":{"equation":"\\\\frac{x}{2}=1"}}</tool_call>'


MOSS: list[Case] = [
    (moss(EXCHANGE, {}, TOOLS), "user: Solve it. | assistant: Done. | user: Solve it. | assistant: Done."),
    (moss({**EXCHANGE, "Human": "<|Human|>:x<eoh>", "MOSS": "<|MOSS|>:a<eom>b"}), "user: <|Human|>:x | assistant: ab"),
    (
        moss(EXCHANGE, TOOLS),
        {"system_key": "meta_instruction", "plugins": True},
        "system: You are MOSS. | user: Solve it. | assistant: Done. | user: Solve it. | assistant: <thinking>I need two numbers.</thinking>"
        '<tool_call>{"name":"Calculate","arguments":{"expression":"\\\\frac{1}{2}"}}</tool_call>'
        '<tool_call>{"name":"Search","arguments":{"query":"a \\\\\\"b\\\\\\", c"}}</tool_call> | tool: Calculate => 0.5 | assistant: Done.',
    ),
    (
        moss({**EXCHANGE, "Inner Thoughts": "<|Inner Thoughts|>: easy<eot>"}),
        {"plugins": True},
        "user: Solve it. | assistant: <thinking>easy</thinking>Done.",
    ),
    # Audit W3: commands below each other became one call with both of them as its argument
    (commanded('Search("a")\nSearch("b")'), {"plugins": True}, searched("a", "b")),
    (commanded('Search("a")，Search("b");Search("c")'), {"plugins": True}, searched("a", "b", "c")),
    (commanded(r'Solve("\frac{x}{2}=1")'), {"plugins": True}, f"user: Solve it. | assistant: {SOLVED} | tool: x | assistant: Done."),
    # in the published rows the results answer the other commands, and nothing answers a None
    (commanded('Search("a"), None'), {"plugins": True}, searched("a")),
    (commanded('None, Search("a"); Search("b")'), {"plugins": True}, searched("a", "b")),
    (commanded("None.", "None"), {"plugins": True}, "user: Solve it. | assistant: Done."),
    (commanded(" None ", "None"), {"plugins": True}, "user: Solve it. | assistant: Done."),
    # Audit W3: the result "None" became an empty text
    (commanded('Search("a")', "\nNone\n"), {"plugins": True}, searched("a").replace("tool: x", "tool: None")),
]


COMPLETION = {"prompt": " q ", "completion": " a "}


TRAINED = {
    "prompt": [said("user", "a"), said("assistant", "b"), said("assistant", "c", weight=0.5), said("user", "d")],
    "completion": [ANSWER],
}


KTO_KEYS = {"messages_key": "conversations", "role_key": "from", "content_key": "value", "label_key": "kto_tag"}


VERL = {"prompt": [USER], "data_source": "openai/gsm8k", "reward_model": {"style": "rule", "ground_truth": "72"}}


SCORED = [
    {"response": "b", "overall_score": 7, "annotations": {"x": {"Rating": "4"}}},
    {"response": " a", "overall_score": 8.5, "annotations": {"x": {"Rating": "5"}, "y": {"Rating": "N/A"}}},
    {"response": "c", "overall_score": 3},
]


ULTRA = {"prompt": " q ", "chosen": [USER, said("assistant", " good")], "rejected": [USER, BAD]}


CASES: Mapping[str, list[Case]] = {
    "text": [({"text": text}, {"min_chars": 3, "max_chars": 4}, f"document: {text}") for text in ("né✓", " a\n", "  a")],
    "GeneralPretrainHandler": [({"body": "a"}, {"text_key": "body"}, "document: a")],
    "text_read_hook": [({"body": " a\n"}, {"text_key": "body"}, "document: a")],
    "instruction": [({"i": "q: ", "o": "4"}, {"prompt_key": "i", "response_key": "o"}, "prompt: q:  | completion: 4")],
    "prompt_completion": [
        (COMPLETION, "prompt:  q  | completion:  a "),
        (COMPLETION, {"template": True}, "user:  q  | assistant:  a "),
        (TRAINED, "user: a | assistant: b*0 | assistant: c*0.5 | user: d | assistant: a"),
        # Cerebras: prompt + sep token + completion; the sep token belongs to no region, so its weight is 0
        (COMPLETION, {"separator": "<|sep|>"}, "prompt:  q <<separator>><|sep|></<separator>>*0 | completion:  a "),
    ],
    "prompt_completion_text_read_hook": [
        (COMPLETION, "prompt:  q <<separator>></<separator>>*0 | completion:  a "),
        (COMPLETION, {"separator": "|"}, "prompt:  q <<separator>>|</<separator>>*0 | completion:  a "),
        (COMPLETION, {"separator": ""}, "prompt:  q  | completion:  a "),
    ],
    "prompt_completion_chat_read_hook": [(COMPLETION, "user: q | assistant: a")],
    "nlg_read_hook": [({"context": "a", "completion": "b"}, "prompt: a | completion: b")],
    "messages": MESSAGES,
    "chat_read_hook": [
        ({"c": [{"r": "system", "v": " "}, *SPOKEN]}, HOOK, "user: q | assistant: a"),
        ({"c": [{"r": "system", "v": " s "}, *SPOKEN]}, HOOK, "system:  s  | user: q | assistant: a"),
    ],
    "kto": [
        *(
            ({**row, "label": label}, f"user: q | assistant: a = {label}")
            for row in ({"messages": [USER, ANSWER]}, {"prompt": "q", "completion": "a"}, {"prompt": [USER], "completion": [ANSWER]})
            for label in (True, False)
        ),
        (
            {**shares(HUMAN, GPT), "kto_tag": False},
            {**KTO_KEYS, "roles": {"human": "user", "gpt": "assistant"}},
            "user: q | assistant: a = False",
        ),
    ],
    "sharegpt": SHAREGPT,
    "SharegptStyleInstructionHandler": [
        (
            {"m": TALK, "sys": "s", "fn": "[]"},
            {"map_keys": {"messages": "m", "system": "sys", "tools": "fn", "tags": TAGS}},
            "system: s | user: q | assistant: x",
        ),
        # ModelLink sets tags that are left out to nothing, and stops at the first system message
        (shares(SYSTEM, {"from": "u", "value": "q"}, GPT), {"map_keys": {"tags": {"user_tag": "u"}}}, "system: s | user: q | assistant: a"),
    ],
    "HunyuanInstructionHandler": [(chat(USER, ANSWER), "user: q | assistant: a")],
    **{
        name: [
            (
                shares(SYSTEM, HUMAN, GPT, HUMAN, chosen=ONE_CALL, rejected=GPT),
                f"system: s | user: q | assistant: a | user: q >> assistant: {NO_ARGUMENTS} >> assistant: a",
            )
        ]
        for name in ("sharegpt_pairwise", "SharegptStylePairwiseHandler")
    },
    "alpaca": [
        (ALPACA, "user: Sort.\n\n3 1 2 | assistant: 1 2 3"),
        ({"instruction": "Sort.", "output": "x"}, "user: Sort. | assistant: x"),
        *(({"instruction": "Sort.", "input": blank, "output": "x"}, "user: Sort. | assistant: x") for blank in ("", "  \n", None)),
        (PAST, f"{BEFORE} | user: Sort.\n\n3 1 2 | assistant: 1 2 3"),
        ({**PAST, "system": "", "history": []}, "user: Sort.\n\n3 1 2 | assistant: 1 2 3"),
        ({"audio": "Say it.", "output": "It."}, {"prompt_key": "audio"}, "user: Say it. | assistant: It."),
    ],
    "AlpacaStyleInstructionHandler": [
        (ALPACA, "user:  Sort. \n3 1 2\n | assistant:  1 2 3"),
        ({"instruction": "Sort.", "input": " ", "output": "x"}, "user: Sort. | assistant: x"),
        (PAST, f"{BEFORE} | user:  Sort. \n3 1 2\n | assistant:  1 2 3"),
        (
            {"q": "Sort.", "in": "3 1", "a": "1 3", "sys": "s", "past": [["x", "y"]]},
            {"map_keys": {"prompt": "q", "query": "in", "response": "a", "system": "sys", "history": "past"}},
            "system: s | user: x | assistant: y | user: Sort.\n3 1 | assistant: 1 3",
        ),
    ],
    "GeneralInstructionHandler": [(ALPACA, "user:  Sort. \n3 1 2\n | assistant:  1 2 3")],
    **{
        name: [(JUDGED, "system: s | user: a | assistant: b | user: i\nj >> assistant:  good >> assistant: bad"), *more]
        for name, more in (
            ("alpaca_pairwise", [({"instruction": "q", "input": "", "output": ["good", "bad"]}, PAIR)]),
            (
                "AlpacaStylePairwiseHandler",
                [
                    (
                        {"i": "q", "c": "x", "r": "y"},
                        {"map_keys": {"prompt": "i", "chosen": "c", "rejected": "r"}},
                        "user: q >> assistant: x >> assistant: y",
                    )
                ],
            ),
        )
    },
    "dolly": [(DOLLY, "user: When?\n\nIn 2000. | assistant: 2000"), ({**DOLLY, "context": ""}, "user: When? | assistant: 2000")],
    # the string of its handler, but for the input section, which is left out where it would say ``###None``
    "AlpacaPretrainHandler": [
        (
            {"instruction": "Add.", "input": given, "output": "4 {x}"},
            "document: A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite "
            "answers to the user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes "
            f"the request.\n\n### Instruction:\nAdd.\n\n{section}### Response: ASSISTANT: 4 {{x}}",
        )
        for given, section in (("", ""), ("2 and 2", "### Input:\n2 and 2\n\n"))
    ],
    "StackOverflowPythonPretrainHandler": [
        (
            {"title": "Sort", "question_body": "How?", "answer_body": "sorted()"},
            "document: In python, Sort\n### Question:\nHow?\n### Response:\nsorted()\n",
        )
    ],
    "SharegptPretrainHandler": [(shares({"value": "a"}, {"content": "b"}, GPT), "document: aba")],
    "R1AlpacaStyleInstructionHandler": [
        (R1, f"{R1_PROMPT} = 6 (reference)"),  # their PPO handler loses what the assistant said before
        ({**R1, "output": " 6 "}, {"verifier": "number"}, f"{R1_PROMPT} = 6 (number)"),
    ],
    "R1SharegptStyleInstructionHandler": [(shares(HUMAN, GPT, HUMAN, GPT), "user: q | assistant: a | user: q = a (reference)")],
    "PPOAlpacaStyleInstructionHandler": [({key: R1[key] for key in R1 if key != "output"}, f"{R1_PROMPT} =  (model)")],
    **{
        name: [(LEETCODE, "user: # Two sum\nFind them. | assistant: x = 1\nIt is one.")]
        for name in ("leetcode_python", "LeetcodePythonInstructionHandler")
    },
    "moss": MOSS,
    **dict.fromkeys(("MOSSMultiTurnHandler", "MOSSInstructionHandler"), MOSS[:1]),
    **{
        name: [
            (
                {"instruction": "Human: a\nAssistant:b\nHuman:c\nAssistant:", "input": "", "output": "d\n"},
                "user: a | assistant: b | user: c | assistant: d",
            )
        ]
        for name in ("belle", "BelleMultiTurnInstructionHandler")
    },
    "llama3_chat": [
        ({"t": LLAMA3}, {"text_key": "t"}, "system: s | user: q\n\nq | assistant: a"),
        ({"text": LLAMA3}, {"strip": False}, "system:  s  | user: q\n\nq | assistant:  a\n"),
        ({"text": IPYTHON}, "user: q | assistant: f() | tool: 4 | assistant: a"),
    ],
    "llama3_1_chat_formatted_data_hook": [({"t": LLAMA3}, {"chat_key": "t"}, "system: s | user: q\n\nq | assistant: a")],
    "hh": [
        (HH, f"user: {DIALOGUE.strip()} >> assistant: good >> assistant: bad"),
        (HH, {"split_turns": True}, "user: a | assistant: b | user: c >> assistant: good >> assistant: bad"),
        (OTHER_PROMPT, {"prompt_check": "chosen"}, f"user: {DIALOGUE.strip()} >> assistant: good >> assistant: bad"),
    ],
    "ultrafeedback": [
        (ULTRA, PAIR),
        ({**ULTRA, "prompt": "other"}, {"prompt_check": "column"}, "user: other >> assistant: good >> assistant: bad"),
        ({**ULTRA, "score_chosen": 7.5, "score_rejected": 7.0}, {"min_margin": 0.5}, PAIR),
        ({**ULTRA, "score_chosen": 7.5, "score_rejected": 7.5}, PAIR),
        # the rows of openbmb/UltraFeedback: the best and the worst completion are the pair
        ({"instruction": "q", "completions": SCORED}, "user: q >> assistant: a >> assistant: c"),
        # scores that the completions bear out, and a 10 whose ratings do not say that it was a 1
        *(
            ({**ULTRA, "score_chosen": 10.0, "score_rejected": 8.0, "completions": [good, {"response": "bad", "overall_score": 8.0}]}, PAIR)
            for good in (
                {"response": "good", "overall_score": 10.0},
                {"response": "good", "overall_score": 10.0, "fine-grained_score": 2.25},
            )
        ),
    ],
    "preference": [
        *(
            (row, PAIR)
            for row in (
                {"prompt": "q", "chosen": "good", "rejected": "bad"},
                {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
                {"prompt": [USER], "chosen": GOOD, "rejected": BAD},
                {"prompt": "q", "chosen": [GOOD], "rejected": [BAD]},
                {"prompt": [USER], "chosen": "good", "rejected": "bad"},
                {"prompt": "q", **SIDES},
                {"prompt": [USER], **SIDES, "chosen": [{**USER, "weight": 0}, GOOD]},
                {"prompt": None, **SIDES},
                {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"},
                {f"{side}_messages": turns for side, turns in SIDES.items()},  # LLaMA-Factory v1
                # ms-swift
                *({"messages": SIDES["chosen"], "rejected_response": bad} for bad in ("bad", ["bad"], [BAD])),
                {"messages": SIDES["chosen"], "rejected_messages": SIDES["rejected"]},
                {
                    side: {"role": ["user", "assistant"], "content": ["q", answer]}
                    for side, answer in (("chosen", "good"), ("rejected", "bad"))
                },
                *({"prompt": "q", "chosen": "good", "rejected": "bad", "system": blank} for blank in ("", " ", None)),
                *(
                    {"prompt": "q", "chosen": "good", "rejected": "bad", column: nothing}
                    for column in ("image", "images", "video", "videos", "audio", "audios", "history")
                    for nothing in (None, [], "")
                ),
            )
        ),
        ({"prompt": "q ", "chosen": " g", "rejected": " b"}, {"template": False}, "prompt: q  >> completion:  g >> completion:  b"),
        (
            {"question": "q", "pos_answer": {"answer": "good", "score": 1.0}, "neg_answer": {"answer": "bad", "score": 0.0}},
            {"prompt_key": "question", "chosen_key": "pos_answer.answer", "rejected_key": "neg_answer.answer"},
            PAIR,
        ),
        (
            {"prompt": [{**USER, "role": "Human"}], "chosen": [said("Bot", "good")], "rejected": [said("Bot", "bad")]},
            {"roles": {"Human": "user", "Bot": "assistant"}},
            PAIR,
        ),
        ({"chosen": "<U>q<A>good", "rejected": "<U>q<A>bad"}, {"user_mark": "<U>", "assistant_mark": "<A>"}, PAIR),
        (
            {"c": [{**USER, "loss_weight": 0.0}, {**GOOD, "loss_weight": 1.0}], "r": [USER, {**BAD, "loss_weight": 0.5}]},
            {"chosen_key": "c", "rejected_key": "r"},
            "user: q*0 >> assistant: good*1 >> assistant: bad*0.5",
        ),
        *(
            ({**row, "system": "s"}, {"prompt_key": "p"}, f"system: s | {PAIR}")
            for row in (SIDES, {**SIDES, "p": [USER]}, {"p": "q", "chosen": "good", "rejected": "bad"})
        ),
    ],
    "dpo_read_hook": [
        ({"p": " q ", "chosen": " good", "rejected": "bad "}, {"prompt_key": "p"}, PAIR),
        ({"p": "q", "chosen": "good", "rejected": "bad", "system": "s"}, {"prompt_key": "p"}, f"system: s | {PAIR}"),
        # cut at the last marker, in any case
        (
            {"chosen": "Human: q ASSISTANT: x Assistant: good", "rejected": "Human: q ASSISTANT: x Assistant: bad"},
            "user: Human: q ASSISTANT: x Assistant: >> assistant: good >> assistant: bad",
        ),
        (
            {"chosen": "İ: q assistant: good", "rejected": "İ: q assistant: bad"},
            "user: İ: q assistant: >> assistant: good >> assistant: bad",
        ),
        (SIDES, PAIR),
    ],
    "gsm8k": [
        (GSM8K, "user: How many? | assistant: <think>She sold 48/2 = 24 clips.</think><answer>1,072</answer>"),
        (GSM8K, {"thinking": True}, "user: How many? | assistant: <thinking>She sold 48/2 = 24 clips.</thinking><answer>1,072</answer>"),
    ],
    "gsm8k_prompt": [(GSM8K, "user: How many? = 1072 (number)")],
    "rl_prompt": [
        *(
            ({"prompt": " q ", "gold": gold}, f"user:  q  = {exact} (number)")
            for gold, exact in (("1,234", "1234"), ("$5", "5"), (18.0, "18"), (18, "18"), (-0.5, "-0.5"), (" 7 ", "7"))
        ),
        ({"prompt": "q", "answer": " 1/2 "}, {"gold_key": "answer", "verifier": "exact"}, "user: q =  1/2  (exact)"),
        ({"prompt": "q", "answer": " 1/2 ", "v": "latex"}, {"gold_key": "answer", "verifier_key": "v"}, "user: q =  1/2  (latex)"),
        (VERL, {"gold_key": "reward_model.ground_truth"}, "user: q = 72 (number)"),
        ({"prompt": "q", "a.b": "1", "a": {"b": "2"}}, {"gold_key": "a.b"}, "user: q = 1 (number)"),  # the name goes before the path
        ({"prompt": "q", "gold": "1"}, {"system": "s"}, "system: s | user: q = 1 (number)"),
        ({"prompt": [said("system", "own"), USER], "gold": "1"}, {"system": "s"}, "system: own | user: q = 1 (number)"),
        ({"prompt": "Write a haiku."}, {"gold_key": None, "verifier": "model"}, "user: Write a haiku. =  (model)"),
    ],
    "group": [
        ({"prompt": "q", "responses": ["a", [ANSWER]], "rewards": [0.8, -0.3]}, "user: q >> assistant: a (0.8) >> assistant: a (-0.3)"),
        ({"prompt": [USER], "responses": ["a"], "rewards": 1}, "user: q >> assistant: a (1)"),
    ],
    "llava": [
        # the images of an array stand where the text has them
        (
            {"image": ["i.jpg"], "conversations": [{"from": "human", "value": " Left <image> right "}, GPT]},
            {"phase": 1},
            f"user: [Left]{PICTURE}[right] | assistant: a",
        ),
        (LLAVA, f"user: {PICTURE}What? | assistant: It is."),
        ({**LLAVA, "conversations": [{"from": "human", "value": " Left <image> right "}, GPT]}, f"user: {PICTURE}Leftright | assistant: a"),
        ({**LLAVA, "conversations": [{"from": "human", "value": "<image>"}, GPT]}, f"user: {PICTURE} | assistant: a"),
        (
            {**LLAVA, "conversations": [*LLAVA["conversations"], HUMAN, GPT]},
            {"phase": 1},
            f"user: {PICTURE}[What?] | assistant: It is. | user: q | assistant: a",
        ),
    ],
    "finetuning_llava_hook": [
        (LLAVA_HOOK, {**LLAVA_KEYS, "phase": 1}, f"user: {PICTURE}[What?] | assistant: a"),
        (
            {**LLAVA_HOOK, "c": [{"r": "system", "v": "s"}, *LLAVA_HOOK["c"]]},
            LLAVA_KEYS,
            f"system: s | user: {PICTURE}What? | assistant: a",
        ),
        ({"c": SPOKEN}, LLAVA_KEYS, "user: q | assistant: a"),
    ],
    "finetuning_llava_hook_prompt_completion": [(LLAVA_HOOK, {**LLAVA_KEYS, "phase": 1}, f"prompt: {PICTURE}[What?] | completion: a")],
    **{
        name: [(CAPTION, CAPTION_KEYS, f"prompt: {PICTURE} | completion: A dog.")]
        for name in ("image_captions", "finetuning_image_captions_hook")
    },
    "pretraining_image_captions_hook": [(CAPTION, CAPTION_KEYS, f"document: {PICTURE}*0A dog.")],
    "interleaved": [
        (
            {"images": [None, "1.jpg", "2.jpg", None], "texts": ["a", None, None, "b"]},
            "document: a<image>1.jpg</image>*0<image>2.jpg</image>*0b",
        )
    ],
    "obelics_hook": [
        (CAT, {"image_dir": "/images"}, f"document: <image>/images/{DOWNLOADED}</image>*0t"),
        (CAT, "document: <image>https://x.org/a/cat.jpg?w=5</image>*0t"),
    ],
    "semantic": SEMANTIC,
    "sections": SECTIONS,
    "common_words_mask": [({"prompt": "p", "completion": "yes no yes"}, {"words": ["no"]}, "prompt: p | completion: yes*1 no*0 yes*1")],
    "ultra_chat_common_words_mask_hook": [
        ({"prompt": "q", "messages": [USER, said("assistant", "the cat")]}, "prompt: q | completion: the*0 cat*1")
    ],
}
