"""A second reading of reasoning that stands in the text of an answer, for checks. It shares no code with the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prep_assets.samples import ASSISTANT, IMAGE, THINKING, TOOL_CALL, Group, Sample, Turn


def read_again(sample: Sample, options: Mapping[str, Any], *, shown: bool) -> Sample:
    """The sample as a build with the options ``reasoning`` and ``reasoning_tags`` must have rendered it.

    It is asked about stored records only, so whatever a build refuses is not told apart here.

    Args:
        shown: whether the template writes reasoning.
    """
    return replace(sample, turns=_turns(sample.turns, options, shown))


def group_again(group: Group, options: Mapping[str, Any], *, shown: bool) -> Group:
    """The same of a group: its prompt and each of its responses."""
    responses = tuple(_turns(response, options, shown) for response in group.responses)
    return replace(group, prompt=_turns(group.prompt, options, shown), responses=responses)


def _turns(turns: Sequence[Turn], options: Mapping[str, Any], shown: bool) -> tuple[Turn, ...]:
    moves = shown and options["reasoning"] == "auto"
    return tuple(_again(turn, options["reasoning_tags"], moves) for turn in turns)


def _again(turn: Turn, tags: Sequence[Sequence[str]], moves: bool) -> Turn:
    if turn.role != ASSISTANT:
        return turn
    for position, region in enumerate(turn.regions):
        if region.drop or region.kind in (THINKING, TOOL_CALL, IMAGE):
            continue
        text = region.text.lstrip()
        for opening, closing in tags:
            body, closed, answer = text.removeprefix(opening).partition(closing)
            if text.startswith(opening) and closed and opening not in body + answer and closing not in answer:
                others = [each for i, each in enumerate(turn.regions) if i != position]
                given = any(each.kind == THINKING and not each.drop and each.text.strip() for each in others)
                if not moves:
                    return replace(turn, regions=tuple(each for each in turn.regions if each.kind != THINKING)) if given else turn
                parts = [] if given or not body.strip() else [replace(region, kind=THINKING, text=body.strip())]
                parts += [replace(region, text=answer.lstrip())] if answer.strip() else []
                return replace(turn, regions=(*turn.regions[:position], *parts, *turn.regions[position + 1 :]))
        return turn
    return turn
