"""Rows of each format with what makes them unfit, and the reason: a sound row, and what each of the others has otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prep_assets.schemas.registry import schemas
from prep_assets_tests.corpus import rows as sound
from prep_assets_tests.corpus.rows import ANSWER, BOTH, CALL, GPT, HUMAN, SEEN, SYSTEM, USER, array, chat, group, moss, said, shares, typed

Unfit = tuple[Mapping[str, Any], str] | tuple[Mapping[str, Any], str, Mapping[str, Any]]
"""What a sound row has otherwise, the reason of the refusal, and options."""


NAN, MASKED_CHAT = float("nan"), [USER, {**ANSWER, "weight": 0}]


CALLED = said("assistant", None, tool_calls=[CALL])


CALLED_TWICE = said("assistant", None, tool_calls=[{**CALL, "id": "c1"}, {**CALL, "id": "c2"}])


ALPACA_ROW = {key: text.strip() for key, text in sound.ALPACA.items()}


Q, C, R = typed("user", {"text": "q"}), typed("chosen", {"text": "c"}), typed("rejected", {"text": "r"})


PLAIN_PAIR = {"prompt": "q", "chosen": "good", "rejected": "bad"}


IDS = {"input_ids": [1, 2], "labels": [-100, 2]}


CALL_ALONE = '{"name": "f", "arguments": {}}'


TEXT_PART = [{"type": "text", "text": "a"}]


DETAILS = [{"type": "reasoning.summary", "summary": "o"}, {"type": "reasoning.text", "text": "x"}]


LLAVA = {"image": "i.jpg"}


ANTHROPIC, RESPONSES = (schemas()[name].example for name in ("anthropic", "openai_responses"))


SCORED = {**sound.ULTRA, "score_chosen": 9.0, "score_rejected": 2.0}


def llava(*values: object) -> dict[str, Any]:
    return {"conversations": [{"from": ("human", "gpt")[number % 2], "value": value} for number, value in enumerate(values)]}


def dialogue(chosen: str, rejected: str, prompt: str = "\n\nHuman: a") -> dict[str, Any]:
    return {"chosen": f"\n\nHuman: a\n\nAssistant: {chosen}", "rejected": f"{prompt}\n\nAssistant: {rejected}"}


def commands(text: str, options: Mapping[str, Any] = {"plugins": True}) -> Unfit:
    return moss({**sound.TOOLS, "Commands": f"<|Commands|>: {text}<eoc>"}), "bad_tool_call", options


def header(role: str, text: str, end: str = "<|eot_id|>") -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}{end}"


def rated(response: str, score: object, **ratings: Any) -> dict[str, Any]:
    return {"response": response, "overall_score": score, **ratings}


RATINGS = {"annotations": {"helpfulness": {"Rating": "1"}, "honesty": {"Rating": 3}}}


TOO_GOOD = [[rated("good", 10.0, **ratings), rated("bad", 8.0)] for ratings in ({"fine-grained_score": 2.0}, RATINGS)]
"""A score of 1 that was written as 10: only the ratings tell."""


NO_CALLS = ["None, as I know it", 'Search("a"), None of it', "Calculate(5)", "import os", 'Run("x")', 'Search("a']


NO_STRING = ['Search("a", "b")', 'Search("a") and Search("b")', '1. Search("a")']


HOOK_ROW = {"c": [{"r": "system", "v": " s "}, *sound.SPOKEN]}


WORDS_ROW = {"prompt": "p", "messages": [said("user", "p"), said("assistant", "yes")]}


REFUSED: Mapping[str, tuple[Mapping[str, Any], list[Unfit]]] = {
    "text": (
        {},
        [
            ({"text": ""}, "empty_text"),
            ({"text": " \n"}, "empty_text"),
            ({"text": "ab"}, "too_short", {"min_chars": 3}),
            ({"text": "abcd"}, "too_long", {"max_chars": 3}),
            ({"text": None}, "missing_field"),
            ({"text": 5}, "wrong_type"),
        ],
    ),
    "instruction": (
        {"prompt": "q", "response": "a"},
        [({"response": " "}, "empty_answer"), ({"prompt": " "}, "empty_prompt"), ({"image": "0.jpg"}, "unsupported_media")],
    ),
    "prompt_completion": (
        {"prompt": "q", "completion": "a"},
        [
            ({"completion": [ANSWER]}, "wrong_type"),
            ({"prompt": [USER]}, "wrong_type"),
            ({"prompt": [said("assistant", "q")], "completion": [ANSWER]}, "role_order"),
            ({"prompt": [USER], "completion": [USER]}, "no_assistant_turn"),
            ({"prompt": [], "completion": []}, "empty_prompt"),
            ({"images": ["1.jpg"]}, "unsupported_media"),
            ({"prompt": [USER], "completion": [ANSWER]}, "wrong_type", {"separator": "|"}),
        ],
    ),
    "nlg_read_hook": ({"completion": "c"}, [({"context": [1, 2]}, "wrong_type"), ({"context": {}}, "wrong_type")]),
    "group_list": ({"prompt": "q", "responses": ["a", "b"]}, [({"ranks": [1, 1]}, "equal_rewards", {"ranks_key": "ranks"})]),
    "group_pair": (
        {},
        [
            ({"prompt": "q", "responses": ["a", "b"], "rewards": [1, 1]}, "equal_rewards"),
            ({"prompt": "q", "responses": ["a", "b"], "rewards": [1, 0.5]}, "small_margin", {"min_margin": 0.6}),
            ({"prompt": "q", "responses": ["a", "a"], "rewards": [1, 0]}, "equal_answers"),
            ({"prompt": "q", "responses": ["a", "b"], "rewards": [1]}, "length_mismatch"),
        ],
    ),
    "group_best": (
        {},
        [
            ({"prompt": "q", "responses": ["a", "b"], "rewards": [0.2, 0.1]}, "low_reward", {"at_least": 0.5}),
            ({"prompt": "q", "responses": [], "rewards": []}, "length_mismatch"),
        ],
    ),
    "messages": (
        {},
        [
            (chat(USER), "no_assistant_turn"),
            (chat(), "no_assistant_turn"),
            ({"messages": "hello"}, "wrong_type"),
            ({"messages": ["hello"]}, "wrong_type"),
            (chat(said("human", "q"), ANSWER), "unknown_role"),
            (chat(USER, said("assistant", " ")), "empty_answer"),
            (chat(USER, said("assistant", None)), "empty_answer"),
            (chat(USER, said("assistant", "", reasoning_content="hm")), "empty_answer"),
            (chat(said("user", "\n"), ANSWER), "empty_turn"),
            (chat({**USER, "tool_calls": [CALL]}, ANSWER), "role_content"),
            (chat({**USER, "reasoning_content": "hm"}, ANSWER), "role_content"),
            (chat(USER, said("tool", "4"), ANSWER), "role_order"),
            (chat({"content": "q"}, ANSWER), "missing_field"),
            (chat(said(["user"], "q"), ANSWER), "wrong_type"),  # type: ignore[arg-type]
            (chat(USER, {**ANSWER, "name": 5}), "wrong_type"),
            (chat(USER, CALLED, said("tool", "4", tool_call_id="c2")), "unknown_tool_call"),
            (chat(USER, CALLED_TWICE, said("tool", "4", tool_call_id="c2"), ANSWER), "unanswered_tool_call"),
            (chat(USER, CALLED_TWICE, said("tool", "4", tool_call_id="c1")), "unanswered_tool_call"),
            # a result that nobody asked for, and a call that nobody answers
            *((chat(USER, said("assistant", answer), said("tool", "4"), ANSWER), "role_order") for answer in ("a", "5")),
            (chat(USER, said("assistant", '{"celsius": 4}'), said("observation", "4"), ANSWER), "role_order"),
            (chat(USER, CALLED, ANSWER), "unanswered_tool_call"),
            (chat(USER, CALLED, USER, ANSWER), "unanswered_tool_call"),
            (chat(USER, CALLED_TWICE, ANSWER), "unanswered_tool_call"),
            (chat(USER, said("assistant", None, tool_calls=[{"name": "f"}]), ANSWER), "unanswered_tool_call"),
            (
                chat(USER, CALLED, said("tool", "4", tool_call_id="c1"), said("assistant", None, tool_calls=[{**CALL, "id": "c2"}]), USER),
                "unanswered_tool_call",
            ),
            (chat(USER, CALLED, said("tool", "4"), said("tool", "5"), ANSWER), "unknown_tool_call"),
            (chat(USER, CALLED, *[said("tool", text, tool_call_id="c1") for text in "45"], ANSWER), "unknown_tool_call"),
            # results without ids whose names say that they are exchanged
            (
                chat(
                    USER,
                    said("assistant", None, tool_calls=[{"name": "f"}, {"name": "g"}]),
                    said("tool", "4", name="g"),
                    said("tool", "5", name="f"),
                ),
                "unknown_tool_call",
            ),
            (chat(USER, CALLED, tools=[{"name": "g", "parameters": {}}]), "unknown_tool"),
            (chat(USER, CALLED, tools='[{"type": "function", "function": {"name": "ff"}}]'), "unknown_tool"),
            *(
                (chat(USER, answer, said("tool", "4"), ANSWER, tools=[{"name": "f"}]), "unknown_tool")
                for answer in (
                    said("assistant", '{"name": "g"}'),
                    *(
                        said("assistant", [{"type": "tool_call", key: value}])
                        for key, value in (
                            ("value", {"name": "g", "arguments": {}}),
                            ("value", '{"name": "g"}'),
                            ("tool_call", {"name": "g"}),
                        )
                    ),
                    said("assistant", [{"type": "tool_use", "name": "g", "input": {}}]),
                )
            ),
            *(
                (chat(USER, said("assistant", None, tool_calls=[{"name": "g"}]), **tools), "unknown_tool")
                for tools in ({"tools": {"name": "f"}}, {"functions": [{"name": "f"}]}, {"available_tools": [{"name": "f"}]})
            ),
            # several results without ids, and more calls or fewer
            (
                chat(
                    USER,
                    said("assistant", None, tool_calls=[{"name": name} for name in "fgh"]),
                    said("tool", "4"),
                    said("tool", "5"),
                    ANSWER,
                ),
                "unanswered_tool_call",
            ),
            (
                chat(
                    USER,
                    said("assistant", None, tool_calls=[{"name": "f", "id": "c1"}, {"name": "g"}]),
                    said("tool", "4", tool_call_id="c1"),
                    said("tool", "5"),
                    said("tool", "6"),
                    ANSWER,
                ),
                "unknown_tool_call",
            ),
            # what a list says of its own order
            *(
                (chat({**USER, key: later}, {**ANSWER, key: earlier}), "order_contradicted")
                for key, later, earlier in (("date", "2026-01-02", "2026-01-01"), ("created", 1e9, 1), ("idx", 2, 1))
            ),
            (
                chat({**USER, "timestamp": "2026-05-01T10:00:01Z"}, {**ANSWER, "timestamp": "2026-05-01T10:00:00+00:00"}),
                "order_contradicted",
            ),
            (chat({**USER, "created_at": 2}, {**ANSWER, "created_at": 1.5}), "order_contradicted"),
            (chat({**USER, "index": 1}, {**ANSWER, "index": 0}), "order_contradicted"),
            (
                chat(USER, said("assistant", None, tool_calls=[{**CALL, "index": 1}, {**CALL, "id": "c2", "index": 0}])),
                "order_contradicted",
            ),
            (chat({**USER, "conversation_id": "x"}, {**ANSWER, "conversation_id": "y"}), "mixed_conversations"),
            (chat(USER, {**ANSWER, "prompt_id": 1}, prompt_id=2), "mixed_conversations"),
            # which image is meant
            (
                chat(said("user", [{"type": "image", "index": 2}, {"type": "image", "index": 0}]), ANSWER, images=["1.jpg", "2.jpg"]),
                "image_count",
            ),
            (chat(said("user", [{"type": "image", "index": 0}]), ANSWER, images=["1.jpg", "2.jpg"]), "image_count"),
            (chat(said("user", [{"type": "image", "index": "0"}]), ANSWER, images=["1.jpg"]), "wrong_type"),
            (
                chat(said("user", [{"type": "image", "source": {"type": "base64", "data": "AA=="}}]), ANSWER, images=["1.jpg"]),
                "missing_field",
            ),
            (chat(said("user", [{"type": "image", "path": "1.jpg", "uri": "2.jpg"}]), ANSWER), "conflicting_content"),
            (chat(said("user", "<audio>"), ANSWER, audios=["data:audio/wav;base64,AA=="]), "embedded_audio"),
            # stretches of a text
            *(
                (chat(USER, said("assistant", "abc", train_detail=detail)), reason)
                for detail, reason in (
                    (
                        [{"begin_offset": 0, "end_offset": 1, "train": True}, {"begin_offset": 1, "end_offset": 2, "train": False}],
                        "bad_weight",
                    ),
                    ([{"begin_offset": 3, "end_offset": 4, "train": True}], "bad_weight"),
                    (
                        [{"begin_offset": 0, "end_offset": 1, "train": True}, {"begin_offset": 1, "end_offset": 3, "train": False}],
                        "bad_weight",
                    ),
                    ([{"begin_offset": 2, "end_offset": 1, "train": True}], "bad_weight"),
                    ([{"begin_offset": 0, "end_offset": 2, "train": 1}], "wrong_type"),
                    ([{"begin_offset": 0, "train": True}], "missing_field"),
                )
            ),
            (
                chat(
                    USER,
                    said("assistant", [{"type": "text", "text": "a"}], train_detail=[{"begin_offset": 0, "end_offset": 0, "train": True}]),
                ),
                "wrong_type",
            ),
            (chat(USER, ANSWER, rejected_response="b"), "unsupported_column"),
            (chat(USER, USER, ANSWER), "role_order", {"order": "alternate"}),
            (chat(USER, ANSWER, USER), "role_order", {"order": "alternate"}),
            *(
                (chat(USER, {**ANSWER, "reasoning": "oh", **other}), "conflicting_reasoning")
                for other in ({"reasoning_content": "hm"}, {"reasoning_details": DETAILS})
            ),
            (chat(USER, said("assistant", [{"type": "thinking", "thinking": "a", "text": "b"}, *TEXT_PART])), "conflicting_content"),
            (chat(USER, said("assistant", [{**TEXT_PART[0], "weight": 0.5, "train": True}])), "conflicting_weights"),
            (chat(said("user", [{"type": "film", "value": "x.mp4"}]), ANSWER), "unknown_part"),
            (chat(said("user", [{"type": "video", "video": "x.mp4", "nframes": 4}]), ANSWER), "video_resized"),
            *((chat(said("user", text), ANSWER, audios=["1.wav"]), "audio_count") for text in ("q", "<audio><audio>")),
            (chat(said("user", [{"type": "audio", "audio": ""}]), ANSWER), "missing_audio"),
            (chat(said("user", [{"type": "audio", "audio": "1.wav", "duration": "3"}]), ANSWER), "wrong_type"),
            (chat(said("user", "<image><image>"), ANSWER, images=["1.jpg"]), "image_count"),
            (chat(said("user", "<image>"), ANSWER, images=["1.jpg", "2.jpg"]), "image_count"),
            (chat(said("user", "<image>"), ANSWER, images=[]), "image_count"),
            (chat(USER, {**ANSWER, "refusal": "No."}), "conflicting_content"),
            (chat(USER, {**ANSWER, "prefix": True}), "open_prefix"),
            *(
                (chat(USER, said("assistant", None, tool_calls=[call])), reason)
                for call, reason in (
                    ({"name": "f", "arguments": "{"}, "bad_tool_call"),
                    ({"name": "f", "arguments": "[1]"}, "bad_tool_call"),
                    ({"name": "f", "arguments": [1]}, "bad_tool_call"),
                    ({"name": "f", "arguments": '{"x": NaN}'}, "bad_tool_call"),
                    ({"name": "f", "arguments": {"x": 1}, "parameters": {"y": 2}}, "bad_tool_call"),
                    ({"name": " "}, "bad_tool_call"),
                    ({"arguments": {}}, "missing_field"),
                    ({"name": 5}, "wrong_type"),
                    ("f()", "wrong_type"),
                )
            ),
            *((chat(USER, ANSWER, **media), "video_count") for media in ({"videos": ["1.mp4"]}, {"video": "1"})),
            *(
                (chat(USER, {**ANSWER, **fields}), reason)
                for fields, reason in (
                    ({"train": True, "weight": 0}, "conflicting_weights"),
                    ({"weight": -1}, "bad_weight"),
                    ({"weight": "1"}, "wrong_type"),
                    ({"loss_weight": NAN}, "wrong_type"),
                    ({"train": 1}, "wrong_type"),
                )
            ),
            *(
                (chat(USER, ANSWER, tools=tools), reason)
                for tools, reason in (("{", "bad_tools"), ([{}], "bad_tools"), ([5], "wrong_type"), ("5", "wrong_type"))
            ),
            (chat(USER, ANSWER, tools=[{"name": "f"}], functions=[{"name": "g"}]), "conflicting_tools"),
            (chat({**USER, "tools": [{"name": "f"}]}, ANSWER, tools=[{"name": "g"}]), "conflicting_tools"),
            (
                chat(
                    USER,
                    said("assistant", [{"type": "tool_call", "value": {"name": name, "arguments": {}}} for name in "gf"]),
                    tools=[{"name": "f"}],
                ),
                "unknown_tool",
            ),
            (chat(said("system", "s"), USER, ANSWER, persona="t"), "two_systems", {"system_key": "persona"}),
            (chat(USER, ANSWER, pictures=["1.jpg"]), "image_count", {"images_key": "pictures"}),
            (chat(USER, said("function_call", CALL_ALONE), ANSWER), "unanswered_tool_call"),
            (chat(USER, said("function_call", CALL_ALONE), said("tool", "4"), ANSWER, tools=[{"name": "g"}]), "unknown_tool"),
            (chat(USER, said("assistant", [{"type": "tool_call", "value": json.loads(CALL_ALONE)}]), ANSWER), "unanswered_tool_call"),
            # a text that is no call
            *((chat(USER, said("assistant", text), said("tool", "4"), ANSWER), "role_order") for text in ("{f", '{"x": "f"}', '["f"]')),
            # what is no text does not vanish as if it were empty
            *(
                (chat(USER, said("assistant", "", **{field: value})), "wrong_type")
                for field in ("reasoning", "thinking", "refusal")
                for value in (0, False, 0.0)
            ),
        ],
    ),
    "chat_read_hook": (
        HOOK_ROW,
        [
            ({"c": HOOK_ROW["c"][:2]}, "no_assistant_turn", sound.HOOK),
            ({"c": [*HOOK_ROW["c"], HOOK_ROW["c"][1]]}, "role_order", sound.HOOK),
            ({"c": [{"r": "human", "v": "q"}, HOOK_ROW["c"][2]]}, "unknown_role", sound.HOOK),  # there: kept, with nothing to train
        ],
    ),
    "kto": (
        {"messages": [USER, ANSWER], "label": True},
        [
            ({"label": None}, "missing_field"),
            ({"label": 1}, "wrong_type"),
            ({"label": "true"}, "wrong_type"),
            ({"messages": [USER, ANSWER, USER]}, "role_order"),
            ({"messages": [USER]}, "no_assistant_turn"),
            ({"messages": None}, "missing_field"),
        ],
    ),
    "sharegpt": (
        {},
        [
            (shares(HUMAN, GPT, system="t", tools="[]") | shares(SYSTEM, HUMAN, GPT), "two_systems"),
            (shares(HUMAN, GPT, images=["1.jpg"]), "image_count"),
            (shares(HUMAN, {"from": "act", "value": "no call"}), "bad_tool_call", {"function_tag": "act"}),
            (shares({**HUMAN, "date": 2}, {"from": "gpt", "value": "a", "date": 1}), "order_contradicted"),
            *(
                (shares(*messages), reason)
                for messages, reason in (
                    ([GPT, HUMAN], "role_order"),
                    ([HUMAN, HUMAN, GPT], "role_order"),
                    ([HUMAN, GPT, GPT], "role_order"),
                    ([HUMAN, GPT, HUMAN], "role_order"),
                    ([HUMAN, SYSTEM, GPT], "role_order"),
                    ([HUMAN, GPT, SEEN, HUMAN], "role_order"),
                    ([SEEN, GPT], "role_order"),
                    ([HUMAN], "no_assistant_turn"),
                    ([SYSTEM], "no_assistant_turn"),
                    ([], "no_assistant_turn"),
                    ([{"from": "critic", "value": "q"}, GPT], "unknown_role"),
                    ([HUMAN, GPT, SEEN, GPT], "role_order"),  # no call
                    ([HUMAN, sound.ONE_CALL, GPT], "unanswered_tool_call"),
                    ([HUMAN, sound.ONE_CALL, SEEN, SEEN, GPT], "unknown_tool_call"),
                    ([HUMAN, {"from": "tool_call", "value": '{"name": "f", "arguments": {}, "thought": "hm"}'}], "bad_tool_call"),
                    ([HUMAN, {"from": "gpt", "value": ""}], "empty_answer"),
                    ([HUMAN, {"from": "function_call", "value": "f(1)"}], "bad_tool_call"),
                    ([HUMAN, {"from": "function_call", "value": "[]"}], "bad_tool_call"),
                    ([HUMAN, {"from": "function_call", "value": None}], "wrong_type"),
                    ([HUMAN, {"from": "gpt"}], "empty_answer"),
                    ([HUMAN, GPT, USER, ANSWER], "missing_field"),  # the first message decides which spelling it is
                )
            ),
            (shares(USER, ANSWER), "missing_field", {"user_tag": "person"}),  # tags of one's own are taken as they are
        ],
    ),
    "sharegpt_pairwise": (
        shares(HUMAN, chosen={"from": "gpt", "value": "c"}, rejected={"from": "gpt", "value": "r"}),
        [
            (shares(HUMAN, GPT), "role_order"),
            (shares(SYSTEM), "role_order"),
            (shares(), "empty_prompt"),
            ({"chosen": GPT, "rejected": GPT}, "equal_answers"),
            ({"chosen": {"from": "human", "value": "c"}}, "role_order"),
            ({"chosen": {"from": "gpt", "value": " "}}, "empty_answer"),
            ({"chosen": "c"}, "wrong_type"),
            ({"rejected": None}, "missing_field"),
            *(
                (
                    {
                        **shares({"from": "human", "value": "<image>"}),
                        "images": ["1.jpg"],
                        side: {"from": "gpt", "value": [{"type": "image"}, {"type": "text", "text": "a"}]},
                    },
                    "image_count",
                )
                for side in ("chosen", "rejected")
            ),
        ],
    ),
    "SharegptPretrainHandler": ({}, [(shares({"from": "gpt"}), "missing_field")]),
    "R1SharegptStyleInstructionHandler": (
        {},
        [(shares(HUMAN, GPT, HUMAN), "role_order"), (shares(HUMAN, GPT), "bad_gold", {"verifier": "number"})],
    ),
    "alpaca": (
        ALPACA_ROW,
        [
            ({"output": " "}, "empty_answer"),
            ({"output": None}, "missing_field"),
            ({"instruction": "", "input": " "}, "empty_prompt"),
            ({"instruction": None}, "missing_field"),
            ({"input": 5}, "wrong_type"),
            ({"system": ["x"]}, "wrong_type"),
            ({"history": "x"}, "wrong_type"),
            ({"history": [["a"]]}, "wrong_type"),
            ({"history": [["a", ""]]}, "empty_answer"),
            ({"history": [["", "b"]]}, "empty_prompt"),
            *(({medium: "1.jpg"}, "unsupported_media") for medium in ("images", "image", "video", "audio")),
            ({"system": "s"}, "unsupported_column", {"system_key": None}),
        ],
    ),
    "GeneralInstructionHandler": (ALPACA_ROW, [({"system": "Be brief."}, "unsupported_column")]),
    "R1AlpacaStyleInstructionHandler": (
        ALPACA_ROW,
        [({"output": " "}, "no_gold"), ({"output": "six"}, "bad_gold", {"verifier": "number"})],
    ),
    "AlpacaPretrainHandler": (ALPACA_ROW, [({"output": " "}, "empty_text")]),
    "alpaca_pairwise": (
        {"instruction": "i", "chosen": "good", "rejected": "bad"},
        [
            ({"chosen": "bad"}, "equal_answers"),
            ({"rejected": ""}, "empty_answer"),
            ({"instruction": ""}, "empty_prompt"),
            ({"chosen": None, "rejected": None, "output": ["a", "b", "c"]}, "several_answers"),
            ({"chosen": None, "rejected": None, "output": "a"}, "wrong_type"),
            ({"chosen": None, "output": ["a", "a"]}, "equal_answers"),
        ],
    ),
    "dolly": (sound.DOLLY, [({"response": ""}, "empty_answer")]),
    "leetcode_python": (
        sound.LEETCODE,
        [
            ({"code_with_problem": "```python"}, "empty_prompt"),
            ({"code_only": ""}, "empty_answer"),
            ({"explanation_only": None}, "missing_field"),
            ({"code_with_problem": "P\n\n```python\nx=1\n```\nNote after the fence"}, "trailing_text"),
        ],
    ),
    "moss": (
        {},
        [
            ({"chat": {}}, "no_assistant_turn"),
            ({"chat": []}, "wrong_type"),
            ({"chat": {"turn_1": "hello"}}, "wrong_type"),
            ({"chat": {"turn_1": {"Human": "<|Human|>: q<eoh>"}}}, "missing_field"),
            ({"chat": {"turn_1": {"Human": "q", "MOSS": "<|MOSS|>: <eom>"}}}, "empty_answer"),
            ({"chat": {"turn_1": {"Human": "<eoh>", "MOSS": "a"}}}, "empty_turn"),
            *map(commands, (*NO_CALLS, *NO_STRING)),
            (moss({**sound.TOOLS, "Commands": "<|Commands|>: None<eoc>"}), "role_order", {"plugins": True}),
        ],
    ),
    "belle": (
        {"output": "d"},
        [
            ({"instruction": ""}, "role_order"),
            ({"instruction": "Translate."}, "leading_text"),
            ({"instruction": "Human:a"}, "role_order"),
            ({"instruction": "Human:a\nAssistant:b"}, "role_order"),
            ({"instruction": "Human:a\nHuman:b\nAssistant:"}, "role_order"),
            ({"instruction": "Assistant:"}, "role_order"),
            ({"instruction": "Human:\nAssistant:"}, "empty_turn"),
            ({"instruction": "Human:a\nAssistant:\nHuman:b\nAssistant:"}, "empty_answer"),
            ({"instruction": "Human:a\nAssistant:", "output": " "}, "empty_answer"),
        ],
    ),
    "llama3_chat": (
        {},
        [
            ({"text": text}, reason)
            for text, reason in (
                ("hello", "leftover_text"),
                ("", "empty_text"),
                ("<|begin_of_text|>", "no_assistant_turn"),
                ("x" + header("user", "q") + header("assistant", "a"), "leftover_text"),
                (header("user", "q") + "between" + header("assistant", "a"), "leftover_text"),
                (header("user", "q") + header("assistant", "a", ""), "leftover_text"),
                (header("user", "q"), "no_assistant_turn"),
                (header("narrator", "q") + header("assistant", "a"), "unknown_role"),
                (header("user", "q") + header("assistant", " "), "empty_answer"),
            )
        ],
    ),
    "common_words_mask": ({"prompt": "p"}, [({"completion": " "}, "empty_answer")]),
    # Audit W19: tool calls, weights and later messages went without a word
    "ultra_chat_common_words_mask_hook": (
        WORDS_ROW,
        [
            ({"messages": [{}]}, "no_assistant_turn"),
            ({"messages": [{}, 5]}, "wrong_type"),
            ({"messages": [*WORDS_ROW["messages"], said("user", "why?")]}, "later_messages"),
            ({"messages": [said("user", "p"), said("assistant", "yes", weight=0)]}, "unsupported_column"),
            ({"messages": [said("user", "p"), said("assistant", "yes", tool_calls=[{"name": "f"}])]}, "unsupported_column"),
            ({"prompt": "q"}, "prompts_differ"),
            ({"messages": WORDS_ROW["messages"][::-1]}, "role_order"),
        ],
    ),
    "hh": (
        {},
        [
            (dialogue("good", "bad", "\n\nHuman: other"), "prompts_differ"),
            (dialogue("good", "bad", ""), "empty_prompt", {"prompt_check": "chosen"}),
            (dialogue("", "bad"), "empty_answer"),
            (dialogue("good", " "), "empty_answer"),
            (dialogue("same", " same"), "equal_answers"),
            (dialogue("Hello!\n\nHuman: Bye", "Hello!\n\nHuman: Go"), "role_order"),
            (dialogue("Hello!", "Hello, you!\n\nHuman: Go"), "role_order"),
            (dialogue("Hello!\n\nHuman: Bye", "Hello you!"), "role_order", {"split_turns": True}),
            ({"chosen": "\n\nAssistant: x", "rejected": "\n\nAssistant: y"}, "empty_prompt"),
            ({"chosen": "x", "rejected": "y"}, "no_assistant_turn"),
            ({"chosen": "x"}, "missing_field"),
            ({"chosen": ["x"], "rejected": "y"}, "wrong_type"),
        ],
    ),
    "ultrafeedback": (
        sound.ULTRA,
        [
            ({"prompt": "other"}, "prompts_differ"),
            ({"chosen": sound.ULTRA["rejected"]}, "equal_answers"),
            ({"chosen": [USER, said("assistant", " ")]}, "empty_answer"),
            ({"chosen": []}, "empty_answer"),
            ({"chosen": [USER, USER]}, "no_assistant_turn"),
            ({"score_chosen": 7.5, "score_rejected": 7.0}, "small_margin", {"min_margin": 0.6}),
            ({}, "missing_field", {"min_margin": 0.0}),
            ({"score_chosen": 1.0, "score_rejected": 4.5}, "score_contradicts"),
            *(
                ({side: [USER, said("assistant", "x", tool_calls=[{"name": "f"}])]}, "unsupported_column")
                for side in ("chosen", "rejected")
            ),
            ({"chosen": None, "completions": sound.SCORED}, "small_margin", {"min_margin": 6.0}),
            ({"chosen": None, "completions": sound.SCORED[:1] * 2}, "small_margin"),
            ({"chosen": None, "completions": [rated("a", 7, annotations={"x": {"Rating": "four"}})]}, "wrong_type"),
            ({"chosen": None, "completions": [rated("a", 7, model="x", system="s"), rated("b", 2)]}, "unsupported_column"),
            *(({**SCORED, "score_chosen": 10.0, "score_rejected": 8.0, "completions": each}, "score_contradicts") for each in TOO_GOOD),
            *(({"chosen": None, "completions": each}, "score_contradicts") for each in TOO_GOOD),
            # sides have the scores of their completions
            ({**SCORED, "completions": [rated("good", 1), rated("bad", 2)]}, "score_contradicts"),
            ({"completions": [rated("good", 1), rated("bad", 2)]}, "score_contradicts"),
        ],
    ),
    "preference": (
        PLAIN_PAIR,
        [
            ({"prompt": None, "chosen": [USER, sound.GOOD], "rejected": [said("user", "p"), sound.BAD]}, "prompts_differ"),
            ({"prompt": None, "chosen": [USER, sound.GOOD], "rejected": [USER, sound.GOOD]}, "equal_answers"),
            ({"prompt": None, "chosen": [USER, sound.GOOD], "rejected": [USER]}, "empty_answer"),
            ({"prompt": None, "chosen": [sound.GOOD], "rejected": [sound.BAD]}, "empty_prompt"),
            ({"prompt": None, "chosen": [USER, sound.GOOD], "rejected": []}, "empty_answer"),
            ({"prompt": None, "chosen": "", "rejected": ""}, "empty_answer"),
            ({"prompt": None}, "leading_text"),
            ({"prompt": None, "chosen": "\n\nHuman: \n\nAssistant: x", "rejected": "\n\nHuman: \n\nAssistant: y"}, "empty_turn"),
            ({"prompt": None, "rejected": [sound.BAD]}, "wrong_type"),
            ({"rejected": [sound.BAD]}, "wrong_type"),
            ({"rejected": "good"}, "equal_answers"),
            ({"rejected": " "}, "empty_answer"),
            ({"prompt": " "}, "empty_prompt"),
            *(({"prompt": prompt}, "role_order") for prompt in ([USER, sound.GOOD], ANSWER, said("system", "s"))),
            ({"prompt": []}, "empty_prompt"),
            ({"prompt": [USER], "chosen": [said("user", "p"), sound.GOOD], "rejected": [sound.BAD]}, "role_order"),
            ({"images": ["1.jpg"]}, "unsupported_media"),
            ({"image": "0.jpg"}, "unsupported_media"),
            ({"history": [["a", "b"]]}, "unsupported_column"),
            ({"system": 5}, "wrong_type"),
            ({"prompt": [said("system", "s"), USER], "system": "t"}, "two_systems"),
            ({"prompt": 5}, "wrong_type"),
            ({"system": "s"}, "unsupported_column", {"system_key": None}),
            ({"system": "s"}, "unsupported_column", {"template": False}),
            ({"prompt": None, "chosen": [USER, sound.GOOD, USER], "rejected": [USER, sound.BAD]}, "role_order"),
            ({"prompt": [USER], "chosen": [sound.GOOD], "rejected": [said("Bot", "bad")]}, "unknown_role"),
            *(
                ({"prompt": None, "chosen": None, "rejected": None, "messages": [USER, sound.GOOD], **answers}, reason)
                for answers, reason in (
                    ({"rejected_response": "good"}, "equal_answers"),
                    ({"rejected_response": ["bad", "worse"]}, "several_answers"),
                    ({"rejected_messages": [said("user", "p"), sound.BAD]}, "prompts_differ"),
                    ({}, "missing_field"),
                )
            ),
            # a name that somebody chose is never exchanged for LLaMA-Factory's
            ({"chosen_messages": [USER, sound.GOOD], "rejected_messages": [USER, sound.BAD]}, "missing_field", {"rejected_key": "worse"}),
        ],
    ),
    "dpo_read_hook": (
        {"chosen": "İ: q assistant: good"},
        [
            ({"rejected": "İ: p assistant: bad"}, "prompts_differ"),
            ({"chosen": "x", "rejected": "y"}, "no_assistant_turn"),
            ({"rejected": [sound.BAD]}, "wrong_type"),
            *(
                ({side: f"q assistant: {text}" for side, text in sides.items()}, "role_order")
                for sides in ({"chosen": "a\n\nHuman: b", "rejected": "c"}, {"chosen": "a", "rejected": "c\n\nHuman: b"})
            ),
        ],
    ),
    **{
        name: (
            {"question": "q", "answer": "r\n#### 1"},
            [
                ({"answer": "It is 72."}, "no_gold"),
                ({"answer": "x\n#### many"}, "bad_gold"),
                ({"answer": "r\n#### 12\nThat is all of them."}, "bad_gold"),
                ({"answer": "First part.\n#### 12\n\nSecond part.\n#### 13"}, "bad_gold"),
                ({"question": " "}, "empty_prompt"),
                ({"answer": None}, "missing_field"),
                ({"question": 5}, "wrong_type"),
                *([({"answer": "#### 5"}, "empty_answer")] if name == "gsm8k" else []),
            ],
        )
        for name in ("gsm8k", "gsm8k_prompt")
    },
    "rl_prompt": (
        {"prompt": "q", "gold": "1"},
        [
            ({"gold": None}, "missing_field"),
            ({"gold": ""}, "no_gold"),
            ({"gold": "forty"}, "bad_gold"),
            ({"gold": NAN}, "bad_gold"),
            ({"gold": True}, "wrong_type"),
            *(({"source": name}, "no_verifier", {"verifier_key": "source"}) for name in ("", " ")),
            ({"tests": ["assert 1"], "language": "cpp"}, "bad_arguments", {"verifier": "code", "arguments_key": "tests"}),
            ({"gold": ["1"]}, "wrong_type"),
            ({"prompt": " "}, "empty_prompt"),
            ({"prompt": [said("system", "s"), USER], "system": "t"}, "two_systems"),
            *(({"prompt": [USER, closing]}, "role_order") for closing in (ANSWER, said("system", "s"))),
            ({"prompt": []}, "empty_prompt"),
            ({"prompt": {"text": "q"}}, "wrong_type"),
            ({"prompt": "<image>q", "images": ["1.jpg"]}, "unsupported_media"),
            ({"prompt": "<image>q", "image": "1.jpg"}, "unsupported_media"),
            ({"a": {}}, "missing_field", {"gold_key": "a.ground_truth"}),
            ({"a": 5}, "wrong_type", {"gold_key": "a.b"}),
        ],
    ),
    "group": (
        {"prompt": "q", "responses": ["a", "b"], "rewards": [1.0, 0.0]},
        [
            ({"rewards": [1.0]}, "length_mismatch"),
            ({"responses": [], "rewards": []}, "length_mismatch"),
            ({"responses": ["a", " "]}, "empty_answer"),
            ({"responses": ["a", [USER]]}, "no_assistant_turn"),
            ({"responses": ["a", [USER, ANSWER]]}, "role_order"),
            ({"responses": ["a", [said("assistant", [{"type": "image"}, {"type": "text", "text": "b"}])]]}, "image_count"),
            ({"rewards": [1.0, None]}, "wrong_type"),
            ({"rewards": [1.0, True]}, "wrong_type"),
            ({"rewards": [1.0, float("inf")]}, "wrong_type"),
            ({"responses": "ab"}, "wrong_type"),
            ({"image": "0.jpg"}, "unsupported_media"),
            ({"history": [["a", "b"]]}, "unsupported_column"),
            ({"label": True}, "unsupported_column"),
        ],
    ),
    "llava": (
        LLAVA,
        [
            (llava("<image><image>", "a"), "image_count"),
            (llava("<image>", "a <image>"), "image_count"),
            (llava("no mark", "a"), "image_count"),
            ({**llava("<image>", "a"), "image": None}, "missing_image"),
            ({**llava("<image>", "a"), "image": ""}, "missing_image"),
            (llava("<image>", " "), "empty_answer"),
            (llava("<image>", "a", " ", "b"), "empty_turn"),
            (llava("<image>"), "no_assistant_turn"),
            (llava("<image>", 5), "wrong_type"),
            (shares({"from": "bot", "value": "x"}), "unknown_role"),
            ({**llava("q", "a"), "image": None, "video": "0.mp4"}, "unsupported_media"),
        ],
    ),
    "finetuning_llava_hook_prompt_completion": (
        sound.LLAVA_HOOK,
        [
            ({"c": [{"r": "system", "v": "s"}, *sound.LLAVA_HOOK["c"]]}, "unknown_role", sound.LLAVA_KEYS),  # type: ignore[misc]
            ({"p": None}, "missing_field", sound.LLAVA_KEYS),
        ],
    ),
    "image_captions": (
        sound.CAPTION,
        [({"cap": ""}, "empty_answer", sound.CAPTION_KEYS), ({"img": {"bytes": "x"}}, "missing_field", sound.CAPTION_KEYS)],
    ),
    "interleaved": (
        {},
        [
            ({"images": ["i"], "texts": ["a", "b"]}, "length_mismatch"),
            ({"images": [None], "texts": [None]}, "interleaving"),
            ({"images": ["i"], "texts": ["a"]}, "interleaving"),
            ({"images": [], "texts": []}, "empty_text"),
            ({"images": [None], "texts": [" "]}, "empty_text"),
            ({"images": [5], "texts": [None]}, "wrong_type"),
            *(
                ({"images": [url], "texts": [None]}, "missing_image", {"image_dir": "d"})
                for url in ("https://x.org/.png", "https://x.org/", "https://[x")
            ),
        ],
    ),
    "semantic": (
        {},
        [
            (array(), "empty_text"),
            (array(Q), "no_assistant_turn"),
            (array(typed("prompt", {"text": "q"})), "no_completion"),
            (array(typed("human", {"text": "q"}), sound.ANSWERED), "unknown_role"),
            (array(Q, typed("completion", {"text": "a"})), "mixed_types"),
            (array({"content": [{"text": "q"}]}, sound.ANSWERED), "mixed_types"),
            (array({"content": [{"text": ""}]}), "empty_text"),
            (array({"content": [{"text": "q"}], "semantic_drop_mask": ["x"]}), "wrong_type"),
            (array(C, R), "empty_prompt"),
            (array(Q, C), "role_order"),
            (array(Q, C, R, sound.ANSWERED), "role_order"),
            *(
                (array(turn, sound.ANSWERED), reason)
                for turn, reason in (
                    (typed("user", {"text": "q"}, {"text": ""}), "empty_region"),
                    (typed("user", {"text": "q"}, loss_weight=[1, 0]), "length_mismatch"),
                    (typed("user", {"text": "q"}, drop_mask=[]), "length_mismatch"),
                    (typed("user", {"text": "q"}, loss_weight=[-1]), "bad_weight"),
                    (typed("user", {"text": "q"}, attention_mask=[2]), "wrong_type"),
                    (typed("user", {"text": "q", "other": "x"}), "wrong_type"),
                    (typed("user", {"text": ["q"]}), "wrong_type"),
                    (typed("user"), "empty_region"),
                    ({"type": "user"}, "missing_field"),
                    (typed("user", {"text": "q"}, loss_weight="1"), "wrong_type"),
                )
            ),
        ],
    ),
    "sections": (
        {},
        [
            ({"title": "a", "text": "cdef"}, "too_short", sound.DOCUMENT),
            ({"title": "ab", "text": "cdefg"}, "too_long", sound.DOCUMENT),
            ({"title": " "}, "nothing_to_train", sound.DOCUMENT),
            ({"p": "q", "r": None}, "nothing_to_train", BOTH),  # AstrAI trains on the word None here
            ({"p": "q", "r": True}, "wrong_type", BOTH),
            (chat(USER), "no_assistant_turn"),
            (chat(USER, ANSWER, images=["1.jpg"]), "unsupported_media"),
            ({"chosen": [USER, ANSWER]}, "missing_field", {"sources": sound.CHATS_IN}),
            ({"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]}, "equal_answers", {"sources": sound.CHATS_IN}),
            ({"p": "q", "r": ["a", ""], "s": [1, 2]}, "empty_answer", {"sources": group()}),
            ({"p": "q", "r": ["a"], "s": [1, 2]}, "length_mismatch", {"sources": group()}),
            ({"p": "", "r": ["a"], "s": [1]}, "empty_prompt", {"sources": group()}),
            ({"p": "q", "r": ["a"], "s": None}, "missing_field", {"sources": group()}),
            ({"p": "q", "r": "a", "s": [1]}, "wrong_type", {"sources": group()}),
        ],
    ),
    "anthropic": (
        ANTHROPIC,
        [
            ({"messages": ANTHROPIC["messages"][:1]}, "no_assistant_turn"),
            ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bad_tools"),
            ({"tools": [{"name": "f"}]}, "missing_field"),
            ({"tools": [{"name": "f", "input_schema": {}}]}, "unknown_tool"),
            ({"system": [{"type": "text"}]}, "missing_field"),
            ({"messages": [said("system", "Be long."), *ANTHROPIC["messages"]]}, "two_systems"),
            ({"messages": [said("assistant", [{"type": "redacted_thinking", "data": "x"}])]}, "unknown_part"),
            (
                {"messages": [*ANTHROPIC["messages"][:2], said("user", [{"type": "tool_result", "tool_use_id": "x", "content": ""}])]},
                "unknown_tool_call",
            ),
            (
                {
                    "messages": [
                        *ANTHROPIC["messages"][:2],
                        said("user", [{"type": "text", "text": "So:"}, *ANTHROPIC["messages"][2]["content"]]),
                    ]
                },
                "unanswered_tool_call",
            ),
            ({"messages": [{**ANTHROPIC["messages"][2], "role": "assistant"}]}, "role_content"),
            ({"messages": [*ANTHROPIC["messages"], said("assistant", [])]}, "empty_answer"),
            ({"messages": [{**ANTHROPIC["messages"][3], "loss_weight": 0}]}, "unsupported_column"),
            ({"functions": ANTHROPIC["tools"]}, "unsupported_column"),
        ],
    ),
    "openai_responses": (
        RESPONSES,
        [
            ({"input": "Hi"}, "no_assistant_turn"),
            ({"tools": [{"type": "web_search"}]}, "bad_tools"),
            ({"input": [{"type": "web_search_call", "id": "w"}]}, "unknown_part"),
            ({"input": [{"type": ["message"]}]}, "unknown_part"),
            ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}, "bad_tool_call"),
            ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "missing_field"),
            ({"input": [USER, {"type": "reasoning", "summary": [{"text": "a"}]}]}, "empty_answer"),
            ({"input": [*RESPONSES["input"][:3], USER, ANSWER]}, "unanswered_tool_call"),
            ({"input": [{**USER, "type": "message", "loss_weight": "x"}, ANSWER]}, "wrong_type"),
            ({"input": [USER, {**ANSWER, "name": "b", "prefix": True}]}, "unsupported_column"),
        ],
    ),
    "arithmetic": (
        {"prompt": "What is 4 - 6?", "gold": "-2"},
        [({"gold": "2"}, "wrong_gold"), ({"prompt": "What is 4 / 6?"}, "not_arithmetic"), ({"gold": None}, "missing_field")],
    ),
    "tokenized": (
        {},
        [
            ({"input_ids": [1, 2]}, "no_mask"),
            ({"labels": [1]}, "missing_field"),
            ({"input_ids": [1, 2], "labels": [1]}, "length_mismatch"),
            ({"input_ids": [1, 2], "loss_mask": [1]}, "length_mismatch"),
            ({"input_ids": [1, 2], "loss_mask": [1, 1], "attention_mask": [1]}, "length_mismatch"),
            ({"input_ids": [], "labels": []}, "empty_text"),
            ({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [0, 0]}, "empty_text"),
            ({"input_ids": [1, True], "labels": [1, 1]}, "wrong_type"),
            ({"input_ids": [1, 2.0], "labels": [1, 2]}, "wrong_type"),
            ({"input_ids": [1, 1 << 70], "labels": [1, 1]}, "wrong_type"),
            ({"input_ids": [1, 2], "loss_mask": [0, "1"]}, "wrong_type"),
            ({"input_ids": [1, 2], "loss_mask": [0, -1]}, "bad_weight"),
            ({"input_ids": [1, 2], "loss_mask": [0, NAN]}, "bad_weight"),
            ({"input_ids": [1, 2, 3], "labels": [2, 3, -100]}, "labels_shifted"),
            ({"input_ids": [1, 2, 3], "labels": [-100, 2, 4]}, "labels_differ"),
            ({**IDS, "loss_mask": [1, 1]}, "masks_disagree"),
            ({"input_ids": [1, 2, 3], "loss_mask": [0, 0, 1], "attention_mask": [1, 0, 1]}, "attention_hole"),
            ({"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "attention_mask": [1, 1, 0]}, "trained_padding"),
            ({**IDS, "attention_mask": [1, 2]}, "packed_row"),
            ({**IDS, "attention_mask": [1, -1]}, "wrong_type"),
            ({**IDS, "seq_lengths": [1, 1]}, "packed_row"),
            ({**IDS, "position_ids": [0, 0]}, "packed_row"),
            ({**IDS, "messages": MASKED_CHAT}, "masks_disagree"),
        ],
    ),
}
