"""A second derivation of the examples that one conversation becomes. It shares no code with the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL, Region, Sample, Turn

Render = Callable[[Sample], str]
_WORD = "zqreason{}zq"


def examples_again(sample: Sample, options: Mapping[str, Any], render: Render) -> list[Sample]:
    """The examples that a build with ``expand: turns`` must have made of a conversation: itself, where no reasoning is lost in its render.

    Args:
        options: ``mask``, ``mask_default``, ``train_thinking`` and ``train_tool_calls``.
        render: the text of a conversation.
    """
    if _shows_all(sample, render):
        return [sample]
    trained = [any(_trained(region, turn.role, options) for region in turn.regions) for turn in sample.turns]
    found: list[Sample] = []
    begin = 0
    for last, turn in enumerate(sample.turns):
        ends_here = turn.role == ASSISTANT and trained[last]
        if ends_here or (last == len(trained) - 1 and (any(trained[begin:]) or not found)):
            found.append(replace(sample, turns=tuple(_masked(t) if i < begin else t for i, t in enumerate(sample.turns[: last + 1]))))
            begin = last + 1
    return found


def _trained(region: Region, role: str, options: Mapping[str, Any]) -> bool:
    if region.drop or region.kind == IMAGE:
        return False
    off = {THINKING: not options["train_thinking"], TOOL_CALL: not options["train_tool_calls"]}
    if off.get(region.kind):
        return False
    return options["mask"].get(role, options["mask_default"]) == "train" if region.loss_weight is None else region.loss_weight > 0


def _masked(turn: Turn) -> Turn:
    return replace(turn, regions=tuple(replace(region, loss_weight=0.0) for region in turn.regions))


def _shows_all(sample: Sample, render: Render) -> bool:
    """Whether the render of the conversation, with a word of ours for the reasoning of each turn, has all these words."""
    words: list[str] = []

    def renamed(number: int, turn: Turn) -> Turn:
        thoughts = [region for region in turn.regions if region.kind == THINKING and not region.drop and region.text.strip()]
        if not thoughts:
            return turn
        words.append(_WORD.format(number))
        return replace(turn, regions=tuple(replace(r, text=words[-1]) if r in thoughts else r for r in turn.regions))

    text = render(replace(sample, turns=tuple(renamed(i, turn) for i, turn in enumerate(sample.turns))))
    return all(word in text for word in words)
