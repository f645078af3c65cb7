"""What decides on which side of a split a row belongs, worked out a second time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from prep_assets.assets.checks.expected import shown_text
from prep_assets.assets.checks.images_again import images_again
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.stage import Store
from prep_assets.errors import CheckFailed
from prep_assets.proofs.held_out import canonical_json, is_held_out
from prep_assets.samples import Group, Pair, Prompt, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.lines import row_of

_ALONE = ("user", "assistant", "prompt", "completion")
"""Roles of a turn that may stand as a string."""


def held_out(prompt: Any, fraction: float, plain: bool) -> int:
    """What `Stored.belongs` is. Prompts are known by their plain form, whatever the form of the file."""
    if plain and not isinstance(prompt, str):
        if any(message.keys() != {"role", "content"} for message in prompt):
            return -1
        prompt = prompt[0]["content"] if len(prompt) == 1 and prompt[0]["role"] in _ALONE else prompt
    return int(fraction > 0 and is_held_out(prompt_json(prompt), fraction))


class _Asked(msgspec.Struct):
    prompt: Any = msgspec.UNSET
    query: Any = msgspec.UNSET


_asked = msgspec.json.Decoder(_Asked).decode


def asked(line: bytes) -> Any:
    """The query of a line, or its prompt. Nothing else of it is made an object."""
    try:
        found = _asked(line)
    except (msgspec.MsgspecError, ValueError):
        found = _Asked(**{key: value for key, value in row_of(line).items() if key in ("prompt", "query")})
    if found.query is not msgspec.UNSET:
        return found.query
    if found.prompt is msgspec.UNSET:
        raise KeyError("prompt")
    return found.prompt


def prompt_json(prompt: Any) -> bytes:
    """What decides whether a prompt is held out: its JSON, keys in the order in which they stand."""
    return _AS_IT_STANDS(prompt).encode()


_AS_IT_STANDS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def by_fields(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
    """All of a row's fields decide whether it is held out."""
    return canonical_json


def by_prompt(gives: type) -> Callable[[Store, Second], Callable[[Mapping[str, Any]], bytes]]:
    """The prompt of what the schema makes of a row decides whether it is held out."""

    def content(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
        convert = converter(second.domain, gives)
        return lambda payload: prompt_json(_prompt_of(apply(convert, payload)))

    return content


def by_text(store: Store, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
    """The text of a document decides whether it is held out."""
    convert, image = converter(second.domain, Sample), store.workspace.image_placeholder(store.family)
    again = images_again(store)

    def text(payload: Mapping[str, Any]) -> bytes:
        document = apply(convert, payload)
        with suppress(CheckFailed):  # a refused record, which is on no side
            document = again(document) if isinstance(document, Sample) else document
        return _text_of(document, image).encode()

    return text


def _prompt_of(example: object) -> Any:
    assert isinstance(example, Group | Prompt | Pair | Sample)
    turns = example.turns[:-1] if isinstance(example, Sample) else example.prompt
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    return messages[0]["content"] if len(turns) == 1 and turns[0].role in _ALONE else messages


def _text_of(document: object, image: str) -> str:
    assert isinstance(document, Sample)
    return "".join(shown_text(turn, image) for turn in document.turns)
