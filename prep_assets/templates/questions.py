"""What a template may ask about the texts of a conversation, and which answers hold for other texts as well.

Answers stay the same where a text is not blank and holds none of the `Questions.needles`. Whatever else a template asks (the length of a text,
its first character, whether two texts are equal) makes it `Questions.open`: nothing follows for other texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prep_assets.templates.opaque import Arguments, Length, Number, Opaque

LETTERS = "abcdefghijklmnop"
WHOLE, REAL = 700271828, -314159265.375
"""Invented numbers, whose digits are words as well once a template has made a text of them."""
WORD = re.compile(f"vx[a-p]+xv|{WHOLE}|{re.escape(str(REAL))}")

OF_TYPE = frozenset(
    [
        "defined",
        "undefined",
        "none",
        "string",
        "mapping",
        "iterable",
        "sequence",
        "number",
        "boolean",
        "true",
        "false",
        "integer",
        "float",
        "callable",
        "filter",
        "test",
    ]
)
_EQUAL = frozenset({"eq", "==", "equalto", "ne", "!=", "in"})
_SEARCHES = frozenset(
    [
        "startswith",
        "endswith",
        "split",
        "rsplit",
        "partition",
        "rpartition",
        "replace",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "removeprefix",
        "removesuffix",
    ]
)
_PLACES = frozenset({"find", "rfind", "index", "rindex"})
_STRIPS = frozenset({"strip", "lstrip", "rstrip"})
_OF_CONTAINERS = frozenset(["length", "count", "first", "last", "list", "reverse", "items", "default", "d", "string"])


def word(number: int) -> str:
    """An invented word, another one for each number."""
    return "vx" + "".join(LETTERS[int(digit, 16)] for digit in f"{number:x}") + "xv"


@dataclass
class Questions:
    """What a template asked about texts.

    Attributes:
        needles: strings that it searched for in a text, or compared one with.
        trims_some: whether it strips chosen white space, such as line breaks only, so that nothing follows for texts with white space at their ends.
        open: the first question whose answer may be another for other texts; ``""`` where there is none.
        written: how the JSON of each `Opaque` is written, by its text.
        quoted: the words that are written as JSON.
        goes_through: whether it goes through the arguments of a call.
    """

    needles: set[str] = field(default_factory=set)
    trims_some: bool = False
    open: str = ""
    written: dict[str, Callable[[Any], str]] = field(default_factory=dict)
    quoted: set[str] = field(default_factory=set)
    goes_through: bool = False

    def cannot_tell(self, question: str) -> None:
        """Note a question that other texts may answer otherwise."""
        self.open = self.open or question

    def search(self, needle: Any, value: Any, *, whole: bool = False) -> None:
        """Note a search in a text; `whole`: a comparison with one, or how far into it something stands."""
        texts = needle if isinstance(needle, tuple) else (needle,)
        if not isinstance(value, str) or not (WORD.fullmatch(value.strip()) or (not whole and all(_apart(each, value) for each in texts))):
            self.cannot_tell("a search in more than one text")  # which may be found across their border
        elif any(holds(each) or (isinstance(each, str) and not each.strip() and each) for each in texts):
            self.cannot_tell("a search for another text, or for white space")
        else:
            self.needles |= {each for each in texts if isinstance(each, str) and each}

    def compare(self, name: str, left: Any, right: Any) -> None:
        """Note a comparison."""
        if name in ("in", "notin") and isinstance(right, Mapping):
            right = list(right)
        if (not holds(left) and not holds(right)) or isinstance(left, Length) or isinstance(right, Length):
            return
        if name in ("in", "notin") and isinstance(right, str):
            self.search(left, right)
        elif name in ("in", "notin") and isinstance(right, list | tuple):
            for each in right:
                self.compare("eq", left, each)
        elif name in ("eq", "ne"):
            text, other = (left, right) if holds(left) else (right, left)
            if isinstance(text, str) and (other is None or isinstance(other, bool | int | float)):
                return
            self.search(other, text, whole=True)
        else:
            self.cannot_tell(f"a comparison ({name}) of texts")

    def call(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Note a call."""
        from jinja2.runtime import Macro

        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        given = [*arguments, *named.values()]
        if isinstance(function, Macro) or not (holds(owner) or any(map(holds, given))):
            return
        if isinstance(owner, str) and holds(owner) and name in _STRIPS:
            self._strip(given[0] if given else None)
        elif isinstance(owner, str) and holds(owner) and name in _SEARCHES and given and not any(map(holds, given)):
            self.search(given[0], owner, whole=name in _PLACES)
        elif (
            (isinstance(owner, dict) and not any(map(holds, given[:1])))
            or (isinstance(owner, list) and name == "append")
            or (isinstance(owner, Arguments) and name == "items")
            or (isinstance(owner, str) and name == "join" and not holds(owner) and isinstance(given[0], list | tuple))
            or getattr(function, "__name__", "") == "TemplateNamespace"
        ):
            return
        else:
            self.cannot_tell(f"a call of {name or type(function).__name__} with texts")

    def _strip(self, characters: Any) -> None:
        if characters is not None:
            self.trims_some = True
            if not isinstance(characters, str) or characters.strip():
                self.cannot_tell("a strip of other characters than white space")

    def filter(self, name: str, value: Any, given: Sequence[Any]) -> None:
        """Note a filter."""
        if not holds(value) and not any(map(holds, given)):
            return
        if name == "trim" and isinstance(value, str) and not any(map(holds, given)):
            self._strip(given[0] if given else None)
        elif name == "tojson" and isinstance(value, str) and WORD.fullmatch(value.strip()):
            self.quoted.add(value.strip())
        elif name == "replace" and isinstance(value, str) and not holds(given[:1]):
            self.search(given[0], value)
        elif (
            name in ("default", "d", "safe")
            or (name == "string" and isinstance(value, str | Number))
            or (name == "tojson" and isinstance(value, Number))
            or (name == "items" and isinstance(value, Arguments))
            or (name == "join" and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value))
            or (name in _OF_CONTAINERS - {"string"} and isinstance(value, list | tuple | dict))
            or (name in ("selectattr", "rejectattr") and not holds([_item(each, given[0]) for each in value]))
            or (name == "map" and not given and isinstance(value, list | tuple))
        ):
            return
        else:
            self.cannot_tell(f"the filter {name} on texts")

    def test(self, name: str, value: Any, given: Sequence[Any]) -> None:
        """Note a test."""
        if (name in OF_TYPE and not isinstance(value, Length)) or not (holds(value) or any(map(holds, given))):
            return
        if name in _EQUAL and given:
            self.compare("in" if name == "in" else "eq", value, given[0])
        else:
            self.cannot_tell(f"the test {name} on texts")


def _apart(needle: Any, value: str) -> bool:
    """Whether a string cannot be found half in one of the texts of a value and half in what stands beside it."""
    if not isinstance(needle, str):
        return False
    fixed = WORD.split(value)
    for number, own in enumerate(fixed):
        follows, precedes = number > 0, number < len(fixed) - 1
        for head, tail in ((needle[:at], needle[at:]) for at in range(1, len(needle))):
            if follows and (own.startswith(tail) or (precedes and tail.startswith(own))):
                return False
            if precedes and (own.endswith(head) or (follows and head.endswith(own))):
                return False
    return True


def _item(value: Any, name: Any) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, str(name), None)


def holds(value: Any) -> bool:
    """Whether one of the invented words stands in a value."""
    if isinstance(value, str):
        return WORD.search(value) is not None
    if isinstance(value, Opaque | Number | Length):
        return True
    if isinstance(value, Mapping):
        return any(holds(key) or holds(inner) for key, inner in value.items())
    return isinstance(value, list | tuple | set) and any(map(holds, value))
