"""A chat format that code writes: what a vendor publishes as a Python file in place of a chat template, called as prep-assets calls it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOKENS = ("<|im_end|>", "<|im_start|>")
"""The control tokens that it writes, the one that ends answers first."""
GOLDEN = [
    (
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]},
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n",
    ),
    (
        {"messages": [{"role": "user", "content": "Hi"}], "generation_prompt": True, "brief": True},
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    ),
]
"""Chats as the vendor publishes them: arguments, and the text that they give."""


def chat(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], generation_prompt: bool, brief: bool = False) -> str:
    """The text of a chat."""
    if tools:
        raise ValueError("this format has no tools")
    listed = [{"role": "system", "content": "Be brief."}, *messages] if brief else messages
    written = [f"<|im_start|>{message['role']}\n{_text(message['content'])}<|im_end|>\n" for message in listed]
    return "".join([*written, *(["<|im_start|>assistant\n"] if generation_prompt else [])])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
