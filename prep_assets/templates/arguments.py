"""How a template writes the arguments of a call one by one: what stands between a name and its value, what between a value and the next name, and how
values of each type are written.

    {"city": "Rome", "days": 3}   <parameter=city>\\nRome\\n</parameter>\\n<parameter=days>\\n3\\n</parameter>\\n
                                             └──────────────────── written ─────────────────┘

It is read off the render of invented arguments, one or more of each type. What stands before the first name and after the last value is left to the
layout.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from prep_assets.caches import bounded_cache
from prep_assets.templates.questions import LETTERS, REAL, WHOLE, Questions

MOST_ITEMS = 8
"""Arguments of a call that are written one by one: so many are tried."""
_CONSTANTS: tuple[Any, ...] = (True, False, None, "", [], {})


def one_of_each(word: str) -> dict[str, Any]:
    """Invented arguments of every type, the first and the last whole numbers; `word` is one of them."""
    listed = [WHOLE, word, REAL, *_CONSTANTS, [_part(word, 13), 1], {_part(word, 14): [_part(word, 15)]}, WHOLE]
    return {_part(word, number): value for number, value in enumerate(listed)}


def some_of_each(word: str, count: int) -> dict[str, Any]:
    """So many of them, beginning with others for each count."""
    every = list(one_of_each(word).items())
    return dict([*every, *every][count : count + count])


def _part(word: str, number: int) -> str:
    """A word that is no other and stands for a part of `word`: no number begins with the letter of zero."""
    return f"vx{LETTERS[0]}{word[2:-2]}{LETTERS[number]}xv"


@dataclass(frozen=True)
class OneByOne:
    """How arguments are written, as JSON in columns.

    Attributes:
        between: what stands between a name and its value.
        joint: what stands between a value and the next name.
        before, after: what is written around a text.
        quoted: whether a text is written as within JSON.
        constants: how `None`, truth values and what is empty are written, by their JSON.
        nested: how a list and an object are written.
        control: control tokens.
    """

    between: str
    joint: str
    before: str
    after: str
    quoted: bool
    constants: Mapping[str, str]
    nested: Mapping[type, Callable[[Any], str]]
    control: tuple[str, ...]

    def __call__(self, arguments: str) -> str:
        """Arguments, given as JSON, as they are written."""
        return self.joint.join([f"{name}{self.between}{self._value(value)}" for name, value in json.loads(arguments).items()])

    def _value(self, value: Any) -> str:
        if value is None or isinstance(value, bool) or (not value and not isinstance(value, int | float)):
            return self.constants[json.dumps(value)]
        if isinstance(value, str):
            return f"{self.before}{json.dumps(value, ensure_ascii=False)[1:-1] if self.quoted else value}{self.after}"
        return self.nested[type(value)](value) if type(value) in self.nested else str(value)

    def holds(self, arguments: str, before: str, after: str) -> bool:
        """Whether arguments are written so between these frames: not more of them than were tried, no white space at the ends of names and texts, and
        no control token made of them together with what stands beside them."""
        given = json.loads(arguments)
        if len(given) > MOST_ITEMS or not all(map(_is_bare, given)) or "" in given or not all(map(_is_bare, given.values())):
            return False
        tokens, reach = _tokens(self.control)
        before, after, written = before[-reach:], after[:reach], self(arguments)
        low, high = len(before), len(before) + len(written)
        return not any(low < found.end() and found.start() < high for found in tokens.finditer(f"{before}{written}{after}"))


@bounded_cache("searches for control tokens", 16)
def _tokens(control: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    """What matches control tokens, and the length of the longest."""
    listed = sorted(control, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, listed)) or "(?!)"), max(map(len, listed), default=1)


def _is_bare(value: Any) -> bool:
    if isinstance(value, str):
        return value == value.strip()
    return not isinstance(value, float) or math.isfinite(value)


def one_by_one(text: str, word: str, asked: Questions, control: tuple[str, ...]) -> tuple[OneByOne, int, int] | None:
    """How `one_of_each` is written in a render, from where to where; `None` where that is not certain."""
    given = one_of_each(word)
    starts = [text.find(name) for name in given]
    ends = [start + len(name) for start, name in zip(starts, given, strict=True)]
    if min(starts) < 0 or starts != sorted(starts) or any(text.count(name) != 1 for name in given):
        return None
    gaps = [text[end:start] for end, (_, start) in zip(ends, pairwise(starts), strict=False)]
    between, found, joint = gaps[0].partition(str(WHOLE))
    last = f"{between}{WHOLE}"
    if not found or not text.startswith(last, ends[-1]):
        return None
    if not all(len(gap) >= len(between) + len(joint) and gap.startswith(between) and gap.endswith(joint) for gap in gaps):
        return None
    _, string, real, *rest = [gap[len(between) : len(gap) - len(joint)] for gap in gaps]
    *constants, listed, nested = rest
    before, is_there, after = string.partition(word)
    of_list, of_object = map(asked.written.get, (listed, nested))
    if not is_there or real != str(REAL) or of_list is None or of_object is None or text.count(word) != 1:
        return None
    written = dict(zip(map(json.dumps, _CONSTANTS), constants, strict=True))
    made = OneByOne(between, joint, before, after, word in asked.quoted, written, {list: of_list, dict: of_object}, control)
    start, end = starts[0], ends[-1] + len(last)
    shown = text[start:end]
    return (made, start, end) if made(json.dumps(given)) == shown and not any(token in shown for token in control) else None
