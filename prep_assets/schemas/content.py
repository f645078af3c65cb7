"""What one message says: a string, or an array of typed parts, as regions; and an assistant's reasoning in a field of its own, in all its spellings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prep_assets.errors import Refused, nearest
from prep_assets.samples import THINKING, TOOL_CALL, Region
from prep_assets.schemas.field_names import REASONING
from prep_assets.schemas.fields import as_list, as_mapping, as_text, inside, value_at
from prep_assets.schemas.images import Images, image_of
from prep_assets.schemas.tools import call_text, call_texts
from prep_assets.schemas.view import has_content
from prep_assets.schemas.weights import loss_weight_of

TEXT_PARTS = ("text", "input_text", "output_text")
THINKING_PARTS = ("reasoning", "thinking")
CALL_PARTS = ("tool_call", "tool_use")
IMAGE_PARTS = ("image", "image_url")
PARTS = (*TEXT_PARTS, *THINKING_PARTS, *CALL_PARTS, *IMAGE_PARTS)


def content_regions(content: object, where: str, weight: float | None, images: Images) -> list[Region]:
    """Regions of a message's content.

    A part holds its text under the name of its type, ``text`` (OpenAI) or ``value`` (LLaMA-Factory v1). An image part without a path takes
    the next one of the row's image column (Hugging Face). A part's own loss weight goes before the message's.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return images.split(content, weight)
    regions: list[Region] = []
    for number, part in enumerate(as_list(content, where, "a string or an array of parts")):
        place = f"{where}[{number}]"
        regions.extend(_part_regions(as_mapping(part, place), place, weight, images))
    return regions


def _part_regions(part: Mapping[str, Any], where: str, weight: float | None, images: Images) -> list[Region]:
    kind = as_text(value_at(part, "type", where), f"{where}.type")
    own = loss_weight_of(part, where)
    weight = weight if own is None else own
    if kind in TEXT_PARTS:
        return images.split(as_text(_first(part, ("text", "value"), where), where), weight)
    if kind in THINKING_PARTS:
        return [Region(THINKING, as_text(_first(part, (kind, "text", "value"), where), where), weight)]
    if kind in CALL_PARTS:
        return [Region(TOOL_CALL, text, weight) for text in _calls(part, where)]
    if kind in IMAGE_PARTS:
        return [replace(_image(part, where, images), loss_weight=weight)]
    raise Refused("unknown_part", f"{where} has type {kind!r}{nearest(kind, PARTS)}; known: {', '.join(PARTS)}")


def _calls(part: Mapping[str, Any], where: str) -> list[str]:
    if all(part.get(key) is None for key in ("value", "tool_call")):
        return [call_text(part, where)]
    return call_texts(_first(part, ("value", "tool_call"), where), f"{where}.value")


def _image(part: Mapping[str, Any], where: str, images: Images) -> Region:
    keys = ("image_url", "image", "path", "url", "value")
    return image_of(_first(part, keys, where), where, part) if any(part.get(key) is not None for key in keys) else images.take()


def _first(part: Mapping[str, Any], keys: Sequence[str], where: str) -> Any:
    """The value under one of `keys`. Two that differ are refused (``conflicting_content``)."""
    present = [key for key in keys if part.get(key) is not None]
    if any(part[key] != part[present[0]] for key in present):
        raise Refused("conflicting_content", f"{where} has different values under {' and '.join(present)}")
    return part[present[0]] if present else value_at(part, keys[0], where)


DETAILS = "reasoning_details"
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}


def reasoning_regions(message: Mapping[str, Any], where: str, weight: float | None) -> list[Region]:
    """The reasoning of a message, or of a row that is an answer: one region, or none.

    Refuses two spellings with different texts (``conflicting_reasoning``).
    """
    texts = {key: as_text(message[key], inside(where, key)) for key in REASONING if has_content(message.get(key))}
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
