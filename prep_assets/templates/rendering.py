"""Sample → Rendered: one render of the whole conversation, with the character span of every region.

How spans are found without searching for text that content could imitate: the conversation is rendered a second time with marks around each
region's words. Marks are Unicode noncharacters (U+FDD0 … U+FDEF), which no text may contain. With the marks taken out, the second render must
be the first one to the letter; so the marks stand exactly where the regions are. A template that moves, trims or drops content is either
followed exactly (white space, moved turns) or the record is refused; nothing is guessed.

    plain    <|user|>\\nHi<|endoftext|><|assistant|>\\nHello!<|endoftext|>
    marked   <|user|>\\n⟦0⟧Hi⟦/⟧<|endoftext|><|assistant|>\\n⟦1⟧Hello!⟦/⟧<|endoftext|>
    spans             └──┘                                └─────┘
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prep_assets.errors import Refused
from prep_assets.samples import COMPLETION, DOCUMENT, PROMPT, Region, Sample, Turn
from prep_assets.templates.chat_template import ChatTemplate

_OPEN, _OPENED, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_DIGITS = "".join(map(chr, range(0xFDD3, 0xFDE3)))
_MARKS = re.compile(f"{_OPEN}([{_DIGITS}]+){_OPENED}|{_CLOSE}")
_NONCHARACTER = re.compile("[\ufdd0-\ufdef]")
UNTEMPLATED = (DOCUMENT, PROMPT, COMPLETION)


@dataclass(frozen=True, slots=True)
class Span:
    """Where one region stands in the rendered text.

    Attributes:
        start, end: characters of `Rendered.text`, end exclusive.
        turn: index of its turn.
        role: role of its turn.
        region: the region itself.
    """

    start: int
    end: int
    turn: int
    role: str
    region: Region


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered sample. Text outside all spans is the template's own."""

    text: str
    spans: tuple[Span, ...]


def render(sample: Sample, template: ChatTemplate | None) -> Rendered:
    """Render `sample`, with the span of every non-empty region.

    Raises:
        Refused: stage ``render``; the template refuses the conversation, drops or rewrites content, or the text cannot be encoded.
    """
    for turn in sample.turns:
        for region in turn.regions:
            _check_text(region.text)
    if all(turn.role in UNTEMPLATED for turn in sample.turns):
        return _joined(sample)
    if template is None:
        raise Refused("needs_template", f"roles {[turn.role for turn in sample.turns]} are rendered by a chat template", stage="render")
    return _templated(sample, template)


def _check_text(text: str) -> None:
    if text.isascii():
        return
    found = _NONCHARACTER.search(text)
    if found:
        raise Refused("noncharacter", f"U+{ord(found[0]):04X} at character {found.start()} is not text", stage="render")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refused("lone_surrogate", f"character {error.start} is half of a surrogate pair", stage="render") from error


def _joined(sample: Sample) -> Rendered:
    """Turns that no template renders, one after the other."""
    spans, at = [], 0
    for number, turn in enumerate(sample.turns):
        for region in _shown(turn):
            spans.append(Span(at, at + len(region.text), number, turn.role, region))
            at += len(region.text)
    return Rendered("".join(span.region.text for span in spans), tuple(spans))


def _templated(sample: Sample, template: ChatTemplate) -> Rendered:
    pieces = _pieces(sample)
    plain = template.render(messages(sample), tools=sample.tools)
    text, cores = _unmark(template.render(messages(sample, _mark_words), tools=sample.tools))
    if text != plain:
        raise Refused("template_rewrites_content", _rewrite(template, plain, text), stage="render")
    for index, piece in enumerate(pieces):
        if piece.words and (index not in cores or text[slice(*cores[index])] != piece.words):
            detail = f"template {template.name} does not render turn {piece.turn} ({piece.role}) as it is"
            raise Refused("template_drops_content", detail, stage="render")
    if any(piece.words != piece.region.text for piece in pieces):
        cores = _with_margins(sample, template, pieces, text, cores)
    spans = [Span(*cores[index], piece.turn, piece.role, piece.region) for index, piece in enumerate(pieces) if index in cores]
    return Rendered(text, tuple(sorted(spans, key=lambda span: span.start)))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A region on its way into a message. White space at the outer ends of a turn is the template's to trim; `lead` and `trail` are its lengths."""

    turn: int
    role: str
    region: Region
    lead: int
    trail: int

    @property
    def words(self) -> str:
        return self.region.text[self.lead : len(self.region.text) - self.trail]


