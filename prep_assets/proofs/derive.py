"""Second derivation of what must be trained of a conversation, from its source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.generated import stop_within
from prep_assets.proofs.rebuilt import Block, Borders, Rebuilder, Rebuilt, blocks_of, files_around, first_difference
from prep_assets.samples import (
    ASSISTANT,
    COMPLETION,
    DOCUMENT,
    MEDIA,
    PROMPT,
    SEPARATOR,
    SYSTEM,
    TEXT,
    THINKING,
    TOOL,
    TOOL_CALL,
    UNATTENDED,
    Region,
    Sample,
    Turn,
    changed,
)

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# What is trained of a conversation, what is not attended, and the policies behind loss weights: for the second derivation of masks.

Range = tuple[int, int]
NOTHING = "(?!)"
"""A pattern that matches nothing."""
Prompt = tuple[int, int, str]
"""Where an untrained text starts and ends, and the role of its turn."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One unbroken stretch of tokens that are trained with one weight, or not attended.

    Attributes:
        text: what it must decode to, apart from white space at both ends: a token may hold some of the template's.
        weight: the loss weight of its tokens; `UNATTENDED` where they are not attended.
        stop: the stop token at its end; ``""`` for none.
        start, end: its characters in the render.
    """

    text: str
    weight: float = 1.0
    stop: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class MaskOptions:
    """The options of the configuration that decide a mask, under the configuration's names."""

    mask: Mapping[str, str] = field(default_factory=lambda: {ASSISTANT: "train", COMPLETION: "train"})
    mask_default: str = "mask"
    train_on_eos: str = "turn"
    train_turns: str = "all"
    train_thinking: bool = True
    train_tool_calls: bool = True
    train_headers: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Those among `values`, such as a recipe; an option that is younger than the recipe has its default, which keeps the bytes of that time."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})

    @property
    def leaves_out_turns(self) -> bool:
        """Whether a turn of a trained role may be left out because of the turns around it."""
        return self.train_turns == "last"


@dataclass(frozen=True, slots=True)
class Derived:
    """What a conversation must have become.

    Attributes:
        text: its render.
        expected: the stretches that must be trained or not attended, in order.
        controls: characters (start, end) of the template's control tokens, ascending.
        typed: number of control tokens in the source's own texts.
        shortenable: untrained texts that truncation may shorten: start, end, role, ascending.
        tagged: whether generation tags in the template, or in its training variant, agree.
        prefixed: whether the prefix property says what of every answer is generated.
        unserved: the turns of trained answers behind a prompt that no server sends.
    """

    text: str
    expected: tuple[Expected, ...]
    controls: tuple[Range, ...]
    typed: int
    shortenable: tuple[Prompt, ...]
    tagged: bool = False
    prefixed: bool = False
    unserved: tuple[int, ...] = ()


class Part(Struct):
    """A stretch of one turn. `kind` is `TEXT`, `THINKING`, `TOOL_CALL` or one of `MEDIA`; `region` is the number of its region in the turn."""

    start: int
    end: int
    kind: str
    region: int
    weight: float


def pattern(template: ChatTemplate) -> re.Pattern[str]:
    """Return a pattern that matches any control token, the longest first; without control tokens, nothing."""
    return re.compile("|".join(map(re.escape, sorted(template.control, key=lambda text: (-len(text), text)))) or NOTHING)


def weight_of(region: Region, role: str, options: MaskOptions) -> float:
    """Return the weight of a region; placeholders of images and unattended regions are never trained."""
    if not region.attend:
        return UNATTENDED
    if region.kind in MEDIA or (region.kind == THINKING and not options.train_thinking):
        return 0.0
    if region.kind == TOOL_CALL and not options.train_tool_calls:
        return 0.0
    if region.loss_weight is not None:
        return float(region.loss_weight)
    return 1.0 if options.mask.get(role, options.mask_default) == "train" else 0.0


def limit_turns(turns: Sequence[Sequence[Part]], options: MaskOptions) -> None:
    """Remove the loss weight of trained turns that the options leave out: all but the last."""
    trained = [parts for parts in turns if any(part.weight > 0 for part in parts)]
    for part in (part for parts in (trained[:-1] if options.train_turns == "last" else ()) for part in parts):
        part.weight = min(part.weight, 0.0)


