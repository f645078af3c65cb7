"""Chats with reasoning, tool calls, tools, names or weights in columns: their texts on one side, all else on the other.

What is not a text is the shape: roles, kinds of regions, their weights, the white space at the ends of texts, how many tools there are. So chats
of one shape differ in texts alone. A tool and the arguments of a call are texts too, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TOOL_CALL, Region, Sample, Turn
from prep_assets.templates.tool_calls import tool_call

MOST_SPACE = 16
"""Characters of white space at an end of a text that are a part of a shape."""
json_of = json.JSONEncoder(ensure_ascii=False).encode
"""The JSON of a tool, or of a call's arguments, as a text among others."""


class RegionShape(NamedTuple):
    """A region without its texts.

    Attributes:
        kind, weight: of the region.
        lead, trail: the white space at its ends; of one of nothing but white space all of it is `lead`.
        has_text: whether there is more than that; of a tool call, whether it has arguments.
        has_id: whether a tool call has an id.
    """

    kind: str
    weight: float | None
    lead: str
    trail: str
    has_text: bool
    has_id: bool

    def region(self, texts: Iterator[str]) -> Region:
        """The region with the next of these texts."""
        if self.kind != TOOL_CALL:
            return Region(self.kind, f"{self.lead}{next(texts)}{self.trail}" if self.has_text else self.lead, self.weight)
        call = {"id": next(texts)} if self.has_id else {}
        call |= {"name": next(texts), "arguments": json.loads(next(texts)) if self.has_text else {}}
        return Region(TOOL_CALL, json_of(call), self.weight)


class TurnShape(NamedTuple):
    """A turn without its texts."""

    role: str
    has_name: bool
    has_id: bool
    regions: tuple[RegionShape, ...]


class Shape(NamedTuple):
    """A chat without its texts.

    Attributes:
        size: how many texts there are.
        json: those that are JSON, by their numbers: tools first, then the arguments of calls.
        tools: how many tools there are.
        turns: its turns. The texts of each are its name, the id of the call that it answers, and those of its regions: of a call its id, its
            name and its arguments.
    """

    size: int
    json: tuple[int, ...]
    tools: int
    turns: tuple[TurnShape, ...]

    def sample(self, texts: Iterable[str]) -> Sample:
        """The chat of this shape that has these texts."""
        given = iter(texts)
        tools = tuple(json.loads(next(given)) for _ in range(self.tools))
        turns = []
        for role, has_name, has_id, regions in self.turns:
            name, call_id = (next(given) if has else None for has in (has_name, has_id))
            turns.append(Turn(role, tuple(each.region(given) for each in regions), name, call_id))
        return Sample(tuple(turns), tools)

    def texts(self, words: Iterable[str], value: Callable[[str], object]) -> list[str]:
        """Invented texts: a word for each; where JSON is wanted, that of `value` of the word."""
        return [json_of(value(word)) if number in self.json else word for number, word in enumerate(words)]


class ShapedChat(Struct, frozen=True):
    """A sample in columns.

    Attributes:
        form: its shape.
        texts: its texts, none of them blank, and none with white space at its ends.
        whole: the sample.
    """

    form: Shape
    texts: tuple[str, ...]
    whole: Sample

    def sample(self) -> Sample:
        """The sample that it is."""
        return self.whole


def shaped(sample: Sample) -> ShapedChat | None:
    """The sample in columns; `None` where it has images, documents, a label or variables, or a part that a template has to see as it is."""
    if sample.documents or sample.template_options or sample.label is not None or sample.tokenized is not None:
        return None
    try:
        texts = [json_of(tool) for tool in sample.tools]
        listed = list(range(len(texts)))
        turns = tuple([_turn(turn, texts, listed) for turn in sample.turns])
    except (Refused, ValueError, TypeError, RecursionError, _Apart):
        return None
    if not texts or not all(sample.tools):
        return None
    return ShapedChat(Shape(len(texts), tuple(listed), len(sample.tools), turns), tuple(texts), sample)


class _Apart(Exception):
    """A part of a sample that stands in no column."""


def _turn(turn: Turn, texts: list[str], listed: list[int]) -> TurnShape:
    for each in (turn.name, turn.tool_call_id):
        if each is not None:
            texts.append(_bare(each))
    regions = tuple([_region(region, texts, listed) for region in turn.regions])
    return TurnShape(turn.role, turn.name is not None, turn.tool_call_id is not None, regions)


def _region(region: Region, texts: list[str], listed: list[int]) -> RegionShape:
    if region.drop or not region.attend or region.kind == IMAGE:
        raise _Apart
    if region.kind == TOOL_CALL:
        call = tool_call(region)
        arguments, has_id = call["arguments"], "id" in call
        if not isinstance(arguments, dict):
            raise _Apart
        texts += [*([_bare(call["id"])] if has_id else ()), _bare(call["name"])]
        if arguments:
            listed.append(len(texts))
            texts.append(json_of(arguments))
        return RegionShape(TOOL_CALL, region.loss_weight, "", "", bool(arguments), has_id)
    text = region.text
    words = text.strip()
    if not words:
        return RegionShape(region.kind, region.loss_weight, _short(text), "", has_text=False, has_id=False)
    texts.append(words)
    lead, trail = ("", "") if len(words) == len(text) else (text[: -len(text.lstrip())], text[len(text.rstrip()) :])
    return RegionShape(region.kind, region.loss_weight, _short(lead), _short(trail), has_text=True, has_id=False)


def _bare(text: object) -> str:
    """A name or an id, with nothing at its ends that a template may take away."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise _Apart
    return text


def _short(space: str) -> str:
    if len(space) > MOST_SPACE:
        raise _Apart
    return space
