"""MindSpeed-LLM's R1 handlers, and both spellings of ShareGPT chats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prep_assets.errors import ConfigError
from prep_assets.samples import Prompt
from prep_assets_tests.assets.workspaces import build, domain, failing, jsonl, minimal, workspace_in

ROW = {"instruction": "And 3 + 3?", "input": "in base 10", "output": "6", "system": "Be brief.", "history": [["2 + 2?", "4"]]}
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
    prompt = convert("R1AlpacaStyleInstructionHandler", ROW)
    assert isinstance(prompt, Prompt)
    assert said(prompt.prompt) == TURNS
    assert (prompt.gold, prompt.verifier) == ("6", "reference")
    assert convert("R1AlpacaStyleInstructionHandler", {**ROW, "output": " 6 "}, verifier="number").gold == "6"


def test_sharegpt_ends_before_its_last_answer(convert, said) -> None:
    prompt = convert("R1SharegptStyleInstructionHandler", {"conversations": CHAT})
    assert said(prompt.prompt) == [("user", "2 + 2?"), ("assistant", "4"), ("user", "3 + 3?")]
    assert prompt.gold == "6"


def test_what_has_no_reference_or_no_number_is_refused(refusal) -> None:
    assert refusal("R1AlpacaStyleInstructionHandler", {**ROW, "output": " "}).reason == "no_gold"
    assert refusal("R1AlpacaStyleInstructionHandler", {**ROW, "output": "six"}, verifier="number").reason == "bad_gold"
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
    prompt = convert("PPOAlpacaStyleInstructionHandler", {key: value for key, value in ROW.items() if key != "output"})
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
