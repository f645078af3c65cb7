"""Renders taken apart and rebuilt: which characters come from the source, and where the generated text begins and ends."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from prep_assets.errors import CheckFailed
from prep_assets.proofs.generated import generated, served
from prep_assets.samples import ASSISTANT, MEDIA, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, changed, turn
from prep_assets.stores.files import dumps
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm, chat_template_utils

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# A sample as the messages that a chat template reads, with a numbered slot for each source text.
#
# Invented words can fill the slots. This separates what a template writes from what the conversation says.


class RendersDiffer(CheckFailed):
    """A build and its proof render a conversation differently."""


class Slot(Struct, frozen=True):
    """One text in the messages.

    Attributes:
        turn: its turn.
        kind: `THINKING`, `TOOL_CALL` or `TEXT`.
        text: the text of the source.
        parts: its regions: number of the region in its turn, start and end in `text`.
    """

    turn: int
    kind: str
    text: str
    parts: tuple[tuple[int, int, int], ...]


class Slotted(Struct, frozen=True):
    """A sample as the messages that a template reads.

    Attributes:
        sample: the sample.
        form: the form of the messages.
        marks: kind → the text of each image or audio.
        slots: the texts in the messages.
        messages: the messages.
    """

    sample: Sample
    form: MessageForm
    marks: Mapping[str, str]
    slots: tuple[Slot, ...]
    messages: list[dict[str, Any]]

    def filled(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the messages with another text in each slot."""
        return slotted(self.sample, self.form, self.marks, texts).messages


def slotted(sample: Sample, form: MessageForm, marks: Mapping[str, str], texts: Sequence[str] | None = None) -> Slotted:
    """Return the messages of a sample in the form that a template reads; `texts` replace the sample's own, `marks` are the texts of
    images and audio."""
    builder = _MessageBuilder(form, marks, texts, [])
    messages = [builder.message(number, turn) for number, turn in enumerate(sample.turns)]
    return Slotted(sample, form, marks, tuple(builder.slots), messages)


Numbered = Sequence[tuple[int, Region]]


class _MessageBuilder(Struct, frozen=True):
    form: MessageForm
    marks: Mapping[str, str]
    texts: Sequence[str] | None
    slots: list[Slot]

    def message(self, number: int, turn: Turn) -> dict[str, Any]:
        shown = [(at, region) for at, region in enumerate(turn.regions) if not region.drop]
        thoughts, calls = ([numbered for numbered in shown if numbered[1].kind == kind] for kind in (THINKING, TOOL_CALL))
        content = [numbered for numbered in shown if numbered[1].kind not in (THINKING, TOOL_CALL)]
        message: dict[str, Any] = {"role": turn.role}
        # slots are numbered in the order in which templates write them
        reasoning = self._slot(number, THINKING, thoughts) if thoughts else None
        if content or not calls or self.form.no_content == "text":
            message["content"] = self._content(number, content)
        elif self.form.no_content == "null":
            message["content"] = None
        if turn.name is not None:
            message["name"] = turn.name
        if turn.tool_call_id is not None:
            message["tool_call_id"] = turn.tool_call_id
        if reasoning is not None:
            message[self.form.reasoning] = reasoning
        if calls:
            message["tool_calls"] = [self._call(number, at, region) for at, region in calls]
        return message

    def _content(self, number: int, content: Numbered) -> Any:
        has_images = any(region.kind in MEDIA for _, region in content)
        if self.form.content != "parts" and not (self.form.image_parts and has_images):
            return self._slot(number, TEXT, content)
        return list(self._parts(number, content)) or [{"type": "text", "text": ""}]

    def _parts(self, number: int, content: Numbered) -> Iterator[dict[str, Any]]:
        run: list[tuple[int, Region]] = []
        for at, region in content:
            if region.kind in MEDIA and self.form.image_parts:
                if run:
                    yield {"type": "text", "text": self._slot(number, TEXT, run)}
                yield {"type": region.kind}
                run = []
            else:
                run.append((at, region))
        if run:
            yield {"type": "text", "text": self._slot(number, TEXT, run)}

    def _slot(self, number: int, kind: str, regions: Numbered) -> str:
        parts: list[tuple[int, int, int]] = []
        text = ""
        for at, region in regions:
            region_text = self.marks[region.kind] if region.kind in MEDIA else region.text
            parts.append((at, len(text), len(text) + len(region_text)))
            text += region_text
        return self._add_slot(Slot(number, kind, text, tuple(parts)))

    def _add_slot(self, slot: Slot) -> str:
        self.slots.append(slot)
        return slot.text if self.texts is None else self.texts[len(self.slots) - 1]

    def _call(self, number: int, at: int, region: Region) -> dict[str, Any]:
        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return self._add_slot(Slot(number, TOOL_CALL, value, ((at, 0, len(value)),)))
            if isinstance(value, dict):
                return {key: fill(inner) for key, inner in value.items()}
            return [fill(inner) for inner in value] if isinstance(value, list) else value

        try:
            call = json.loads(region.text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, TypeError, KeyError) as error:
            raise CheckFailed(f"turn {number}: {region.text[:80]!r} is not a tool call") from error
        name, filled_arguments = fill(name), fill(arguments)
        if self.form.arguments == "text" and not isinstance(arguments, str):
            filled_arguments = dumps(filled_arguments)
        identity = {"id": call["id"]} if call.get("id") else {}
        return {"type": "function", **identity, "function": {"name": name, "arguments": filled_arguments}}


