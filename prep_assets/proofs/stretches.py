"""What is trained of a conversation and what is not attended, and the policies that give its texts their loss weights: for the second derivation of masks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prep_assets.samples import ASSISTANT, COMPLETION, IMAGE, THINKING, TOOL_CALL, UNATTENDED, Region

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

Range = tuple[int, int]
NOTHING = "(?!)"
"""A pattern that matches nothing."""
Prompt = tuple[int, int, str]
"""Where an untrained text starts and ends, and the role of its turn."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One unbroken stretch of tokens that are trained with one weight, or not attended.

    Attributes:
        text: what it must decode to, white space at both ends aside: a token may hold some of the template's.
        weight: the loss weight of its tokens; `UNATTENDED` of those that are not attended.
        stop: the control tokens at its end that end a turn, ``""`` where it ends with none.
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


@dataclass(frozen=True, slots=True)
class Derived:
    """What a conversation must have become.

    Attributes:
        text: its render.
        expected: what of it must be trained, and what must not be attended, in order.
        controls: characters of the control tokens that the template wrote, ascending.
        typed: how many control tokens the source's own texts hold.
        shortenable: the untrained texts that truncation may shorten, by characters, ascending.
        tagged: whether tags in the template, or in its training variant, say the same.
    """

    text: str
    expected: tuple[Expected, ...]
    controls: tuple[Range, ...]
    typed: int
    shortenable: tuple[Prompt, ...]
    tagged: bool = False


@dataclass(slots=True)
class Part:
    """A stretch of one turn. `kind` is `TEXT`, `THINKING`, `TOOL_CALL` or `IMAGE`; `region` is the number of its region in the turn."""

    start: int
    end: int
    kind: str
    region: int
    weight: float


def pattern(template: ChatTemplate) -> re.Pattern[str]:
    """Matches any control token, the longest first; nothing where there is none."""
    return re.compile("|".join(map(re.escape, sorted(template.control, key=lambda text: (-len(text), text)))) or NOTHING)


def weight_of(region: Region, role: str, options: MaskOptions) -> float:
    """The weight of a region; an image's placeholder is never trained, nor is what is not attended."""
    if not region.attend:
        return UNATTENDED
    if region.kind == IMAGE or (region.kind == THINKING and not options.train_thinking):
        return 0.0
    if region.kind == TOOL_CALL and not options.train_tool_calls:
        return 0.0
    if region.loss_weight is not None:
        return float(region.loss_weight)
    return 1.0 if options.mask.get(role, options.mask_default) == "train" else 0.0


def only_last(turns: Sequence[Sequence[Part]]) -> None:
    """Take the loss weight of all turns but the last that has any."""
    trained = [parts for parts in turns if any(part.weight > 0 for part in parts)]
    for part in (part for parts in trained[:-1] for part in parts):
        part.weight = min(part.weight, 0.0)


def stop_weights(turns: Sequence[Sequence[Part]], train_on_eos: str) -> list[float]:
    """The loss weight of what ends each turn, from that of its last text; it is attended in any case."""
    weights = [max(0.0, next((part.weight for part in reversed(parts) if part.kind != IMAGE), 0.0)) for parts in turns]
    if train_on_eos == "all":
        return [weight or 1.0 for weight in weights]
    if train_on_eos == "turn":
        return weights
    last = [number for number, weight in enumerate(weights) if weight][-1:] if train_on_eos == "last" else []
    return [weight if number in last else 0.0 for number, weight in enumerate(weights)]


def stretches(text: str, steps: Sequence[tuple[int, int, float]], stops: Sequence[Range]) -> tuple[Expected, ...]:
    """Neighbouring stretches of one weight as one; those without any are left out."""
    found: list[tuple[int, int, float]] = []
    for start, end, weight in steps:
        if not weight or end <= start:
            continue
        if found and found[-1][1:] == (start, weight):
            start = found.pop()[0]
        found.append((start, end, weight))
    ends = {end: text[start:end] for start, end in stops}
    return tuple(Expected(text[start:end], weight, ends.get(end, ""), start, end) for start, end, weight in found)
