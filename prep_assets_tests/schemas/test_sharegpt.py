"""ShareGPT conversations and pairs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.samples import THINKING, TOOL_CALL, Prompt
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with
from prep_assets.schemas.rewards import gold_as_json_number
from prep_assets_tests.graph.workspaces import build, domain, failing, jsonl, minimal, workspace_in

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


# -- rows of instruction, input and output: Alpaca, Dolly, and ModelLink's handlers of that kind -----------------------------------------


ROW = {"instruction": " Sort. ", "input": "3 1 2\n", "output": " 1 2 3"}


def test_input_follows_the_instruction_after_a_blank_line_all_stripped(convert, said) -> None:
    assert said(convert("alpaca", ROW).turns) == [("user", "Sort.\n\n3 1 2"), ("assistant", "1 2 3")]


@pytest.mark.parametrize("blank", ["", "  \n", None])
def test_a_blank_input_leaves_the_instruction_alone(convert, said, blank) -> None:
    for name in ("alpaca", "AlpacaStyleInstructionHandler"):
        assert said(convert(name, {"instruction": "Sort.", "input": blank, "output": "x"}).turns)[0] == ("user", "Sort.")
    assert said(convert("alpaca", {"instruction": "Sort.", "output": "x"}).turns)[0] == ("user", "Sort.")


def test_modellink_joins_with_a_line_break_and_strips_nothing(convert, said) -> None:
    assert said(convert("AlpacaStyleInstructionHandler", ROW).turns) == [("user", " Sort. \n3 1 2\n"), ("assistant", " 1 2 3")]
    assert said(convert("GeneralInstructionHandler", ROW).turns) == [("user", " Sort. \n3 1 2\n"), ("assistant", " 1 2 3")]


def test_system_and_history_come_first(convert, refusal, said) -> None:
    row = {**ROW, "system": "Be brief.", "history": [["a", "b"], ["c", "d"]]}
    expected = [("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    for name in ("alpaca", "AlpacaStyleInstructionHandler"):
        assert said(convert(name, row).turns)[:5] == expected
    unread = refusal("GeneralInstructionHandler", row)
    assert unread.reason == "unsupported_column" and "'system'" in unread.detail, "the answer was given to another prompt"
    assert refusal("alpaca", row, system_key=None).reason == "unsupported_column"
    assert len(convert("alpaca", {**row, "system": "", "history": []}).turns) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
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
        ({"images": ["1.jpg"]}, "unsupported_media"),
        ({"image": "1.jpg"}, "unsupported_media"),
        ({"video": "1.mp4"}, "unsupported_media"),
        ({"audio": {"path": "1.wav"}}, "unsupported_media"),
    ],
)
def test_rows_that_are_refused(refusal, change, reason) -> None:
    assert refusal("alpaca", {**ROW, **change}).reason == reason


def test_a_column_with_the_name_of_a_medium_may_be_read_as_text(convert, refusal, said) -> None:
    row = {"audio": "Say it.", "output": "It."}
    assert said(convert("alpaca", row, prompt_key="audio").turns) == [("user", "Say it."), ("assistant", "It.")]
    assert refusal("instruction", {"prompt": "q", "response": "a", "image": "0.jpg"}).reason == "unsupported_media"
    chat = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    assert refusal("llava", {"conversations": chat, "video": "0.mp4"}).reason == "unsupported_media"


def test_map_keys_rename_the_columns(convert, said) -> None:
    row = {"q": "Sort.", "in": "3 1", "a": "1 3", "sys": "s", "past": [["x", "y"]]}
    mapped = {"prompt": "q", "query": "in", "response": "a", "system": "sys", "history": "past"}
    sample = convert("AlpacaStyleInstructionHandler", row, map_keys=mapped)
    assert said(sample.turns) == [("system", "s"), ("user", "x"), ("assistant", "y"), ("user", "Sort.\n3 1"), ("assistant", "1 3")]


def test_an_unknown_map_key_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no key 'promt'; did you mean 'prompt'\?"):
        convert_with("AlpacaStyleInstructionHandler", {"map_keys": {"promt": "q"}})
    with pytest.raises(ConfigError, match="no key 'response'"):
        convert_with("AlpacaStylePairwiseHandler", {"map_keys": {"response": "q"}})


def test_dolly(convert, refusal, said) -> None:
    row = {"instruction": "When? ", "context": " In 2000.", "response": "2000\n", "category": "closed_qa"}
    assert said(convert("dolly", row).turns) == [("user", "When?\n\nIn 2000."), ("assistant", "2000")]
    assert said(convert("dolly", {**row, "context": ""}).turns)[0] == ("user", "When?")
    assert refusal("dolly", {**row, "response": ""}).reason == "empty_answer"


# -- mOSS, BELLE and LeetCode rows as ModelLink's handlers read them ---------------------------------------------------------------------


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


# -- gSM8K as SFT answers and as RL prompts ----------------------------------------------------------------------------------------------


ROW_GSM8K = {"question": " How many? ", "answer": "She sold 48/2 = <<48/2=24>>24 clips.\nIn all 1,072.\n#### 1,072"}


def test_reasoning_and_answer_in_tags_notes_taken_out(convert, said) -> None:
    expected = "<think>She sold 48/2 = 24 clips.\nIn all 1,072.</think><answer>1,072</answer>"
    assert said(convert("gsm8k", ROW_GSM8K).turns) == [("user", "How many?"), ("assistant", expected)]


def test_the_prompt_has_the_gold_without_separators(convert) -> None:
    prompt = convert("gsm8k_prompt", ROW_GSM8K)
    assert (prompt.prompt[0].text, prompt.gold, prompt.verifier) == ("How many?", "1072", "number")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "It is 72."}, "no_gold"),
        ({"answer": "x\n#### many"}, "bad_gold"),
        ({"question": " "}, "empty_prompt"),
        ({"answer": None}, "missing_field"),
        ({"question": 5}, "wrong_type"),
    ],
)
def test_rows_without_question_or_gold_are_refused(refusal, change, reason) -> None:
    for name in ("gsm8k", "gsm8k_prompt"):
        assert refusal(name, {**ROW_GSM8K, **change}).reason == reason


def test_an_answer_without_reasoning_is_refused(refusal) -> None:
    assert refusal("gsm8k", {"question": "q", "answer": "#### 5"}).reason == "empty_answer"


def test_the_whole_train_file(real_data, convert) -> None:
    """The bytes of train-llm-from-scratch's ``rl_prompts_train.jsonl``, by their published SHA-256."""
    rows = [json.loads(line) for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()]
    prompts = [convert("gsm8k_prompt", row) for row in rows]
    lines = [json.dumps({"prompt": p.prompt[0].text, "gold": gold_as_json_number(p.gold)}) + "\n" for p in prompts]
    assert len(lines) == 7473
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == "80b7b6650c41e07b70b63482104801eef4a884238bd1bae39225cca21bded712"
    for row, prompt in zip(rows, prompts, strict=True):
        reasoning, final = re.sub("<<[^>]*>>", "", row["answer"]).split("####")
        answer = convert("gsm8k", row).turns[1].text
        assert answer == f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        assert prompt.gold == final.strip().replace(",", "")


