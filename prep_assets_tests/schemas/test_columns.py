"""Fields whose meaning is known are read wherever they stand, or their row is refused; none of them vanishes."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from prep_assets.errors import Refused
from prep_assets.samples import THINKING, TOOL_CALL, Pair, Sample
from prep_assets.schemas.tools import MOST_SHARED, tools_at

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
CHATS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [QUESTION, ANSWER]},
    "sharegpt": {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    "alpaca": {"instruction": "q", "output": "a"},
    "kto": {"messages": [QUESTION, ANSWER], "label": True},
    "llava": {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    "prompt_completion": {"prompt": [QUESTION], "completion": [ANSWER]},
}
PAIRS: dict[str, dict[str, Any]] = {
    "preference": {"prompt": "q", "chosen": "a", "rejected": "b"},
    "alpaca_pairwise": {"instruction": "q", "chosen": "a", "rejected": "b"},
    "hh": {"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"},
    "ultrafeedback": {"prompt": "q", "chosen": [QUESTION, ANSWER], "rejected": [QUESTION, {**ANSWER, "content": "b"}]},
    "sharegpt_pairwise": {
        "conversations": [{"from": "human", "value": "q"}],
        "chosen": {"from": "gpt", "value": "a"},
        "rejected": {"from": "gpt", "value": "b"},
    },
}
PROMPTS: dict[str, dict[str, Any]] = {
    "rl_prompt": {"prompt": "q", "gold": "1"},
    "group": {"prompt": "q", "responses": ["a", "b"], "rewards": [1, 0]},
}
PLAIN: dict[str, dict[str, Any]] = {
    "instruction": {"prompt": "q", "response": "a"},
    "prompt_completion": {"prompt": "q", "completion": "a"},
    "common_words_mask": {"prompt": "q", "completion": "a"},
    "text": {"text": "a"},
    "gsm8k": {"question": "q", "answer": "r\n#### 1"},
    "sections": {"messages": [QUESTION, ANSWER]},
    "GeneralInstructionHandler": {"instruction": "q", "output": "a"},
}
OFFERED = {
    "documents": [{"title": "t", "text": "d"}],
    "chat_template_kwargs": {"enable_thinking": False},
}


@pytest.mark.parametrize("tools", ["tools", "functions", "available_tools"])
@pytest.mark.parametrize(("name", "row"), [*CHATS.items(), *PAIRS.items(), *PROMPTS.items()])
def test_what_a_row_offers_its_answers_is_carried(convert, name: str, row: dict[str, Any], tools: str) -> None:
    """Audit W11 and W19: a system prompt, tools, documents and variables of the template vanished from most schemas."""
    example = convert(name, {**row, "system": "Be brief.", tools: json.dumps([TOOL]), **OFFERED})
    turns = example.turns if isinstance(example, Sample) else example.prompt
    assert (turns[0].role, turns[0].text) == ("system", "Be brief.")
    assert (example.tools, example.documents, example.template_options) == (
        (TOOL,),
        tuple(OFFERED["documents"]),
        OFFERED["chat_template_kwargs"],
    )


MORE = {**OFFERED, "system": "s", "tools": [TOOL], "history": [["q", "a"]], "thinking": "t", "margin": 1, "context": "c"}


@pytest.mark.parametrize("field", MORE)
@pytest.mark.parametrize("name", PLAIN)
def test_what_has_no_place_refuses_its_row(refusal, name: str, field: str) -> None:
    if (name, field) == ("GeneralInstructionHandler", "history"):
        return  # the next test
    if name == "GeneralInstructionHandler" and field in ("tools", "documents", "chat_template_kwargs", "thinking"):
        return  # rendered by a template, so it is carried
    found = refusal(name, {**PLAIN[name], field: MORE[field]})
    assert found.reason == "unsupported_column" and repr(field) in found.detail


@pytest.mark.parametrize("name", [*CHATS, *PAIRS, *PROMPTS])
def test_history_and_inputs_belong_to_the_prompt(refusal, convert, name: str) -> None:
    row = {**CHATS, **PAIRS, **PROMPTS}[name]
    if name.startswith("alpaca"):
        turns = convert(name, {**row, "history": [["x", "y"]], "input": "more"})
        texts = [turn.text for turn in (turns.turns if isinstance(turns, Sample) else turns.prompt)]
        assert texts[:2] == ["x", "y"] and texts[2].endswith("more")
    else:
        for field in ("history", "input", "context"):
            assert refusal(name, {**row, field: [["x", "y"]] if field == "history" else "x"}).reason == "unsupported_column"


@pytest.mark.parametrize(
    ("name", "row"), [*((name, row) for name, row in CHATS.items() if name != "kto"), ("instruction", PLAIN["instruction"])]
)
@pytest.mark.parametrize("field", ["label", "kto_tag"])
def test_a_label_is_kept(convert, refusal, name: str, row: dict[str, Any], field: str) -> None:
    """Audit W18: the bad answers of prompt_completion and instruction were trained."""
    assert [convert(name, {**row, field: value}).label for value in (True, False, None)] == [True, False, None]
    assert refusal(name, {**row, field: 3}).reason == "wrong_type"
    assert refusal(name, {**row, "label": True, "kto_tag": False}).reason == "conflicting_labels"


def weights(turns: Any) -> list[float | None]:
    return [region.loss_weight for turn in turns for region in turn.regions]


@pytest.mark.parametrize("name", CHATS)
def test_the_weight_of_a_row_is_that_of_its_answers(convert, refusal, name: str) -> None:
    for field, value, expected in (("weight", 0.5, 0.5), ("train", True, None), ("weight", 1, None)):
        found = weights(convert(name, {**CHATS[name], field: value}).turns)
        assert found == [None, expected], (field, value)
    for field, nothing in (("loss_mask", 0), ("training", False), ("weight", -0.0)):
        assert refusal(name, {**CHATS[name], field: nothing}).reason == "nothing_to_train"


@pytest.mark.parametrize("weight", [1e39, 3e38, 1e-50, 1e-31, -1e-3])
def test_a_weight_that_its_store_cannot_hold_is_refused(convert, refusal, weight: float) -> None:
    """As float32 it would be infinite, or nothing."""
    assert refusal("messages", {"messages": [QUESTION, {**ANSWER, "weight": weight}]}).reason == "bad_weight"
    assert refusal("tokenized", {"input_ids": [1, 2], "loss_mask": [0, weight]}).reason == "bad_weight"
    row = {"messages": [QUESTION, {**ANSWER, "weight": 1e-20}]}
    assert refusal("messages", {**row, "loss_weight": 1e-20}).reason == "bad_weight"
    assert weights(convert("messages", {**row, "loss_weight": 1e20}).turns) == [None, 1.0]


def test_the_weight_of_a_message_goes_before_the_action_of_its_section(convert) -> None:
    """`train: false` of a message was read, and the message trained."""
    row = {"messages": [QUESTION, {**ANSWER, "train": False}, QUESTION, ANSWER]}
    for action, weight in (("train", 1.0), ("mask", 0.0)):
        sections = [{"field": "messages", "action": action, "template": True}, {"field": "more", "action": "$role", "template": True}]
        sample = convert("sections", {**row, "more": [QUESTION, ANSWER]}, sections=sections)
        assert weights(sample.turns) == [weight, 0.0, weight, weight, None, None]


@pytest.mark.parametrize("field", ["reasoning", "thinking", "refusal"])
@pytest.mark.parametrize("value", [0, False, 0.0])
def test_what_is_no_text_does_not_vanish_as_if_it_were_empty(refusal, field: str, value: object) -> None:
    assert refusal("messages", {"messages": [QUESTION, {**ANSWER, "content": "", field: value}]}).reason == "wrong_type"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), datetime(2026, 1, 1), b"x"])
def test_what_json_cannot_write_reaches_no_template(refusal, value: object) -> None:
    """Parquet files hold such values; a template wrote `NaN` among the tools, and lines of JSON null."""
    for field, content, reason in (
        ("tools", [{**TOOL, "strict": value}], "bad_tools"),
        ("documents", [{"text": value}], "wrong_type"),
        ("chat_template_kwargs", {"today": value}, "wrong_type"),
    ):
        found = refusal("messages", {**CHATS["messages"], field: content})
        assert found.reason == reason and found.detail.startswith(f"{field} cannot be written as JSON")


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_keep_the_weight_and_the_margin_of_their_row(convert, name: str) -> None:
    pair = convert(name, {**PAIRS[name], "weight": 0.25, "margin": 1.5})
    assert isinstance(pair, Pair)
    assert (pair.margin, weights(pair.prompt), weights(pair.chosen), weights(pair.rejected)) == (1.5, [None], [0.25], [0.25])


@pytest.mark.parametrize(("field", "value"), [("training", False), ("loss_mask", 0), ("train", False), ("loss", False), ("weight", 0)])
def test_a_message_that_is_not_to_be_trained_weighs_nothing(convert, field: str, value: object) -> None:
    """Audit W18: `training: false` and `loss_mask: 0` of a message were ignored."""
    row = {"messages": [QUESTION, {**ANSWER, field: value}, QUESTION, ANSWER], "weight": 0.5}
    assert weights(convert("messages", row).turns) == [None, 0, None, 0.5]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking", "thought", "tool_plan", "Complex_CoT"])
def test_reasoning_in_all_its_spellings(convert, field: str) -> None:
    for example in (
        convert("messages", {"messages": [QUESTION, {**ANSWER, field: "hm"}]}),
        convert("alpaca", {**CHATS["alpaca"], field: "hm"}),
    ):
        assert [(region.kind, region.text) for region in example.turns[-1].regions] == [(THINKING, "hm"), ("text", "a")]


def test_reasoning_in_parts(convert, refusal) -> None:
    parts = [
        {"type": "reasoning.text", "text": "h", "signature": "x", "format": "f", "index": 0},
        {"type": "reasoning.summary", "summary": "m"},
    ]
    told = {**ANSWER, "reasoning_details": parts, "reasoning": "hm"}
    assert convert("messages", {"messages": [QUESTION, told]}).turns[1].regions[0].text == "hm"
    hidden = {**ANSWER, "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}
    assert refusal("messages", {"messages": [QUESTION, hidden]}).reason == "unknown_part"
    assert refusal("messages", {"messages": [QUESTION, {**told, "reasoning": "no"}]}).reason == "conflicting_reasoning"


@pytest.mark.parametrize("key", ["arguments", "parameters", "input"])
@pytest.mark.parametrize("field", ["tool_calls", "function_call", "function_calls"])
def test_arguments_in_all_their_spellings(convert, refusal, key: str, field: str) -> None:
    """Audit W1: arguments under `parameters` or `input` became {}, and the empty call was trained."""
    call = {"name": "f", key: {"x": 1}}
    for given in (call, [call], json.dumps([call]), {"type": "function", "id": "c1", "function": {"name": "f", key: json.dumps({"x": 1})}}):
        found = convert("messages", {"messages": [QUESTION, {"role": "assistant", field: given}]}).turns[1].regions
        (text,) = (region.text for region in found if region.kind == TOOL_CALL)
        assert {**json.loads(text), "id": None} == {"name": "f", "arguments": {"x": 1}, "id": None}
        assert json.loads(text).get("id") == ("c1" if isinstance(given, dict) and "id" in given else None)
    both = {"name": "f", "arguments": {"x": 1}, "parameters": {"y": 2}}
    assert refusal("messages", {"messages": [QUESTION, {"role": "assistant", field: both}]}).reason == "bad_tool_call"


def test_parts_keep_their_order(convert) -> None:
    """Audit W4: text, call, text; thought, text, thought, text."""
    parts = [
        {"type": "text", "text": "A"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "B"},
    ]
    (turn,) = convert("messages", {"messages": [QUESTION, {"role": "assistant", "content": parts}]}).turns[1:]
    assert [region.kind for region in turn.regions] == ["text", TOOL_CALL, THINKING, "text"]


def test_a_refusal_is_an_answer_and_a_prefix_is_none(convert, refusal) -> None:
    chat = {"messages": [QUESTION, {"role": "assistant", "content": None, "refusal": "No.", "prefix": False}]}
    assert convert("messages", chat).turns[1].text == "No."
    assert refusal("messages", {"messages": [QUESTION, {**ANSWER, "refusal": "No."}]}).reason == "conflicting_content"
    assert refusal("messages", {"messages": [QUESTION, {**ANSWER, "prefix": True}]}).reason == "open_prefix"


def test_tools_that_a_message_offers(convert, refusal) -> None:
    system = {"role": "system", "content": "s", "functions": json.dumps([TOOL])}
    assert convert("messages", {"messages": [system, QUESTION, ANSWER]}).tools == (TOOL,)
    other = {"type": "function", "function": {"name": "g"}}
    assert refusal("messages", {"messages": [system, QUESTION, ANSWER], "tools": [other]}).reason == "conflicting_tools"


def test_scores_that_contradict_the_choice_are_refused(convert, refusal) -> None:
    """UltraFeedback's answers of score 1 that became 10: a choice that its own scores contradict."""
    row = PAIRS["ultrafeedback"]
    assert refusal("ultrafeedback", {**row, "score_chosen": 1.0, "score_rejected": 4.5}).reason == "score_contradicts"
    assert convert("ultrafeedback", {**row, "score_chosen": 4.5, "score_rejected": 4.5})
    for side in ("chosen", "rejected"):
        spoken = [*row[side][:1], {**row[side][1], "tool_calls": [{"name": "f"}]}]
        assert refusal("ultrafeedback", {**row, side: spoken}).reason == "unsupported_column"


def test_tools_of_the_same_text_are_read_once() -> None:
    text = '[{"name": "get"}]'
    assert tools_at({"tools": text}, "tools") is tools_at({"tools": str(text)}, "tools")
    long = text + " " * MOST_SHARED
    assert tools_at({"tools": long}, "tools") == tools_at({"tools": long}, "tools") == tools_at({"tools": text}, "tools")
    assert tools_at({"tools": long}, "tools") is not tools_at({"tools": long}, "tools")
    for _ in range(2):
        with pytest.raises(Refused, match="is not JSON"):
            tools_at({"tools": "{"}, "tools")
