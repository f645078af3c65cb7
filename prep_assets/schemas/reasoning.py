"""An assistant's reasoning that stands in a field of its own, in all its spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import THINKING, Region
from prep_assets.schemas.field_names import REASONING
from prep_assets.schemas.fields import as_list, as_mapping, as_text, inside, value_at
from prep_assets.schemas.view import has_content

DETAILS = "reasoning_details"
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}


def reasoning_regions(message: Mapping[str, Any], where: str, weight: float | None) -> list[Region]:
    """The reasoning of a message, or of a row that is an answer: one region, or none.

    Refuses two spellings with different texts (``conflicting_reasoning``).
    """
    texts = {key: as_text(message[key], inside(where, key)) for key in REASONING if message.get(key)}
    if has_content(message.get(DETAILS)):
        texts[DETAILS] = _details(message[DETAILS], inside(where, DETAILS))
    if len(set(texts.values())) > 1:
        raise Refused("conflicting_reasoning", f"{where or 'the record'} has different texts under {', '.join(texts)}")
    return [Region(THINKING, text, weight) for text in list(texts.values())[:1]]


def _details(value: object, where: str) -> str:
    """OpenRouter's array of parts, joined. Encrypted parts are refused: they cannot be read."""
    texts = []
    for number, part in enumerate(as_list(value, where)):
        place = f"{where}[{number}]"
        fields = as_mapping(part, place)
        kind = as_text(value_at(fields, "type", place), f"{place}.type")
        if kind not in _TEXTS:
            raise Refused("unknown_part", f"{place} has type {kind!r}; known: {', '.join(_TEXTS)}")
        for key in ("format", "signature"):
            fields.get(key)  # of the provider's; no text
        texts.append(as_text(value_at(fields, _TEXTS[kind], place), f"{place}.{_TEXTS[kind]}"))
    return "".join(texts)
