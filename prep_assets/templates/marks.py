"""Marks around texts on their way through a template: Unicode noncharacters (U+FDD0 … U+FDEF), which no text may contain.

An opening mark carries a number, so that the render says which text stands where; a template may write one text more than once.
"""

from __future__ import annotations

import re

_OPEN, _OPENED, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_DIGITS = "".join(map(chr, range(0xFDD3, 0xFDE3)))
_MARKS = re.compile(f"{_OPEN}([{_DIGITS}]+){_OPENED}|{_CLOSE}")
NONCHARACTER = re.compile("[\ufdd0-\ufdef]")

Places = dict[int, list[tuple[int, int]]]
"""Number → where its texts stand (start, end), ascending."""


def mark(number: int, words: str) -> str:
    """`words` between marks; no marks around nothing."""
    digits = "".join(_DIGITS[int(digit, 16)] for digit in f"{number:x}")
    return f"{_OPEN}{digits}{_OPENED}{words}{_CLOSE}" if words else ""


def mark_words(number: int, text: str) -> str:
    """`text` with marks around its words, so that a template's own trimming still finds the white space at its ends."""
    words = text.strip()
    start = text.find(words)
    return f"{text[:start]}{mark(number, words)}{text[start + len(words) :]}" if words else text


def unmark(marked: str) -> tuple[str, Places]:
    """The text without marks, and what they enclose."""
    plain: list[str] = []
    found: Places = {}
    at, last = 0, 0
    opened: tuple[int, int] | None = None
    for each in _MARKS.finditer(marked):
        plain.append(marked[last : each.start()])
        at += each.start() - last
        last = each.end()
        if each[1] is not None:
            opened = (int("".join(f"{_DIGITS.index(char):x}" for char in each[1]), 16), at)
        elif opened is not None:
            found.setdefault(opened[0], []).append((opened[1], at))
            opened = None
    plain.append(marked[last:])
    return "".join(plain), found
