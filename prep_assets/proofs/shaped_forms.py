"""Chats with tools, calls or reasoning, derived a second time by form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived
from prep_assets.samples import IMAGE, TOOL_CALL, Region, Sample, Turn

# Arguments of calls that a template lists, each with its name: how it does so is found where names and values of invented ones stand in a render.

_NUMBER = 73
_SEVERAL: tuple[Any, ...] = (_NUMBER, "T", 0.25, None, False, True, [], {}, "", [7, "é"], {"d": ["ü", None]})
_OTHERS: tuple[Any, ...] = (_NUMBER, {"Z": {"Y": 1.5}}, ["b", {}], "", "T", {}, [], True, None, -2.5, False)
WRITERS: Mapping[str, Callable[[Any], str]] = {
    "json": lambda value: json.dumps(value, ensure_ascii=False),
    "python": str,
    "escaped": json.dumps,
    "tight": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
}
"""Ways to write a value that is no text."""


def several(name: str) -> dict[str, Any]:
    """Arguments of all types, with this name in all that is a name or a text."""
    return _named(name, _SEVERAL)


def others(name: str) -> dict[str, Any]:
    """Others, in another order."""
    return _named(name, _OTHERS)


def _named(name: str, values: Iterable[Any]) -> dict[str, Any]:
    given = {f"{name}{letter}": value for letter, value in zip("abcdefghijkl", values, strict=False)}
    return {key: f'{name}"\n{name}' if value == "T" else value for key, value in given.items()} | {f"{name}z": _NUMBER}


class Listed(NamedTuple):
    """How arguments are listed.

    Attributes:
        between: what stands between a name and its value.
        joint: what stands between a value and the next name.
        around: what stands before and after a text.
        within_json: whether a text is written as in a string of JSON.
        ways: names of `WRITERS`, by type.
        empty: how an empty text is written.
    """

    between: str
    joint: str
    around: tuple[str, str]
    within_json: bool
    ways: tuple[tuple[str, str], ...]
    empty: str

    def write(self, arguments: str) -> str:
        """Arguments, given as JSON, as they are listed."""
        ways = dict(self.ways)
        listed = []
        for name, value in json.loads(arguments).items():
            if isinstance(value, str):
                own = json.dumps(value, ensure_ascii=False)[1:-1] if self.within_json else value
                shown = own.join(self.around) if value else self.empty
            else:
                shown = WRITERS[ways[_kind(value)]](value)
            listed.append(f"{name}{self.between}{shown}")
        return self.joint.join(listed)

    def holds(self, arguments: str) -> bool:
        """Whether no name and no text has white space at its ends, no name is empty, and each number is one."""
        given = json.loads(arguments)
        texts = [*given, *(value for value in given.values() if isinstance(value, str))]
        odd = any(isinstance(value, float) and value - value != 0 for value in given.values())
        return not odd and "" not in given and all(text == text.strip() for text in texts)


def _kind(value: Any) -> str:
    return type(value).__name__ + ("" if value or isinstance(value, bool | int | float) or value is None else " empty")


def listed(render: str, given: Mapping[str, Any]) -> tuple[int, int, Listed] | None:
    """Where a render lists these arguments, of which the first and the last are numbers, and how; `None` where that is not certain."""
    names, number = list(given), str(_NUMBER)
    found = re.search(".*?".join(f"({re.escape(name)})" for name in names), render, re.DOTALL)
    if found is None or any(render.count(name) != 1 for name in names):
        return None
    edges = [found.span(at + 1) for at in range(len(names))]
    pieces = [render[left[1] : right[0]] for left, right in pairwise(edges)]
    between, _, joint = pieces[0].partition(number)
    end = edges[-1][1] + len(between) + len(number)
    values = {name: piece.removeprefix(between).removesuffix(joint) for name, piece in zip(names, pieces, strict=False)}
    how = _how(between, joint, values, given)
    if how is None or how.write(json.dumps(given)) != render[found.start() : end]:
        return None
    return found.start(), end, how


def _how(between: str, joint: str, values: Mapping[str, str], given: Mapping[str, Any]) -> Listed | None:
    ways: dict[str, str] = {}
    around, within_json, empty = ("", ""), False, ""
    for name, shown in values.items():
        value = given[name]
        if value == "":
            empty = shown
        elif isinstance(value, str):
            spellings = {False: value, True: json.dumps(value, ensure_ascii=False)[1:-1]}
            there = next((each for each, own in spellings.items() if shown.count(own) == 1), None)
            if there is None:
                return None
            within_json = there
            before, _, after = shown.partition(spellings[there])
            around = before, after
        else:
            fitting = next((way for way, write in WRITERS.items() if write(value) == shown), None)
            if fitting is None or ways.setdefault(_kind(value), fitting) != fitting:
                return None
    return Listed(between, joint, around, within_json, tuple(sorted(ways.items())), empty)


# Samples with tools, calls or reasoning, without their texts: what is left is the same for many of them, and decides what they must become.

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


# Chats of one shape derived a second time: where a template writes tools and arguments is found by trying spellings of the JSON of invented ones.

Spelling = Mapping[str, Any] | Listed
"""Arguments of `json.dumps`; none where a text is written as it is, `QUOTED` where it stands in a string of JSON; or how arguments are listed."""
QUOTED: Mapping[str, Any] = {"quoted": True}
Found = tuple[int, int, int, Spelling]
"""Where a text stands (start, end), its number, and how it is spelled."""

_SPELLINGS: tuple[Mapping[str, Any], ...] = tuple(
    {key: value for key, value in (("indent", indent), ("separators", separators), ("sort_keys", in_order)) if value}
    for indent in (None, 4, 2)
    for separators in (None, (",", ":"))
    for in_order in (False, True)
)
_VALUES: tuple[Callable[[str], object], ...] = (
    lambda name: {"b": name, "a": {"d": [1, name], "c": "é"}},
    lambda name: {"Z": {"Y": name}, name: []},
)
"""Invented tools and arguments."""


class Shape(Protocol):
    """What a chat is beside its texts. Those of tools come first; `json` are the numbers of those that are JSON."""

    @property
    def size(self) -> int: ...
    @property
    def json(self) -> tuple[int, ...]: ...
    @property
    def tools(self) -> int: ...
    def sample(self, texts: Iterable[str]) -> Sample: ...
    def texts(self, words: Iterable[str], value: Callable[[str], object]) -> list[str]: ...


def spelled(text: str, spelling: Spelling) -> str:
    """A text as a render shows it."""
    if isinstance(spelling, Listed):
        return spelling.write(text)
    if spelling == QUOTED:
        return json.dumps(text, ensure_ascii=False)[1:-1]
    return json.dumps(json.loads(text), ensure_ascii=False, **spelling) if spelling else text


def taken_apart(shape: Shape, derived: Callable[[Sample], Derived]) -> list[tuple[Derived, list[Found]]]:
    """Two chats of a shape derived, with the places of their texts; nothing where one of them cannot be, or where a place is not certain."""
    found = _in_both(shape, derived, _VALUES)
    return _in_both(shape, derived, (several, others)) if not found and len(shape.json) > shape.tools else found


def _in_both(
    shape: Shape, derived: Callable[[Sample], Derived], values: Iterable[Callable[[str], object]]
) -> list[tuple[Derived, list[Found]]]:
    names = [f"Qz{number:05d}zQ" for number in range(shape.size)]
    both = []
    for value in values:
        texts = shape.texts(names, value)
        texts = [text if number in shape.json else f'{text}"\n{text}' for number, text in enumerate(texts)]
        try:
            made = derived(shape.sample(texts))
        except CheckFailed:
            return []
        found = []
        for number, (name, text) in enumerate(zip(names, texts, strict=True)):
            # reasoning, names of tools and ids may be left out
            if name in made.text or number < shape.tools:
                place = _place(made.text, name, text, number, _SPELLINGS if number in shape.json else ({}, QUOTED))
                if place is None and values is not _VALUES and number in shape.json[shape.tools :]:
                    place = _listed(made.text, name, text, number)
                if place is None:
                    return []
                found.append(place)
        both.append((made, sorted(found, key=lambda each: each[0])))
    return both


def _listed(render: str, name: str, text: str, number: int) -> Found | None:
    """Where the arguments of a call are listed in a render, if they are and their name stands nowhere else."""
    found = listed(render, json.loads(text))
    if found is None or render.count(name) != render[found[0] : found[1]].count(name):
        return None
    return found[0], found[1], number, found[2]


def _place(render: str, name: str, text: str, number: int, spellings: Iterable[Mapping[str, Any]]) -> Found | None:
    """Where a text stands in a render, if it does so once and its name nowhere else."""
    for spelling in spellings:
        shown = spelled(text, spelling)
        if render.count(shown) == 1 and render.count(name) == shown.count(name):
            start = render.index(shown)
            return start, start + len(shown), number, spelling
    return None
