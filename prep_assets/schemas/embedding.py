"""Cerebras' semantic data arrays for embeddings: turns of a type and one content, as their read hooks return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import Contrast
from prep_assets.schemas.fields import as_integer, as_text, needed

EMBEDDING = ("question", "context_positive", "context_negative", "embedding", "id")
"""Types of their turns."""


def embedded(turns: Sequence[Mapping[str, Any]]) -> Contrast:
    """A question with its contexts, or a text to be embedded with its id."""
    found: dict[str, list[Any]] = {kind: [] for kind in EMBEDDING}
    for at, turn in enumerate(turns):
        if turn.get("type") not in found:
            raise Refused("unknown_role", f"turn {at} has type {turn.get('type')!r}; known: {', '.join(EMBEDDING)}")
        found[turn["type"]].append(turn.get("content"))
    if found["embedding"]:
        return text_to_embed(_one(found, "embedding"), _one(found, "id"))
    positives, negatives = (tuple(as_text(each, kind) for each in found[kind]) for kind in ("context_positive", "context_negative"))
    return Contrast(as_text(_one(found, "question"), "question"), positives, negatives)


def text_to_embed(text: object, identity: object) -> Contrast:
    """A text with its id."""
    return Contrast(needed(as_text(text, "the text"), "empty_query", "the text"), id=as_integer(identity, "id"))


def _one(found: Mapping[str, list[Any]], kind: str) -> object:
    if len(found[kind]) != 1:
        raise Refused("wrong_type", f"{len(found[kind])} turns have the type {kind!r}, needs one")
    return found[kind][0]
