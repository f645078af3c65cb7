"""Renders of conversations taken apart: which characters are the source's, and what of each turn a model generates.

The conversation is rendered again with an invented word in place of each text. What stands between these words is the template's own; with the texts
themselves between it, it must be the first render to the letter, so that each text is where its word was:

    render    <|user|>\\nHi<|end|>\\n<|assistant|>\\nHello!<|end|>\\n
    invented  <|user|>\\nzqaqz<|end|>\\n<|assistant|>\\nzqbqz<|end|>\\n
    frames    <|user|>\\n     <|end|>\\n<|assistant|>\\n     <|end|>\\n

No mark is put into the text, and the text is not searched. A template that treats a text differently from a word cannot be taken apart.

What a model generates of turn k follows from the **prefix property**: it is what the render of the first k + 1 messages adds to what the model is given, the
render of the first k with the generation prompt. If both begin the whole render, nothing is guessed:

    given      <|user|>\\nzqaqz<|end|>\\n<|assistant|>\\n
    with turn  <|user|>\\nzqaqz<|end|>\\n<|assistant|>\\nzqbqz<|end|>\\n

A later turn may change how an earlier one is written, as Qwen3 drops its reasoning. So the same is asked of the text between two words: an answer begins
where the whole render stops to follow the prompt behind the word before, and ends where it stops to follow the end of a chat behind its own last word.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from prep_assets.errors import CheckFailed
from prep_assets.samples import ASSISTANT, MEDIA, TEXT, THINKING, TOOL, TOOL_CALL, USER, Region, Sample, Turn, turn
from prep_assets.stores.files import dumps
from prep_assets.text.environment import FROZEN_CLOCK, MessageForm, chat_template_utils

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

Range = tuple[int, int]
Marked = tuple[Range, ...] | None
"""Characters that generation tags enclose; `None` for a template without tags."""
Messages = Sequence[Mapping[str, Any]]


class RendersDiffer(CheckFailed):
    """A build and its proof render a conversation differently."""


class ImplementationsDiffer(CheckFailed):
    """Two implementations of a format that code writes render a conversation differently."""


# A sample as the messages that a chat template reads, with a numbered slot for each source text.


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


def slotted(
    sample: Sample, form: MessageForm, marks: Mapping[str, str], texts: Sequence[str] | None = None
) -> tuple[list[dict[str, Any]], list[Slot]]:
    """Return the messages of a sample in the form that a template reads, and their texts in the order in which templates write them; `texts` replace the
    sample's own, `marks` are the texts of images and audio."""
    slots: list[Slot] = []

    def put(slot: Slot) -> str:
        slots.append(slot)
        return slot.text if texts is None else texts[len(slots) - 1]

    def joined(number: int, kind: str, regions: Sequence[tuple[int, Region]]) -> str:
        parts, text = [], ""
        for at, region in regions:
            written = marks[region.kind] if region.kind in MEDIA else region.text
            parts.append((at, len(text), len(text) + len(written)))
            text += written
        return put(Slot(number, kind, text, tuple(parts)))

    def parts(number: int, regions: Sequence[tuple[int, Region]]) -> Iterator[dict[str, Any]]:
        for is_file, run in groupby(regions, lambda each: form.image_parts and each[1].kind in MEDIA):
            if is_file:
                yield from ({"type": region.kind} for _, region in run)
            else:
                yield {"type": "text", "text": joined(number, TEXT, [*run])}

    def call(number: int, at: int, region: Region) -> dict[str, Any]:
        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return put(Slot(number, TOOL_CALL, value, ((at, 0, len(value)),)))
            if isinstance(value, dict):
                return {key: fill(inner) for key, inner in value.items()}
            return [fill(inner) for inner in value] if isinstance(value, list) else value

        try:
            read = json.loads(region.text)
            name, arguments = read["name"], read["arguments"]
        except (ValueError, TypeError, KeyError) as error:
            raise CheckFailed(f"turn {number}: {region.text[:80]!r} is not a tool call") from error
        name, filled = fill(name), fill(arguments)
        written = dumps(filled) if form.arguments == "text" and not isinstance(arguments, str) else filled
        return {"type": "function", **({"id": read["id"]} if read.get("id") else {}), "function": {"name": name, "arguments": written}}

    def message(number: int, turn: Turn) -> dict[str, Any]:
        shown = [(at, region) for at, region in enumerate(turn.regions) if not region.drop]
        thoughts, calls = ([each for each in shown if each[1].kind == kind] for kind in (THINKING, TOOL_CALL))
        content = [each for each in shown if each[1].kind not in (THINKING, TOOL_CALL)]
        message: dict[str, Any] = {"role": turn.role}
        reasoning = {form.reasoning: joined(number, THINKING, thoughts)} if thoughts else {}
        if content or not calls or form.no_content == "text":
            as_parts = form.content == "parts" or (form.image_parts and any(region.kind in MEDIA for _, region in content))
            listed = list(parts(number, content)) or [{"type": "text", "text": ""}] if as_parts else None
            message["content"] = joined(number, TEXT, content) if listed is None else listed
        elif form.no_content == "null":
            message["content"] = None
        message |= {key: value for key in ("name", "tool_call_id") if (value := getattr(turn, key)) is not None}
        return {**message, **reasoning, **({"tool_calls": [call(number, at, region) for at, region in calls]} if calls else {})}

    return [message(number, turn) for number, turn in enumerate(sample.turns)], slots


