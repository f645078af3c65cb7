"""Chats of one shape derived a second time: where a template writes tools and arguments is found by trying spellings of the JSON of invented ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from prep_assets.errors import CheckFailed
from prep_assets.proofs.listed_arguments import Listed, listed, others, several
from prep_assets.proofs.stretches import Derived
from prep_assets.samples import Sample

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
