"""Sample → messages of a chat template: marks, tool calls, and control tokens typed into content."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, groupby
from typing import Any, Literal

from msgspec import Struct

from prep_assets.errors import Refused
from prep_assets.samples import MEDIA, SEPARATOR, TEXT, THINKING, TOOL, TOOL_CALL, Region, Sample, Turn, changed
from prep_assets.stores.files import TOO_DEEP, decode_once, is_too_deep, may_be_too_deep
from prep_assets.text.environment import MessageForm
from prep_assets.text.spans import control_pattern

# Marks around texts that a template renders: Unicode noncharacters (U+FDD0 … U+FDEF), which no text may contain.
#
# An opening mark carries the number of its text, so that the render tells which text is where; a template may write a text several times.

_OPEN, _OPENED, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_DIGITS = "".join(map(chr, range(0xFDD3, 0xFDE3)))
_MARKS = re.compile(f"{_OPEN}([{_DIGITS}]+){_OPENED}|{_CLOSE}")
NONCHARACTER = re.compile("[\ufdd0-\ufdef]")

Places = dict[int, list[tuple[int, int]]]
"""Number of a text → its occurrences (start, end) in characters, ascending."""


def mark(number: int, words: str) -> str:
    """`words` between marks; ``""`` without marks if empty."""
    digits = "".join(_DIGITS[int(digit, 16)] for digit in f"{number:x}")
    return f"{_OPEN}{digits}{_OPENED}{words}{_CLOSE}" if words else ""


def mark_words(number: int, text: str) -> str:
    """`text` with marks around its words, inside the outer white space, so that a template can still trim it."""
    words = text.strip()
    start = text.find(words)
    return f"{text[:start]}{mark(number, words)}{text[start + len(words) :]}" if words else text


def unmark(marked: str) -> tuple[str, Places]:
    """The text without marks, and the places of the marked texts in it."""
    plain: list[str] = []
    places: Places = {}
    at, last = 0, 0
    opened: tuple[int, int] | None = None
    for match in _MARKS.finditer(marked):
        plain.append(marked[last : match.start()])
        at += match.start() - last
        last = match.end()
        if match[1] is not None:
            opened = (int("".join(f"{_DIGITS.index(char):x}" for char in match[1]), 16), at)
        elif opened is not None:
            places.setdefault(opened[0], []).append((opened[1], at))
            opened = None
    plain.append(marked[last:])
    return "".join(plain), places


# Tool calls: the JSON of a region, and its strings, which can be marked.


def tool_call(region: Region) -> dict[str, Any]:
    """Parse the call of a `TOOL_CALL` region: ``{"name": str, "arguments": …}``, and ``"id"`` if it has one.

    Raises:
        Refused: ``bad_tool_call`` or ``too_deeply_nested``.
    """
    try:
        call = decode_once(region.text)
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
    """Yield ``(is_key, text)`` for every string of a JSON value."""
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
    """Yield the non-empty strings of a JSON value that are not keys."""
    return (text for is_key, text in walk(value) if text and not is_key)


def map_strings(value: Any, write: Callable[[str], str], write_key: Callable[[str], str] = str) -> Any:
    """Apply `write` to the `strings` of a JSON value, in their order, and `write_key` to its keys."""
    if isinstance(value, str):
        return write(value) if value else value
    if isinstance(value, dict):
        return {write_key(key): map_strings(inner, write, write_key) for key, inner in value.items()}
    return [map_strings(inner, write, write_key) for inner in value] if isinstance(value, list) else value


# A sample as the messages that a chat template reads, with or without marks around its texts.
#
# Every text that a template can show is a *leaf* with a number: the text of a region, each string of a tool call, the name of a speaker, the name and the
# description of a tool. Outer white space of a field stays outside the marks, where a template can trim it.

__all__ = ["NONCHARACTER", "Marking", "Piece", "control_pattern", "mark_of", "messages", "pieces", "tool_call"]

NAMES, TOOLS = 1 << 20, 1 << 21
"""First leaf numbers of the names of speakers (by turn) and of the texts of tools (in order)."""

Marking = Literal["none", "words", "words only", "words and lead"]
"""``none``: the source texts; ``words``: marks around the words; ``words only``: the same without outer white space, except in blank fields; ``words and
lead``: with the white space before the words alone."""

_COMMON = MessageForm()


class Piece(Struct, frozen=True):
    """A region as a part of a message.

    Attributes:
        turn, role: the turn it belongs to.
        region: the region.
        text: its text in the message: that of the region, or the mark of a file.
        order: its index among the regions of its turn.
        leaf: the number of its first leaf.
        leaves: its number of leaves: one per string of a tool call, none for a part of a file, else one.
        lead, trail: lengths of the white space at the outer ends of its field, which a template may trim.
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
        """The text without `lead` and `trail`."""
        return self.text[self.lead : len(self.text) - self.trail]

    @property
    def is_part(self) -> bool:
        """Whether it is a part of an image, audio or video, for which the template writes the token."""
        return self.region.kind in MEDIA and not self.text

    @property
    def every_leaf(self) -> range:
        """The numbers of its leaves."""
        return range(self.leaf, self.leaf + self.leaves)