def test_the_reasoning_as_a_region_of_its_own(convert) -> None:
    row = {"question": "Half of 8?", "answer": "8/2 = <<8/2=4>>4\n#### 4"}
    answer = convert("gsm8k", row, thinking=True).turns[1]
    assert [(region.kind, region.text) for region in answer.regions] == [("thinking", "8/2 = 4"), ("text", "<answer>4</answer>")]


# -- two hooks that take text apart: by common words, and by Llama 3's headers -----------------------------------------------------------


COMMON = {"the", "be", "to", "of", "and", "a", "in", "that", "have", "I", "am"}


def chunks_of_the_hook(text: str) -> list[tuple[str, float]]:
    """Word by word: a chunk ends where a common word follows an uncommon one or the other way round."""
    chunks: list[tuple[str, float]] = []
    for word in text.split():
        weight = 0.0 if word in COMMON else 1.0
        if chunks and chunks[-1][1] == weight:
            chunks[-1] = (f"{chunks[-1][0]} {word}", weight)
        else:
            chunks.append(((" " if chunks else "") + word, weight))
    return chunks


def regions(row, name="common_words_mask", **options):
    completion = apply(convert_with(name, options), row).turns[1]
    return [(region.text, region.loss_weight) for region in completion.regions]


words = st.lists(st.sampled_from([*sorted(COMMON), "The", "cat", "x.", "am,"]), min_size=1, max_size=12)


