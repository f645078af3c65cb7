"""Formats as their vendors publish them, for `encoder:package.module:function`: one in the manner of Kimi K3, and wrong copies of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TOKENS = ("<|end_of_msg|>", "<|open|>", "<|sep|>", "<|close|>")


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


def chat(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    if tools:
        raise ValueError("no tools")
    text = ""
    for message in messages:
        said = message.pop("content")
        if message["role"] == "assistant":
            thought = f"{_open('think')}{message.get('reasoning_content') or ''}{_close('think')}" if thinking else ""
            said = f"{thought}{_open('response')}{said}"
        header = f'message role="{message["role"]}"'
        text += f"{_open(header)}{said}<|end_of_msg|>"
    opened = _open('message role="assistant"') + _open("think" if thinking else "response")
    return text + (opened if generation_prompt else "")


QUESTION: Mapping[str, Any] = {"role": "user", "content": "Hi"}
ANSWER: Mapping[str, Any] = {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."}
GOLDEN = [
    (
        {"messages": [QUESTION, ANSWER]},
        '<|open|>message role="user"<|sep|>Hi<|end_of_msg|><|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
        "A greeting.<|close|>think<|sep|><|open|>response<|sep|>Hello!<|end_of_msg|>",
    ),
    (
        {"messages": [QUESTION], "generation_prompt": True, "thinking": False},
        '<|open|>message role="user"<|sep|>Hi<|end_of_msg|><|open|>message role="assistant"<|sep|><|open|>response<|sep|>',
    ),
]


def one_marker_changed(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    return chat(messages, tools, generation_prompt, thinking).replace("<|open|>response", "<|open|>answer")


def a_turn_lost(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    return chat(messages[1:], tools, generation_prompt, thinking)


def gives_ids(messages: Sequence[Any], tools: Sequence[Any], generation_prompt: bool) -> list[int]:
    return [1, 2, 3]


def takes_little(messages: Sequence[Any]) -> str:
    return ""