def pieces(sample: Sample, *, marks: Mapping[str, str] = {}, form: MessageForm = _COMMON) -> list[Piece]:
    """The regions of a sample that are shown, by turn: reasoning, content, tool calls.

    Args:
        marks: kind of files → the token of one (see `mark_of`).

    Raises:
        Refused: an invalid tool call, or a file without a token.
    """
    shown_pieces: list[Piece] = []
    for number, turn in enumerate(sample.turns):
        in_parts = as_parts(turn, form)
        for field in _fields(turn, in_parts):
            for i, (order, region) in enumerate(field):
                text, lead, trail, leaves = region.text, 0, 0, 1
                if region.kind == TOOL_CALL:
                    leaves += len(list(strings(tool_call(region)["arguments"])))
                elif region.kind in MEDIA:
                    text = mark_of(region, marks)
                    if in_parts and form.image_parts:
                        text, leaves = "", 0
                else:
                    lead = len(text) - len(text.lstrip()) if i == 0 else 0
                    trail = len(text) - len(text.rstrip()) if i == len(field) - 1 and lead < len(text) else 0
                    leaves = int(lead + trail < len(text))
                leaf = shown_pieces[-1].leaf + shown_pieces[-1].leaves if shown_pieces else 0
                shown_pieces.append(Piece(number, turn.role, region, text, order, leaf, leaves, lead, trail))
    return shown_pieces


def as_parts(turn: Turn, form: MessageForm) -> bool:
    """Whether the content of a turn is a list of parts."""
    return form.content == "parts" or (form.image_parts and any(region.kind in MEDIA and not region.drop for region in turn.regions))


def _fields(turn: Turn, in_parts: bool) -> Iterator[list[tuple[int, Region]]]:
    """The numbered regions of each field of a message: reasoning, content (or each run of text between images), each call."""
    shown = [(order, region) for order, region in enumerate(turn.regions) if not region.drop]
    yield [numbered for numbered in shown if numbered[1].kind == THINKING]
    content = [numbered for numbered in shown if numbered[1].kind not in (THINKING, TOOL_CALL)]
    yield from (list(run) for _, run in groupby(content, lambda numbered: in_parts and numbered[1].kind in MEDIA))
    yield from ([numbered] for numbered in shown if numbered[1].kind == TOOL_CALL)


def mark_of(region: Region, marks: Mapping[str, str]) -> str:
    """The text of an image, audio or video in a message: the token that the template would write.

    Raises:
        Refused: ``no_image_token``, ``no_audio_token``, ``no_video_token``, if there is none.
    """
    if region.kind not in marks:
        detail = f"{region.text[:200]!r} needs a token to stand for it; set {region.kind}_token to a control token of the tokenizer"
        raise Refused(f"no_{region.kind}_token", detail, stage="render")
    return marks[region.kind]