def two_messages(answer: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "p", "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": answer, **more}]}


@given(words)
def test_single_spaced_text_gives_the_hooks_chunks(chosen: list[str]) -> None:
    text = " ".join(chosen)
    expected = chunks_of_the_hook(text)
    assert regions({"prompt": "p", "completion": text}) == expected
    assert regions(two_messages(text), "ultra_chat_common_words_mask_hook") == expected


@given(st.text(alphabet=" \n\tabtheI.", max_size=40).filter(str.strip))
def test_no_character_is_lost_or_changed(text: str) -> None:
    assert "".join(chunk for chunk, _ in regions({"prompt": "p", "completion": text})) == text


def test_words_of_ones_own() -> None:
    assert regions({"prompt": "p", "completion": "yes no yes"}, words=["no"]) == [("yes", 1.0), (" no", 0.0), (" yes", 1.0)]


def test_common_words_refusals(refusal) -> None:
    assert refusal("common_words_mask", {"prompt": "p", "completion": " "}).reason == "empty_answer"
    assert refusal("ultra_chat_common_words_mask_hook", {"prompt": "p", "messages": [{}]}).reason == "no_assistant_turn"
    assert refusal("ultra_chat_common_words_mask_hook", {"prompt": "p", "messages": [{}, 5]}).reason == "wrong_type"


def test_a_chat_is_not_cut_to_its_first_exchange_unless_somebody_says_so(convert, refusal) -> None:
    """Audit W19: tool calls, weights and later messages went without a word."""
    hook, row = "ultra_chat_common_words_mask_hook", two_messages("yes")
    longer = {**row, "messages": [*row["messages"], {"role": "user", "content": "why?"}]}
    assert refusal(hook, longer).reason == "later_messages"
    assert convert(hook, longer, later_messages="leave_out") == convert(hook, row)
    assert refusal(hook, two_messages("yes", weight=0)).reason == "unsupported_column"
    assert refusal(hook, two_messages("yes", tool_calls=[{"name": "f"}])).reason == "unsupported_column"
    assert refusal(hook, {**row, "prompt": "q"}).reason == "prompts_differ"
    assert refusal(hook, {**row, "messages": row["messages"][::-1]}).reason == "role_order"


def header(role: str, text: str, end: str = "<|eot_id|>") -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}{end}"


def test_llama3_text_is_read_back(convert, said) -> None:
    text = "<|begin_of_text|>" + header("system", " s ") + header("user", "q\n\nq") + header("assistant", " a\n")
    for name, key in (("llama3_chat", "text_key"), ("llama3_1_chat_formatted_data_hook", "chat_key")):
        assert said(convert(name, {"t": text}, **{key: "t"}).turns) == [("system", "s"), ("user", "q\n\nq"), ("assistant", "a")]
    assert said(convert("llama3_chat", {"text": text}, strip=False).turns)[2] == ("assistant", " a\n")


def test_llama3_tool_turns_end_with_eom(convert, said) -> None:
    text = header("user", "q") + header("assistant", "<|python_tag|>f()", "<|eom_id|>") + header("ipython", "4") + header("assistant", "a")
    assert [role for role, _ in said(convert("llama3_chat", {"text": text}).turns)] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello", "leftover_text"),
        ("", "empty_text"),
        ("<|begin_of_text|>", "no_assistant_turn"),
        ("x" + header("user", "q") + header("assistant", "a"), "leftover_text"),
        (header("user", "q") + "between" + header("assistant", "a"), "leftover_text"),
        (header("user", "q") + header("assistant", "a", ""), "leftover_text"),
        (header("user", "q"), "no_assistant_turn"),
        (header("narrator", "q") + header("assistant", "a"), "unknown_role"),
        (header("user", "q") + header("assistant", " "), "empty_answer"),
    ],
)
def test_llama3_refuses_what_it_would_lose(refusal, text, reason) -> None:
    assert refusal("llama3_chat", {"text": text}).reason == reason


