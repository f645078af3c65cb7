"""OpenAI messages and what their relatives add to them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL_CALL, PlainChat, Region, Sample
from prep_assets.schemas import reader
from prep_assets.schemas.reader import Account, Reader, apply
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.effort import examples

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é", "y": [1, 2.5]}'}}


def chat(*messages, **columns):
    return {"messages": list(messages), **columns}


def regions(sample, turn):
    return [(region.kind, region.text) for region in sample.turns[turn].regions]


def test_text_is_kept_character_for_character(convert, said) -> None:
    row = chat({"role": "system", "content": ""}, {"role": "user", "content": " q\n"}, {"role": "assistant", "content": "\ta "})
    assert said(convert("messages", row).turns) == [("system", ""), ("user", " q\n"), ("assistant", "\ta ")]


def test_developer_is_system_and_function_is_tool(convert, said) -> None:
    row = chat({"role": "developer", "content": "s"}, USER, ANSWER, {"role": "function", "name": "f", "content": "r"}, ANSWER)
    sample = convert("messages", row)
    assert [turn.role for turn in sample.turns] == ["system", "user", "assistant", "tool", "assistant"]
    assert sample.turns[3].name == "f"


def test_an_unknown_role_is_refused_by_name_with_the_known_ones(refusal) -> None:
    refused = refusal("messages", chat({"role": "human", "content": "q"}, ANSWER))
    assert refused.reason == "unknown_role"
    assert "messages[0] has role 'human'" in refused.detail
    assert "known tags: system, developer, user, assistant, tool, function" in refused.detail


def test_roles_can_be_renamed_and_added(convert, said) -> None:
    row = {"c": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"from": "critic", "value": "x"}]}
    options = {"messages_key": "c", "role_key": "from", "content_key": "value"}
    sample = convert("messages", row, **options, roles={"human": "user", "gpt": "assistant", "critic": "critic"})
    assert said(sample.turns) == [("user", "q"), ("assistant", "a"), ("critic", "x")]


def test_tool_calls_and_results(convert) -> None:
    row = chat(
        USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "4"}, ANSWER
    )
    sample = convert("messages", row)
    assert regions(sample, 1) == [(TOOL_CALL, '{"name":"f","arguments":{"x":"é","y":[1,2.5]},"id":"c1"}')]
    assert (sample.turns[2].role, sample.turns[2].tool_call_id, sample.turns[2].text) == ("tool", "c1", "4")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"name": "f", "arguments": {"x": 1}}, '{"name":"f","arguments":{"x":1}}'),
        ({"name": "f", "arguments": ""}, '{"name":"f","arguments":{}}'),
        ({"name": "f"}, '{"name":"f","arguments":{}}'),
        ({"function": {"name": "f", "arguments": {}}}, '{"name":"f","arguments":{}}'),
    ],
)
def test_forms_of_a_call(convert, call, text) -> None:
    for field, value in (("tool_calls", [call]), ("function_call", call)):
        assert regions(convert("messages", chat(USER, {"role": "assistant", field: value})), 1) == [(TOOL_CALL, text)]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"name": "f", "arguments": "{"}, "bad_tool_call"),
        ({"name": "f", "arguments": "[1]"}, "bad_tool_call"),
        ({"name": "f", "arguments": [1]}, "bad_tool_call"),
        ({"name": "f", "arguments": '{"x": NaN}'}, "bad_tool_call"),
        ({"name": " "}, "bad_tool_call"),
        ({"arguments": {}}, "missing_field"),
        ({"name": 5}, "wrong_type"),
        ("f()", "wrong_type"),
    ],
)
def test_calls_that_are_none_are_refused(refusal, call, reason) -> None:
    assert refusal("messages", chat(USER, {"role": "assistant", "tool_calls": [call]})).reason == reason


def test_text_and_reasoning_stand_before_calls(convert) -> None:
    message = {"role": "assistant", "reasoning_content": "hm", "content": "see:", "tool_calls": [CALL]}
    assert [kind for kind, _ in regions(convert("messages", chat(USER, message)), 1)] == [THINKING, TEXT, TOOL_CALL]


def test_one_reasoning_under_two_names_is_one_and_two_are_refused(convert, refusal) -> None:
    same = {**ANSWER, "reasoning": "hm", "reasoning_content": "hm"}
    assert regions(convert("messages", chat(USER, same)), 1) == [(THINKING, "hm"), (TEXT, "a")]
    assert refusal("messages", chat(USER, {**same, "reasoning": "oh"})).reason == "conflicting_reasoning"


def test_content_parts_of_openai_and_of_llama_factory(convert) -> None:
    parts = [
        {"type": "reasoning", "value": "hm"},
        {"type": "text", "text": "a"},
        {"type": "text", "value": "b"},
        {"type": "tool_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
    ]
    sample = convert("messages", chat(USER, {"role": "assistant", "content": parts}))
    assert regions(sample, 1) == [(THINKING, "hm"), (TEXT, "a"), (TEXT, "b"), (TOOL_CALL, '{"name":"f","arguments":{"x":1}}')]


def test_forms_of_an_image_part(convert) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "1.jpg"}},
        {"type": "image_url", "value": "2.jpg"},
        {"type": "image", "path": "3.jpg"},
        {"type": "image"},
    ]
    sample = convert("messages", chat({"role": "user", "content": parts}, ANSWER, images=[{"path": "4.jpg", "bytes": None}]))
    assert regions(sample, 0) == [(IMAGE, f"{number}.jpg") for number in (1, 2, 3, 4)]


def test_an_unknown_part_is_refused_by_name(refusal) -> None:
    refused = refusal("messages", chat({"role": "user", "content": [{"type": "audio", "value": "x.wav"}]}, ANSWER))
    assert refused.reason == "unknown_part"
    assert "messages[0].content[0] has type 'audio'" in refused.detail


def test_marks_in_the_text_take_the_images_in_order(convert) -> None:
    row = chat({"role": "user", "content": "<image>Who?<image>"}, ANSWER, {"role": "user", "content": "and <image>"}, ANSWER)
    sample = convert("messages", {**row, "images": ["1.jpg", "2.jpg", "3.jpg"]})
    assert regions(sample, 0) == [(IMAGE, "1.jpg"), (TEXT, "Who?"), (IMAGE, "2.jpg")]
    assert regions(sample, 2) == [(TEXT, "and "), (IMAGE, "3.jpg")]


def test_a_mark_is_text_where_the_row_has_no_images(convert) -> None:
    sample = convert("messages", chat({"role": "user", "content": "What is <image> in HTML?"}, ANSWER))
    assert regions(sample, 0) == [(TEXT, "What is <image> in HTML?")]


@pytest.mark.parametrize(("text", "images"), [("<image><image>", ["1.jpg"]), ("<image>", ["1.jpg", "2.jpg"]), ("<image>", [])])
def test_as_many_marks_as_images(refusal, text, images) -> None:
    assert refusal("messages", chat({"role": "user", "content": text}, ANSWER, images=images)).reason == "image_count"


@pytest.mark.parametrize("image", ["0.jpg", {"path": "0.jpg", "bytes": None}, ["0.jpg"]])
@pytest.mark.parametrize("schema", ["messages", "sharegpt", "sharegpt_pairwise"])
def test_a_column_image_stands_in_for_images(convert, refusal, schema, image) -> None:
    def row(text, **columns):
        if schema == "messages":
            return chat({"role": "user", "content": text}, ANSWER, **columns)
        human, answer = {"from": "human", "value": text}, {"from": "gpt", "value": "a"}
        if schema == "sharegpt":
            return {"conversations": [human, answer], **columns}
        return {"conversations": [human], "chosen": answer, "rejected": {"from": "gpt", "value": "b"}, **columns}

    def first(example):
        return (example.prompt if schema == "sharegpt_pairwise" else example.turns)[0].regions

    found = first(convert(schema, row("<image>who", image=image)))
    assert [(each.kind, each.text) for each in found] == [(IMAGE, "0.jpg"), (TEXT, "who")]
    assert refusal(schema, row("who", image=image)).reason == "image_count"
    assert refusal(schema, row("<image><image>", image=image)).reason == "image_count"
    assert refusal(schema, row("<image>", image="")).reason == "image_count"
    assert [each.text for each in first(convert(schema, row("who", image="")))] == ["who"]
    assert refusal(schema, row("<image>", images=["1.jpg"], image=image)).reason == "unsupported_media"
    assert refusal(schema, row("<image>", pictures=["1.jpg"], image=image), images_key="pictures").reason == "unsupported_media"


def test_videos_and_audios_are_refused_not_ignored(convert, refusal) -> None:
    for columns in ({"videos": ["1.mp4"]}, {"video": "1.mp4"}, {"audio": {"bytes": "x"}}):
        assert refusal("messages", chat(USER, ANSWER, **columns)).reason == "unsupported_media"
    assert len(convert("messages", chat(USER, ANSWER, videos=[], audios=None)).turns) == 2


@pytest.mark.parametrize(
    ("fields", "weight"),
    [
        ({"weight": 0}, 0.0),
        ({"loss_weight": 0.25}, 0.25),
        ({"train": False}, 0.0),
        ({"loss": True}, 1.0),
        ({"train": True, "weight": 1}, 1.0),
        ({"weight": None}, None),
    ],
)
def test_weights_of_messages(convert, fields, weight) -> None:
    message = {**ANSWER, "reasoning_content": "hm", **fields}
    assert [region.loss_weight for region in convert("messages", chat(USER, message)).turns[1].regions] == [weight, weight]


def test_the_weight_of_a_part_goes_before_its_message(convert) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "weight": 0.5}]
    sample = convert("messages", chat(USER, {"role": "assistant", "content": parts, "weight": 0}))
    assert sample.turns[1].regions == (Region(TEXT, "a", 0.0), Region(TEXT, "b", 0.5))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"train": True, "weight": 0}, "conflicting_weights"),
        ({"weight": -1}, "bad_weight"),
        ({"weight": "1"}, "wrong_type"),
        ({"loss_weight": float("nan")}, "wrong_type"),
        ({"train": 1}, "wrong_type"),
    ],
)
def test_weights_that_mean_nothing_are_refused(refusal, fields, reason) -> None:
    assert refusal("messages", chat(USER, {**ANSWER, **fields})).reason == reason


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "f", "parameters": {}}],
        {"name": "f", "parameters": {}},
        '[{"name": "f", "parameters": {}}]',
        [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    ],
)
def test_tools_come_out_as_templates_look_for_them(convert, tools) -> None:
    sample = convert("messages", chat(USER, ANSWER, tools=tools))
    assert sample.tools == ({"type": "function", "function": {"name": "f", "parameters": {}}},)


@pytest.mark.parametrize("tools", [None, "", " ", [], "[]"])
def test_no_tools(convert, tools) -> None:
    assert convert("messages", chat(USER, ANSWER, tools=tools)).tools == ()


@pytest.mark.parametrize(("tools", "reason"), [("{", "bad_tools"), ([{}], "bad_tools"), ([5], "wrong_type"), ("5", "wrong_type")])
def test_tools_that_are_none_are_refused(refusal, tools, reason) -> None:
    assert refusal("messages", chat(USER, ANSWER, tools=tools)).reason == reason


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([USER], "no_assistant_turn"),
        ([], "no_assistant_turn"),
        ("hello", "wrong_type"),
        (["hello"], "wrong_type"),
        ([USER, {"role": "assistant", "content": " "}], "empty_answer"),
        ([USER, {"role": "assistant", "content": None}], "empty_answer"),
        ([USER, {"role": "assistant", "content": "", "reasoning_content": "hm"}], "empty_answer"),
        ([{"role": "user", "content": "\n"}, ANSWER], "empty_turn"),
        ([{"role": "user", "content": "q", "tool_calls": [CALL]}, ANSWER], "role_content"),
        ([{"role": "user", "content": "q", "reasoning_content": "hm"}, ANSWER], "role_content"),
        ([USER, {"role": "tool", "content": "4"}, ANSWER], "role_order"),
        ([{"content": "q"}, ANSWER], "missing_field"),
        ([{"role": ["user"], "content": "q"}, ANSWER], "wrong_type"),
        ([USER, {**ANSWER, "name": 5}], "wrong_type"),
        ([USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c2", "content": "4"}], "unknown_tool_call"),
    ],
)
def test_chats_that_are_none_are_refused(refusal, messages, reason) -> None:
    assert refusal("messages", {"messages": messages}).reason == reason


def test_a_tool_may_answer_nothing_and_several_tools_may_answer_in_a_row(convert) -> None:
    second = {**CALL, "id": "c2"}
    results = [{"role": "tool", "tool_call_id": name, "content": ""} for name in ("c1", "c2")]
    sample = convert("messages", chat(USER, {"role": "assistant", "tool_calls": [CALL, second]}, *results, ANSWER))
    assert [turn.role for turn in sample.turns] == ["user", "assistant", "tool", "tool", "assistant"]


def test_alternation_is_required_on_request_only(convert, refusal) -> None:
    row = chat(USER, USER, ANSWER)
    assert len(convert("messages", row).turns) == 3
    assert refusal("messages", row, order="alternate").reason == "role_order"
    assert refusal("messages", chat(USER, ANSWER, USER), order="alternate").reason == "role_order"


def test_cerebras_chat_hook(convert, refusal, said) -> None:
    row = {"c": [{"r": "system", "v": " "}, {"r": "user", "v": " q "}, {"r": "assistant", "v": " a "}]}
    keys = {"multi_turn_key": "c", "multi_turn_role_key": "r", "multi_turn_content_key": "v"}
    assert said(convert("chat_read_hook", row, **keys).turns) == [("user", "q"), ("assistant", "a")]
    row["c"][0]["v"] = " s "
    assert said(convert("chat_read_hook", row, **keys).turns)[0] == ("system", " s ")
    assert refusal("chat_read_hook", {"c": row["c"][:2]}, **keys).reason == "no_assistant_turn"
    assert refusal("chat_read_hook", {"c": [*row["c"], row["c"][1]]}, **keys).reason == "role_order"
    row["c"][1]["r"] = "human"  # there: kept, with nothing to train
    assert refusal("chat_read_hook", row, **keys).reason == "unknown_role"


texts = st.text(min_size=1, max_size=20).filter(str.strip)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4), st.none() | texts)
def test_every_text_comes_out_as_it_went_in(exchanges: list[tuple[str, str]], system: str | None) -> None:
    messages = [{"role": "system", "content": system}] if system else []
    for question, answer in exchanges:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    sample = apply(convert_with("messages"), json.loads(json.dumps({"messages": messages})))
    assert [{"role": turn.role, "content": turn.text} for turn in sample.turns] == messages


# -- rows of chats that are read many at a time are what their schema makes of each, and fields that it passes over are counted alike ----


KEYS = {"messages": ("messages", "role", "content"), "sharegpt": ("conversations", "from", "value")}
TAGS = st.sampled_from(["user", "assistant", "system", "human", "gpt", "tool", 5, None, ["user"]])
TEXTS = st.sampled_from(["a", "b", " a\n", "é", "", " ", None, 5, [{"type": "text", "text": "a"}]])


def rows_of(schema: str) -> st.SearchStrategy[dict[str, Any]]:
    column, role, content = KEYS[schema]
    usual = [("user", "assistant"), ("human", "gpt")][schema == "sharegpt"]
    plain = st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=2).map(
        lambda texts: [{role: tag, content: text} for text in texts for tag in usual]
    )
    odd = st.lists(st.fixed_dictionaries({role: TAGS, content: TEXTS}, optional={"name": st.just("n")}), max_size=3)
    beside = {"id": st.integers(0, 3), "source": st.just("s"), "weight": st.sampled_from([0, 1])}
    return st.fixed_dictionaries({column: plain | plain | plain | odd | st.sampled_from([None, "text", {}])}, optional=beside)


@pytest.mark.parametrize("schema", KEYS)
def test_many_at_a_time(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_FEW", 2)
    read_in_columns = 0

    @settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(rows_of(schema), max_size=8))
    def check(rows: list[dict[str, Any]]) -> None:
        nonlocal read_in_columns
        many, alone = (Reader(convert_with(schema, {}, gives=Sample), Account()) for _ in range(2))
        for found, row in zip([*many.rows(rows), *many.rows(rows)], rows * 2, strict=True):
            read_in_columns += isinstance(found, PlainChat)
            try:
                expected: Any = apply(alone, row)
            except Refused as refusal:
                assert isinstance(found, Refused) and (found.reason, found.detail, found.stage) == (
                    refusal.reason,
                    refusal.detail,
                    refusal.stage,
                )
            else:
                assert (found.sample() if isinstance(found, PlainChat) else found) == expected
        assert (many.account.counts, many.account.unknown) == (alone.account.counts, alone.account.unknown)

    check()
    assert read_in_columns > 50
