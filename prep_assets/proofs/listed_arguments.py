"""Arguments of calls that a template lists, each with its name: how it does so is found where names and values of invented ones stand in a render."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

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
