"""MOSS, BELLE and LeetCode rows as ModelLink's handlers read them."""

from __future__ import annotations

import json

import pytest

from prep_assets.samples import THINKING, TOOL_CALL

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


def moss(*exchanges):
    return {"meta_instruction": "You are MOSS.\n", "chat": {f"turn_{i}": exchange for i, exchange in enumerate(exchanges, 1)}}


@pytest.mark.parametrize("name", ["moss", "MOSSMultiTurnHandler", "MOSSInstructionHandler"])
def test_moss_markers_are_taken_out(convert, said, name) -> None:
    turns = convert(name, moss(EXCHANGE, {}, TOOLS)).turns
    assert said(turns) == [("user", "Solve it."), ("assistant", "Done.")] * 2


def test_moss_human_marker_goes_with_its_space_only(convert, said) -> None:
    row = moss({**EXCHANGE, "Human": "<|Human|>:no space<eoh>", "MOSS": "<|MOSS|>:a<eom>b"})
    assert said(convert("moss", row).turns) == [("user", "<|Human|>:no space"), ("assistant", "ab")]


def test_moss_with_system_prompt_and_plugins(convert, said) -> None:
    turns = convert("moss", moss(EXCHANGE, TOOLS), system_key="meta_instruction", plugins=True).turns
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    assert [(region.kind, region.text) for region in turns[4].regions] == [
        (THINKING, "I need two numbers."),
        (TOOL_CALL, '{"name":"Calculate","arguments":{"expression":"\\\\frac{1}{2}"}}'),
        (TOOL_CALL, '{"name":"Search","arguments":{"query":"a \\\\\\"b\\\\\\", c"}}'),
    ]
    assert said(turns[5:]) == [("tool", "Calculate => 0.5"), ("assistant", "Done.")]


def test_moss_thought_without_a_command_stands_before_the_answer(convert) -> None:
    row = moss({**EXCHANGE, "Inner Thoughts": "<|Inner Thoughts|>: easy<eot>"})
    assert [region.text for region in convert("moss", row, plugins=True).turns[1].regions] == ["easy", "Done."]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"chat": {}}, "no_assistant_turn"),
        ({"chat": []}, "wrong_type"),
        ({"chat": {"turn_1": "hello"}}, "wrong_type"),
        ({"chat": {"turn_1": {"Human": "<|Human|>: q<eoh>"}}}, "missing_field"),
        ({"chat": {"turn_1": {"Human": "q", "MOSS": "<|MOSS|>: <eom>"}}}, "empty_answer"),
        ({"chat": {"turn_1": {"Human": "<eoh>", "MOSS": "a"}}}, "empty_turn"),
    ],
)
def test_moss_refuses(refusal, row, reason) -> None:
    assert refusal("moss", row).reason == reason


@pytest.mark.parametrize(
    "commands", ["None, as I know it", 'Search("a"), None of it', "Calculate(5)", "import os", 'Run("x")', 'Search("a']
)
def test_moss_commands_that_are_no_calls_are_refused(refusal, commands) -> None:
    row = moss({**TOOLS, "Commands": f"<|Commands|>: {commands}<eoc>"})
    assert refusal("moss", row, plugins=True).reason == "bad_tool_call"


def test_belle_turns_stand_in_the_instruction(convert, said) -> None:
    row = {"instruction": "Human: a\nAssistant:b\nHuman:c\nAssistant:", "input": "", "output": "d\n"}
    for name in ("belle", "BelleMultiTurnInstructionHandler"):
        assert said(convert(name, row).turns) == [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]


@pytest.mark.parametrize(
    ("instruction", "output", "reason"),
    [
        ("", "d", "role_order"),
        ("Translate.", "d", "leading_text"),
        ("Human:a", "d", "role_order"),
        ("Human:a\nAssistant:b", "d", "role_order"),
        ("Human:a\nHuman:b\nAssistant:", "d", "role_order"),
        ("Assistant:", "d", "role_order"),
        ("Human:\nAssistant:", "d", "empty_turn"),
        ("Human:a\nAssistant:\nHuman:b\nAssistant:", "d", "empty_answer"),
        ("Human:a\nAssistant:", " ", "empty_answer"),
    ],
)
def test_belle_refuses(refusal, instruction, output, reason) -> None:
    assert refusal("belle", {"instruction": instruction, "output": output}).reason == reason


def test_leetcode(convert, refusal, said) -> None:
    row = {"code_with_problem": "\n# Two sum\nFind them.\n\n```python\nx\n```\n```", "code_only": "x = 1", "explanation_only": "It is one."}
    for name in ("leetcode_python", "LeetcodePythonInstructionHandler"):
        assert said(convert(name, row).turns) == [("user", "# Two sum\nFind them."), ("assistant", "x = 1\nIt is one.")]
    assert refusal("leetcode_python", {**row, "code_with_problem": "```python"}).reason == "empty_prompt"
    assert refusal("leetcode_python", {**row, "code_only": ""}).reason == "empty_answer"
    assert refusal("leetcode_python", {"code_with_problem": "x", "code_only": "y"}).reason == "missing_field"


@pytest.mark.parametrize(
    ("commands", "arguments"),
    [
        ('Search("a"), Calculate("1+1")', ["a", "1+1"]),
        ('Search("a")\nSearch("b")', ["a", "b"]),
        ('Search("a")，Search("b");Search("c")', ["a", "b", "c"]),
        (r'Solve("\frac{x}{2}=1")', [r"\frac{x}{2}=1"]),
    ],
)
def test_moss_several_commands_are_several_calls(convert, commands, arguments) -> None:
    """Audit W3: commands below each other became one call with both of them as its argument."""
    row = moss({**TOOLS, "Commands": f"<|Commands|>: {commands}<eoc>"})
    calls = [json.loads(region.text) for region in convert("moss", row, plugins=True).turns[1].regions if region.kind == "tool_call"]
    assert [next(iter(call["arguments"].values())) for call in calls] == arguments


@pytest.mark.parametrize(
    ("commands", "calls"), [('Search("a"), None', 1), ('None, Search("a"); Search("b")', 2), ("None.", 0), (" None ", 0)]
)
def test_moss_none_among_commands_is_none(convert, commands, calls) -> None:
    """In the published rows the results answer the other commands, and nothing answers this one."""
    results = TOOLS["Tool Responses"] if calls else "<|Results|>: None<eor>"
    turns = convert("moss", moss({**TOOLS, "Commands": f"<|Commands|>: {commands}<eoc>", "Tool Responses": results}), plugins=True).turns
    assert sum(region.kind == "tool_call" for turn in turns for region in turn.regions) == calls
    assert [turn.role for turn in turns] == (["user", "assistant", "tool", "assistant"] if calls else ["user", "assistant"])


@pytest.mark.parametrize("commands", ['Search("a", "b")', 'Search("a") and Search("b")', '1. Search("a")'])
def test_moss_a_call_that_is_not_one_string_is_refused(refusal, commands) -> None:
    row = moss({**TOOLS, "Commands": f"<|Commands|>: {commands}<eoc>"})
    assert refusal("moss", row, plugins=True).reason == "bad_tool_call"


def test_moss_a_tool_may_answer_none(convert, refusal) -> None:
    """Audit W3: the result "None" became an empty text."""
    row = moss({**TOOLS, "Tool Responses": "<|Results|>:\nNone\n<eor>"})
    assert [turn.text for turn in convert("moss", row, plugins=True).turns if turn.role == "tool"] == ["None"]
    orphan = moss({**TOOLS, "Commands": "<|Commands|>: None<eoc>"})
    assert refusal("moss", orphan, plugins=True).reason == "role_order"
