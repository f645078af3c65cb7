"""A view is the row itself, and notes what is taken of it."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import string
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import THINKING, TOOL_CALL, Example, Pair, Sample, Turn
from prep_assets.schemas.fields import View, unread, view_of, whole
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets.schemas.turns import MOST_SHARED, tools_at
from prep_assets_tests.cells import cells
from prep_assets_tests.effort import examples

ROW: dict[str, Any] = {
    "id": 1,
    "blank": "",
    "none": None,
    "empty": [{}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q", "cache": True}]},
        {"role": "assistant", "calls": [{"name": "f"}]},
    ],
    "turns": {"turn_1": {"human": "a", "thought": "b"}, "turn_2": {"human": "c", "thought": "d"}},
    "zero": 0,
    "no": False,
}


def paths(row: View) -> list[str]:
    return list(dict(unread(row)))


def test_what_nobody_takes_is_unread_unless_it_holds_nothing() -> None:
    assert paths(view_of(ROW)) == ["id", "empty", "messages", "turns", "zero", "no"]


def test_it_is_noted_at_every_level() -> None:
    row = view_of(ROW)
    for key in ("id", "empty", "zero", "no"):
        row[key]
    for message in row["messages"]:
        for part in message.get("content") or ():
            assert part["text"] == "q"
    assert [turn["human"] for turn in row["turns"].values()] == ["a", "c"]
    assert paths(row) == ["messages.role", "messages", "messages.content.type", "messages.content.cache", "turns.*.thought"]


def test_an_element_that_nobody_looks_into_is_unread() -> None:
    """Only the second of three messages is taken; the others are not passed over with it."""
    row = view_of({"messages": [{"content": "a"}, {"content": "b"}, {"content": "c"}]})
    assert row["messages"][1]["content"] == "b"
    assert unread(row) == [("messages", {"content": "a"}), ("messages", {"content": "c"})]


TAKES: dict[str, Callable[[View], object]] = {
    "json.dumps": json.dumps,
    "repr": repr,
    "an f-string": lambda row: f"{row}",
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "whole": whole,
    "keywords": lambda row: json.dumps((lambda **fields: fields)(**row)),
    "unpacking": lambda row: json.dumps({**row}),
    "dict": lambda row: json.dumps(dict(row)),
    "copy": lambda row: json.dumps(copy.copy(row)),
    ".copy": lambda row: json.dumps(row.copy()),
    "or": lambda row: json.dumps(row | {"more": 1}),
    "ror": lambda row: json.dumps({"more": 1} | row),
    "items": lambda row: [json.dumps(value) for _, value in row.items()],
    "values": lambda row: [json.dumps(value) for value in row.values()],
    "pop": lambda row: [json.dumps(row.pop(key)) for key in list(row)],
    "del": lambda row: [row.__delitem__(key) for key in list(row)],
}


@pytest.mark.parametrize("way", TAKES)
def test_whatever_takes_all_fields_reads_them_all(way: str) -> None:
    row = view_of(ROW)
    TAKES[way](row)
    assert unread(row) == []


def test_looking_for_a_key_takes_nothing() -> None:
    row = view_of({"a": 1, "b": 2})
    assert "a" in row and list(row) == ["a", "b"] and len(row) == 2 and row.get("c") is None
    assert paths(row) == ["a", "b"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=12,
)
ROWS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def said(value: Any) -> bool:
    """Whether a field holds something, worked out in the plain way."""
    return value not in (None, "", [], {})


@given(ROWS)
def test_a_view_is_equal_to_its_row_and_leaves_it_alone(value: dict[str, Any]) -> None:
    before = copy.deepcopy(value)
    row = view_of(value)
    assert row == value and isinstance(row, dict)
    assert json.dumps(row) == json.dumps(value) and whole(row) == value
    row.clear()
    assert value == before


@given(ROWS, st.data())
def test_no_field_with_content_is_missed(value: dict[str, Any], data: st.DataObject) -> None:
    """Fields are taken at random, some of them with all that they hold; the others must be named, and nothing else."""
    row = view_of(value)
    expected = set()
    for key in value:
        how = data.draw(st.sampled_from(["leave", "take", "whole"]))
        if how == "whole":
            whole(row[key])
        elif how == "take" and isinstance(value[key], dict) and value[key]:
            first = next(iter(value[key]))
            whole(row[key][first])
            expected |= {f"{key}.{inner}" for inner in value[key] if inner != first and said(value[key][inner])}
        elif how == "take" and not isinstance(value[key], dict | list):
            row[key]
        elif said(value[key]):
            expected.add(key)
    assert set(dict(unread(row))) == expected


def test_a_converted_or_rejected_row_leaves_no_garbage() -> None:
    """Rows are read with few searches for garbage: a text of each row in 64 stayed in memory as long as its check lasted."""
    reader = Reader(convert_with("messages", {}, gives=Sample), Account())
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": 1},
        {"messages": [{"role": "user", "content": 1}]},
    ]

    def read() -> None:
        for row in rows:
            with suppress(Refused):
                apply(reader, row)

    read()
    gc.freeze()  # the search looks at what comes from here on
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        read()
        gc.collect()
        # other tests' threads leave garbage too
        left = [
            type(each).__name__
            for each in gc.garbage
            if type(each).__module__.startswith("prep_assets.schemas") or isinstance(each, Refused)
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []


# -- whatever JSON a row is, a schema converts it or refuses it with a reason of its own -------------------------------------------------


NAMES = list(schemas())
FIELDS = sorted({key for found in schemas().values() for key in found.example} | {"role", "content", "type", "value", "images", "tools"})
WORDS = [
    "",
    " ",
    *["user", "assistant", "human", "gpt", "tool", "system", "text", "image", "<image>", "####", "{}", "[1]"],
    "#### 5",
    "\n\nAssistant: x",
]

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(WORDS)
keys = st.sampled_from(FIELDS) | st.text(string.ascii_letters, max_size=4)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12)
rows = st.dictionaries(keys, values, max_size=6)


def require_example_or_refusal(name: str, row: dict[str, Any]) -> None:
    try:
        example = apply(convert_with(name), row)
    except Refused as refusal:
        assert refusal.reason not in ("schema_error", "skipped_by_schema"), refusal.detail
        assert refusal.detail and refusal.stage == "schema"
    else:
        assert isinstance(example, get_args(Example))
        assert all(isinstance(turn, Turn) and turn.regions for turn in turns_of(example))


def turns_of(example: Any) -> list[Turn]:
    found = [getattr(example, part) for part in ("turns", "prompt", "chosen", "rejected") if hasattr(example, part)]
    return [turn for turns in (*found, *getattr(example, "responses", ())) for turn in turns]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value inside `value`, itself left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*path, key), *places(inner, (*path, key)))]


@cells("name", NAMES)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(row=rows)
def test_arbitrary_json_is_converted_or_refused(name: str, row: dict[str, Any]) -> None:
    require_example_or_refusal(name, row)


@cells("name", NAMES)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_an_example_row_with_something_altered_is_converted_or_refused(name: str, data: st.DataObject) -> None:
    row: Any = copy.deepcopy(dict(schemas()[name].example))
    for _ in range(data.draw(st.integers(1, 3))):
        if not (all_places := places(row)):
            break
        *path, last = data.draw(st.sampled_from(all_places))
        inside = row
        for key in path:
            inside = inside[key]
        action = data.draw(st.sampled_from(["replace", "remove", "double"]))
        if action == "replace":
            inside[last] = data.draw(values)
        elif action == "remove":
            del inside[last]
        elif isinstance(inside, list):
            inside.insert(last, copy.deepcopy(inside[last]))
        else:
            inside[data.draw(keys)] = copy.deepcopy(inside[last])
    require_example_or_refusal(name, row)


@cells("name", NAMES)
def test_a_row_of_nulls_and_an_empty_row_are_refused(name: str) -> None:
    for row in ({}, dict.fromkeys(schemas()[name].example)):
        with pytest.raises(Refused) as caught:
            apply(convert_with(name), row)
        assert caught.value.reason in ("missing_field", "nothing_to_train")


# -- fields whose meaning is known are read wherever they stand, or their row is refused; none of them vanishes --------------------------


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
OFFERED = {"documents": [{"title": "t", "text": "d"}], "chat_template_kwargs": {"enable_thinking": False}}


@cells("tools", ["tools", "functions", "available_tools"])
@cells(("name", "row"), [*CHATS.items(), *PAIRS.items(), *PROMPTS.items()])
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


@pytest.mark.parametrize("empty", ["", None, [], {}])
@pytest.mark.parametrize("as_text", [False, True])
def test_an_empty_template_variable_is_absent(convert, empty: object, as_text: bool) -> None:
    """smoltalk2 has `custom_instructions: ""` in every row; Arrow gives each row the keys of all others, as null."""
    options = {"enable_thinking": False, "custom_instructions": empty}
    row = {**CHATS["messages"], "chat_template_kwargs": json.dumps(options) if as_text else options}
    assert convert("messages", row).template_options == {"enable_thinking": False}


MORE = {**OFFERED, "system": "s", "tools": [TOOL], "history": [["q", "a"]], "thinking": "t", "margin": 1, "context": "c"}


@cells("field", MORE)
@cells("name", PLAIN)
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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), datetime(2026, 1, 1), b"\xff"])
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
    for calls in (call, [call], json.dumps([call]), {"type": "function", "id": "c1", "function": {"name": "f", key: json.dumps({"x": 1})}}):
        found = convert("messages", {"messages": [QUESTION, {"role": "assistant", field: calls}]}).turns[1].regions
        (text,) = (region.text for region in found if region.kind == TOOL_CALL)
        assert {**json.loads(text), "id": None} == {"name": "f", "arguments": {"x": 1}, "id": None}
        assert json.loads(text).get("id") == ("c1" if isinstance(calls, dict) and "id" in calls else None)
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


def test_tools_that_a_message_offers(convert, refusal) -> None:
    system = {"role": "system", "content": "s", "functions": json.dumps([TOOL])}
    assert convert("messages", {"messages": [system, QUESTION, ANSWER]}).tools == (TOOL,)
    other = {"type": "function", "function": {"name": "g"}}
    assert refusal("messages", {"messages": [system, QUESTION, ANSWER], "tools": [other]}).reason == "conflicting_tools"


def test_tools_of_the_same_text_are_read_once() -> None:
    text = '[{"name": "get"}]'
    assert tools_at({"tools": text}, "tools") is tools_at({"tools": str(text)}, "tools")
    long = text + " " * MOST_SHARED
    assert tools_at({"tools": long}, "tools") == tools_at({"tools": long}, "tools") == tools_at({"tools": text}, "tools")
    assert tools_at({"tools": long}, "tools") is not tools_at({"tools": long}, "tools")
    for _ in range(2):
        with pytest.raises(Refused, match="is not JSON"):
            tools_at({"tools": "{"}, "tools")
