"""What must be trained of a conversation, derived a second time: from the source and from a render that is taken apart, without marks and without
any code that made the mask.

`rebuilt` says which characters of a render are the source's, `turn_borders` where a turn's answer begins and what ends it. Here the policy of the
configuration gives each of these stretches its weight.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.placed import with_placeholders
from prep_assets.proofs.rebuilt import Rebuilder, Rebuilt
from prep_assets.proofs.stretches import (
    Derived,
    Expected,
    MaskOptions,
    Part,
    Prompt,
    Range,
    only_last,
    pattern,
    stop_weights,
    stretches,
    weight_of,
)
from prep_assets.proofs.turn_borders import Block, Borders, blocks_of
from prep_assets.proofs.untemplated import joined, untemplated
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, SYSTEM, TEXT, THINKING, TOOL, TOOL_CALL, Region, Sample

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

__all__ = ["Derived", "Expected", "MaskOptions", "derive", "expected_texts"]
_END_OF_THINKING = re.compile(r"</think>\s*")


def expected_texts(sample: Sample, options: MaskOptions, template: ChatTemplate) -> tuple[Expected, ...]:
    """The stretches of a sample that must be trained, in order.

    Raises:
        CheckFailed: the template's render cannot be taken apart, so that nothing is proven.
    """
    return derive(sample, options, template).expected


def derive(
    sample: Sample,
    options: MaskOptions,
    template: ChatTemplate,
    *,
    prompted: bool = False,
    typed_controls: bool = False,
    rendered: str | None = None,
) -> Derived:
    """The render of a sample, and what must be trained of it.

    Args:
        prompted: it ends with what a model continues from.
        typed_controls: control tokens that are typed in the source's texts are control tokens.
        rendered: the render that a build has just made; checks leave it out, so that it is made anew. That of a sample with images always is.

    Raises:
        CheckFailed: the template's render cannot be taken apart, so that nothing is proven.
    """
    images = [region for turn in sample.turns for region in turn.regions if region.kind == IMAGE and not region.drop]
    if all(turn.role in (DOCUMENT, PROMPT, COMPLETION) for turn in sample.turns):
        derived = untemplated(sample, options, template)
    else:
        rebuilder, borders = _known(template)
        rebuilt = rebuilder.rebuild(sample, prompted=prompted, rendered=None if images else rendered)
        _check_images_in_order(rebuilt, images)
        derived = _Derivation(rebuilt, borders, options).derived()
    if images:
        derived = with_placeholders(derived, images, template)
    if not typed_controls or not derived.typed:
        return derived
    return replace(derived, controls=tuple(found.span() for found in pattern(template).finditer(derived.text)), typed=0)


def _check_images_in_order(chat: Rebuilt, images: Sequence[Region]) -> None:
    """Stop where images of different sizes may stand in another order than in the source."""
    turns = [chat.slotted.slots[place.slot].turn for place in chat.places]
    if turns != sorted(turns) and len({region.placeholder for region in images}) > 1:
        raise CheckFailed(f"template {chat.chat.template.name} writes turns in another order, so which image stands where is not proven")


@bounded_cache("rebuilders", 1, key=lambda template: template.hash)
def _known(template: ChatTemplate) -> tuple[Rebuilder, Borders]:
    rebuilder = Rebuilder(template)
    return rebuilder, Borders(rebuilder)


# -- chats ------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Derivation:
    chat: Rebuilt
    borders: Borders
    options: MaskOptions

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
        if self.options.train_turns == "last":
            only_last(turns)
        shortenable = self._shortenable(blocks, turns)
        steps: list[tuple[int, int, float]] = []
        stops: list[Range] = []
        before = 0
        weights = stop_weights(turns, self.options.train_on_eos)
        for block, parts, start, end, weight in zip(blocks, turns, starts, ends, weights, strict=True):
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
                steps.append((last if parts[-1].weight > 0 else end[0], end[1], weight))
                stops.append(end)
            before = end[1] if end is not None else last
        return Derived(
            self.chat.text, stretches(self.chat.text, steps, stops), *self._controls(), tuple(shortenable), self.chat.tagged is not None
        )

    def _parts(self, block: Block) -> list[Part]:
        """The texts of a turn, each region for itself, and what the template writes between them."""
        parts: list[Part] = []
        trail = 0
        for number in block.places:
            own = self._regions(block, number)
            if parts:  # white space of a text's own stays with it
                parts[-1].end += trail
                own[0].start -= self.chat.own_margins(number, own[0].region)[0]
                self._between(block, parts[-1], own[0])
            trail = self.chat.own_margins(number, own[-1].region)[1]
            parts += own
        return parts

    def _regions(self, block: Block, number: int) -> list[Part]:
        """The regions of which a text is made, without the white space around its words."""
        turn = self.chat.chat.sample.turns[block.turn]
        place, slot = self.chat.places[number], self.chat.slotted.slots[self.chat.places[number].slot]
        words = slot.text.strip()
        literal = self.chat.text[place.start : place.end] == words
        lead = len(slot.text) - len(slot.text.lstrip())
        own: list[Part] = []
        for at, start, end in slot.parts:
            region = turn.regions[at]
            kind = region.kind if region.kind in (THINKING, TOOL_CALL, IMAGE) else TEXT
            low, high = (min(max(place.start + edge - lead, place.start), place.end) for edge in (start, end))
            if high > low:
                own.append(Part(low, high, kind, at, weight_of(region, turn.role, self.options)))
        if not literal:  # it is written otherwise, so that nothing in it can be told apart
            if len({part.weight for part in own}) > 1:
                raise CheckFailed(f"turn {block.turn} is written with escapes, and not all of it has one weight; nothing is proven")
            own = [Part(place.start, place.end, own[0].kind, own[0].region, own[0].weight)]
        return own

    def _between(self, block: Block, left: Part, right: Part) -> None:
        """What stands between two texts of a turn: tags of reasoning are the reasoning's, all around tool calls is theirs."""
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
        """Where what a model generates for a turn begins; for other turns, where their text does, with white space of its own."""
        block = blocks[number]
        first = self.chat.places[block.places[0]]
        if block.role == ASSISTANT:
            return self.real(self.borders.start(self.chat, blocks[number - 1] if number else None, block))
        return first.start - self._margins(block.places[0])[0]

    def _margins(self, place: int) -> tuple[int, int]:
        """How much of the white space around a text's words is its own in the render."""
        return self.chat.margins.get(self.chat.places[place].slot, (0, 0))

    def _stop(self, blocks: Sequence[Block], number: int) -> Range | None:
        found = self.borders.stop(self.chat, blocks[number], blocks[number + 1] if number + 1 < len(blocks) else None)
        return (self.real(found[0]), self.real(found[1])) if found else None

    def _close(self, block: Block, parts: list[Part], end: Range | None) -> None:
        """Brackets of a tool call and tags of reasoning that end a turn are theirs."""
        if parts[-1].kind not in (THINKING, TOOL_CALL):
            return
        if end is None:
            if any(part.weight for part in parts):
                raise CheckFailed(f"no control token ends turn {block.turn} after its {parts[-1].kind}, so nothing is proven")
            return
        parts[-1].end = end[0]

    def real(self, invented: int) -> int:
        """The place in the render of a place between two texts of the render with invented words."""
        before = bisect_right(self.chat.invented, invented, key=lambda place: place.end) - 1
        return invented if before < 0 else self.chat.places[before].end + invented - self.chat.invented[before].end

    def _controls(self) -> tuple[tuple[Range, ...], int]:
        """Control tokens that the template wrote, and how many the texts of the source hold. What stands for an image is the template's."""
        text, own, last = self.chat.text, list[Range](), 0
        for place in self.chat.places:
            slot = self.chat.slotted.slots[place.slot]
            regions = self.chat.chat.sample.turns[slot.turn].regions
            lead = len(slot.text) - len(slot.text.lstrip())
            own += self.borders.controls(text, last, place.start)
            for at, start, end in slot.parts:
                if regions[at].kind == IMAGE:
                    own += self.borders.controls(text, place.start + start - lead, place.start + end - lead)
            last = place.end
        own += self.borders.controls(text, last, len(text))
        return tuple(own), len(self.borders.controls(text, 0, len(text))) - len(own)

    def _shortenable(self, blocks: Sequence[Block], turns: Sequence[Sequence[Part]]) -> list[Prompt]:
        """The untrained texts as the source has them, with what is left of the white space at their ends. Those of a turn that stand end to end are
        one."""
        found: list[Prompt] = []
        for block, parts in zip(blocks, turns, strict=True):
            own: list[Range] = []
            trained = {part.region for part in parts if part.weight}
            for number in block.places if block.role != SYSTEM else ():
                for part in self._regions(block, number):
                    if part.kind != TEXT or part.region in trained:
                        continue
                    lead, trail = self.chat.own_margins(number, part.region)
                    own.append((part.start - lead, part.end + trail))
            found += joined(own, block.role)
        return found

    def _check_order(self, trained: Sequence[Block], named: str) -> None:
        """Stop where the template moves turns that are trained or not attended, such as a system turn into the last user turn."""
        if [block.turn for block in trained] != sorted(block.turn for block in trained):
            raise CheckFailed(f"template {self.chat.chat.template.name} writes {named} turns in another order, so nothing is proven")

    def _check_tags(self, blocks: Sequence[Block], starts: Sequence[int], ends: Sequence[Range | None]) -> None:
        """Where the template itself marks what is generated, that must be the answers: from where a model goes on, or from a part of what it is given to go
        on from, to the stop. White space may differ, and a control token that ends a turn and is the header of what follows as well."""
        if self.chat.tagged is None:
            return
        text, tagged = self.chat.text, self.chat.tagged
        for number, (block, start, end) in enumerate(zip(blocks, starts, ends, strict=True)):
            if block.role != ASSISTANT:
                continue
            first, last = self.chat.places[block.places[0]].start, self.chat.places[block.places[-1]].end
            low = self.real(blocks[number - 1].end) if number else 0
            mine = [tag for tag in tagged if tag[0] <= last and tag[1] >= first and tag[0] >= low]
            begins = mine and self._begins_alike(mine[0][0], min(start, first), first, number > 0 and blocks[number - 1].role == TOOL)
            if not (begins and self._ends_alike(mine[-1][1], end, last)):
                marked = [_shortened(text[slice(*tag)]) for tag in mine]
                template = self.chat.chat.template
                raise CheckFailed(
                    f"{'the training_template of ' if template.training else ''}template {template.name} marks {marked} of turn {block.turn} as generated, "
                    f"which is {_shortened(text[min(start, first) : end[1] if end else last])!r}"
                )

    def _begins_alike(self, marked: int, start: int, first: int, after_tool: bool) -> bool:
        """Whether tags begin where an answer does, or within the prompt that it answers, or enclose the control tokens that end what a tool gave, which
        TRL's variant for DeepSeek V3 does; `first` is the first of its own texts."""
        header = self.chat.text[marked:start].strip()
        ends_tool = after_tool and not pattern(self.chat.chat.template).sub("", header).strip()
        return marked <= first and not self.chat.text[start:marked].strip() and (header in self.borders.lone_prompt or ends_tool)

    def _ends_alike(self, marked: int, end: Range | None, last: int) -> bool:
        """Whether tags end where an answer does; `last` is the end of its own texts."""
        stop = end[1] if end else last
        is_header = end is not None and marked <= end[0] and not self.chat.text[marked : end[0]].strip()
        return is_header or not self.chat.text[min(stop, marked) : max(stop, marked)].strip()


def _kind(weight: float) -> tuple[bool, bool]:
    """Whether that is trained, and whether it is attended."""
    return weight > 0, weight >= 0


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:39]}…{text[-40:]}"