# Taking a render apart: rebuilding it shows which characters are the source's and which are the template's.
#
# The conversation is rendered a second time with an invented word in place of each text. What is between these words is the template's own. Put
# back together with the texts themselves, it must equal the first render exactly; so each text is where its word was.
#
#     render    <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
#     invented  <|user|>\\nzqaqz<|end|><|assistant|>\\nzqbqz<|end|>
#     frames    <|user|>\\n     <|end|><|assistant|>\\n     <|end|>
#
# No mark is put into the text, and the text is not searched. A template that treats a text differently from a word cannot be taken apart, and nothing is
# proven of such a conversation.

MOST_KEPT = 512
"""Most renders with invented words in the cache."""
_WORD = re.compile("zq([a-p]+)qz")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_DIGITS = str.maketrans("abcdefghijklmnop", "0123456789abcdef")
TAGS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
Marked = tuple[tuple[int, int], ...] | None


def _word(number: int) -> str:
    return f"zq{f'{number:x}'.translate(_LETTERS)}qz"


class Place(Struct, frozen=True):
    """A text in a render: its slot, and its characters (start, end), without white space at its ends that a template may trim."""

    slot: int
    start: int
    end: int


class Rebuilt(Struct, frozen=True):
    """A conversation whose render was rebuilt.

    Attributes:
        text: the render.
        slotted: its messages.
        places: places of the source texts, ascending.
        invented: places of the invented words in their render, in the same order.
        invented_text: the render with invented words.
        margins: by slot, characters of white space before and after its words that the template kept.
        tagged: characters (start, end) that the template, or its training variant with the same render, marks as generated; `None` without tags.
        chat: renders the first turns.
    """

    text: str
    slotted: Slotted
    places: tuple[Place, ...]
    invented: tuple[Place, ...]
    invented_text: str
    margins: Mapping[int, tuple[int, int]]
    tagged: tuple[tuple[int, int], ...] | None
    chat: _Chat
    _generated: dict[int, tuple[int, int] | None]

    def generated(self, turn: int) -> tuple[int, int] | None:
        """Return what of an answer is generated in the invented render, by the prefix property; `None` where it does not hold."""
        if turn not in self._generated:
            self._generated[turn] = generated(self.invented_text, turn, lambda turns, prompted: self.beginning(turns, prompted=prompted))
        return self._generated[turn]

    def served(self, turn: int) -> bool:
        """Whether a server gives the model what stands before an answer."""
        try:
            return served(self.text, self.chat.render(self.slotted.messages[:turn], True)[0])
        except CheckFailed:
            return served(self.text, None)

    def own_margins(self, place: int, region: int) -> tuple[int, int]:
        """Return how much white space around a text's words belongs to a region of it; a neighbouring region may be blank."""
        slot = self.slotted.slots[self.places[place].slot]
        start, end = next((start, end) for at, start, end in slot.parts if at == region)
        lead, trail = self.margins.get(self.places[place].slot, (0, 0))
        first, last = len(slot.text) - len(slot.text.lstrip()), len(slot.text.rstrip())
        return min(lead, max(0, first - start)), min(trail, max(0, end - last))

    def own_start(self, place: int) -> int:
        """Return where a text begins in the invented render, with the white space of its first non-blank region."""
        slot = self.slotted.slots[self.invented[place].slot]
        first = len(slot.text) - len(slot.text.lstrip())
        region = next(at for at, _, end in slot.parts if end > first)
        return self.invented[place].start - self.own_margins(place, region)[0]

    def beginning(self, turns: int, *, prompted: bool) -> str | None:
        """Return the render of the first turns, with invented words; `None` where the template raises."""
        try:
            return self.chat.render(self.chat.invented[:turns], prompted)[0]
        except CheckFailed:
            return None


