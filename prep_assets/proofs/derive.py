"""Second derivation of what must be trained of a conversation, from its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, structs

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.rebuilt import Block, Range, Rebuilder, Rebuilt, first_difference
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
    """Return a pattern that matches any control token, each before those that it begins with; without control tokens, nothing."""
    return re.compile("|".join(map(re.escape, sorted(template.control, reverse=True))) or NOTHING)


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
    policy = MaskOptions.of(options)
    trained = [any(_trained(region, turn.role, policy) for region in turn.regions) for turn in sample.turns]
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


def _trained(region: Region, role: str, options: MaskOptions) -> bool:
    """Whether a region is trained, apart from attention."""
    return not region.drop and weight_of(changed(region, attend=True), role, options) > 0


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
        chat = rebuilder_of(template).rebuild(sample, prompted=prompted, rendered=None if images else rendered)
        turns = [chat.slots[place.slot].turn for place in chat.places]
        if turns != sorted(turns) and len({region.placeholder for region in images}) > 1:
            raise CheckFailed(f"template {template.name} writes turns in another order, so which image stands where is not proven")
        derived = _Derivation(chat, template, options).derived(prompts=prompts)
    if images:
        derived = with_placeholders(derived, images, template)
    if not typed_controls or not derived.typed:
        return derived
    return replace(derived, controls=tuple(match.span() for match in pattern(template).finditer(derived.text)), typed=0)


@bounded_cache("rebuilders", 1, key=lambda template: (template.hash, template.control))
def rebuilder_of(template: ChatTemplate) -> Rebuilder:
    """Return what takes renders of a template apart, with the renders of invented words that it has made."""
    return Rebuilder(template)


class _Derivation(Struct, frozen=True):
    chat: Rebuilt
    template: ChatTemplate
    options: MaskOptions

    def derived(self, *, prompts: bool) -> Derived:
        chat, options, shape = self.chat, self.options, self.chat.shape
        blocks, borders = shape.blocks, shape.borders
        regions = [[self._regions(block, number) for number in block.places] for block in blocks]
        turns = [self._joined(block, parts) for block, parts in zip(blocks, regions, strict=True)]
        self._check_order(blocks, turns)
        # nothing else says where turns begin that are not generated
        starts = [parts[0].start if border.start is None else chat.real(border.start) for parts, border in zip(turns, borders, strict=True)]
        stops = [border.stop and (chat.real(border.stop[0]), chat.real(border.stop[1])) for border in borders]
        limit_turns(turns, options)
        self._check_tags(blocks, turns, starts, stops, prompts=prompts)
        steps, before = list[tuple[int, int, float]](), 0
        weights = stop_weights(turns, options.train_on_eos)
        for block, after, parts, start, stop, weight in zip(blocks, [*blocks, None][1:], turns, starts, stops, weights, strict=True):
            first, last = parts[0], parts[-1]
            first.start = before if options.train_headers and first.weight > 0 else min(start, first.start)
            place = chat.places[block.places[-1]]
            last.end = place.end + shape.margins.get(place.slot, (0, 0))[1] * (last.kind == TEXT)
            if last.kind in (THINKING, TOOL_CALL) and stop is not None:
                last.end = stop[0]  # with what closes it
            elif last.kind in (THINKING, TOOL_CALL) and any(part.weight for part in parts):
                raise CheckFailed(f"no control token ends turn {block.turn} after its {last.kind}, so nothing is proven")
            steps += [(part.start, part.end, part.weight) for part in parts]
            before = stop[1] if stop else last.end
            if stop is None and options.train_headers and after and shape.rebuilder.prompt:
                before = max(before, chat.real(shape.closed(block, after)))
            if stop is not None:
                # white space before it is generated with the text
                follows = last.weight > 0 and not chat.text[last.end : stop[0]].strip()
                steps.append((last.end if follows else stop[0], stop[1], weight))
        answers = [border.by_prefix for block, border in zip(blocks, borders, strict=True) if block.role == ASSISTANT]
        asked = [block.turn for block, parts in zip(blocks, turns, strict=True) if block.role == ASSISTANT and _is_trained(parts)]
        controls = self._controls()
        return Derived(
            chat.text,
            stretches(chat.text, steps, [stop for stop in stops if stop]),
            controls,
            len(shape.rebuilder.tokens(chat.text)) - len(controls),
            tuple(chain.from_iterable(map(self._shortenable, blocks, regions, turns))),
            chat.tagged is not None,
            bool(answers) and all(answers),
            tuple([turn for turn in asked if turn and prompts and not chat.served(turn)]),
        )

    def _regions(self, block: Block, number: int) -> list[Part]:
        """Return the regions of a text, each with its own white space as far as the template kept it; no blank ones."""
        place = self.chat.places[number]
        slot, (lead, trail) = self.chat.slots[place.slot], self.chat.shape.margins.get(place.slot, (0, 0))
        words = slot.text.strip()
        first = len(slot.text) - len(slot.text.lstrip())
        last = first + len(words)
        regions, parts = self.chat.sample.turns[block.turn].regions, list[Part]()
        for at, start, end in slot.parts:
            if max(start, first) < min(end, last):
                kind = regions[at].kind if regions[at].kind in (THINKING, TOOL_CALL, *MEDIA) else TEXT
                low, high = max(start, first - lead), min(end, last + trail)
                weight = weight_of(regions[at], block.role, self.options)
                parts.append(Part(place.start + low - first, place.start + high - first, kind, at, weight))
        if self.chat.text[place.start : place.end] != words:  # written with escapes, so its regions cannot be located
            if len({part.weight for part in parts}) > 1:
                raise CheckFailed(f"turn {block.turn} is written with escapes, and not all of it has one weight; nothing is proven")
            end = place.end + parts[-1].end - place.start - len(words)
            parts = [Part(parts[0].start, end, parts[0].kind, parts[0].region, parts[0].weight)]
        return parts

    def _joined(self, block: Block, texts: Sequence[Sequence[Part]]) -> list[Part]:
        """Return the parts of a turn. What the template writes between two texts is a part of the reasoning, or of the calls, beside it."""
        parts: list[Part] = []
        for right in [structs.replace(part) for regions in texts for part in regions]:
            left = parts[-1] if parts else None
            parts.append(right)
            if left is None or left.end >= right.start:
                continue
            if right.kind == TOOL_CALL:
                if left.kind == TOOL_CALL and left.region != right.region and _kind(left.weight) != _kind(right.weight):
                    raise CheckFailed(
                        f"of several tool calls in turn {block.turn} some are trained and some are not; where one ends is not proven"
                    )
                closing = _END_OF_THINKING.search(self.chat.text, left.end, right.start) if left.kind == THINKING else None
                left.end = right.start = closing.end() if closing else left.end
            elif left.kind in (THINKING, TOOL_CALL):
                left.end = right.start
        return parts

    def _controls(self) -> tuple[Range, ...]:
        """Return the control tokens outside of texts: the template's. Image placeholders are the template's as well."""
        chat, controls, last = self.chat, list[Range](), 0
        tokens = chat.shape.rebuilder.tokens
        for place in chat.places:
            slot = chat.slots[place.slot]
            lead = len(slot.text) - len(slot.text.lstrip())
            controls += tokens(chat.text, last, place.start)
            for at, start, end in slot.parts:
                if chat.sample.turns[slot.turn].regions[at].kind in MEDIA:
                    controls += tokens(chat.text, place.start + start - lead, place.start + end - lead)
            last = place.end
        return (*controls, *tokens(chat.text, last))

    def _shortenable(self, block: Block, texts: Sequence[Sequence[Part]], parts: Sequence[Part]) -> list[Prompt]:
        """Return the untrained texts of a turn with their white space. Those that stand end to end are joined."""
        trained = {part.region for part in parts if part.weight}
        untrained = [part for each in texts for part in each if part.kind == TEXT and part.region not in trained]
        return joined(((part.start, part.end) for part in untrained if block.role != SYSTEM), block.role)

    def _check_order(self, blocks: Sequence[Block], turns: Sequence[Sequence[Part]]) -> None:
        """Raise where the template moves turns that are trained or not attended, such as a system turn into the last user turn."""
        moved = [block.turn for block, parts in zip(blocks, turns, strict=True) if any(part.weight for part in parts)]
        if moved != sorted(moved):
            named = "trained or unattended" if any(part.weight < 0 for parts in turns for part in parts) else "trained"
            raise CheckFailed(f"template {self.template.name} writes {named} turns in another order, so nothing is proven")

    def _check_tags(
        self,
        blocks: Sequence[Block],
        turns: Sequence[Sequence[Part]],
        starts: Sequence[int],
        stops: Sequence[Range | None],
        *,
        prompts: bool,
    ) -> None:
        """Check that what the template itself marks as generated is the answers: from the end of the generation prompt, or from inside
        it, to the stop. White space may differ, and so may a control token that both ends a turn and opens the next. Of the marks of a renderer those of
        trained answers count; with `prompts` answers behind a prompt that no server sends are counted, and only without it refused for their marks."""
        text, places, prompt = self.chat.text, self.chat.places, self.chat.shape.rebuilder.prompt
        around = zip([None, *blocks], blocks, [*blocks[1:], None], turns, starts, stops, strict=False)
        by_code = self.template.renderer is not None
        for before, block, after, parts, begins, stop in around if self.chat.tagged is not None else ():
            if block.role != ASSISTANT or (by_code and not (_is_trained(parts) and (not prompts or self.chat.served(block.turn)))):
                continue
            first, last = places[block.places[0]].start, places[block.places[-1]].end
            start, end = min(begins, first), stop[1] if stop else last
            tags = [
                tag
                for tag in self.chat.tagged or ()
                if tag[0] <= last
                and tag[1] >= first
                and (before is None or tag[0] >= places[before.places[-1]].end)
                # where two answers touch, a tag that begins there is of the second
                and (after is None or tag[0] < places[after.places[0]].start)
            ]
            good = False
            if tags:
                opened, ended = tags[0][0], tags[-1][1]
                header = text[opened:start].strip()
                # TRL's variant for DeepSeek V3 encloses the control tokens that end a tool's result
                ends_tool = before is not None and before.role == TOOL and not pattern(self.template).sub("", header).strip()
                good = opened <= first and not text[start:opened].strip() and (header in prompt or ends_tool)
                is_header = stop is not None and ended <= stop[0] and not text[ended : stop[0]].strip()
                good &= is_header or not text[min(end, ended) : max(end, ended)].strip()
            if not good:
                marked = [_shortened(text[slice(*tag)]) for tag in tags]
                unserved = by_code and not self.chat.served(block.turn)
                raise CheckFailed(
                    f"{'the training_template of ' if self.template.training else ''}template {self.template.name} marks {marked} of turn {block.turn} "
                    f"as generated, which is {_shortened(text[start:end])!r}"
                    f"{'. No server sends the prompt before it: set expand: turns, or train_turns: last' if unserved else ''}"
                )


def _is_trained(parts: Sequence[Part]) -> bool:
    return any(part.weight > 0 for part in parts)


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
