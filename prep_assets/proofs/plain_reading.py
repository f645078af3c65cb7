"""What plain rows say, read in the most obvious way, for the data sets whose form is known: a second opinion on their schemas.

Only rows of plain text are read, of schemas without options. `None` stands for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from prep_assets.text.chats import ByteSearch

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


_Role = Literal["system", "user", "assistant"]
_PARTS: Mapping[str, _Role] = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
"""Parts of a pair → who says the last of each."""


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: _Role
    content: str


class _Pair(msgspec.Struct, forbid_unknown_fields=True):
    prompt: str | list[_Message]
    chosen: str | list[_Message]
    rejected: str | list[_Message]


def pair_lines(rows: Sequence[Row], schema: str, options: Row, form: str, tags: Iterable[str]) -> list[dict[str, Any] | None]:
    """The whole lines of pairs of two answers to a user, each turn one text; `None` for any other, and where a text holds one of the `tags`.

    Args:
        rows: without the columns that are ignored.
        form: ``text`` or ``messages``.
    """
    if options or schema not in ("preference", "hh"):
        return [None] * len(rows)
    pairs = _converted([_parted(row) for row in rows] if schema == "hh" else rows)
    written = [None if pair is None else _said(pair) for pair in pairs]
    texts = "\0".join(message.content for turns in written if turns is not None for part in turns for message in part)
    searched = tuple(tags) if len(ByteSearch(tags).places(texts.encode("utf-8", "surrogatepass"))) else ()
    return [None if turns is None else _line(turns, form, searched) for turns in written]


def _parted(row: Row) -> Row | None:
    """Prompt and answers of two dialogues that say the same before their last answer; `None` for any other."""
    if row.keys() != {"chosen", "rejected"} or any(not isinstance(side, str) for side in row.values()):
        return None
    parts = {side: text.rpartition("\n\nAssistant:") for side, text in row.items()}
    prompts = {before.strip() for before, _, _ in parts.values()}
    return {"prompt": prompts.pop(), **{side: answer.strip() for side, (_, _, answer) in parts.items()}} if len(prompts) == 1 else None


def _converted(rows: Sequence[Row | None]) -> list[_Pair | None]:
    """Rows of nothing but texts; `None` for any other."""
    try:
        return msgspec.convert(rows, list[_Pair | None])
    except msgspec.ValidationError:
        return [None for _ in rows] if len(rows) == 1 else [found for row in rows for found in _converted([row])]


def _said(pair: _Pair) -> list[list[_Message]] | None:
    """Prompt, chosen and rejected as messages; `None` where they are not two different answers, none of them blank, to a user."""
    if isinstance(pair.chosen, str) != isinstance(pair.rejected, str):
        return None
    said = zip(_PARTS.values(), (pair.prompt, pair.chosen, pair.rejected), strict=True)
    parts = [[_Message(role, text)] if isinstance(text, str) else text for role, text in said]
    if not all(parts) or [turns[-1].role for turns in parts] != [*_PARTS.values()] or parts[1] == parts[2]:
        return None
    alone = len(parts[1]) == len(parts[2]) == 1
    return parts if alone and all(message.content.strip() for turns in parts for message in turns) else None


def _line(parts: list[list[_Message]], form: str, tags: Sequence[str]) -> dict[str, Any] | None:
    if any(tag in message.content for tag in tags for turns in parts for message in turns):
        return None
    if form == "messages":
        return dict(zip(_PARTS, msgspec.to_builtins(parts), strict=True))
    return {part: turns[0].content for part, turns in zip(_PARTS, parts, strict=True)} if len(parts[0]) == 1 else None


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
