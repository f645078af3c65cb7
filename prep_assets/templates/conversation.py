"""A sample as the messages that chat templates read, with or without marks around its regions.

Marks are Unicode noncharacters (U+FDD0 … U+FDEF), which no text may contain: an opening mark that carries the region's number, and a closing
one. White space at the outer ends of a field stays outside the marks, where a template's own trimming still finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, THINKING, TOOL_CALL, Region, Sample, Turn

_OPEN, _OPENED, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_DIGITS = "".join(map(chr, range(0xFDD3, 0xFDE3)))
_MARKS = re.compile(f"{_OPEN}([{_DIGITS}]+){_OPENED}|{_CLOSE}")
NONCHARACTER = re.compile("[\ufdd0-\ufdef]")

MOST_NESTED = 100
"""Deepest nesting of a tool call's arguments; whatever walks them is recursive."""
Marking = Literal["none", "words", "words only"]
"""``none``: as the source has it; ``words``: marks around the words; ``words only``: the same, without the white space around
them; a field of nothing but white space keeps it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region on its way into a message.

    Attributes:
        turn, role: the turn it belongs to.
        region: the region.
        text: what stands in the message; the region's own text, or the placeholder of an image.
        lead, trail: characters of white space at the outer ends of its field, which are the template's to trim.
    """

    turn: int
    role: str
    region: Region
    text: str
    lead: int = 0
    trail: int = 0

    @property
    def words(self) -> str:
        """The text without the white space that a template may trim."""
        return self.text[self.lead : len(self.text) - self.trail]

    @property
    def leaves(self) -> int:
        """How many marks it takes: one, or one for each string of a tool call."""
        return sum(1 for _ in _strings(tool_call(self.region))) if self.region.kind == TOOL_CALL else bool(self.words)


def pieces(sample: Sample, *, image: str = "") -> list[Piece]:
    """The regions of a sample that are shown, in order.

    Args:
        image: what stands for an image (see `placeholder`).

    Raises:
        Refused: a tool call that is none, or an image where nothing stands for it.
    """
    found = []
    for number, turn in enumerate(sample.turns):
        shown = [region for region in turn.regions if not region.drop]
        for is_thinking in (True, False):
            field = [region for region in shown if region.kind != TOOL_CALL and (region.kind == THINKING) == is_thinking]
            found += [_piece(number, turn.role, region, i == 0, i == len(field) - 1, image) for i, region in enumerate(field)]
        for region in shown:
            if region.kind == TOOL_CALL:
                tool_call(region)
                found.append(Piece(number, turn.role, region, region.text))
    return found


def _piece(number: int, role: str, region: Region, first: bool, last: bool, image: str) -> Piece:
    if region.kind == IMAGE:
        return Piece(number, role, region, placeholder(region, image))
    text = region.text
    lead = len(text) - len(text.lstrip()) if first else 0
    trail = len(text) - len(text.rstrip()) if last and lead < len(text) else 0
    return Piece(number, role, region, text, lead, trail)


def placeholder(region: Region, image: str) -> str:
    """What stands in a render for an image region, whose own text is a path: `image`, the image token once for each patch.

    Raises:
        Refused: ``no_image_token``, where `image` is empty.
    """
    if not image:
        detail = f"{region.text[:200]!r} needs a token to stand for it; set image_token to a control token of the tokenizer"
        raise Refused("no_image_token", detail, stage="render")
    return image


def tool_call(region: Region) -> dict[str, Any]:
    """The call that a `TOOL_CALL` region holds: ``{"name": str, "arguments": …}``."""
    try:
        call = json.loads(region.text)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} is no {{name, arguments}}: {error}", stage="render") from error
    except RecursionError as error:
        raise Refused("too_deeply_nested", f"{region.text[:80]!r} is nested too deeply to be read", stage="render") from error
    if not isinstance(name, str) or not name:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} calls {name!r}, which is no name", stage="render")
    if region.text.count("[") + region.text.count("{") > MOST_NESTED and _is_deeper(arguments, MOST_NESTED):
        raise Refused("too_deeply_nested", f"the arguments of {name!r} are nested more than {MOST_NESTED} deep", stage="render")
    return {"name": name, "arguments": arguments}


def _is_deeper(value: Any, most: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_is_deeper(each, most - 1) for each in inner)


def messages(sample: Sample, found: list[Piece], marking: Marking = "none") -> list[dict[str, Any]]:
    """The conversation as chat templates read it; `found` are its `pieces`."""
    listed: list[dict[str, Any]] = [_message(turn) for turn in sample.turns]
    for index, piece in enumerate(found):
        message = listed[piece.turn]
        if piece.region.kind == TOOL_CALL:
            call = tool_call(piece.region)
            if marking != "none":
                call = _map_strings(call, partial(_marked, index))
            message.setdefault("tool_calls", []).append({"type": "function", "function": call})
        else:
            key = "reasoning_content" if piece.region.kind == THINKING else "content"
            message[key] = message.get(key, "") + _written(index, piece, marking)
    return listed


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": ""}
    if turn.name is not None:
        message["name"] = turn.name
    if turn.tool_call_id is not None:
        message["tool_call_id"] = turn.tool_call_id
    return message


def _written(index: int, piece: Piece, marking: Marking) -> str:
    if marking == "none":
        return piece.text
    words = _marked(index, piece.words)
    if marking == "words only":
        return words or piece.text
    return f"{piece.text[: piece.lead]}{words}{piece.text[len(piece.text) - piece.trail :]}"


def _marked(index: int, words: str) -> str:
    number = "".join(_DIGITS[int(digit, 16)] for digit in f"{index:x}")
    return f"{_OPEN}{number}{_OPENED}{words}{_CLOSE}" if words else ""


def unmark(marked: str) -> tuple[str, dict[int, list[tuple[int, int]]]]:
    """The text without marks, and the spans that each region's marks enclose."""
    plain: list[str] = []
    found: dict[int, list[tuple[int, int]]] = {}
    at, last = 0, 0
    opened: tuple[int, int] | None = None
    for mark in _MARKS.finditer(marked):
        plain.append(marked[last : mark.start()])
        at += mark.start() - last
        last = mark.end()
        if mark[1] is not None:
            opened = (int("".join(f"{_DIGITS.index(char):x}" for char in mark[1]), 16), at)
        elif opened is not None:
            found.setdefault(opened[0], []).append((opened[1], at))
            opened = None
    plain.append(marked[last:])
    return "".join(plain), found


def _strings(value: Any) -> Iterator[str]:
    """Every non-empty string among the values of a JSON value."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _map_strings(value: Any, write: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return write(value)
    if isinstance(value, dict):
        return {key: _map_strings(inner, write) for key, inner in value.items()}
    return [_map_strings(inner, write) for inner in value] if isinstance(value, list) else value


def unmarked_strings(sample: Sample) -> Iterator[str]:
    """Text of the source that reaches the render without a mark: roles, names, ids, keys of tool calls, schemas of tools."""
    for turn in sample.turns:
        yield from (text for text in (turn.role, turn.name, turn.tool_call_id) if text)
        for region in turn.regions:
            if region.kind == TOOL_CALL:
                yield from _keys(tool_call(region)["arguments"])
    yield from (json.dumps(tool, ensure_ascii=False) for tool in sample.tools)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)
