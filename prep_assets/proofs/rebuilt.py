"""A render taken apart: which of its characters are the source's and which are the template's, shown by building it anew.

The conversation is rendered a second time with an invented word in the place of each text. What stands between these words is the template's own.
Put together again with the texts themselves, it must be the first render to the letter; so each text stands exactly where its word stood.

    render    <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
    invented  <|user|>\\nzqaqz<|end|><|assistant|>\\nzqbqz<|end|>
    frames    <|user|>\\n     <|end|><|assistant|>\\n     <|end|>

No mark is put into the text, and nothing is searched for in it. A template that treats a text otherwise than any word cannot be taken apart, and
nothing is proven of such a conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prep_assets.disk.strict_json import dumps
from prep_assets.errors import CheckFailed
from prep_assets.proofs.slots import Slotted, slotted
from prep_assets.samples import THINKING, Sample
from prep_assets.templates.environment import FROZEN_CLOCK, chat_template_utils

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

MOST_KEPT = 512
"""Renders with invented words that are kept."""
_WORD = re.compile("zq([a-p]+)qz")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_DIGITS = str.maketrans("abcdefghijklmnop", "0123456789abcdef")
_TAGS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
Marked = tuple[tuple[int, int], ...] | None


def _word(number: int) -> str:
    return f"zq{f'{number:x}'.translate(_LETTERS)}qz"


@dataclass(frozen=True, slots=True)
class Place:
    """A text in a render: which slot's, and its characters (start, end), without white space at its ends that a template may trim."""

    slot: int
    start: int
    end: int


@dataclass(frozen=True)
class Rebuilt:
    """A conversation whose render was built anew.

    Attributes:
        text: the render.
        slotted: its messages.
        places: where texts of the source stand, ascending.
        invented: where the invented words stand in the render with them, in the same order.
        invented_text: that render.
        margins: by slot, how many characters of the white space before and after its words the template kept.
        tagged: characters (start, end) that the template, or a variant of it that renders the same, marks as generated; `None` where none does.
        chat: to render beginnings of it.
    """

    text: str
    slotted: Slotted
    places: tuple[Place, ...]
    invented: tuple[Place, ...]
    invented_text: str
    margins: Mapping[int, tuple[int, int]]
    tagged: tuple[tuple[int, int], ...] | None
    chat: _Chat

    def own_margins(self, place: int, region: int) -> tuple[int, int]:
        """How much of the white space around a text's words is that of a region in it; one of nothing but white space may stand beside it."""
        slot = self.slotted.slots[self.places[place].slot]
        start, end = next((start, end) for at, start, end in slot.parts if at == region)
        lead, trail = self.margins.get(self.places[place].slot, (0, 0))
        first, last = len(slot.text) - len(slot.text.lstrip()), len(slot.text.rstrip())
        return min(lead, max(0, first - start)), min(trail, max(0, end - last))

    def own_start(self, place: int) -> int:
        """Where a text begins in the invented render, with the white space of its first words' own region."""
        slot = self.slotted.slots[self.invented[place].slot]
        first = len(slot.text) - len(slot.text.lstrip())
        region = next(at for at, _, end in slot.parts if end > first)
        return self.invented[place].start - self.own_margins(place, region)[0]

    def beginning(self, turns: int, *, prompted: bool) -> str | None:
        """The render of the first turns, with invented words; `None` where the template refuses them."""
        try:
            return self.chat.render(self.chat.invented[:turns], prompted)[0]
        except CheckFailed:
            return None