def messages(sample: Sample, shown_pieces: Sequence[Piece], marking: Marking = "none", form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The messages of `sample` for a template of this `form`; `shown_pieces` are its `pieces`, and may include further turns."""
    by_turn: list[list[tuple[str, Any]]] = [[] for _ in sample.turns]
    for piece in shown_pieces:
        if piece.turn < len(by_turn):
            by_turn[piece.turn].append((piece.region.kind, None if piece.is_part else _piece_content(piece, marking)))
    chat_messages = []
    for number, (turn, contents) in enumerate(zip(sample.turns, by_turn, strict=True)):
        is_marked = turn.name is not None and marking != "none" and turn.role != TOOL  # a tool's name is that of its call
        chat_messages.append(_message(turn, contents, mark_words(NAMES + number, turn.name or "") if is_marked else turn.name, form))
    return chat_messages


def plain_message(role: str, text: str, form: MessageForm) -> dict[str, Any]:
    """The message of a turn that is one text."""
    return {"role": role, "content": [{"type": TEXT, "text": text}] if form.content == "parts" else text}


def shown_messages(turns: Sequence[Turn], calls: Iterable[Mapping[str, Any]], form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The messages of turns without images or dropped regions; `calls` are their tool calls as `tool_call` reads them."""
    remaining_calls = iter(calls)

    def message(turn: Turn) -> dict[str, Any]:
        if len(turn.regions) == 1 and turn.regions[0].kind == TEXT and turn.name is None and turn.tool_call_id is None:
            return plain_message(turn.role, turn.regions[0].text, form)
        contents = [(region.kind, next(remaining_calls) if region.kind == TOOL_CALL else region.text) for region in turn.regions]
        return _message(turn, contents, turn.name, form)

    return list(map(message, turns))


def _message(turn: Turn, contents: Iterable[tuple[str, Any]], name: str | None, form: MessageForm) -> dict[str, Any]:
    """The message of a turn. `contents`: kind and content of its regions; a text, a call, or `None` for a part of a file."""
    parts: list[dict[str, str]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for kind, content in contents:
        if kind == TOOL_CALL:
            calls.append(_call_message(content, form))
        elif kind == THINKING:
            thoughts.append(content)
        elif content is None:
            parts.append({"type": kind})
        elif parts and parts[-1]["type"] == TEXT:
            parts[-1]["text"] += content
        else:
            parts.append({"type": TEXT, "text": content})
    message: dict[str, Any] = {"role": turn.role}
    if parts or not calls or form.no_content == "text":
        parts = parts or [{"type": TEXT, "text": ""}]
        message["content"] = parts if as_parts(turn, form) else parts[0]["text"]
    elif form.no_content == "null":
        message["content"] = None
    optional = ("name", name), ("tool_call_id", turn.tool_call_id), (form.reasoning, "".join(thoughts) if thoughts else None)
    message |= [(key, content) for key, content in optional if content is not None]
    return {**message, "tool_calls": calls} if calls else message


def _call_message(call: Mapping[str, Any], form: MessageForm) -> dict[str, Any]:
    arguments = call["arguments"]
    if form.arguments == "text" and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": arguments}}


def _piece_content(piece: Piece, marking: Marking) -> Any:
    """The text or call of a piece, marked as `marking` says."""
    if piece.region.kind == TOOL_CALL:
        call, leaf = tool_call(piece.region), count(piece.leaf)
        if marking == "none":
            return call
        name = mark(next(leaf), call["name"])
        return {**call, "name": name, "arguments": map_strings(call["arguments"], lambda text: mark(next(leaf), text))}
    words = mark(piece.leaf, piece.words) if marking != "none" else piece.text
    if marking == "words":
        return f"{piece.text[: piece.lead]}{words}{piece.text[len(piece.text) - piece.trail :]}"
    return (piece.text[: piece.lead] + words if marking == "words and lead" else words) or piece.text


def marked_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], dict[int, str]]:
    """The tools with marks around their names and descriptions, and these texts by leaf number."""
    texts: dict[int, str] = {}
    leaves = count(TOOLS)

    def mark_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
        marked = dict(schema)
        for key in ("name", "description"):
            if isinstance(schema.get(key), str) and schema[key].strip():
                leaf = next(leaves)
                texts[leaf] = schema[key]
                marked[key] = mark_words(leaf, schema[key])
        return marked

    return [
        {**tool, "function": mark_schema(tool["function"])} if isinstance(tool.get("function"), dict) else mark_schema(tool)
        for tool in tools
    ], texts