def stop_weights(turns: Sequence[Sequence[Part]], train_on_eos: str) -> list[float]:
    """Return the loss weight of the stop of each turn, from that of its last text; stops are always attended."""
    weights = [max(0.0, next((part.weight for part in reversed(parts) if part.kind not in MEDIA), 0.0)) for parts in turns]
    if train_on_eos == "all":
        return [weight or 1.0 for weight in weights]
    if train_on_eos == "turn":
        return weights
    last = [number for number, weight in enumerate(weights) if weight][-1:] if train_on_eos == "last" else []
    return [weight if number in last else 0.0 for number, weight in enumerate(weights)]


def stretches(text: str, steps: Sequence[tuple[int, int, float]], stops: Sequence[Range]) -> tuple[Expected, ...]:
    """Join neighbouring stretches of one weight; drop those of weight 0."""
    joined_steps: list[tuple[int, int, float]] = []
    for start, end, weight in steps:
        if not weight or end <= start:
            continue
        if joined_steps and joined_steps[-1][1:] == (start, weight):
            start = joined_steps.pop()[0]
        joined_steps.append((start, end, weight))
    ends = {end: text[start:end] for start, end in stops}
    return tuple(Expected(text[start:end], weight, ends.get(end, ""), start, end) for start, end, weight in joined_steps)


# Second derivation of the examples of one conversation. It shares no code with the first.

_WORD = "zqreason{}zq"


def examples_again(sample: Sample, options: Mapping[str, Any], derived: Callable[[Sample], Derived]) -> list[Sample]:
    """Return the examples that a build with ``expand: turns`` must have made of a conversation: itself, if its render shows all reasoning, and a server sends
    what stands before each trained answer.

    Args:
        options: ``mask``, ``mask_default``, ``train_thinking`` and ``train_tool_calls``.
        derived: what a conversation must have become.
    """
    trained = [any(_trained(region, turn.role, options) for region in turn.regions) for turn in sample.turns]
    if not _shortened_history(sample, trained, derived):
        return [sample]
    examples: list[Sample] = []
    begin = 0
    for last, turn in enumerate(sample.turns):
        ends_example = turn.role == ASSISTANT and trained[last]
        if ends_example or (last == len(trained) - 1 and (any(trained[begin:]) or not examples)):
            examples.append(changed(sample, turns=tuple(_masked(t) if i < begin else t for i, t in enumerate(sample.turns[: last + 1]))))
            begin = last + 1
    return examples


def _trained(region: Region, role: str, options: Mapping[str, Any]) -> bool:
    if region.drop or region.kind in MEDIA:
        return False
    off = {THINKING: not options["train_thinking"], TOOL_CALL: not options["train_tool_calls"]}
    if off.get(region.kind):
        return False
    return options["mask"].get(role, options["mask_default"]) == "train" if region.loss_weight is None else region.loss_weight > 0


def _masked(turn: Turn) -> Turn:
    return changed(turn, regions=tuple(changed(region, loss_weight=0.0) for region in turn.regions))


def _shortened_history(sample: Sample, trained: Sequence[bool], derived: Callable[[Sample], Derived]) -> bool:
    """Whether a render with an invented word for the reasoning of each turn lacks one of these words, or has a trained answer behind a prompt that no server
    sends."""
    words: list[str] = []

    def renamed(number: int, turn: Turn) -> Turn:
        thoughts = [region for region in turn.regions if region.kind == THINKING and not region.drop and region.text.strip()]
        if not thoughts:
            return turn
        words.append(_WORD.format(number))
        return changed(turn, regions=tuple(changed(r, text=words[-1]) if r in thoughts else r for r in turn.regions))

    found = derived(changed(sample, turns=tuple(renamed(i, turn) for i, turn in enumerate(sample.turns))))
    return any(word not in found.text for word in words) or any(trained[turn] for turn in found.unserved)