@dataclass(frozen=True)
class _Chat:
    sample: Sample
    template: ChatTemplate
    slotted: Slotted

    @cached_property
    def words(self) -> list[str]:
        """What stands in each slot in place of its text: an invented word within the text's own white space; blank texts as they are."""
        return [_in_place_of(slot.text, number) for number, slot in enumerate(self.slotted.slots)]

    @cached_property
    def invented(self) -> list[dict[str, Any]]:
        return self.slotted.filled(self.words)

    def render(self, messages: Sequence[Mapping[str, Any]], prompted: bool, variant: str = "") -> tuple[str, Marked]:
        """The text, and what the tags of the template, or of a variant of it, enclose.

        Raises:
            CheckFailed: the template refuses these messages.
        """
        from jinja2 import TemplateError

        template, sample, transformers = self.template, self.sample, chat_template_utils()
        source = variant or template.source
        variables = {**template.special, **template.options, **sample.template_options, "strftime_now": FROZEN_CLOCK.strftime}
        try:
            text, tagged = transformers._render_with_assistant_indices(
                transformers._compile_jinja_template(source),
                list(messages),
                list(sample.tools) or None,
                list(sample.documents) or None,
                prompted,
                **variables,
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise CheckFailed(f"template {template.name}: {error}, so nothing is proven") from error
        return str(text), tuple((start, end) for start, end in tagged) if _TAGS.search(source) else None

    def marked_by_variant(self, messages: Sequence[Mapping[str, Any]], prompted: bool, text: str) -> Marked:
        """What the tags of the template's training variant enclose, if it renders the same text."""
        try:
            other, tagged = self.render(messages, prompted, self.template.training)
        except CheckFailed:
            return None
        return tagged if other == text else None


def _in_place_of(text: str, number: int) -> str:
    words = text.strip()
    if not words:
        return text
    lead = len(text) - len(text.lstrip())
    return text[:lead] + _word(number) + text[lead + len(words) :]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A render with invented words, where they stand, and the margins of `Rebuilt`."""

    text: str
    places: tuple[Place, ...]
    margins: Mapping[int, tuple[int, int]]


@dataclass
class Rebuilder:
    """Takes renders of one template apart. Conversations of the same shape share the render with invented words."""

    template: ChatTemplate
    _shapes: dict[str, _Shape] = field(default_factory=dict)

    def rebuild(self, sample: Sample, *, prompted: bool = False, rendered: str | None = None) -> Rebuilt:
        """Render a conversation, and take it apart.

        Args:
            prompted: end with what a model continues from.
            rendered: its render, where it is known. A template's own tags ask for another.

        Raises:
            CheckFailed: the template refuses it, or treats a text otherwise than an invented word.
        """
        made = slotted(sample, self.template.form, self.template.image_token)
        chat = _Chat(sample, self.template, made)
        messages = made.filled([slot.text for slot in made.slots])
        if rendered is None or _TAGS.search(self.template.source):
            text, tagged = chat.render(messages, prompted)
        else:
            text, tagged = rendered, None
        if self.template.training:
            tagged = chat.marked_by_variant(messages, prompted, text)
        shape = self._shape(chat, prompted)
        places = _put_together(self.template.name, made, text, shape.text, shape.places)
        return Rebuilt(text, made, places, shape.places, shape.text, shape.margins, tagged, chat)

    def _shape(self, chat: _Chat, prompted: bool) -> _Shape:
        sample = chat.sample
        key = json.dumps([chat.invented, sample.tools, sample.documents, sample.template_options, prompted], default=str)
        if key not in self._shapes:
            if len(self._shapes) >= MOST_KEPT:
                self._shapes.clear()
            text, _ = chat.render(chat.invented, prompted)
            self._shapes[key] = _Shape(text, _places(text), self._margins(chat, text, prompted))
        return self._shapes[key]

    def _margins(self, chat: _Chat, text: str, prompted: bool) -> dict[int, tuple[int, int]]:
        """In a render with words that have no white space around them, what is missing was the texts' own."""
        if all(word == word.strip() or not word.strip() for word in chat.words):
            return {}
        bare, _ = chat.render(chat.slotted.filled([word.strip() or word for word in chat.words]), prompted)
        blanks = [{place.slot: _blanks(render, place) for place in reversed(_places(render))} for render in (text, bare)]
        return {
            slot: (lead - blanks[1][slot][0], trail - blanks[1][slot][1]) for slot, (lead, trail) in blanks[0].items() if slot in blanks[1]
        }


def _places(text: str) -> tuple[Place, ...]:
    return tuple(Place(int(word[1].translate(_DIGITS), 16), *word.span()) for word in _WORD.finditer(text))


def _blanks(text: str, place: Place) -> tuple[int, int]:
    """How much white space stands before and after a word."""
    start, end = place.start, place.end
    while start and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return place.start - start, end - place.end


def _put_together(name: str, made: Slotted, text: str, invented_text: str, invented: Sequence[Place]) -> tuple[Place, ...]:
    """Where each text stands in the render that its words and the frames give."""
    frames = [
        invented_text[left:right] for left, right in zip((0, *(p.end for p in invented)), (*(p.start for p in invented), None), strict=True)
    ]
    if not text.startswith(frames[0]):
        raise _otherwise(name, text, 0, frames[0])
    places: list[Place] = []
    at = len(frames[0])
    for place, frame in zip(invented, frames[1:], strict=True):
        words = made.slots[place.slot].text.strip() if place.slot < len(made.slots) else ""
        written = next((spelled for spelled in _spellings(words) if text.startswith(spelled + frame, at)), None)
        if not words or written is None:
            raise _otherwise(name, text, at, words + frame)
        places.append(Place(place.slot, at, at + len(written)))
        at += len(written) + len(frame)
    if at != len(text):
        raise _otherwise(name, text, at, "")
    shown = {place.slot for place in places}
    for number, slot in enumerate(made.slots):
        if number not in shown and slot.text.strip() and slot.kind != THINKING:  # reasoning may be left out of history
            raise CheckFailed(f"template {name} does not show {slot.text[:60]!r} of turn {slot.turn}")
    return tuple(places)


def _spellings(words: str) -> Iterator[str]:
    """How a text may be written: as it is, or inside JSON."""
    yield words
    yield dumps(words)[1:-1]
    yield json.dumps(words)[1:-1]


def _otherwise(name: str, text: str, at: int, expected: str) -> CheckFailed:
    return CheckFailed(
        f"template {name} writes …{text[max(0, at - 20) : at + 40]!r}… where another text in its place gives {expected[:60]!r}, "
        "so it depends on the content and nothing is proven"
    )