# Renders by the reference: transformers' Jinja, or the second implementation of a format that code writes.

TAGS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")


def _render(sample: Sample, template: ChatTemplate, messages: Messages, prompted: bool, source: str = "") -> tuple[str, Marked]:
    """Return the render of messages, and what the generation tags of the template, or of another `source`, enclose.

    Raises:
        CheckFailed: the template raises.
    """
    from jinja2 import TemplateError

    if template.renderer is not None:
        return _by_code(template.renderer.render_again, sample, template, messages, prompted), None
    transformers, source = chat_template_utils(), source or template.source
    variables = {**template.special, **template.options, **sample.template_options, "strftime_now": FROZEN_CLOCK.strftime}
    compiled, shown = transformers._compile_jinja_template(source), (list(sample.tools) or None, list(sample.documents) or None)
    try:
        text, tagged = transformers._render_with_assistant_indices(compiled, list(messages), *shown, prompted, **variables)
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise CheckFailed(f"template {template.name}: {error}, so nothing is proven") from error
    return str(text), tuple((start, end) for start, end in tagged) if TAGS.search(source) else None


def _by_code(function: Callable[..., Any], sample: Sample, template: ChatTemplate, messages: Messages, prompted: bool) -> Any:
    """Return what a function of a renderer says of messages."""
    try:
        return function(list(messages), list(sample.tools), {**template.options, **sample.template_options}, prompted)
    except Exception as error:  # the code of others may raise anything
        raise CheckFailed(f"template {template.name}: {type(error).__name__}: {str(error)[:300]}, so nothing is proven") from None


def render_again(sample: Sample, template: ChatTemplate, *, prompted: bool = False, form: MessageForm | None = None) -> str:
    """Return the render of a conversation; `form`: of its messages, if it is not that of the template.

    Raises:
        CheckFailed: the template raises.
    """
    return _render(sample, template, slotted(sample, form or template.form, template.marks)[0], prompted)[0]


_UNSORTED = Region(TOOL_CALL, '{"name": "zqcall", "arguments": {"zqlast": "a", "zqfirst": "b"}}')
_CALLS = Sample((turn(USER, "zqask"), Turn(ASSISTANT, (_UNSORTED,)), turn(TOOL, "zqresult"), turn(ASSISTANT, "zqsay")))


def sorts_arguments(template: ChatTemplate) -> bool:
    """Whether a template writes the arguments of a call sorted by name."""
    try:
        text = render_again(_CALLS, template)
    except CheckFailed:
        return False
    return 0 <= text.find("zqfirst") < text.find("zqlast")


# Chats of invented words.


class Place(Struct, frozen=True):
    """A text in a render: its slot, and its characters (start, end), without white space at its ends that a template may trim."""

    slot: int
    start: int
    end: int