def unmarked_strings(sample: Sample) -> Iterator[str]:
    """Source texts outside the content of turns: roles, names, ids, keys of tool calls, schemas of tools, documents."""
    for turn in sample.turns:
        yield from (text for text in (turn.role, turn.name, turn.tool_call_id) if text)
        for region in turn.regions:
            if region.kind == TOOL_CALL:
                call = tool_call(region)
                yield from (text for is_key, text in walk(call["arguments"]) if is_key)
                yield str(call.get("id", ""))
    yield from (json.dumps(extra, ensure_ascii=False) for extra in (*sample.tools, *sample.documents))


# Control tokens typed into content: `<|im_start|>assistant` in a question, `</s>` in a document.
#
# By default the encoder tokenizes them as plain text, so they open no turn and end no document. Here they are counted, stripped, or a reason to reject the
# record.

SpecialInContent = Literal["text", "strip", "refuse", "allow"]


def treat(sample: Sample, pattern: re.Pattern[str] | None, mode: SpecialInContent) -> tuple[Sample, int]:
    """`sample` treated as `mode` says, and the number of control tokens in its content.

    Raises:
        Refused: ``control_token_in_content``, if `mode` is ``refuse``.
    """
    if pattern is None:
        return sample, 0
    tokens = [
        match[0] for turn in sample.turns for region in turn.regions for text in _region_texts(region) for match in pattern.finditer(text)
    ]
    if not tokens:
        return sample, 0
    if mode == "refuse":
        raise Refused("control_token_in_content", f"{tokens[0]!r} is typed in the content, {len(tokens)} such texts in all", stage="render")
    if mode != "strip":
        return sample, len(tokens)
    stripped_turns = [changed(turn, regions=tuple(_strip_region(region, pattern) for region in turn.regions)) for turn in sample.turns]
    return changed(sample, turns=tuple(stripped_turns)), len(tokens)


def _region_texts(region: Region) -> list[str]:
    """The texts of a region; of a tool call its strings, because JSON may escape a control token. A file has none: its path is not rendered; nor has a
    separator, which the configuration names."""
    if region.kind in (*MEDIA, SEPARATOR):
        return []
    call = _parse_call(region)
    return [region.text] if call is None else [text for _, text in walk(call)]


def _strip_region(region: Region, pattern: re.Pattern[str]) -> Region:
    if region.kind in (*MEDIA, SEPARATOR):
        return region
    strip, call = partial(without, pattern=pattern), _parse_call(region)
    if call is None:
        return changed(region, text=strip(region.text))
    stripped = map_strings(call, strip, strip)
    return region if stripped == call else changed(region, text=json.dumps(stripped, ensure_ascii=False))


def _parse_call(region: Region) -> Any:
    """The parsed call of a region; `None` for other regions, and for an invalid call, which is rejected later."""
    if region.kind != TOOL_CALL:
        return None
    try:
        return tool_call(region)
    except Refused:
        return None


def without(text: str, pattern: re.Pattern[str]) -> str:
    """`text` without control tokens, including those that form when one between two halves is removed."""
    while True:
        shorter = pattern.sub("", text)
        if shorter == text:
            return text
        text = shorter