# What must be trained of turns without a template: documents, prompts and completions, end to end.


def untemplated(sample: Sample, options: MaskOptions, template: ChatTemplate) -> Derived:
    """Derive turns that stand end to end; the end-of-text token ends each completion and document."""
    eos = template.special.get("eos_token", "")
    control = pattern(template)
    text = ""
    turns: list[list[Part]] = []
    ends: list[Range] = []
    separators: list[Range] = []
    for turn in sample.turns:
        parts: list[Part] = []
        for number, region in enumerate(turn.regions):
            if not region.drop:
                text_of_region = template.marks.get(region.kind, "") if region.kind in MEDIA else region.text
                if region.kind == SEPARATOR:
                    text_of_region = text_of_region or template.special.get("sep_token", "<|sep|>")
                    separators.append((len(text), len(text) + len(text_of_region)))
                kind = region.kind if region.kind in (THINKING, TOOL_CALL, *MEDIA) else TEXT
                parts.append(Part(len(text), len(text) + len(text_of_region), kind, number, weight_of(region, turn.role, options)))
                text += text_of_region
        turns.append(parts)
        ends.append((len(text), len(text) + (len(eos) if turn.role != PROMPT else 0)))
        text = text if turn.role == PROMPT else text + eos
    limit_turns(turns, options)
    steps: list[tuple[int, int, float]] = []
    for parts, end, weight in zip(turns, ends, stop_weights(turns, options.train_on_eos), strict=True):
        steps += [*((part.start, part.end, part.weight) for part in parts), (*end, weight if parts else 0.0)]
    wrote = [end for end in ends if control.fullmatch(text, *end)]
    images = [(part.start, part.end) for parts in turns for part in parts if part.kind in MEDIA]
    for image in (*images, *separators):
        wrote += [match.span() for match in control.finditer(text, *image)]
    total = sum(1 for _ in control.finditer(text))
    shortenable = [
        joined(((part.start, part.end) for part in parts if not part.weight and part.kind == TEXT), turn.role)
        for turn, parts in zip(sample.turns, turns, strict=True)
    ]
    return Derived(text, stretches(text, steps, ends), tuple(sorted(wrote)), max(0, total - len(wrote)), tuple(chain(*shortenable)))


def joined(ranges: Iterable[Range], role: str) -> list[Prompt]:
    """Join the texts of a turn that stand end to end."""
    ranges_of_role: list[Prompt] = []
    for start, end in ranges:
        ranges_of_role.append((ranges_of_role.pop()[0] if ranges_of_role and ranges_of_role[-1][1] == start else start, end, role))
    return ranges_of_role


# Second derivation of a conversation with images: first with one token per image, as the template writes it, then with the processor's placeholder.


def with_placeholders(derived: Derived, images: Sequence[Region], template: ChatTemplate) -> Derived:
    """Return `derived` with the placeholder of each file, in order.

    Raises:
        CheckFailed: the template does not write its token once for each.
    """
    control, wanted = pattern(template), [template.marks[region.kind] for region in images]
    marks = [span for span in derived.controls if derived.text[slice(*span)] in template.marks.values()]
    if [derived.text[slice(*span)] for span in marks] != wanted:
        raise CheckFailed(f"template {template.name} writes {len(marks)} marks for {wanted}, or in another order, so nothing is proven")
    text, last = "", 0
    steps: list[tuple[int, int]] = []
    inside: dict[Range, list[Range]] = {}
    for (start, end), region in zip(marks, images, strict=True):
        text += derived.text[last:start]
        written = region.placeholder or template.image
        inside[start, end] = [(len(text) + low, len(text) + high) for low, high in (match.span() for match in control.finditer(written))]
        text, last = text + written, end
        steps.append((end, len(text) - end))
    text += derived.text[last:]

    def now(at: int) -> int:
        return at + next((shift for end, shift in reversed(steps) if end <= at), 0)

    return replace(
        derived,
        text=text,
        expected=tuple(
            replace(match, text=text[now(match.start) : now(match.end)], start=now(match.start), end=now(match.end))
            for match in derived.expected
        ),
        controls=tuple(new for old in derived.controls for new in inside.get(old, [(now(old[0]), now(old[1]))])),
        shortenable=tuple((now(start), now(end), role) for start, end, role in derived.shortenable),
    )


