"""Chats that are written as one text, with a mark before each turn."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prep_assets.errors import Refused


def split_marked(text: str, marks: Mapping[str, str], where: str) -> list[tuple[str, str]]:
    """``(role, text)`` of each turn in `text`, whose turns begin with one of `marks` (mark to role); texts are stripped.

    Raises:
        Refused: ``leading_text`` where something stands before the first mark.
    """
    pattern = re.compile("|".join(re.escape(mark) for mark in marks))
    found = list(pattern.finditer(text))
    leading = text[: found[0].start()] if found else text
    if leading.strip():
        raise Refused("leading_text", f"{where!r} begins {leading[:60]!r}, before the first of {', '.join(map(repr, marks))}")
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    return [(marks[match[0]], text[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)]
