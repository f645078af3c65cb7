"""Formats as their vendors publish them, for `encoder:package.module:function`: one in the manner of Kimi K3, and wrong copies of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOKENS = ("<|end_of_msg|>", "<|open|>", "<|sep|>", "<|close|>")


def _open(tag: str) -> str:
    return f"<|open|>{tag}<|sep|>"


def _close(tag: str) -> str:
    return f"<|close|>{tag}<|sep|>"


def chat(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    text = ""
    if tools:
        listed = json.dumps(tools, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        text = _message(
            'role="system" type="tool-declare"',
            f"# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{listed}\n```",
        )
    index, names = 0, list[str]()
    for message in messages:
        said, role = message.pop("content"), message["role"]
        if role == "assistant":
            thought = f"{_open('think')}{message.get('reasoning_content') or ''}{_close('think')}" if thinking else ""
            said, index = f"{thought}{_open('response')}{said}{_close('response')}{_calls(message.get('tool_calls', ()))}", 0
            names = [call["function"]["name"] for call in message.get("tool_calls", ())]
        elif role == "tool":
            index += 1
            text += _message(f'role="tool" tool="{message.get("name") or names[index - 1]}" index="{index}"', said)
            continue
        elif role not in ("user", "system"):
            raise ValueError(f"no role {role}")
        text += _message(f'role="{role}"', said)
    opened = _open('message role="assistant"') + _open("think" if thinking else "response")
    return text + (opened if generation_prompt else "")


def _message(header: str, body: str) -> str:
    return f"{_open(f'message {header}')}{body}{_close('message')}<|end_of_msg|>"


def _calls(calls: Sequence[Mapping[str, Any]]) -> str:
    written = ""
    for number, call in enumerate(calls, 1):
        written += _open(f'call tool="{call["function"]["name"]}" index="{number}"')
        for key, value in call["function"]["arguments"].items():
            kind, shown = ("string", value) if isinstance(value, str) else ("number", json.dumps(value))
            written += f"{_open(_argument(key, kind))}{shown}{_close('argument')}"
        written += _close("call")
    return f"{_open('tools')}{written}{_close('tools')}" if written else ""


def _argument(key: str, kind: str) -> str:
    return f'argument key="{key}" type="{kind}"'


QUESTION: Mapping[str, Any] = {"role": "user", "content": "Hi"}
ANSWER: Mapping[str, Any] = {"role": "assistant", "content": "Hello!", "reasoning_content": "A greeting."}
GOLDEN = [
    (
        {"messages": [QUESTION, ANSWER]},
        '<|open|>message role="user"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|><|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
        "A greeting.<|close|>think<|sep|><|open|>response<|sep|>Hello!<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>",
    ),
    (
        {"messages": [QUESTION], "generation_prompt": True, "thinking": False},
        '<|open|>message role="user"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|><|open|>message role="assistant"<|sep|><|open|>response<|sep|>',
    ),
]


def one_marker_changed(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    return chat(messages, tools, generation_prompt, thinking).replace("<|close|>response", "<|close|>answer")


def a_turn_lost(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    return chat(messages[1:], tools, generation_prompt, thinking)


def gives_ids(messages: Sequence[Any], tools: Sequence[Any], generation_prompt: bool) -> list[int]:
    return [1, 2, 3]


def takes_little(messages: Sequence[Any]) -> str:
    return ""


def late_prompts_short(messages: Sequence[dict[str, Any]], tools: Sequence[Any], generation_prompt: bool, thinking: bool = True) -> str:
    """Right for all golden chats; a prompt behind more than one message lacks its last token."""
    text = chat(messages, tools, generation_prompt, thinking)
    return text.removesuffix("<|sep|>") if generation_prompt and len(messages) > 1 else text