# Second derivation of a templated conversation: from the source and from a render that is taken apart, without marks and without any code
# that made the mask.
#
# `proofs/rebuilt.py` says which characters of a render are the source's, where an answer begins and what ends it. Here the policy of the
# configuration gives each of these stretches its weight.

_END_OF_THINKING = re.compile(r"</think>\s*")


def derive(
    sample: Sample,
    options: MaskOptions,
    template: ChatTemplate,
    *,
    prompted: bool = False,
    typed_controls: bool = False,
    rendered: str | None = None,
    prompts: bool = False,
) -> Derived:
    """Return the render of a sample, and what must be trained of it.

    Args:
        prompted: the render ends with the generation prompt.
        typed_controls: control tokens typed in the source's texts count as control tokens.
        rendered: the render that a build has just made. Checks leave it out and render again, as samples with images always do.
        prompts: look for answers behind a prompt that no server sends.

    Raises:
        CheckFailed: the template's render cannot be taken apart, so that nothing is proven.
        RendersDiffer: `rendered` is not the render.
    """
    images = [region for turn in sample.turns for region in turn.regions if region.kind in MEDIA and not region.drop]
    if all(turn.role in (DOCUMENT, PROMPT, COMPLETION) for turn in sample.turns):
        derived = untemplated(sample, options, template)
    else:
        rebuilder, borders = _known(template)
        rebuilt = rebuilder.rebuild(sample, prompted=prompted, rendered=None if images else rendered)
        _check_images_in_order(rebuilt, images)
        derived = _Derivation(rebuilt, borders, options, prompts).derived()
    if images:
        derived = with_placeholders(derived, images, template)
    if not typed_controls or not derived.typed:
        return derived
    return replace(derived, controls=tuple(match.span() for match in pattern(template).finditer(derived.text)), typed=0)


def _check_images_in_order(chat: Rebuilt, images: Sequence[Region]) -> None:
    """Raise where images of different sizes may be out of order."""
    turns = [chat.slotted.slots[place.slot].turn for place in chat.places]
    if turns != sorted(turns) and len({region.placeholder for region in images}) > 1:
        raise CheckFailed(f"template {chat.chat.template.name} writes turns in another order, so which image stands where is not proven")


@bounded_cache("rebuilders", 1, key=lambda template: (template.hash, template.control))
def _known(template: ChatTemplate) -> tuple[Rebuilder, Borders]:
    rebuilder = Rebuilder(template)
    return rebuilder, Borders(rebuilder)


# -- chats ------------------------------------------------------------------------------------------------------------------------------


