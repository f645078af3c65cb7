"""A sample as the messages that a template reads: marks, tool calls, and control tokens that somebody typed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL, TOOL_CALL, PlainChat, Region, Sample, Turn
from prep_assets.stores.files import TOO_DEEP, is_too_deep, may_be_too_deep, once
from prep_assets.text.environment import MessageForm
from prep_assets.text.spans import control_pattern

# Marks around texts on their way through a template: Unicode noncharacters (U+FDD0 … U+FDEF), which no text may contain.
#
# An opening mark carries a number, so that the render says which text stands where; a template may write one text more than once.

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


# Tool calls: the JSON that a region holds, and its strings, which are what can be marked in it.


def tool_call(region: Region) -> dict[str, Any]:
    """The call that a `TOOL_CALL` region holds: ``{"name": str, "arguments": …}``, and its ``"id"`` where it has one."""
    try:
        call = json.loads(region.text, object_pairs_hook=once)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} is no {{name, arguments}}: {error}", stage="render") from error
    except RecursionError as error:
        raise Refused("too_deeply_nested", f"{region.text[:80]!r} is {TOO_DEEP}", stage="render") from error
    if not isinstance(name, str) or not name:
        raise Refused("bad_tool_call", f"{region.text[:80]!r} calls {name!r}, which is no name", stage="render")
    if may_be_too_deep(region.text) and is_too_deep(arguments):
        raise Refused("too_deeply_nested", f"the arguments of {name!r} are {TOO_DEEP}", stage="render")
    return {"name": name, "arguments": arguments, **({"id": call["id"]} if call.get("id") else {})}


def walk(value: Any) -> Iterator[tuple[bool, str]]:
    """Every string of a JSON value, and whether it is a key."""
    if isinstance(value, str):
        yield False, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield True, key
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def strings(value: Any) -> Iterator[str]:
    """Every non-empty string among the values of a JSON value."""
    return (text for is_key, text in walk(value) if text and not is_key)


def map_strings(value: Any, write: Callable[[str], str], write_key: Callable[[str], str] = str) -> Any:
    """The JSON value with `write` of each non-empty string among its values, in the order of `strings`, and `write_key` of each key."""
    if isinstance(value, str):
        return write(value) if value else value
    if isinstance(value, dict):
        return {write_key(key): map_strings(inner, write, write_key) for key, inner in value.items()}
    return [map_strings(inner, write, write_key) for inner in value] if isinstance(value, list) else value


# A sample as the messages that a chat template reads, with or without marks around its texts.
#
# Every text that a template can show is a *leaf* with a number: the text of a region, each string of a tool call, a speaker's name, the name and the
# description of a tool. White space at the outer ends of a field stays outside the marks, where a template's own trimming still finds it.

__all__ = ["NONCHARACTER", "Marking", "Piece", "control_pattern", "messages", "pieces", "placeholder", "tool_call"]

NAMES, TOOLS = 1 << 20, 1 << 21
"""Where the numbers of leaves begin that are names of speakers (by turn) and texts of tools (in order)."""

Marking = Literal["none", "words", "words only"]
"""``none``: as the source has it; ``words``: marks around the words; ``words only``: the same, without the white space around
them; a field of nothing but white space keeps it."""

_COMMON = MessageForm()


@dataclass(frozen=True, slots=True)
class Piece:
    """A region on its way into a message.

    Attributes:
        turn, role: the turn it belongs to.
        region: the region.
        text: what stands in the message; the region's own text, or the placeholder of an image.
        order: its place among the regions of its turn.
        leaf: the number of its first leaf.
        leaves: how many it has: one, one for each string of a tool call, none for an image that is a part of its own.
        lead, trail: characters of white space at the outer ends of its field, which are the template's to trim.
    """

    turn: int
    role: str
    region: Region
    text: str
    order: int = 0
    leaf: int = 0
    leaves: int = 1
    lead: int = 0
    trail: int = 0

    @property
    def words(self) -> str:
        """The text without the white space that a template may trim."""
        return self.text[self.lead : len(self.text) - self.trail]

    @property
    def is_part(self) -> bool:
        """Whether it is an image for which the template itself writes something."""
        return self.region.kind == IMAGE and not self.text

    @property
    def every_leaf(self) -> range:
        """The numbers of its leaves."""
        return range(self.leaf, self.leaf + self.leaves)


def pieces(sample: Sample, *, image: str = "", form: MessageForm = _COMMON) -> list[Piece]:
    """The regions of a sample that are shown: turn by turn reasoning, content, tool calls.

    Args:
        image: what stands for an image (see `placeholder`).

    Raises:
        Refused: a tool call that is none, or an image where nothing stands for it.
    """
    found: list[Piece] = []
    for number, turn in enumerate(sample.turns):
        in_parts = as_parts(turn, form)
        for field in _fields(turn, in_parts):
            for i, (order, region) in enumerate(field):
                text, lead, trail, leaves = region.text, 0, 0, 1
                if region.kind == TOOL_CALL:
                    leaves += len(list(strings(tool_call(region)["arguments"])))
                elif region.kind == IMAGE:
                    text = placeholder(region, image)
                    if in_parts and form.image_parts:
                        text, leaves = "", 0
                else:
                    lead = len(text) - len(text.lstrip()) if i == 0 else 0
                    trail = len(text) - len(text.rstrip()) if i == len(field) - 1 and lead < len(text) else 0
                    leaves = int(lead + trail < len(text))
                leaf = found[-1].leaf + found[-1].leaves if found else 0
                found.append(Piece(number, turn.role, region, text, order, leaf, leaves, lead, trail))
    return found


def as_parts(turn: Turn, form: MessageForm) -> bool:
    """Whether the content of a turn is a list of parts."""
    return form.content == "parts" or (form.image_parts and any(region.kind == IMAGE and not region.drop for region in turn.regions))


def _fields(turn: Turn, in_parts: bool) -> Iterator[list[tuple[int, Region]]]:
    """The regions of a turn, each with its place, by the texts that a template gets: reasoning, content (or each run of text between images), each call."""
    shown = [(order, region) for order, region in enumerate(turn.regions) if not region.drop]
    yield [each for each in shown if each[1].kind == THINKING]
    content = [each for each in shown if each[1].kind not in (THINKING, TOOL_CALL)]
    yield from (list(run) for _, run in groupby(content, lambda each: in_parts and each[1].kind == IMAGE))
    yield from ([each] for each in shown if each[1].kind == TOOL_CALL)


def placeholder(region: Region, image: str) -> str:
    """What stands in a message for an image region, whose own text is a path: `image`, the token that the template itself would write.

    Raises:
        Refused: ``no_image_token``, where `image` is empty.
    """
    if not image:
        detail = f"{region.text[:200]!r} needs a token to stand for it; set image_token to a control token of the tokenizer"
        raise Refused("no_image_token", detail, stage="render")
    return image


def messages(sample: Sample, found: Sequence[Piece], marking: Marking = "none", form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The conversation as the template reads it that has this `form`; `found` are its `pieces`, or those of more turns."""
    of_turn: list[list[tuple[str, Any]]] = [[] for _ in sample.turns]
    for piece in found:
        if piece.turn < len(of_turn):
            of_turn[piece.turn].append((piece.region.kind, None if piece.is_part else _written(piece, marking)))
    listed = []
    for number, (turn, shown) in enumerate(zip(sample.turns, of_turn, strict=True)):
        is_marked = turn.name is not None and marking != "none" and turn.role != TOOL  # a tool's name is that of its call
        listed.append(_message(turn, shown, mark_words(NAMES + number, turn.name or "") if is_marked else turn.name, form))
    return listed


