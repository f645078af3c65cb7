"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import json
from typing import Any

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import chats, number, shown, under
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import text
from prep_assets.proofs.source_texts import EXACT, Said
from prep_assets.samples import Row

# Rows that must be rejected.


def no_gold_answer(row: Row, format: Format) -> bool:
    """A reference answer that must be a number is none."""
    if format.options["verifier"] != "number":
        return False
    answer = under(row, format, "response_key")
    if answer is None:
        answer = shown(chats(row, format)[0][-1], format)
    return number(answer.strip()) is None


def _section_lengths(row: Row, format: Format) -> list[int]:
    """Return how many characters each section of a row has; a blank one is left out."""
    texts = ["" if row.get(each["field"]) is None else str(row[each["field"]]) for each in format.options["sections"]]
    return [len(text) for text in texts if text.strip()]


def short_section(row: Row, format: Format) -> bool:
    """A section has fewer characters than ``min_chars``."""
    return bool(min(_section_lengths(row, format), default=0) < format.options["min_chars"])


def long_section(row: Row, format: Format) -> bool:
    """A section has more characters than ``max_chars``."""
    most = format.options["max_chars"]
    return bool(most is not None and max(_section_lengths(row, format), default=0) > most)


# What becomes of a column.


def answered(walk: Walk, value: Any, role: str, path: str) -> None:
    """The last message is the gold, those before it are the prompt."""
    last = value[-1]
    walk.chat(value[:-1], role, path)
    key = next(key for key in walk.reading.content_keys if last.get(key) is not None)
    walk.said.append(Said(f"{path}.{key}", "gold", walk.turn, EXACT, json.dumps(last[key])))


def sections(walk: Walk, value: Row, role: str, path: str) -> None:
    """AstrAI's sections: fields one after another, each trained or not."""
    sources = walk.options.get("sources") or {
        "": {"sections": walk.options.get("sections") or [{"field": "messages", "action": "$role", "template": True}]}
    }
    sides = {"": "chat", "chosen": "chosen", "rejected": "rejected", "prompts": "user", "responses": "responses"}
    for name, source in sources.items():
        for section in source["sections"] if name in sides else ():
            held = walk.row.get(section["field"])
            before = len(walk.said)
            if held is not None:
                side = sides[name] if section.get("template") or name == "responses" else _plain_side(name, section)
                text(walk, held, side, section["field"])
            weight = {"train": 1.0, "mask": 0.0}.get(section["action"]) if name == "" else None
            walk.said[before:] = [each._replace(weight=weight) if each.weight is None else each for each in walk.said[before:]]


def _plain_side(name: str, section: Row) -> str:
    return name if name in ("chosen", "rejected") else "completion" if section["action"] == "train" else "user"