class Block(Struct, frozen=True):
    """The texts of one turn that a render of invented words shows.

    Attributes:
        turn, role: number and role of the turn.
        places: indices of its texts' places, ascending.
        start, end: characters from its first text to its last.
        begins_with, ends_with: kinds of what it begins and ends with, one of `MEDIA` where the template writes a file outside of its texts.
    """

    turn: int
    role: str
    places: tuple[int, ...]
    start: int
    end: int
    begins_with: str
    ends_with: str


class Border(Struct, frozen=True):
    """What a model generates of a turn, in characters of the render of invented words.

    Attributes:
        start: where it begins; of other turns than answers `None`.
        stop: the control tokens that end it; `None` where none do.
        by_prefix: whether the prefix property says where it begins and ends.
    """

    start: int | None
    stop: Range | None
    by_prefix: bool


_WORD = re.compile("zq([a-p]+)qz")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_DIGITS = str.maketrans("abcdefghijklmnop", "0123456789abcdef")


def _invented_for(text: str, number: int) -> str:
    """Return an invented word within the white space of a text; a blank text unchanged."""
    words = text.strip()
    return text.replace(words, f"zq{f'{number:x}'.translate(_LETTERS)}qz") if words else text


def _places(text: str) -> tuple[Place, ...]:
    return tuple(Place(int(word[1].translate(_DIGITS), 16), *word.span()) for word in _WORD.finditer(text))


def _blanks(text: str, place: Place) -> Range:
    """Return the number of white-space characters before and after a word."""
    before, after = text[: place.start], text[place.end :]
    return len(before) - len(before.rstrip()), len(after) - len(after.lstrip())