class _Derivation(Struct, frozen=True, dict=True):
    chat: Rebuilt
    borders: Borders
    options: MaskOptions
    prompts: bool

    def derived(self) -> Derived:
        blocks = blocks_of(self.chat)
        turns = [self._parts(block) for block in blocks]
        trained = [any(part.weight for part in parts) for parts in turns]
        hidden = any(part.weight < 0 for parts in turns for part in parts)
        named = "trained or unattended" if hidden else "trained"
        self._check_order([block for block, is_trained in zip(blocks, trained, strict=True) if is_trained], named)
        starts = [self._start(blocks, number) for number in range(len(blocks))]
        ends = [self._stop(blocks, number) for number in range(len(blocks))]
        self._check_tags(blocks, starts, ends)
        limit_turns(turns, self.options)
        shortenable = self._shortenable(blocks, turns)
        steps: list[tuple[int, int, float]] = []
        stops: list[Range] = []
        before = 0
        weights = stop_weights(turns, self.options.train_on_eos)
        for number, (block, parts, start, end, weight) in enumerate(zip(blocks, turns, starts, ends, weights, strict=True)):
            parts[0].start = min(start, parts[0].start)
            if self.options.train_headers and parts[0].weight > 0:
                parts[0].start = before
            if parts[-1].kind == TEXT:
                parts[-1].end += self._margins(block.places[-1])[1]
            self._close(block, parts, end)
            steps += [(part.start, part.end, part.weight) for part in parts]
            last = parts[-1].end
            if end is not None:
                # white space before it is generated with the text
                follows = parts[-1].weight > 0 and not self.chat.text[last : end[0]].strip()
                steps.append((last if follows else end[0], end[1], weight))
                stops.append(end)
            before = end[1] if end is not None else last
            if end is None and number + 1 < len(blocks) and self.borders.lone_prompt:
                before = max(last, self.real(self.borders.closed(self.chat, block, blocks[number + 1])))
        answers = [block for block in blocks if block.role == ASSISTANT]
        asked = [
            block.turn for block, parts in zip(blocks, turns, strict=True) if block in answers and any(part.weight > 0 for part in parts)
        ]
        return Derived(
            self.chat.text,
            stretches(self.chat.text, steps, stops),
            *self._controls(),
            tuple(shortenable),
            self.chat.tagged is not None,
            bool(answers) and all(map(self._generated, answers)),
            tuple([turn for turn in asked if turn and self.prompts and not self.chat.served(turn)]),
        )

    def _parts(self, block: Block) -> list[Part]:
        """Return the parts of a turn: its regions, extended over what the template writes between them."""
        parts: list[Part] = []
        trail = 0
        for number in block.places:
            regions = self._regions(block, number)
            if parts:  # white space of a text's own stays with it
                parts[-1].end += trail
                regions[0].start -= self.chat.own_margins(number, regions[0].region)[0]
                self._between(block, parts[-1], regions[0])
            trail = self.chat.own_margins(number, regions[-1].region)[1]
            parts += regions
        return parts

    def _regions(self, block: Block, number: int) -> list[Part]:
        """Return the regions of a text, without the white space around its words."""
        turn = self.chat.chat.sample.turns[block.turn]
        place, slot = self.chat.places[number], self.chat.slotted.slots[self.chat.places[number].slot]
        words = slot.text.strip()
        literal = self.chat.text[place.start : place.end] == words
        lead = len(slot.text) - len(slot.text.lstrip())
        parts: list[Part] = []
        for at, start, end in slot.parts:
            region = turn.regions[at]
            kind = region.kind if region.kind in (THINKING, TOOL_CALL, *MEDIA) else TEXT
            low, high = (min(max(place.start + edge - lead, place.start), place.end) for edge in (start, end))
            if high > low:
                parts.append(Part(low, high, kind, at, weight_of(region, turn.role, self.options)))
        if not literal:  # written with escapes, so its regions cannot be located
            if len({part.weight for part in parts}) > 1:
                raise CheckFailed(f"turn {block.turn} is written with escapes, and not all of it has one weight; nothing is proven")
            parts = [Part(place.start, place.end, parts[0].kind, parts[0].region, parts[0].weight)]
        return parts

    def _between(self, block: Block, left: Part, right: Part) -> None:
        """Assign what stands between two texts of a turn: reasoning tags to the reasoning, all around tool calls to the calls."""
        if right.kind == TOOL_CALL:
            if left.kind == TOOL_CALL and left.region != right.region and _kind(left.weight) != _kind(right.weight):
                raise CheckFailed(
                    f"of several tool calls in turn {block.turn} some are trained and some are not; where one ends is not proven"
                )
            closing = _END_OF_THINKING.search(self.chat.text, left.end, right.start) if left.kind == THINKING else None
            left.end = right.start = closing.end() if closing else left.end
        elif left.kind in (THINKING, TOOL_CALL):
            left.end = right.start

    def _start(self, blocks: Sequence[Block], number: int) -> int:
        """Return where the generated part of a turn begins; for other turns, where their text does, with its own white space."""
        block = blocks[number]
        first = self.chat.places[block.places[0]]
        if block.role == ASSISTANT and not files_around(self.chat, block)[0]:
            before, known = blocks[number - 1] if number else None, self._generated(block)
            return self.real(known[0] if known else self.borders.start(self.chat, before, block))
        return first.start - self._margins(block.places[0])[0]

    def _margins(self, place: int) -> tuple[int, int]:
        """Return how much white space before and after a text's words is its own in the render."""
        return self.chat.margins.get(self.chat.places[place].slot, (0, 0))

    def _stop(self, blocks: Sequence[Block], number: int) -> Range | None:
        block, after = blocks[number], blocks[number + 1] if number + 1 < len(blocks) else None
        known = self._generated(block)
        if known is None or self.borders.borrows:
            stop = self.borders.stop(self.chat, block, after)
        else:
            rest = self.chat.invented_text[block.end : known[1]]
            is_text = block.kinds[-1] == TEXT and not files_around(self.chat, block)[1]
            within = stop_within(rest, self.control, is_text=is_text, plain=self.borders.plain_end)
            stop = within and (block.end + within[0], block.end + within[1])
        return (self.real(stop[0]), self.real(stop[1])) if stop else None

    def _generated(self, block: Block) -> Range | None:
        """Return what is generated of an answer, where the prefix property holds."""
        # what opens a chat is no answer to anything
        known = self.chat.generated(block.turn) if block.role == ASSISTANT and block.turn else None
        if known is None or not known[0] <= block.start <= block.end <= known[1]:
            return None
        # a header that is missing from the prompt, as after a tool's result, or without any prompt, is a header all the same
        prompt, opening = self.borders.lone_prompt, self.chat.invented_text[known[0] : block.start]
        return None if (prompt in opening if prompt else opening.strip()) else known

    @cached_property
    def control(self) -> re.Pattern[str]:
        """Any control token."""
        return pattern(self.chat.chat.template)

    def _close(self, block: Block, parts: list[Part], end: Range | None) -> None:
        """Extend the last part over the closing bracket of a tool call or the closing reasoning tag."""
        if parts[-1].kind not in (THINKING, TOOL_CALL):
            return
        if end is None:
            if any(part.weight for part in parts):
                raise CheckFailed(f"no control token ends turn {block.turn} after its {parts[-1].kind}, so nothing is proven")
            return
        parts[-1].end = end[0]

    def real(self, invented: int) -> int:
        """Map a place between texts from the render with invented words to the real render."""
        before = bisect_right(self.chat.invented, invented, key=lambda place: place.end) - 1
        return invented if before < 0 else self.chat.places[before].end + invented - self.chat.invented[before].end

    def _controls(self) -> tuple[tuple[Range, ...], int]:
        """Return the template's control tokens, and how many the source's texts hold. Image placeholders are the template's."""
        text, controls, last = self.chat.text, list[Range](), 0
        for place in self.chat.places:
            slot = self.chat.slotted.slots[place.slot]
            regions = self.chat.chat.sample.turns[slot.turn].regions
            lead = len(slot.text) - len(slot.text.lstrip())
            controls += self.borders.controls(text, last, place.start)
            for at, start, end in slot.parts:
                if regions[at].kind in MEDIA:
                    controls += self.borders.controls(text, place.start + start - lead, place.start + end - lead)
            last = place.end
        controls += self.borders.controls(text, last)
        return tuple(controls), len(self.borders.controls(text)) - len(controls)

    def _shortenable(self, blocks: Sequence[Block], turns: Sequence[Sequence[Part]]) -> list[Prompt]:
        """Return the untrained texts with their remaining own white space. Texts of a turn that stand end to end are
        joined."""
        shortenable: list[Prompt] = []
        for block, parts in zip(blocks, turns, strict=True):
            ranges: list[Range] = []
            trained = {part.region for part in parts if part.weight}
            for number in block.places if block.role != SYSTEM else ():
                for part in self._regions(block, number):
                    if part.kind != TEXT or part.region in trained:
                        continue
                    lead, trail = self.chat.own_margins(number, part.region)
                    ranges.append((part.start - lead, part.end + trail))
            shortenable += joined(ranges, block.role)
        return shortenable

    def _check_order(self, trained: Sequence[Block], named: str) -> None:
        """Raise where the template moves turns that are trained or not attended, such as a system turn into the last user turn."""
        if [block.turn for block in trained] != sorted(block.turn for block in trained):
            raise CheckFailed(f"template {self.chat.chat.template.name} writes {named} turns in another order, so nothing is proven")

    def _check_tags(self, blocks: Sequence[Block], starts: Sequence[int], ends: Sequence[Range | None]) -> None:
        """Check that what the template itself marks as generated is the answers: from the end of the generation prompt, or from inside
        it, to the stop. White space may differ, and so may a control token that both ends a turn and opens the next."""
        if self.chat.tagged is None:
            return
        text, tagged = self.chat.text, self.chat.tagged
        for number, (block, start, end) in enumerate(zip(blocks, starts, ends, strict=True)):
            if block.role != ASSISTANT:
                continue
            first, last = self.chat.places[block.places[0]].start, self.chat.places[block.places[-1]].end
            low = self.real(blocks[number - 1].end) if number else 0
            following = self.chat.places[blocks[number + 1].places[0]].start if number + 1 < len(blocks) else len(text) + 1
            # where two answers touch, a tag that begins there is of the second
            turn_tags = [tag for tag in tagged if low <= tag[0] <= last and tag[0] < following and tag[1] >= first]
            begins = turn_tags and self._begins_answer(
                turn_tags[0][0], min(start, first), first, number > 0 and blocks[number - 1].role == TOOL
            )
            if not (begins and self._ends_answer(turn_tags[-1][1], end, last)):
                marked = [_shortened(text[slice(*tag)]) for tag in turn_tags]
                template = self.chat.chat.template
                raise CheckFailed(
                    f"{'the training_template of ' if template.training else ''}template {template.name} marks {marked} of turn {block.turn} as generated, "
                    f"which is {_shortened(text[min(start, first) : end[1] if end else last])!r}"
                )

    def _begins_answer(self, marked: int, start: int, first: int, after_tool: bool) -> bool:
        """Whether tags begin where an answer does, or inside its generation prompt, or enclose the control tokens that end a tool's result, which
        TRL's variant for DeepSeek V3 does; `first`: start of its first text."""
        header = self.chat.text[marked:start].strip()
        ends_tool = after_tool and not pattern(self.chat.chat.template).sub("", header).strip()
        return marked <= first and not self.chat.text[start:marked].strip() and (header in self.borders.lone_prompt or ends_tool)

    def _ends_answer(self, marked: int, end: Range | None, last: int) -> bool:
        """Whether tags end where an answer does; `last`: end of its last text."""
        stop = end[1] if end else last
        is_header = end is not None and marked <= end[0] and not self.chat.text[marked : end[0]].strip()
        return is_header or not self.chat.text[min(stop, marked) : max(stop, marked)].strip()