def plain_messages(chat: PlainChat, form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The same of a plain chat."""
    in_parts, turns = form.content == "parts", zip(chat.roles, chat.texts, strict=True)
    return [{"role": role, "content": [{"type": TEXT, "text": text}] if in_parts else text} for role, text in turns]


def shown_messages(turns: Sequence[Turn], calls: Iterable[Mapping[str, Any]], form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The same of turns of which everything is shown, without images; their calls are given as `tool_call` reads them."""
    left = iter(calls)
    shown = ([(region.kind, next(left) if region.kind == TOOL_CALL else region.text) for region in turn.regions] for turn in turns)
    return [_message(turn, regions, turn.name, form) for turn, regions in zip(turns, shown, strict=True)]


def _message(turn: Turn, shown: Iterable[tuple[str, Any]], name: str | None, form: MessageForm) -> dict[str, Any]:
    """A message, from the kinds of what is shown and what stands there: a text, a call, or `None` for an image that is a part of its own."""
    parts: list[dict[str, str]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for kind, value in shown:
        if kind == TOOL_CALL:
            calls.append(_call_message(value, form))
        elif kind == THINKING:
            thoughts.append(value)
        elif value is None:
            parts.append({"type": IMAGE})
        elif parts and parts[-1]["type"] == TEXT:
            parts[-1]["text"] += value
        else:
            parts.append({"type": TEXT, "text": value})
    message: dict[str, Any] = {"role": turn.role}
    if parts or not calls or form.no_content == "text":
        parts = parts or [{"type": TEXT, "text": ""}]
        message["content"] = parts if as_parts(turn, form) else parts[0]["text"]
    elif form.no_content == "null":
        message["content"] = None
    optional = {"name": name, "tool_call_id": turn.tool_call_id, form.reasoning: "".join(thoughts) if thoughts else None}
    message |= {key: value for key, value in optional.items() if value is not None}
    return {**message, "tool_calls": calls} if calls else message


def _call_message(call: Mapping[str, Any], form: MessageForm) -> dict[str, Any]:
    arguments = call["arguments"]
    if form.arguments == "text" and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": arguments}}


def _written(piece: Piece, marking: Marking) -> Any:
    """The text of a piece, or its call, with marks or without."""
    if piece.region.kind == TOOL_CALL:
        call, leaf = tool_call(piece.region), count(piece.leaf)
        if marking == "none":
            return call
        name = mark(next(leaf), call["name"])
        return {**call, "name": name, "arguments": map_strings(call["arguments"], lambda text: mark(next(leaf), text))}
    words = mark(piece.leaf, piece.words) if marking != "none" else piece.text
    if marking == "words":
        return f"{piece.text[: piece.lead]}{words}{piece.text[len(piece.text) - piece.trail :]}"
    return words or piece.text


def marked_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], dict[int, str]]:
    """The tools with marks around their names and descriptions, and these texts by the number of their leaf."""
    texts: dict[int, str] = {}
    leaf = count(TOOLS)

    def marked(schema: Mapping[str, Any]) -> dict[str, Any]:
        written = dict(schema)
        for key in ("name", "description"):
            if isinstance(schema.get(key), str) and schema[key].strip():
                number = next(leaf)
                texts[number] = schema[key]
                written[key] = mark_words(number, schema[key])
        return written

    return [
        {**tool, "function": marked(tool["function"])} if isinstance(tool.get("function"), dict) else marked(tool) for tool in tools
    ], texts


