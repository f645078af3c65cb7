"""Samples with tools, calls or reasoning, without their texts: what is left is the same for many of them, and decides what they must become."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from prep_assets.samples import IMAGE, TOOL_CALL, Region, Sample, Turn

MOST_BLANKS = 16
"""Characters of white space at an end of a text that are a part of an outline."""
as_json = json.JSONEncoder(ensure_ascii=False).encode

_Region = tuple[str, float | None, tuple[str, ...]]
"""Kind, weight, and a pattern: the white space around a text, or all of one of nothing else; of a call which of its parts are texts."""
_Turn = tuple[str, bool, bool, tuple[_Region, ...]]
"""Role, whether it has a name, whether it names a call, and its regions."""


class Outline(NamedTuple):
    """A sample without its texts.

    Attributes:
        size: how many texts there are.
        json: which of them are JSON: tools, which come first, and the arguments of calls.
        tools: how many tools there are.
        turns: the rest of its turns. The texts of each are its name, the id of the call that it answers, and those of its regions.
    """

    size: int
    json: tuple[int, ...]
    tools: int
    turns: tuple[_Turn, ...]

    def sample(self, texts: Iterable[str]) -> Sample:
        """The sample that has these texts."""
        left = iter(texts)
        tools = tuple([json.loads(next(left)) for _ in range(self.tools)])
        return Sample(tuple([_filled(turn, left) for turn in self.turns]), tools)

    def texts(self, words: Iterable[str], value: Callable[[str], object]) -> list[str]:
        """A text for each word: itself, or the JSON of `value` of it."""
        return [as_json(value(word)) if number in self.json else word for number, word in enumerate(words)]


class OutlinedSample(Struct, frozen=True):
    """A sample as its outline and its texts, of which none is blank, or has white space at its ends."""

    form: Outline
    texts: tuple[str, ...]


Read = Callable[[Region], Mapping[str, Any]]


def outlined(sample: Sample, read: Read = lambda region: json.loads(region.text)) -> OutlinedSample | None:
    """The outline and the texts of a sample; `None` where something in it is neither, such as an image, or an empty tool.

    Args:
        read: gives the call of a region.
    """
    if sample != Sample(sample.turns, sample.tools) or not all(sample.tools):
        return None
    try:
        texts = [as_json(tool) for tool in sample.tools]
        listed = [*range(len(texts))]
        turns = tuple([_outlined(turn, texts, listed, read) for turn in sample.turns])
    except (_Other, ValueError, KeyError, TypeError, RecursionError):
        return None
    return OutlinedSample(Outline(len(texts), tuple(listed), len(sample.tools), turns), tuple(texts)) if texts else None


class _Other(Exception):
    """Something that is neither a part of an outline nor a text."""


def _outlined(turn: Turn, texts: list[str], listed: list[int], read: Read) -> _Turn:
    texts += [_bare(own) for own in (turn.name, turn.tool_call_id) if own is not None]
    regions = tuple([(each.kind, each.loss_weight, _pattern(each, texts, listed, read)) for each in turn.regions])
    return turn.role, turn.name is not None, turn.tool_call_id is not None, regions


def _pattern(region: Region, texts: list[str], listed: list[int], read: Read) -> tuple[str, ...]:
    if region.drop or not region.attend or region.kind == IMAGE:
        raise _Other
    if region.kind == TOOL_CALL:
        call = read(region)
        if not isinstance(call["arguments"], dict):
            raise _Other
        has = {"id": bool(call.get("id")), "name": True, "arguments": bool(call["arguments"])}
        texts += [_bare(call[key]) for key in ("id", "name") if has[key]]
        if has["arguments"]:
            listed.append(len(texts))
            texts.append(as_json(call["arguments"]))
        return tuple([key for key in has if has[key]])
    words = region.text.strip()
    around = tuple(region.text.split(words, 1)) if words else (region.text,)
    if any(len(blanks) > MOST_BLANKS for blanks in around):
        raise _Other
    texts += [words] if words else []
    return around


def _bare(text: object) -> str:
    """A name or an id; others than strings, and those with white space at their ends, are no texts."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise _Other
    return text


def _filled(turn: _Turn, left: Iterator[str]) -> Turn:
    role, has_name, has_call, regions = turn
    name, call = [next(left) if has else None for has in (has_name, has_call)]
    return Turn(role, tuple([Region(kind, _text(kind, pattern, left), weight) for kind, weight, pattern in regions]), name, call)


def _text(kind: str, pattern: tuple[str, ...], left: Iterator[str]) -> str:
    if kind != TOOL_CALL:
        return next(left).join(pattern) if len(pattern) == 2 else pattern[0]
    call: dict[str, object] = {key: next(left) for key in pattern}
    return as_json(call | {"arguments": json.loads(str(call.get("arguments", "{}")))})