class Shape(Struct, frozen=True, dict=True):
    """A chat of invented words, which stands for all chats that differ only in their texts.

    Attributes:
        sample: a chat of this shape.
        rebuilder: that of its template.
        prompted: whether the render ends with the generation prompt.
        slots, messages: those of the sample, the messages with invented words.
    """

    sample: Sample
    rebuilder: Rebuilder
    prompted: bool
    slots: Sequence[Slot]
    messages: Messages

    @cached_property
    def text(self) -> str:
        """The render.

        Raises:
            CheckFailed: the template raises.
        """
        return _render(self.sample, self.rebuilder.template, self.messages, self.prompted)[0]

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The words in the render, ascending."""
        return _places(self.text)

    @cached_property
    def margins(self) -> dict[int, Range]:
        """By slot, characters of white space before and after its words that the template kept: before its words what the render of stripped words lacks,
        behind them what one lacks of which only the ends are stripped."""
        template, renders = self.rebuilder.template, [self.text]
        words = [_invented_for(slot.text, number) for number, slot in enumerate(self.slots)]
        if all(word == word.strip() or not word.strip() for word in words):
            return {}
        for strip in (str.rstrip, str.strip):
            texts = [strip(word) or word for word in words]
            messages, _ = slotted(self.sample, template.form, template.marks, texts)
            renders.append(_render(self.sample, template, messages, self.prompted)[0])
        whole, leads, bare = ({place.slot: _blanks(render, place) for place in reversed(_places(render))} for render in renders)
        shown = leads.keys() & bare.keys()
        return {slot: (leads[slot][0] - bare[slot][0], trail - leads[slot][1]) for slot, (_, trail) in whole.items() if slot in shown}

    def until(self, turns: int, prompted: bool) -> str | None:
        """Return the render of the first turns; `None` where the template raises."""
        known: dict[tuple[int, bool], str | None] = self._latest
        if (turns, prompted) not in known:
            if len(known) == 4:  # all of a long chat would take much memory
                known.clear()
            known[turns, prompted] = None
            with suppress(CheckFailed):
                known[turns, prompted] = _render(self.sample, self.rebuilder.template, self.messages[:turns], prompted)[0]
        return known[turns, prompted]

    @cached_property
    def _latest(self) -> dict[tuple[int, bool], str | None]:
        return {}

    def _after(self, block: Block | None, turns: int, prompted: bool) -> str | None:
        """Return what follows a block in the render of the first turns, all of it without a block; `None` where it does not show the block."""
        text = self.until(turns, prompted) if turns else None
        if block is None or text is None:
            return text
        last = self.places[block.places[-1]]  # of its word the first place
        _, word, behind = text.partition(self.text[last.start : last.end])
        return behind if word else None

    @cached_property
    def blocks(self) -> list[Block]:
        """The turns that show any text, in the order of the render. A text that is shown again, such as a tool's name with its result, counts where it stands
        first.

        Raises:
            CheckFailed: the template writes one turn amid another.
        """
        firsts = {place.slot: number for number, place in reversed(list(enumerate(self.places)))}
        places_of: dict[int, list[int]] = {}
        for number in sorted(firsts.values()):
            places_of.setdefault(self.slots[self.places[number].slot].turn, []).append(number)
        blocks = [self._block(number, places) for number, places in places_of.items()]
        for left, right in pairwise(blocks):
            if right.start < left.end:
                raise CheckFailed(f"the template writes turn {right.turn} amid turn {left.turn}, so nothing is proven")
        return blocks

    def _block(self, number: int, places: Sequence[int]) -> Block:
        turn, first, last = self.sample.turns[number], self.places[places[0]], self.places[places[-1]]
        shown = [region.kind for region in turn.regions if not region.drop] if self.rebuilder.template.form.image_parts else []
        outer = [kind if kind in MEDIA else "" for kind in (shown[0], shown[-1])] if shown else ["", ""]
        kinds = [own or self.slots[place.slot].kind for own, place in zip(outer, (first, last), strict=True)]
        return Block(number, turn.role, tuple(places), first.start, last.end, *kinds)

    # -- what a model generates ---------------------------------------------------------------------------------------------------------

    @cached_property
    def borders(self) -> list[Border]:
        """Where what is generated begins and ends, of each block.

        Raises:
            CheckFailed: nothing in the render says so.
        """
        blocks = self.blocks
        return [self._border(*around) for around in zip([None, *blocks], blocks, [*blocks[1:], None], strict=False)]

    def _border(self, before: Block | None, block: Block, after: Block | None) -> Border:
        stop = self._stop(block, after)
        if block.role != ASSISTANT:
            return Border(None, stop, False)
        known = self.generated_from(block)
        if block.begins_with in MEDIA:
            return Border(None, stop, known is not None)
        return Border(self._start(before, block) if known is None else known, stop, known is not None)

    def generated_from(self, block: Block) -> int | None:
        """Return where what is generated of an answer begins, by the prefix property; `None` where it does not hold."""
        given, with_turn = self.until(block.turn, True) if block.turn else None, self.until(block.turn + 1, False)
        if given is None or with_turn is None or not all(map(self.text.startswith, (given, with_turn.rstrip()))):
            return None
        # a header that is missing from the prompt, as after a tool's result, or without any prompt, is a header all the same
        opening, prompt = self.text[len(given) : block.start], self.rebuilder.prompt
        is_shown = block.end <= len(with_turn.rstrip())
        return None if not is_shown or (prompt in opening if prompt else opening.strip()) else len(given)

    def _start(self, before: Block | None, block: Block) -> int | None:
        """Return where an answer begins; `None` where nothing but its own text says so.

        Raises:
            CheckFailed: nothing in the render says so.
        """
        low, prompt = before.end if before else 0, self.rebuilder.prompt
        gap, given = self.text[low : block.start], self._after(before, block.turn, True)
        start = None if given is None else self._following(gap, given, self.sample.turns[block.turn].name)
        if not start and gap and given != "":
            start = None  # they have nothing in common
        if prompt and (header := gap.rfind(prompt, start or 0)) >= 0:
            return low + header + len(prompt)  # given is no header, as after a tool's result
        if start is None and prompt:
            # another answer's header, of which only what opens its reasoning differs
            begun = next((at for length in range(len(prompt), 0, -1) if (at := gap.rfind(prompt[:length])) >= 0), len(gap))
            header = begun + self._header(gap[begun:], parting(gap[begun:], prompt))
            start = header if header > begun else None
        if start is None and any(self.slots[self.places[place].slot].kind != TEXT for place in block.places):
            raise CheckFailed(f"nothing in the render says where turn {block.turn} begins, so nothing is proven")
        # without a generation prompt, the header in front of an answer is not generated
        is_header = start is not None and not prompt and block.begins_with == TEXT and gap[start:].strip()
        return None if start is None or is_header else low + start

    def _following(self, gap: str, given: str, name: str | None) -> int:
        """Return how much of the text before an answer is what the model is given."""
        shared = parting(gap, given)
        if name and shared < len(given):  # a header with the speaker's name is none of the answer
            named = re.match(f".*?{re.escape(name)}.*?{re.escape(given[shared:])}", gap[shared:], re.DOTALL)
            if named:
                return shared + named.end()
        return shared if shared == len(given) else self._header(gap, shared)

    def _header(self, gap: str, most: int) -> int:
        """Return the last place up to `most` that splits no word and no control token. A tag on the line right before it opens what differs, such as the
        reasoning of an answer whose prompt closes it."""
        tokens, blank = self.rebuilder.tokens(gap), len(re.sub(r"\S*\Z", "", gap[:most]))
        end = max([blank, *(end for _, end in tokens if end <= most)])
        opened = _OPENED.search(gap[:end])
        return opened.start(1) if opened and gap[: opened.start()].strip() else end

    def behind(self, block: Block, after: Block | None) -> tuple[str, str]:
        """Return what stands behind a turn, and what would if the chat ended with it."""
        gap, ending = self.text[block.end : after.start if after else None], self._after(block, block.turn + 1, False)
        return gap, gap if ending is None else ending

    def closed(self, block: Block, after: Block | None) -> int:
        """Return where what the template writes for a turn ends, as far as it does so whatever follows."""
        gap, ending = self.behind(block, after)
        is_whole = block.role != ASSISTANT or gap.startswith(ending.rstrip())
        return block.end + (len(gap[: self.rebuilder.alike(gap, ending)].rstrip()) if is_whole else 0)

    def _stop(self, block: Block, after: Block | None) -> Range | None:
        """Return the control tokens that end a turn; those of other turns than answers end answers as well."""
        if block.role == ASSISTANT:
            found = self.rebuilder.stop(*self.behind(block, after), is_text=block.ends_with == TEXT)
            return found and (block.end + found[0], block.end + found[1])
        gap = self.text[block.end : after.start if after else None]
        start = block.end + len(gap) - len(gap.lstrip())
        for stop in self.rebuilder.stops:
            if self.text.startswith(stop, start):
                return start, start + len(stop)
        closed = self.closed(block, after)  # brackets may stand before it
        return next(((closed - len(stop), closed) for stop in self.rebuilder.stops if self.text.endswith(stop, block.end, closed)), None)


_OPENED = re.compile(r"\n(<(?!\|)[^<>|\s]+>)\s*\Z")


MOST_KEPT = 512
"""Most renders with invented words in the cache."""


class Rebuilder:
    """Takes renders of one template apart. Chats of one shape share the render with invented words.

    Attributes:
        template: the template.
        control: any control token, the longest that begins at a place.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.template, self._shapes = template, dict[str, Shape]()
        texts = sorted(template.control, reverse=True)  # longer ones before those that they begin with
        self.control = re.compile("|".join(map(re.escape, texts)) or "(?!)")

    def rebuild(self, sample: Sample, *, prompted: bool = False, rendered: str | None = None) -> Rebuilt:
        """Render a conversation and take it apart.

        Args:
            prompted: end with the generation prompt.
            rendered: its render, if known. A template with tags of its own is rendered again.

        Raises:
            CheckFailed: the template raises, or treats a text differently from an invented word.
            RendersDiffer: `rendered` is not the render.
        """
        template = self.template
        messages, slots = slotted(sample, template.form, template.marks)
        text, tagged = rendered, None
        if text is None or template.renderer is not None or TAGS.search(template.source):
            text, tagged = _render(sample, template, messages, prompted)
        if template.renderer is not None:
            if rendered is not None and text != rendered:
                raise ImplementationsDiffer(first_difference(rendered, text))
            tagged = _by_code(template.renderer.generated, sample, template, messages, prompted)
        if template.training:
            try:
                variant, tagged = _render(sample, template, messages, prompted, template.training)
            except CheckFailed:
                variant = ""
            tagged = tagged if variant == text else None
        shape = self.shape(sample, slots, prompted=prompted)
        try:
            places = _place_texts(template.name, slots, text, shape)
        except CheckFailed:
            if rendered is not None and (own := _render(sample, template, messages, prompted)[0]) != rendered:
                raise RendersDiffer(first_difference(rendered, own)) from None
            raise
        return Rebuilt(text, sample, messages, slots, places, shape, tagged)

    def shape(self, sample: Sample, slots: Sequence[Slot], *, prompted: bool = False) -> Shape:
        """Return the chat of invented words that stands for a chat."""
        words = [_invented_for(slot.text, number) for number, slot in enumerate(slots)]
        messages, _ = slotted(sample, self.template.form, self.template.marks, words)
        key = json.dumps([messages, sample.tools, sample.documents, sample.template_options, prompted], default=str)
        if key not in self._shapes:
            if len(self._shapes) >= MOST_KEPT:
                self._shapes.clear()
            self._shapes[key] = Shape(sample, self, prompted, slots, messages)
        return self._shapes[key]

    def tokens(self, text: str, start: int = 0, end: int = sys.maxsize) -> list[Range]:
        """Return the control tokens in a text, or in a part of it."""
        return [match.span() for match in self.control.finditer(text, start, end)]

    # -- what plain chats show of the template ------------------------------------------------------------------------------------------

    @cached_property
    def prompt(self) -> str:
        """The generation prompt after a question; ``""`` for none."""
        asked, prompted = (self._plain(1).until(1, prompted) or "" for prompted in (False, True))
        return prompted.removeprefix(asked) if prompted.startswith(asked) else ""

    @cached_property
    def _answers(self) -> list[tuple[str, Range | None]]:
        """What stands behind each answer of two chats, one of which ends with the first, and its stop."""
        answers = []
        for shape in map(self._plain, (1, 2)):
            with suppress(CheckFailed):
                around = zip(shape.blocks, [*shape.blocks, None][1:], strict=True)
                gaps = [shape.behind(block, after) for block, after in around if block.role == ASSISTANT]
                answers += [(gap, self.stop(gap, ending, is_text=True)) for gap, ending in gaps]
        return answers

    def _plain(self, rounds: int) -> Shape:
        sample = Sample(tuple(turn(role, "Well.") for _ in range(rounds) for role in (USER, ASSISTANT)))
        return self.shape(sample, slotted(sample, self.template.form, self.template.marks)[1])

    @cached_property
    def stops(self) -> list[str]:
        """What ends answers, the longest first."""
        return sorted({gap[slice(*stop)] for gap, stop in self._answers if stop}, key=len, reverse=True)

    @property
    def borrows(self) -> bool:
        """Whether nothing ends a chat of one answer, so that the first control token of the next header ends earlier ones, as in GLM-4-MoE."""
        return bool(self._answers) and not self._answers[0][0].strip()

    @property
    def _behind(self) -> str:
        """What a chat of one answer has behind its stop."""
        gap, stop = [*self._answers, ("", None)][0]
        return gap[stop[1] :].rstrip() if stop else ""

    def alike(self, left: str, right: str) -> int:
        """Return how much of two texts is alike, in whole control tokens."""
        shared = parting(left, right)
        for text in (left, right):
            shared = next((start for start, end in self.tokens(text) if start < shared < end), shared)
        return shared

    def stop(self, gap: str, ending: str, *, is_text: bool) -> Range | None:
        """Return start and end of the control tokens that end an answer.

        Args:
            gap: what stands behind its last text.
            ending: the same where the chat ends with the answer.
            is_text: whether the stop follows at once; behind a call, reasoning or a file stand closing brackets.
        """
        shared = self.alike(gap, ending)
        body, rest = gap[:shared].rstrip(), ending[shared:]
        if is_text and (run := self._run(body)):
            # code may write text between the control tokens that end an answer, as in <|close|>message<|sep|><|end_of_msg|>
            return run[0][0], run[-1][1] if self.template.renderer is None else self.tokens(body)[-1][1]
        if not is_text:
            bare = body.removesuffix(self._behind).rstrip()
            if stop := next((stop for stop in self.stops if bare.endswith(stop)), ""):
                return len(bare) - len(stop), len(bare)
            if not rest.strip() and not self.borrows:
                return [None, *self.tokens(body)][-1]
        # a following turn changes the stop into as many other tokens, or the first token of its header is the stop
        count = len(self._run(rest)) or int(not rest.strip() and (self.borrows if not is_text else not ending.strip()))
        tokens = self._run(gap[shared:])[:count]
        return (shared + tokens[0][0], shared + tokens[-1][1]) if tokens else None

    def _run(self, text: str) -> list[Range]:
        """Return the control tokens that a text begins with, behind white space."""
        run, at = list[Range](), len(text) - len(text.lstrip())
        for start, end in self.tokens(text):
            if start == at:
                run, at = [*run, (start, end)], end
        return run


