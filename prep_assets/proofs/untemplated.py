"""What must be trained of turns that no template renders: documents, prompts and completions, which stand end to end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from prep_assets.proofs.stretches import Derived, MaskOptions, Part, Prompt, Range, only_last, pattern, stop_weights, stretches, weight_of
from prep_assets.samples import IMAGE, PROMPT, TEXT, THINKING, TOOL_CALL, Sample

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate


def untemplated(sample: Sample, options: MaskOptions, template: ChatTemplate) -> Derived:
    """Turns that stand end to end; the end-of-text token ends each completion and document."""
    eos = template.special.get("eos_token", "")
    control = pattern(template)
    text = ""
    turns: list[list[Part]] = []
    ends: list[Range] = []
    for turn in sample.turns:
        parts: list[Part] = []
        for number, region in enumerate(turn.regions):
            if not region.drop:
                own = template.image_token if region.kind == IMAGE else region.text
                kind = region.kind if region.kind in (THINKING, TOOL_CALL, IMAGE) else TEXT
                parts.append(Part(len(text), len(text) + len(own), kind, number, weight_of(region, turn.role, options)))
                text += own
        turns.append(parts)
        ends.append((len(text), len(text) + (len(eos) if turn.role != PROMPT else 0)))
        text = text if turn.role == PROMPT else text + eos
    if options.train_turns == "last":
        only_last(turns)
    steps: list[tuple[int, int, float]] = []
    for parts, end, weight in zip(turns, ends, stop_weights(turns, options.train_on_eos), strict=True):
        steps += [*((part.start, part.end, part.weight) for part in parts), (*end, weight if parts else 0.0)]
    wrote = [end for end in ends if control.fullmatch(text, *end)]
    images = [(part.start, part.end) for parts in turns for part in parts if part.kind == IMAGE]
    for image in images:
        wrote += [found.span() for found in control.finditer(text, *image)]
    total = sum(1 for _ in control.finditer(text))
    shortenable = [
        joined(((part.start, part.end) for part in parts if not part.weight and part.kind == TEXT), turn.role)
        for turn, parts in zip(sample.turns, turns, strict=True)
    ]
    return Derived(text, stretches(text, steps, ends), tuple(sorted(wrote)), max(0, total - len(wrote)), tuple(chain(*shortenable)))


def joined(ranges: Iterable[Range], role: str) -> list[Prompt]:
    """Texts of a turn; those that stand end to end are one."""
    found: list[Prompt] = []
    for start, end in ranges:
        found.append((found.pop()[0] if found and found[-1][1] == start else start, end, role))
    return found