class _Chat(Struct, frozen=True, dict=True):
    sample: Sample
    template: ChatTemplate
    slotted: Slotted

    @cached_property
    def words(self) -> list[str]:
        """The text of each slot: an invented word within the source text's white space; blank texts unchanged."""
        return [_invented_for(slot.text, number) for number, slot in enumerate(self.slotted.slots)]

    @cached_property
    def invented(self) -> list[dict[str, Any]]:
        return self.slotted.filled(self.words)

    def render(self, messages: Sequence[Mapping[str, Any]], prompted: bool, variant: str = "") -> tuple[str, Marked]:
        """Return the render, and what the generation tags of the template, or of its variant, enclose.

        Raises:
            CheckFailed: the template raises for these messages.
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
        return str(text), tuple((start, end) for start, end in tagged) if TAGS.search(source) else None

    def marked_by_variant(self, messages: Sequence[Mapping[str, Any]], prompted: bool, text: str) -> Marked:
        """Return what the tags of the training variant enclose, if it renders the same text."""
        try:
            variant_text, tagged = self.render(messages, prompted, self.template.training)
        except CheckFailed:
            return None
        return tagged if variant_text == text else None


def render_again(sample: Sample, template: ChatTemplate, *, prompted: bool = False, form: MessageForm | None = None) -> str:
    """Return the render of a conversation; `form`: of its messages, if it is not that of the template.

    Raises:
        CheckFailed: the template raises.
    """
    listed = slotted(sample, form or template.form, template.marks)
    return _Chat(sample, template, listed).render(listed.messages, prompted)[0]


def sorts_arguments(template: ChatTemplate) -> bool:
    """Whether a template writes the arguments of a call sorted by name."""
    call = Region(TOOL_CALL, json.dumps({"name": "zqcall", "arguments": {"zqlast": "a", "zqfirst": "b"}}))
    turns = (turn(USER, "zqask"), Turn(ASSISTANT, (call,)), turn(TOOL, "zqresult"), turn(ASSISTANT, "zqsay"))
    try:
        text = render_again(Sample(turns), template)
    except CheckFailed:
        return False
    return 0 <= text.find("zqfirst") < text.find("zqlast")


def _invented_for(text: str, number: int) -> str:
    words = text.strip()
    if not words:
        return text
    lead = len(text) - len(text.lstrip())
    return text[:lead] + _word(number) + text[lead + len(words) :]


class _Shape(Struct, frozen=True):
    """A render with invented words, their places, the margins of `Rebuilt`, and what its answers generate as far as it is known."""

    text: str
    places: tuple[Place, ...]
    margins: Mapping[int, tuple[int, int]]
    generated: dict[int, tuple[int, int] | None] = field(default_factory=dict)


class Rebuilder(Struct):
    """Takes renders of one template apart. Conversations of one shape share the render with invented words."""

    template: ChatTemplate
    _shapes: dict[str, _Shape] = field(default_factory=dict)

    def rebuild(self, sample: Sample, *, prompted: bool = False, rendered: str | None = None) -> Rebuilt:
        """Render a conversation and take it apart.

        Args:
            prompted: end with the generation prompt.
            rendered: its render, if known. A template with tags of its own is rendered again.

        Raises:
            CheckFailed: the template raises, or treats a text differently from an invented word.
            RendersDiffer: `rendered` is not the render.
        """
        messages = slotted(sample, self.template.form, self.template.marks)
        chat = _Chat(sample, self.template, messages)
        if rendered is None or TAGS.search(self.template.source):
            text, tagged = chat.render(messages.messages, prompted)
        else:
            text, tagged = rendered, None
        if self.template.training:
            tagged = chat.marked_by_variant(messages.messages, prompted, text)
        shape = self._shape(chat, prompted)
        try:
            places = _place_texts(self.template.name, messages, text, shape.text, shape.places)
        except CheckFailed:
            if rendered is not None and (own := chat.render(messages.messages, prompted)[0]) != rendered:
                raise RendersDiffer(first_difference(rendered, own)) from None
            raise
        return Rebuilt(text, messages, places, shape.places, shape.text, shape.margins, tagged, chat, shape.generated)

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
        """Return the margins: before its words a text has the white space that a render of stripped words lacks, and behind them what one lacks of which only
        the ends are stripped."""
        if all(word == word.strip() or not word.strip() for word in chat.words):
            return {}
        renders = [text]
        for strip in (str.rstrip, str.strip):
            renders.append(chat.render(chat.slotted.filled([strip(word) or word for word in chat.words]), prompted)[0])
        whole, leads, bare = ({place.slot: _blanks(render, place) for place in reversed(_places(render))} for render in renders)
        shown = leads.keys() & bare.keys()
        return {slot: (leads[slot][0] - bare[slot][0], trail - leads[slot][1]) for slot, (_, trail) in whole.items() if slot in shown}


def _places(text: str) -> tuple[Place, ...]:
    return tuple(Place(int(word[1].translate(_DIGITS), 16), *word.span()) for word in _WORD.finditer(text))


def _blanks(text: str, place: Place) -> tuple[int, int]:
    """Return the number of white-space characters before and after a word."""
    start, end = place.start, place.end
    while start and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return place.start - start, end - place.end


def _place_texts(name: str, messages: Slotted, text: str, invented_text: str, invented: Sequence[Place]) -> tuple[Place, ...]:
    """Return the place of each text: between the frames of the invented render. Raise where text and frames do not add up to the render."""
    frames = [
        invented_text[left:right] for left, right in zip((0, *(p.end for p in invented)), (*(p.start for p in invented), None), strict=True)
    ]
    if not text.startswith(frames[0]):
        raise _content_dependent(name, text, 0, frames[0])
    places: list[Place] = []
    at = len(frames[0])
    for place, frame in zip(invented, frames[1:], strict=True):
        words = messages.slots[place.slot].text.strip() if place.slot < len(messages.slots) else ""
        written: str | None = words
        if not text.startswith(words + frame, at):  # it may stand inside JSON
            spellings = (dump(words)[1:-1] for dump in (dumps, json.dumps))
            written = next((spelled for spelled in spellings if text.startswith(spelled + frame, at)), None)
        if not words or written is None:
            raise _content_dependent(name, text, at, words + frame)
        places.append(Place(place.slot, at, at + len(written)))
        at += len(written) + len(frame)
    if at != len(text):
        raise _content_dependent(name, text, at, "")
    shown = {place.slot for place in places}
    for number, slot in enumerate(messages.slots):
        if number not in shown and slot.text.strip() and slot.kind != THINKING:  # reasoning may be left out of history
            raise CheckFailed(f"template {name} does not show {slot.text[:60]!r} of turn {slot.turn}")
    return tuple(places)


def first_difference(text: str, other: str) -> str:
    """Return how two renders of a conversation differ."""
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return f"two renders of it differ: …{text[max(0, at - 20) : at + 40]!r}…, …{other[max(0, at - 20) : at + 40]!r}…"


def _content_dependent(name: str, text: str, at: int, expected: str) -> CheckFailed:
    return CheckFailed(
        f"template {name} writes …{text[max(0, at - 20) : at + 40]!r}… where another text in its place gives {expected[:60]!r}, "
        "so it depends on the content and nothing is proven"
    )


# Borders of turns: where the generated text of a turn begins, and what ends it, in a render with invented words.
#
# Before a turn a model sees the render of the earlier turns with the generation prompt. So a turn begins where the whole render stops to
# follow that one. Its end is what the render shares with one that ends with this turn: then the next turn's header begins.

Stop = tuple[int, int] | None
"""Start and end of the control tokens that end a turn; `None` where none do."""
MOST_KNOWN = 4096
"""Most texts between turns in the cache."""

_OPENED = re.compile(r"\n(<(?!\|)[^<>|\s]+>)\s*\Z")


class Block(Struct, frozen=True):
    """The texts of one turn that a render shows.

    Attributes:
        turn, role: number and role of the turn.
        kinds: kinds of its texts, in render order.
        places: indices of its texts' places, ascending.
        start, end: characters from its first text to its last.
    """

    turn: int
    role: str
    kinds: tuple[str, ...]
    places: tuple[int, ...]
    start: int
    end: int


def blocks_of(rebuilt: Rebuilt) -> list[Block]:
    """The turns that show any text, in the order of the render. A text that is shown again, such as a tool's name with its result, counts where it
    stands first."""
    seen: set[int] = set()
    places_of: dict[int, list[int]] = {}
    for number, place in enumerate(rebuilt.invented):
        if place.slot not in seen:
            seen.add(place.slot)
            places_of.setdefault(rebuilt.slotted.slots[place.slot].turn, []).append(number)
    slots, invented = rebuilt.slotted.slots, rebuilt.invented
    blocks = [
        Block(
            number,
            rebuilt.chat.sample.turns[number].role,
            tuple(slots[invented[at].slot].kind for at in places),
            tuple(places),
            invented[places[0]].start,
            invented[places[-1]].end,
        )
        for number, places in places_of.items()
    ]
    blocks.sort(key=lambda block: block.start)
    for left, right in pairwise(blocks):
        if right.start < left.end:
            raise CheckFailed(f"the template writes turn {right.turn} amid turn {left.turn}, so nothing is proven")
    return blocks


class Borders:
    """Finds the borders of turns for one template."""

    def __init__(self, rebuilder: Rebuilder) -> None:
        self._rebuilder = rebuilder
        texts = sorted(rebuilder.template.control, key=lambda text: (-len(text), text))
        self._control = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._prompts: dict[object, str | None] = {}
        self._ends: dict[object, Stop] = {}
        self._closings: dict[object, int] = {}
        self._lone: str | None = None

    # -- where a turn begins ------------------------------------------------------------------------------------------------------------

    def start(self, chat: Rebuilt, before: Block | None, block: Block) -> int:
        """Return where in the invented render the generated text of an assistant turn begins.

        Raises:
            CheckFailed: nothing in the render says so.
        """
        low = before.end if before else 0
        gap = chat.invented_text[low : block.start]
        start = self._begin(chat, before, block, gap, low)
        # a header that is missing from this prompt, as after a tool's result, is a header all the same
        prompt = self.lone_prompt
        if prompt and (header := gap.rfind(prompt, start - low)) >= 0:
            start = low + header + len(prompt)
        # a template without a generation prompt still writes headers, which are no part of the answer
        is_header = not prompt and block.kinds[0] == TEXT and gap[start - low :].strip()
        return chat.own_start(block.places[0]) if is_header else start

    def _begin(self, chat: Rebuilt, before: Block | None, block: Block, gap: str, low: int) -> int:
        prompt = self._prompt(chat, before, block, gap)
        if prompt is not None:
            shared = _shared(gap, prompt)
            if (name := chat.chat.sample.turns[block.turn].name) and shared < len(prompt):
                # a header with the speaker's name is none of the answer
                named = re.match(f".*?{re.escape(name)}.*?{re.escape(prompt[shared:])}", gap[shared:], re.DOTALL)
                if named:
                    return low + shared + named.end()
            if shared < min(len(gap), len(prompt)):
                own = chat.margins.get(chat.invented[before.places[-1]].slot, (0, 0))[1] if before else 0
                shared = self._unbroken(gap, shared, own)
            if shared < len(prompt) and (tag := _OPENED.search(gap[:shared])) and gap[: tag.start()].strip():
                shared = tag.start(1)  # the prompt opens another block than the answer has
            if shared or not gap or not prompt:
                return low + shared
        prompt = self.lone_prompt
        if prompt and (at := gap.rfind(prompt)) >= 0:
            return low + at + len(prompt)
        if prompt and (before is None or before.role != USER) and (written := self._behind_question(chat, block)) and gap.endswith(written):
            return low + len(gap) - len(written)
        if any(kind != TEXT for kind in block.kinds):
            raise CheckFailed(f"nothing in the render says where turn {block.turn} begins, so nothing is proven")
        return chat.own_start(block.places[0])

    def _behind_question(self, chat: Rebuilt, block: Block) -> str:
        """Return what is generated before the first text of a turn if a question stands before it: an answer begins alike whatever comes first."""
        turns, question = chat.chat.sample.turns, turn(USER, "Well?")
        try:
            asked = self._rebuilder.rebuild(changed(chat.chat.sample, turns=(*turns[: block.turn], question, *turns[block.turn :])))
            listed = blocks_of(asked)
        except CheckFailed:
            return ""
        before, found = next(((left, right) for left, right in pairwise(listed) if right.turn == block.turn + 1), (None, None))
        return "" if found is None else asked.invented_text[self.start(asked, before, found) : found.start]

    def _prompt(self, chat: Rebuilt, before: Block | None, block: Block, gap: str) -> str | None:
        """Return the text between the previous turn and the place where a model continues."""
        key = gap, block.turn == 0, before and (before.role, before.kinds[-1]), bool(chat.chat.sample.tools)
        if key not in self._prompts:
            _bound(self._prompts)
            self._prompts[key] = _after(chat, before, block.turn, prompted=True)
        return self._prompts[key]

    def _unbroken(self, gap: str, limit: int, own: int = 0) -> int:
        """Return the last place up to `limit` that splits no word and no control token. A control token alone in the line right before it belongs to what
        differs; `own`: white space at the beginning of `gap` that belongs to a text."""
        ends = [token for token in self.controls(gap) if token[1] <= limit]
        blank = next((at for at in range(limit, 0, -1) if gap[at - 1].isspace()), 0)
        if ends and ends[-1][1] > blank:
            return ends[-1][0] if ends[-1][0] == blank > own else ends[-1][1]
        return blank

    @property
    def lone_prompt(self) -> str:
        """The generation prompt after a single question."""
        if self._lone is None:
            asked, prompted = (self._text(Sample((turn(USER, "Well?"),)), prompted=prompted) for prompted in (False, True))
            self._lone = prompted.removeprefix(asked) if prompted.startswith(asked) else ""
        return self._lone

    def _text(self, sample: Sample, *, prompted: bool) -> str:
        try:
            return self._rebuilder.rebuild(sample, prompted=prompted).text
        except CheckFailed:
            return ""

    # -- what ends a turn ---------------------------------------------------------------------------------------------------------------

    def stop(self, chat: Rebuilt, block: Block, after: Block | None) -> tuple[int, int] | None:
        """Return start and end of the stop of a turn in the invented render; `None` where the template writes none."""
        gap = chat.invented_text[block.end : after.start if after else None]
        if block.role != ASSISTANT:
            blank = len(gap) - len(gap.lstrip())
            stops = sorted(stop for stop in self.answer_stops if gap.startswith(stop, blank))  # the longest stands last
            if stops:
                return block.end + blank, block.end + blank + len(stops[-1])
            closed = self.closed(chat, block, after)  # brackets may stand before it
            stops = sorted((stop for stop in self.answer_stops if chat.invented_text[block.end : closed].endswith(stop)), key=len)
            return (closed - len(stops[-1]), closed) if stops else None
        ends_with_file = files_around(chat, block)[1]
        key = gap, block.kinds[-1], ends_with_file, after and after.role
        if key not in self._ends:
            _bound(self._ends)
            last_gap = _after(chat, block, block.turn + 1, prompted=False)
            is_text = block.kinds[-1] == TEXT and not ends_with_file
            self._ends[key] = self._end(gap, last_gap) if is_text else self._end_behind_brackets(gap, last_gap, is_last=after is None)
        span = self._ends[key]
        return (block.end + span[0], block.end + span[1]) if span else None

    def closed(self, chat: Rebuilt, block: Block, after: Block | None) -> int:
        """Return where a chat that ends with a turn ends, without white space, as far as the render goes on alike: behind the first of several results in one
        turn stands the bracket that closes it, and not the end of the turn."""
        gap = chat.invented_text[block.end : after.start if after else None]
        key = gap, block.role, block.kinds[-1]
        if key not in self._closings:
            _bound(self._closings)
            closing = (_after(chat, block, block.turn + 1, prompted=False) or "").rstrip()
            alike = _shared(gap, closing)
            for start, end in (*self.controls(gap), *self.controls(closing)):
                alike = start if start < alike < end else alike
            self._closings[key] = len(gap[:alike].rstrip()) if alike == len(closing) or block.role != ASSISTANT else 0
        return block.end + self._closings[key]

    @cached_property
    def _plain_answers(self) -> list[tuple[str, Stop, bool]]:
        """The text after each answer of short chats, its stop, and whether the chat ends with it."""
        answers = []
        for rounds in (1, 2):
            sample = Sample(tuple(turn(role, "Well.") for _ in range(rounds) for role in (USER, ASSISTANT)))
            try:
                chat = self._rebuilder.rebuild(sample)
                listed = blocks_of(chat)
            except CheckFailed:
                continue
            for block, after in zip(listed, [*listed[1:], None], strict=True):
                if block.role == ASSISTANT:
                    gap = chat.invented_text[block.end : after.start if after else None]
                    stop = self._end(gap, _after(chat, block, block.turn + 1, prompted=False))
                    answers.append((gap, stop, after is None))
        return answers

    @cached_property
    def answer_stops(self) -> frozenset[str]:
        """The stops of answers in short chats."""
        return frozenset(gap[slice(*stop)] for gap, stop, _ in self._plain_answers if stop)

    @property
    def borrows(self) -> bool:
        """Whether nothing ends the last answer of a short chat, so that the first token of the next header ends earlier ones."""
        return any(ends_chat and not gap.strip() for gap, _, ends_chat in self._plain_answers)

    @cached_property
    def plain_end(self) -> tuple[str, str]:
        """The stop of a short chat that ends with an answer, and what stands behind it; texts are empty where nothing does."""
        listed = [(gap, stop) for gap, stop, ends_chat in self._plain_answers if ends_chat and stop]
        return (listed[0][0][slice(*listed[0][1])], listed[0][0][listed[0][1][1] :].rstrip()) if listed else ("", "")

    def _end(self, gap: str, last_gap: str | None) -> Stop:
        """Return start and end in `gap` of the stop after a text. `last_gap`: what follows the turn when it is the last."""
        last_gap = gap if last_gap is None else last_gap
        shared = _shared(gap, last_gap)
        for text in (gap, last_gap):
            shared = next((start for start, end in self.controls(text) if start < shared < end), shared)
        if not last_gap.strip():  # the first token of the next header ends it, if any does
            return next((token for token in self.controls(gap) if not gap[: token[0]].strip()), None)
        runs = self._runs(gap[:shared])
        if not runs or gap[: runs[0][0][0]].strip():
            return self._replacement_stop(gap[shared:], last_gap[shared:], shared)
        return runs[0][0][0], runs[0][-1][1]

    def _end_behind_brackets(self, gap: str, last_gap: str | None, *, is_last: bool) -> Stop:
        """Return start and end in `gap` of the stop after a call, reasoning or a file.

        A chat that ends there ends with as many more control tokens than one that ends with a text as close brackets. Behind these the turn ends as one
        that ends with a text.
        """
        endings = [gap for gap, _, ends_chat in self._plain_answers if ends_chat]
        alike = [(gap, stop) for gap, stop, ends_chat in self._plain_answers if stop and ends_chat == is_last]
        if last_gap is None or not endings or not alike:
            return None
        plain, stop = alike[0]
        numbers = [at for at, (start, end) in enumerate(self.controls(plain)) if stop[0] <= start < stop[1]]
        brackets = len(self.controls(last_gap)) - len(self.controls(endings[0]))
        tokens = self.controls(gap)[brackets + numbers[0] : brackets + numbers[-1] + 1] if brackets >= 0 else []
        return (tokens[0][0], tokens[-1][1]) if tokens else None

    def _replacement_stop(self, gap: str, last_gap: str, at: int) -> Stop:
        """Return the stop where a following turn changes the stop tokens: as many tokens as at the end of a chat."""
        ending, runs = self._runs(last_gap), self._runs(gap)
        if not ending or not runs or gap[: runs[0][0][0]].strip() or last_gap[: ending[0][0][0]].strip():
            return None
        tokens = runs[0][: len(ending[0])]
        return at + tokens[0][0], at + tokens[-1][1]

    def controls(self, text: str, start: int = 0, end: int = sys.maxsize) -> list[tuple[int, int]]:
        """Return the control tokens in a text, or in a part of it."""
        return [match.span() for match in self._control.finditer(text, start, end)] if self._control else []

    def _runs(self, text: str) -> list[list[tuple[int, int]]]:
        """Return the control tokens, grouped into runs without gaps."""
        runs: list[list[tuple[int, int]]] = []
        for token in self.controls(text):
            if runs and runs[-1][-1][1] == token[0]:
                runs[-1].append(token)
            else:
                runs.append([token])
        return runs


def files_around(chat: Rebuilt, block: Block) -> tuple[bool, bool]:
    """Whether the first, and whether the last part of a turn is an image, audio or video that the template writes outside of its texts."""
    shown = [region for region in chat.chat.sample.turns[block.turn].regions if not region.drop]
    in_parts = chat.slotted.form.image_parts and bool(shown)
    return in_parts and shown[0].kind in MEDIA, in_parts and shown[-1].kind in MEDIA


def _bound(known: dict[object, Any]) -> None:
    if len(known) >= MOST_KNOWN:
        known.clear()


def _shared(left: str, right: str) -> int:
    """Return the length of the common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _after(chat: Rebuilt, block: Block | None, turns: int, *, prompted: bool) -> str | None:
    """Return what follows a block in the render of the first turns: all of it without a block, `None` where the block is not in it."""
    if block is None:
        return chat.beginning(turns, prompted=prompted) if turns else None
    text = chat.beginning(turns, prompted=prompted)
    if text is None:
        return None
    last = chat.invented[block.places[-1]]
    word = chat.invented_text[last.start : last.end]
    ends = [match.end() for match in re.finditer(re.escape(word), text)]
    ordinal = sum(place.slot == last.slot and place.start < last.start for place in chat.invented)
    return text[ends[ordinal] :] if ordinal < len(ends) else None
