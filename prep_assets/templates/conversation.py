"""A sample as the messages that a chat template reads, with or without marks around its texts.

Every text that a template can show is a *leaf* with a number: the text of a region, each string of a tool call, a speaker's name, the name and
the description of a tool. White space at the outer ends of a field stays outside the marks, where a template's own trimming still finds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from prep_assets.errors import Refused
from prep_assets.samples import IMAGE, TEXT, THINKING, TOOL, TOOL_CALL, PlainChat, Region, Sample, Turn
from prep_assets.templates.form import MessageForm
from prep_assets.templates.marks import NONCHARACTER, mark, mark_words
from prep_assets.templates.tool_calls import keys, map_strings, strings, tool_call

__all__ = ["NONCHARACTER", "Marking", "Piece", "messages", "pieces", "placeholder", "tool_call"]

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


def pieces(sample: Sample, *, image: str = "", form: MessageForm = _COMMON) -> list[Piece]:
    """The regions of a sample that are shown: turn by turn reasoning, content, tool calls.

    Args:
        image: what stands for an image (see `placeholder`).

    Raises:
        Refused: a tool call that is none, or an image where nothing stands for it.
    """
    found: list[Piece] = []
    for number, turn in enumerate(sample.turns):
        shown = [(order, region) for order, region in enumerate(turn.regions) if not region.drop]
        in_parts = as_parts(turn, form)
        for field in _fields(shown, in_parts):
            for i, (order, region) in enumerate(field):
                leaf = found[-1].leaf + found[-1].leaves if found else 0
                ends = (i == 0, i == len(field) - 1)
                found.append(_piece(number, turn.role, region, order, leaf, ends, image, in_parts and form.image_parts))
    return found


def as_parts(turn: Turn, form: MessageForm) -> bool:
    """Whether the content of a turn is a list of parts."""
    return form.content == "parts" or (form.image_parts and any(region.kind == IMAGE and not region.drop for region in turn.regions))


def _fields(shown: Sequence[tuple[int, Region]], in_parts: bool) -> Iterator[list[tuple[int, Region]]]:
    """The regions of a turn by the texts that a template gets: reasoning, content (or each run of text between images), each tool call."""
    yield [each for each in shown if each[1].kind == THINKING]
    run: list[tuple[int, Region]] = []
    for order, region in shown:
        if region.kind in (THINKING, TOOL_CALL):
            continue
        if in_parts and region.kind == IMAGE:
            yield run
            yield [(order, region)]
            run = []
        else:
            run.append((order, region))
    yield run
    yield from ([each] for each in shown if each[1].kind == TOOL_CALL)


def _piece(number: int, role: str, region: Region, order: int, leaf: int, ends: tuple[bool, bool], image: str, native: bool) -> Piece:
    if region.kind == TOOL_CALL:
        call = tool_call(region)
        return Piece(number, role, region, region.text, order, leaf, 1 + sum(1 for _ in strings(call["arguments"])))
    if region.kind == IMAGE:
        text = placeholder(region, image)
        return Piece(number, role, region, "" if native else text, order, leaf, 0 if native else 1)
    text = region.text
    lead = len(text) - len(text.lstrip()) if ends[0] else 0
    trail = len(text) - len(text.rstrip()) if ends[1] and lead < len(text) else 0
    return Piece(number, role, region, text, order, leaf, int(lead + trail < len(text)), lead, trail)


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
    of_turn: list[list[Piece]] = [[] for _ in sample.turns]
    for piece in found:
        if piece.turn < len(of_turn):
            of_turn[piece.turn].append(piece)
    return [_message(number, turn, of_turn[number], marking, form) for number, turn in enumerate(sample.turns)]


def _message(number: int, turn: Turn, mine: Sequence[Piece], marking: Marking, form: MessageForm) -> dict[str, Any]:
    calls = [_call(piece, marking, form) for piece in mine if piece.region.kind == TOOL_CALL]
    thoughts = [piece for piece in mine if piece.region.kind == THINKING]
    content = [piece for piece in mine if piece.region.kind not in (THINKING, TOOL_CALL)]
    written = _parts(content, marking) if as_parts(turn, form) else "".join(_written(piece, marking) for piece in content)
    name = turn.name
    if name is not None and marking != "none" and turn.role != TOOL:  # a tool's name is that of its call
        name = mark_words(NAMES + number, name)
    reasoning = "".join(_written(piece, marking) for piece in thoughts) if thoughts else None
    return _put(turn, written if content else None, name, reasoning, calls, form)


def _put(
    turn: Turn, content: Any, name: str | None, reasoning: str | None, calls: list[dict[str, Any]], form: MessageForm
) -> dict[str, Any]:
    """A message; `content` and `reasoning` are `None` where the turn has none."""
    message: dict[str, Any] = {"role": turn.role}
    if content is not None or not calls or form.no_content == "text":
        message["content"] = content if content is not None else _parts((), "none") if form.content == "parts" else ""
    elif form.no_content == "null":
        message["content"] = None
    if name is not None:
        message["name"] = name
    if turn.tool_call_id is not None:
        message["tool_call_id"] = turn.tool_call_id
    if reasoning is not None:
        message[form.reasoning] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def plain_messages(chat: PlainChat, form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The same of a plain chat."""
    in_parts, turns = form.content == "parts", zip(chat.roles, chat.texts, strict=True)
    return [{"role": role, "content": [{"type": TEXT, "text": text}] if in_parts else text} for role, text in turns]


