"""What plain rows say, read in the most obvious way, for the data sets whose form is known: a second opinion on their schemas.

Only rows of plain text are read, of schemas without options. `None` stands for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]


def plain_pair(row: Row, schema: str, options: Row) -> dict[str, str] | None:
    """Prompt and both answers of a preference pair."""
    if options or any(row.get(key) for key in ("system", "history", "tools", "documents", "chat_template_kwargs")):
        return None
    if schema == "hh":
        before = {side: str(row[side]).rsplit("\n\nAssistant:", 1) for side in ("chosen", "rejected")}
        return {"prompt": before["chosen"][0].strip(), **{side: parts[-1].strip() for side, parts in before.items()}}
    if schema == "ultrafeedback" and not row.get("chosen"):
        scores = [completion["overall_score"] for completion in row["completions"]]
        asked = row["instruction"] if row.get("prompt") is None else row["prompt"]
        best, worst = (row["completions"][scores.index(score)]["response"].strip() for score in (max(scores), min(scores)))
        return {"prompt": asked.strip(), "chosen": best, "rejected": worst}
    if schema == "ultrafeedback":
        sides = {side: row[side][-1] for side in ("chosen", "rejected")}
        if any(message.keys() != {"role", "content"} for message in sides.values()):
            return None
        return {"prompt": row["prompt"].strip(), **{side: message["content"].strip() for side, message in sides.items()}}
    if schema == "preference" and all(isinstance(row.get(key), str) for key in ("prompt", "chosen", "rejected")):
        return {key: row[key] for key in ("prompt", "chosen", "rejected")}
    return None


_TURNS = {"system", "user", "assistant"}


def pair_line(row: Row, schema: str, options: Row, form: str, tags: Iterable[str]) -> dict[str, Any] | None:
    """The whole line of a pair of two answers to a user, each turn one text; `None` for any other, and where a text holds one of the `tags`.

    Args:
        row: without the columns that are ignored.
        form: ``text`` or ``messages``.
    """
    if options or set(row) != _PAIRS.get(schema):
        return None
    parts = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    sides = [row[side] for side in ("chosen", "rejected")]
    if isinstance(sides[0], str) != isinstance(sides[1], str):
        return None
    before = {str(side).rpartition("\n\nAssistant:")[0].strip() for side in sides}
    if schema == "hh" and (len(before) > 1 or "" in before):
        return None
    said: Row = row if schema == "preference" else plain_pair(row, schema, options) or {}
    messages = {part: _plain_messages(said.get(part), role) for part, role in parts.items()}
    texts = [message["content"] for turns in messages.values() for message in turns]
    last = {part: turns[-1]["role"] for part, turns in messages.items() if turns}
    if last != parts or any(len(messages[part]) != 1 for part in ("chosen", "rejected")) or messages["chosen"] == messages["rejected"]:
        return None
    if not all(map(str.strip, texts)) or any(tag in text for text in texts for tag in tags):
        return None
    if form == "messages":
        return messages
    return {part: turns[0]["content"] for part, turns in messages.items()} if len(messages["prompt"]) == 1 else None


_PAIRS = {"preference": {"prompt", "chosen", "rejected"}, "hh": {"chosen", "rejected"}}
"""Schema → the columns of such a row."""


def _plain_messages(value: Any, role: str) -> list[dict[str, str]]:
    """A string as a message of this role, or messages of a role and a text each; none where there is anything else."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    alike = isinstance(value, list) and all(
        isinstance(each, dict) and each.keys() == {"role", "content"} and isinstance(each["content"], str) and each["role"] in _TURNS
        for each in value
    )
    return [{"role": each["role"], "content": each["content"]} for each in value] if alike else []


def plain_prompt(row: Row, schema: str, options: Row) -> dict[str, str] | None:
    """The prompt of an RL row."""
    if options or any(row.get(key) for key in ("system", "tools", "documents", "chat_template_kwargs")):
        return None
    if schema in ("gsm8k", "gsm8k_prompt"):
        return {"prompt": row["question"].strip()}
    return {"prompt": row["prompt"]} if schema == "rl_prompt" and isinstance(row.get("prompt"), str) else None


def plain_contrast(row: Row, schema: str, options: Row) -> dict[str, str] | None:
    """Query, positive and negative texts of a contrastive row, the texts of one side with a line between them."""
    if options or schema != "contrastive":
        return None
    found: dict[str, list[str]] = {"query": [], "positives": [], "negatives": []}
    for key, value in row.items():
        side = "negatives" if _NUMBERED.fullmatch(key) else next((side for side, names in _SIDES.items() if key in names), None)
        if side is None or value is None:
            continue
        for text in [value] if isinstance(value, str) else value:
            if not isinstance(text, str):
                return None
            found[side].append(text)
    return None if len(row.keys() & _SIDES["negatives"]) > 1 else {side: "\n".join(texts) for side, texts in found.items() if texts}


_NUMBERED = re.compile(r"negative_\d+")
_SIDES = {
    "query": {"query", "anchor", "question", "ques"},
    "positives": {"positive", "positives", "pos", "context_positive"},
    "negatives": {"negative", "negatives", "neg", "context_negative", "hard_negatives"},
}


def as_text(value: Any) -> str | None:
    """A string, strings with a line between them, or the content of a single plain message; `None` for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    plain = isinstance(value, list) and len(value) == 1 and value[0].keys() == {"role", "content"}
    return value[0]["content"] if plain else None
