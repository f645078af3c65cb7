"""What plain rows say, read in the most obvious way, for the data sets whose form is known: a second opinion on their schemas.

Only rows of plain text are read, of schemas without options. `None` stands for everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def plain_prompt(row: Row, schema: str, options: Row) -> dict[str, str] | None:
    """The prompt of an RL row."""
    if options or any(row.get(key) for key in ("system", "tools", "documents", "chat_template_kwargs")):
        return None
    if schema in ("gsm8k", "gsm8k_prompt"):
        return {"prompt": row["question"].strip()}
    return {"prompt": row["prompt"]} if schema == "rl_prompt" and isinstance(row.get("prompt"), str) else None


def as_text(value: Any) -> str | None:
    """A string, or the content of a single plain message; `None` for anything else."""
    if isinstance(value, str):
        return value
    plain = isinstance(value, list) and len(value) == 1 and value[0].keys() == {"role", "content"}
    return value[0]["content"] if plain else None
