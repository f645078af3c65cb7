"""Conversations of a row."""

from __future__ import annotations

from typing import Any


def chat(user: str, answer: str, system: str = "") -> dict[str, Any]:
    start = [{"role": "system", "content": system}] if system else []
    return {"messages": [*start, {"role": "user", "content": user}, {"role": "assistant", "content": answer}]}