class Rebuilt(Struct, frozen=True):
    """A conversation whose render was rebuilt.

    Attributes:
        text: the render.
        sample: the conversation.
        messages, slots: its messages and their texts.
        places: places of the texts in the render, ascending.
        shape: the chat of invented words; its places are in the same order.
        tagged: characters (start, end) that the template, or its training variant with the same render, marks as generated; `None` without tags.
    """

    text: str
    sample: Sample
    messages: Messages
    slots: Sequence[Slot]
    places: tuple[Place, ...]
    shape: Shape
    tagged: Marked

    def real(self, invented: int) -> int:
        """Map a place between words of the invented render to this one."""
        before = bisect_right(self.shape.places, invented, key=lambda place: place.end) - 1
        return invented if before < 0 else self.places[before].end + invented - self.shape.places[before].end

    def served(self, turn: int) -> bool:
        """Whether a server gives the model what stands before an answer; true where the template raises for a prompt."""
        try:
            return self.text.startswith(_render(self.sample, self.shape.rebuilder.template, self.messages[:turn], True)[0])
        except CheckFailed:
            return True


def _place_texts(name: str, slots: Sequence[Slot], text: str, shape: Shape) -> tuple[Place, ...]:
    """Return the place of each text: between the frames of the invented render. Raise where text and frames do not add up to the render."""
    edges = [0, *(edge for place in shape.places for edge in (place.start, place.end)), len(shape.text)]
    frames = [shape.text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    if not text.startswith(frames[0]):
        raise _content_dependent(name, text, 0, frames[0])
    places, at = list[Place](), len(frames[0])
    for place, frame in zip(shape.places, frames[1:], strict=True):
        words = slots[place.slot].text.strip() if place.slot < len(slots) else ""
        spellings = (words, *(dump(words)[1:-1] for dump in (dumps, json.dumps)))  # it may stand inside JSON
        written = next((spelled for spelled in spellings if text.startswith(spelled + frame, at)), "")
        if not written:
            raise _content_dependent(name, text, at, words + frame)
        places.append(Place(place.slot, at, at + len(written)))
        at += len(written) + len(frame)
    if at != len(text):
        raise _content_dependent(name, text, at, "")
    shown = {place.slot for place in places}
    for number, slot in enumerate(slots):
        if number not in shown and slot.text.strip() and slot.kind != THINKING:  # reasoning may be left out of history
            raise CheckFailed(f"template {name} does not show {slot.text[:60]!r} of turn {slot.turn}")
    return tuple(places)


def parting(left: str, right: str) -> int:
    """Return where two texts part: the length of their common prefix."""
    return next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), min(len(left), len(right)))


def first_difference(text: str, other: str) -> str:
    """Return how two renders of a conversation differ."""
    at = parting(text, other)
    return f"two renders of it differ: {around(text, at)}, {around(other, at)}"


def around(text: str, at: int) -> str:
    """Return what stands around a place of a text, for an error."""
    return f"…{text[max(0, at - 20) : at + 40]!r}…"


def _content_dependent(name: str, text: str, at: int, expected: str) -> CheckFailed:
    return CheckFailed(
        f"template {name} writes {around(text, at)} where another text in its place gives {expected[:60]!r}, "
        "so it depends on the content and nothing is proven"
    )