def _kind(weight: float) -> tuple[bool, bool]:
    """Return whether a weight is trained, and whether it is attended."""
    return weight > 0, weight >= 0


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:39]}…{text[-40:]}"


# Comparison of two derivations of a mask, before anything is tokenized.

Weighted = tuple[int, int, float]
"""Characters (start, end) of a render, and their loss weight."""


def disagreement(derived: Derived, text: str, trained: Iterable[Weighted]) -> str | None:
    """Return the first difference between a derivation and a build of the same conversation, in render or trained text, white
    space included: the proof of the tokens decides whose it is. `None` where they agree."""
    if text != derived.text:
        return first_difference(text, derived.text)
    built, derived_steps = list(trained), [(stretch.start, stretch.end, stretch.weight) for stretch in derived.expected]
    edges = sorted({edge for start, end, _ in (*built, *derived_steps) for edge in (start, end)})
    next_of = [0, 0]
    for start, end in pairwise(edges):
        weights = []
        for index, listed in enumerate((built, derived_steps)):
            while next_of[index] < len(listed) and listed[next_of[index]][1] <= start:
                next_of[index] += 1
            at = next_of[index]
            weights.append(listed[at][2] if at < len(listed) and listed[at][0] <= start else 0.0)
        if weights[0] != weights[1]:
            return f"{text[start:end][:80]!r} has loss weight {weights[0]:g} by its marks and {weights[1]:g} by its frames"
    return None