# -- mindSpeed-LLM's R1 handlers, and both spellings of ShareGPT chats -------------------------------------------------------------------


ROW_MODELLINK_RL = {"instruction": "And 3 + 3?", "input": "in base 10", "output": "6", "system": "Be brief.", "history": [["2 + 2?", "4"]]}
TURNS = [("system", "Be brief."), ("user", "2 + 2?"), ("assistant", "4"), ("user", "And 3 + 3?\nin base 10")]
CHAT = [
    {"from": "human", "value": "2 + 2?"},
    {"from": "gpt", "value": "4"},
    {"from": "human", "value": "3 + 3?"},
    {"from": "gpt", "value": "6"},
]
ROLES = {"human": "user", "gpt": "assistant"}
MESSAGES = [{"role": ROLES[each["from"]], "content": each["value"]} for each in CHAT]


def test_alpaca_keeps_history_and_system_in_the_prompt(convert, said) -> None:
    """Their PPO handler loses what the assistant said before."""
    prompt = convert("R1AlpacaStyleInstructionHandler", ROW_MODELLINK_RL)
    assert isinstance(prompt, Prompt)
    assert said(prompt.prompt) == TURNS
    assert (prompt.gold, prompt.verifier) == ("6", "reference")
    assert convert("R1AlpacaStyleInstructionHandler", {**ROW_MODELLINK_RL, "output": " 6 "}, verifier="number").gold == "6"


def test_sharegpt_ends_before_its_last_answer(convert, said) -> None:
    prompt = convert("R1SharegptStyleInstructionHandler", {"conversations": CHAT})
    assert said(prompt.prompt) == [("user", "2 + 2?"), ("assistant", "4"), ("user", "3 + 3?")]
    assert prompt.gold == "6"


def test_what_has_no_reference_or_no_number_is_refused(refusal) -> None:
    assert refusal("R1AlpacaStyleInstructionHandler", {**ROW_MODELLINK_RL, "output": " "}).reason == "no_gold"
    assert refusal("R1AlpacaStyleInstructionHandler", {**ROW_MODELLINK_RL, "output": "six"}, verifier="number").reason == "bad_gold"
    assert refusal("R1SharegptStyleInstructionHandler", {"conversations": CHAT[:3]}).reason == "role_order"


def test_both_spellings_of_a_chat_are_one(convert, said, refusal) -> None:
    first, second = convert("sharegpt", {"conversations": CHAT}), convert("sharegpt", {"conversations": MESSAGES})
    assert first.turns == second.turns
    assert refusal("sharegpt", {"conversations": [*CHAT[:2], *MESSAGES[2:]]}).reason == "missing_field"
    assert refusal("sharegpt", {"conversations": MESSAGES}, user_tag="person").reason == "missing_field", (
        "tags of one's own are taken as they are"
    )


def test_hunyuan_reads_messages(convert, said) -> None:
    assert said(convert("HunyuanInstructionHandler", {"messages": MESSAGES[:2]}).turns) == [("user", "2 + 2?"), ("assistant", "4")]


def test_prompts_that_a_reward_model_judges(convert, said) -> None:
    prompt = convert("PPOAlpacaStyleInstructionHandler", {key: value for key, value in ROW_MODELLINK_RL.items() if key != "output"})
    assert said(prompt.prompt) == TURNS
    assert (prompt.gold, prompt.verifier) == ("", "model")
    assert convert("rl_prompt", {"prompt": "Write a haiku."}, gold_key=None, verifier="model").gold == ""
    with pytest.raises(ConfigError, match="gold_key is null, and the verifier 'number' compares with a gold"):
        convert("rl_prompt", {"prompt": "Write a haiku."}, gold_key=None)


def test_a_store_of_them_passes_every_check(tmp_path: Path) -> None:
    rows = [{"instruction": f"Write haiku {n}.", "input": "", "note": ""} for n in range(20)]
    workspace = workspace_in(
        tmp_path / "here", minimal("rl", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "PPOAlpacaStyleInstructionHandler")})
    )
    build(workspace, "rl_raw", "a")
    published = build(workspace, "rl_prompts")
    assert failing(workspace, published) == []
    lines = [json.loads(line) for path in published.directory.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 20 and all((line["gold"], line["verifier"]) == ("", "model") for line in lines)
