"""Rules of columns: what becomes of the value of a column of texts, of a pair, or of several answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from prep_assets.proofs.source_fields import as_text, by_message, worked_pieces
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_texts import ANSWERS, EXACT, TOOL, Said


def text(walk: Walk, value: Any, role: str, path: str) -> None:
    """Strings stand verbatim, several end to end; messages are read as messages; of numbers the decimals stand."""
    value = as_text(by_message(value))
    if isinstance(value, Mapping):
        value = [value] if _is_message(walk, value) else [*value.values()]
    if isinstance(value, list | tuple):
        if value and all(_is_message(walk, each) for each in value):
            walk.chat(value, role, path)
            return
        for number, each in enumerate(value):
            if isinstance(each, list | tuple | Mapping) or role == "responses":
                text(walk, each, f"{role}[{number}]" if role == "responses" else role, path)
                walk.turn += 1
            elif isinstance(each, str):
                walk.say(each, role, path)
        return
    if isinstance(value, bool):
        return
    walk.say(str(value), role, path)
    walk.turn += 1


def _is_message(walk: Walk, value: Any) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in (*walk.reading.role_keys, *walk.reading.content_keys))


def value(walk: Walk, value: Any, role: str, path: str) -> None:
    """The value is that of a field of the line, such as the gold: the same text, or the same number."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(value)))


gold = value


def worked(walk: Walk, value: Any, role: str, path: str) -> None:
    """Calculator notes ``<<…>>`` and marks ``####`` are left out; all other text stands."""
    for piece in worked_pieces(value):
        walk.say(piece, role, path)


def exchanges(walk: Walk, value: Any, role: str, path: str) -> None:
    """Earlier questions and answers in pairs."""
    for asked, answered in value:
        for whose, each in (("user", asked), ("assistant", answered)):
            walk.say(each, whose, path)
            walk.turn += 1


_TURN_MARKS = ("\n\nHuman:", "\n\nAssistant:")


def _split(walk: Walk, value: str) -> list[tuple[str, str]]:
    """Split a text at the marks of its turns into role and text of each."""
    human, user, assistant = (walk.options.get(f"{whose}_mark") for whose in ("human", "user", "assistant"))
    marks = [user or human or _TURN_MARKS[0], assistant or _TURN_MARKS[1]]
    parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", value)
    return [("assistant" if mark == marks[1] else "user", each) for mark, each in zip(parts[1::2], parts[2::2], strict=True)]


def marked(walk: Walk, value: str, role: str, path: str) -> None:
    """Turns in one text, each behind a mark. Of a side the last one is the answer."""
    turns = _split(walk, value)
    if walk.options.get("prompt_check") == "chosen" and role == "rejected":
        turns = turns[-1:]
    for whose, each in turns:
        walk.say(each, role if role in ANSWERS else whose, path)
        walk.turn += 1


def marked_prompt(walk: Walk, value: Any, role: str, path: str) -> None:
    """A prompt, with marks before its turns where the options say so."""
    if walk.options.get("marked_prompt"):
        for whose, each in _split(walk, value):
            walk.say(each, whose, path)
            walk.turn += 1
    else:
        text(walk, value, role, path)


def key_of(walk: Walk, name: str) -> str:
    return str(walk.options.get(f"{name}_key", name))


def tools(walk: Walk, value: Any, role: str, path: str) -> None:
    """Tools on offer: names, descriptions and the names of parameters stand in the prompt."""
    parsed, begin = (json.loads(value) if value.strip() else []) if isinstance(value, str) else value, len(walk.said)
    for tool in [parsed] if isinstance(parsed, Mapping) else parsed or ():
        function = tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        walk.anywhere(function.get("name"), f"{path}.name", TOOL)
        if isinstance(function.get("description"), str):
            walk.anywhere(function["description"].splitlines(), f"{path}.description")
        parameters = function.get("parameters") or function.get("input_schema")
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        walk.anywhere(list(properties or ()), f"{path}.parameters")
    walk.said[begin:] = [each._replace(turn=0) for each in walk.said[begin:]]  # each record of a row that becomes several offers them


def documents(walk: Walk, value: Any, role: str, path: str) -> None:
    """Documents on offer: their titles and texts stand in the prompt."""
    for document in value:
        for key in ("title", "text", "contents"):
            if isinstance(document, Mapping) and isinstance(document.get(key), str):
                walk.anywhere(document[key], f"{path}.{key}")