def _shown(turn: Turn) -> list[Region]:
    return [region for region in turn.regions if not region.drop]


def _pieces(sample: Sample) -> list[_Piece]:
    pieces = []
    for number, turn in enumerate(sample.turns):
        shown = _shown(turn)
        for i, region in enumerate(shown):
            text = region.text
            lead = len(text) - len(text.lstrip()) if i == 0 else 0
            trail = len(text) - len(text.rstrip()) if i == len(shown) - 1 and lead < len(text) else 0
            pieces.append(_Piece(number, turn.role, region, lead, trail))
    return pieces


Write = Callable[[int, _Piece], str]


def messages(sample: Sample, write: Write = lambda index, piece: piece.region.text) -> list[dict[str, Any]]:
    """The conversation as chat templates read it. `write` is given each region's running number and says what stands for it."""
    contents = [""] * len(sample.turns)
    for index, piece in enumerate(_pieces(sample)):
        contents[piece.turn] += write(index, piece)
    listed = []
    for turn, content in zip(sample.turns, contents, strict=True):
        message: dict[str, Any] = {"role": turn.role, "content": content}
        if turn.name is not None:
            message["name"] = turn.name
        if turn.tool_call_id is not None:
            message["tool_call_id"] = turn.tool_call_id
        listed.append(message)
    return listed


def _mark_words(index: int, piece: _Piece) -> str:
    """Marks around the words; the white space around them stays outside, where a template's own trimming still finds it."""
    text = piece.region.text
    return f"{text[: piece.lead]}{_mark_words_only(index, piece)}{text[len(text) - piece.trail :]}"


def _mark_words_only(index: int, piece: _Piece) -> str:
    number = "".join(_DIGITS[int(digit, 16)] for digit in f"{index:x}")
    return f"{_OPEN}{number}{_OPENED}{piece.words}{_CLOSE}" if piece.words else ""


def _unmark(marked: str) -> tuple[str, dict[int, tuple[int, int]]]:
    """The text without marks, and the span that each region's marks enclose. A region that is rendered twice, or in part, is left out."""
    pieces: list[str] = []
    found: dict[int, list[tuple[int, int]]] = {}
    at, last = 0, 0
    opened: tuple[int, int] | None = None
    for mark in _MARKS.finditer(marked):
        pieces.append(marked[last : mark.start()])
        at += mark.start() - last
        last = mark.end()
        if mark[1] is not None:
            opened = (int("".join(f"{_DIGITS.index(char):x}" for char in mark[1]), 16), at)
        elif opened is not None:
            found.setdefault(opened[0], []).append((opened[1], at))
            opened = None
    pieces.append(marked[last:])
    return "".join(pieces), {index: spans[0] for index, spans in found.items() if len(spans) == 1}


def _with_margins(
    sample: Sample, template: ChatTemplate, pieces: list[_Piece], text: str, cores: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Widen each span by the white space of its own region that the template kept.

    A third render leaves that white space away; where the run of white space beside the words is longer in the real one, the difference is
    the region's own.
    """
    bare_text, bare = _unmark(template.render(messages(sample, _mark_words_only), tools=sample.tools))
    widened = {}
    for index, (start, end) in cores.items():
        if index not in bare:
            raise Refused("template_rewrites_content", f"template {template.name} renders a turn otherwise without its white space", stage="render")
        piece = pieces[index]
        kept_lead = _run_before(text, start) - _run_before(bare_text, bare[index][0]) if piece.lead else 0
        kept_trail = _run_after(text, end) - _run_after(bare_text, bare[index][1]) if piece.trail else 0
        if not (0 <= kept_lead <= piece.lead and 0 <= kept_trail <= piece.trail):
            raise Refused("template_rewrites_content", f"template {template.name} changes the white space around turn {piece.turn}", stage="render")
        widened[index] = (start - kept_lead, end + kept_trail)
    return widened


def _run_before(text: str, at: int) -> int:
    start = at
    while start and text[start - 1].isspace():
        start -= 1
    return at - start


def _run_after(text: str, at: int) -> int:
    end = at
    while end < len(text) and text[end].isspace():
        end += 1
    return end - at


def _rewrite(template: ChatTemplate, plain: str, unmarked: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(plain, unmarked, strict=False)) if a != b), min(len(plain), len(unmarked)))
    return f"template {template.name} depends on the content itself: near {plain[max(0, at - 30) : at + 30]!r} it cannot be followed"