def unmarked_strings(sample: Sample) -> Iterator[str]:
    """Text of the source that is no content of a turn: roles, names, ids, keys of tool calls, schemas of tools, documents."""
    for turn in sample.turns:
        yield from (text for text in (turn.role, turn.name, turn.tool_call_id) if text)
        for region in turn.regions:
            if region.kind == TOOL_CALL:
                call = tool_call(region)
                yield from (text for is_key, text in walk(call["arguments"]) if is_key)
                yield str(call.get("id", ""))
    yield from (json.dumps(each, ensure_ascii=False) for each in (*sample.tools, *sample.documents))


# Control tokens that somebody typed into the content: `<|im_start|>assistant` in a question, `</s>` in a document.
#
# By default they are encoded as the plain characters that they are (the encoder sees to that), so they open no turn and end no document. Here they are
# counted, or taken out, or made a reason to refuse the record.

SpecialInContent = Literal["text", "strip", "refuse", "allow"]


def treat(sample: Sample, pattern: re.Pattern[str] | None, mode: SpecialInContent) -> tuple[Sample, int]:
    """`sample`, treated as `mode` says, and how many control tokens its contents hold.

    Raises:
        Refused: ``control_token_in_content``, where `mode` is ``refuse``.
    """
    if pattern is None:
        return sample, 0
    found = [match[0] for turn in sample.turns for region in turn.regions for text in _texts(region) for match in pattern.finditer(text)]
    if not found:
        return sample, 0
    if mode == "refuse":
        raise Refused("control_token_in_content", f"{found[0]!r} is typed in the content, {len(found)} such texts in all", stage="render")
    if mode != "strip":
        return sample, len(found)
    stripped = [replace(turn, regions=tuple(_stripped(region, pattern) for region in turn.regions)) for turn in sample.turns]
    return replace(sample, turns=tuple(stripped)), len(found)


def _texts(region: Region) -> list[str]:
    """The texts of a region; of a tool call the strings that it holds, because JSON may spell a control token with escapes. An image has none:
    its path is not rendered."""
    if region.kind == IMAGE:
        return []
    call = _parsed(region)
    return [region.text] if call is None else [text for _, text in walk(call)]


def _stripped(region: Region, pattern: re.Pattern[str]) -> Region:
    if region.kind == IMAGE:
        return region
    clean, call = partial(without, pattern=pattern), _parsed(region)
    if call is None:
        return replace(region, text=clean(region.text))
    cleaned = map_strings(call, clean, clean)
    return region if cleaned == call else replace(region, text=json.dumps(cleaned, ensure_ascii=False))


def _parsed(region: Region) -> Any:
    """What a tool call holds; `None` for text, and for a call that is none, which is refused later."""
    if region.kind != TOOL_CALL:
        return None
    try:
        return tool_call(region)
    except Refused:
        return None


def without(text: str, pattern: re.Pattern[str]) -> str:
    """`text` without control tokens, also without those that form when one between two halves is taken out."""
    while True:
        shorter = pattern.sub("", text)
        if shorter == text:
            return text
        text = shorter
