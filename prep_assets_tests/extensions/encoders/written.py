"""Chats in formats that have no chat template, and small tokenizers with the tokens of these formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from prep_assets_tests.graph.workspaces import TOKENIZER

END, BEGIN, ASKS, ANSWERS = "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"
V4 = (END, BEGIN, ASKS, ANSWERS, "<think>", "</think>", "｜DSML｜")
HARMONY = ("<|return|>", "<|end|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>")
K3 = ("<|end_of_msg|>", "<|open|>", "<|sep|>", "<|close|>")


def needs(*packages: str) -> None:
    """Skip where the packages of an extra are not installed."""
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is missing: pip install 'prep-assets[encoders]'")


def tokenizer_with(tokens: Sequence[str], folder: Path) -> str:
    """The shipped tokenizer with further control tokens; the first ends answers."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[0]}), "utf-8"
    )
    return str(folder)


def asks(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str, thought: str = "", *calls: Mapping[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {})}
    return {**message, "tool_calls": list(calls)} if calls else message


def call(name: str, identity: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}


def result(text: str, identity: str, name: str = "tide_at") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "name": name, "content": text}


def tide(description: str = "The tide of a port.", **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
    return {"type": "function", "function": {"name": "tide_at", "description": description, "parameters": parameters, **more}}


RULE = {"role": "system", "content": "Be brief."}
PREAMBLE = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2024-07-26\n\n"
    "Reasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
)
