"""ShareGPT conversations and pairs."""

from __future__ import annotations

import pytest

from prep_assets.errors import ConfigError
from prep_assets.samples import TOOL_CALL
from prep_assets.schemas.registry import convert_with

HUMAN, GPT = {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}
CALL = {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'}
RESULT = {"from": "observation", "value": "4"}
SYSTEM = {"from": "system", "value": "s"}


def chat(*messages, **columns):
    return {"conversations": list(messages), **columns}


def test_calls_and_observations(convert, said) -> None:
    sample = convert("sharegpt", chat(HUMAN, CALL, RESULT, GPT, tools='[{"name": "f"}]'))
    assert said(sample.turns) == [("user", "q"), ("assistant", '{"name":"f","arguments":{"x":1}}'), ("tool", "4"), ("assistant", "a")]
    assert sample.turns[1].regions[0].kind == TOOL_CALL
    assert sample.tools == ({"type": "function", "function": {"name": "f"}},)


def test_several_calls_in_one_message(convert) -> None:
    two = {"from": "function_call", "value": '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]'}
    regions = convert("sharegpt", chat(HUMAN, two)).turns[1].regions
    assert [region.text for region in regions] == ['{"name":"f","arguments":{}}', '{"name":"g","arguments":{}}']


def test_system_as_message_or_as_column(convert, refusal, said) -> None:
    for row in (chat(SYSTEM, HUMAN, GPT), chat(HUMAN, GPT, system="s"), chat(SYSTEM, HUMAN, GPT, system="s")):
        assert said(convert("sharegpt", row).turns) == [("system", "s"), ("user", "q"), ("assistant", "a")]
    assert said(convert("sharegpt", chat(HUMAN, GPT, system="")).turns) == [("user", "q"), ("assistant", "a")]
    assert refusal("sharegpt", chat(SYSTEM, HUMAN, GPT, system="t")).reason == "two_systems"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([GPT, HUMAN], "role_order"),
        ([HUMAN, HUMAN, GPT], "role_order"),
        ([HUMAN, GPT, GPT], "role_order"),
        ([HUMAN, GPT, HUMAN], "role_order"),
        ([HUMAN, SYSTEM, GPT], "role_order"),
        ([HUMAN, GPT, RESULT, HUMAN], "role_order"),
        ([RESULT, GPT], "role_order"),
        ([HUMAN], "no_assistant_turn"),
        ([SYSTEM], "no_assistant_turn"),
        ([], "no_assistant_turn"),
        ([{"from": "user", "value": "q"}, GPT], "unknown_role"),
        ([HUMAN, {"from": "gpt", "value": ""}], "empty_answer"),
        ([HUMAN, {"from": "function_call", "value": "f(1)"}], "bad_tool_call"),
        ([HUMAN, {"from": "function_call", "value": "[]"}], "bad_tool_call"),
        ([HUMAN, {"from": "function_call", "value": None}], "wrong_type"),
        ([HUMAN, {"from": "gpt"}], "empty_answer"),
    ],
)
def test_order_violations_and_unknown_tags_are_refused(refusal, messages, reason) -> None:
    assert refusal("sharegpt", {"conversations": messages}).reason == reason


def test_an_observation_may_open_a_pair_after_a_call(convert) -> None:
    assert [turn.role for turn in convert("sharegpt", chat(HUMAN, CALL, RESULT, CALL, RESULT, GPT)).turns] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]


def test_tags_and_columns_can_be_renamed(convert, said) -> None:
    row = {"m": [{"role": "u", "content": "q"}, {"role": "a", "content": "x"}], "sys": "s", "fn": "[]"}
    renamed = {"role_tag": "role", "content_tag": "content", "user_tag": "u", "assistant_tag": "a"}
    expected = [("system", "s"), ("user", "q"), ("assistant", "x")]
    sample = convert("sharegpt", row, messages_key="m", system_key="sys", tools_key="fn", **renamed)
    assert said(sample.turns) == expected
    map_keys = {"messages": "m", "system": "sys", "tools": "fn", "tags": renamed}
    assert said(convert("SharegptStyleInstructionHandler", row, map_keys=map_keys).turns) == expected


def test_tags_that_map_keys_leaves_out_keep_their_names(convert) -> None:
    """ModelLink sets them to nothing and stops at the first system message."""
    row = chat({"from": "system", "value": "s"}, {"from": "u", "value": "q"}, GPT)
    assert len(convert("SharegptStyleInstructionHandler", row, map_keys={"tags": {"user_tag": "u"}}).turns) == 3


@pytest.mark.parametrize("map_keys", [{"message": "m"}, {"tags": {"usr_tag": "u"}}, {"tags": "u"}, {"chosen": "c"}])
def test_map_keys_that_mean_nothing(map_keys) -> None:
    with pytest.raises(ConfigError, match="map_keys"):
        convert_with("SharegptStyleInstructionHandler", {"map_keys": map_keys})


def test_images(convert, refusal) -> None:
    sample = convert("sharegpt", chat({"from": "human", "value": "<image>q"}, GPT, images=["1.jpg"]))
    assert [region.kind for region in sample.turns[0].regions] == ["image", "text"]
    assert refusal("sharegpt", chat(HUMAN, GPT, images=["1.jpg"])).reason == "image_count"


def test_pairs_share_the_conversation(convert, said) -> None:
    row = chat(SYSTEM, HUMAN, GPT, HUMAN, chosen={"from": "gpt", "value": "c"}, rejected={"from": "gpt", "value": "r"})
    for name in ("sharegpt_pairwise", "SharegptStylePairwiseHandler"):
        pair = convert(name, row)
        assert said(pair.prompt) == [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "q")]
        assert (said(pair.chosen), said(pair.rejected)) == ([("assistant", "c")], [("assistant", "r")])
    calls = {**row, "chosen": CALL}
    assert convert("sharegpt_pairwise", calls).chosen[0].regions[0].kind == TOOL_CALL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"conversations": [HUMAN, GPT]}, "role_order"),
        ({"conversations": [SYSTEM]}, "role_order"),
        ({"conversations": []}, "empty_prompt"),
        ({"chosen": GPT, "rejected": GPT}, "equal_answers"),
        ({"chosen": {"from": "human", "value": "c"}}, "role_order"),
        ({"chosen": {"from": "gpt", "value": " "}}, "empty_answer"),
        ({"chosen": "c"}, "wrong_type"),
        ({"rejected": None}, "missing_field"),
    ],
)
def test_pairs_that_are_none_are_refused(refusal, change, reason) -> None:
    row = chat(HUMAN, chosen={"from": "gpt", "value": "c"}, rejected={"from": "gpt", "value": "r"})
    assert refusal("sharegpt_pairwise", {**row, **change}).reason == reason