def shown_messages(turns: Sequence[Turn], calls: Iterable[Mapping[str, Any]], form: MessageForm = _COMMON) -> list[dict[str, Any]]:
    """The same of turns of which everything is shown, without images; their calls are given as `tool_call` reads them."""
    made, left = list[dict[str, Any]](), iter(calls)
    for turn in turns:
        texts: dict[bool, list[str]] = {False: [], True: []}
        own = []
        for region in turn.regions:
            if region.kind == TOOL_CALL:
                own.append(_call_message(next(left), form))
            else:
                texts[region.kind == THINKING].append(region.text)
        content: Any = "".join(texts[False]) if texts[False] else None
        if content is not None and form.content == "parts":
            content = [{"type": TEXT, "text": content}]
        made.append(_put(turn, content, turn.name, "".join(texts[True]) if texts[True] else None, own, form))
    return made


def _parts(content: Sequence[Piece], marking: Marking) -> list[dict[str, str]]:
    """Content as a list: neighbouring texts are one part, each image is one."""
    listed: list[dict[str, str]] = []
    for piece in content:
        if piece.is_part:
            listed.append({"type": IMAGE})
        elif listed and listed[-1]["type"] == TEXT:
            listed[-1]["text"] += _written(piece, marking)
        else:
            listed.append({"type": TEXT, "text": _written(piece, marking)})
    return listed or [{"type": TEXT, "text": ""}]


def _call(piece: Piece, marking: Marking, form: MessageForm) -> dict[str, Any]:
    call = tool_call(piece.region)
    if marking == "none":
        return _call_message(call, form)
    leaf = count(piece.leaf)
    name = mark(next(leaf), call["name"])
    return _call_message({**call, "name": name, "arguments": map_strings(call["arguments"], lambda text: mark(next(leaf), text))}, form)


def _call_message(call: Mapping[str, Any], form: MessageForm) -> dict[str, Any]:
    arguments = call["arguments"]
    if form.arguments == "text" and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    identity = {"id": call["id"]} if "id" in call else {}
    return {"type": "function", **identity, "function": {"name": call["name"], "arguments": arguments}}


def _written(piece: Piece, marking: Marking) -> str:
    if marking == "none":
        return piece.text
    words = mark(piece.leaf, piece.words)
    if marking == "words only":
        return words or piece.text
    return f"{piece.text[: piece.lead]}{words}{piece.text[len(piece.text) - piece.trail :]}"


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
                yield from keys(call["arguments"])
                yield str(call.get("id", ""))
    yield from (json.dumps(each, ensure_ascii=False) for each in (*sample.tools, *sample.documents))
