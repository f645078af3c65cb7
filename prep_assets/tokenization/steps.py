"""The loss weight of a render as a step function over its characters."""

from __future__ import annotations

from itertools import pairwise

from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.policy import MaskPolicy

Step = tuple[int, float]
"""A character, and the weight from there on."""


def steps(rendered: Rendered, policy: MaskPolicy) -> list[Step]:
    """Where the loss weight of a render changes, ascending, the first at 0."""
    found: list[Step] = [(0, 0.0)]
    spans = rendered.spans
    weights = policy.weights(spans)
    stops = policy.stop_weights(spans, weights)
    ends = {stop.turn: (stop.start, stop.end) for stop in rendered.stops}
    turn_end = 0
    for i, (span, weight) in enumerate(zip(spans, weights, strict=True)):
        starts_turn = i == 0 or spans[i - 1].turn != span.turn
        start = turn_end if policy.headers and starts_turn and weight else span.start
        found += [(start, weight), (span.end, 0.0)]
        if i + 1 == len(spans) or spans[i + 1].turn != span.turn:
            stop, turn_end = ends.get(span.turn, (span.end, span.end))
            if stops.get(span.turn) and turn_end > stop:
                # white space before the stop token is generated with the text, so it is trained where the text is
                found[-1] = (span.end if weight else stop, stops[span.turn])
                found.append((turn_end, 0.0))
    return _changes(found)


def _changes(found: list[Step]) -> list[Step]:
    """The same step function with a step only where its value changes; of several steps at one place the last counts."""
    changes: list[Step] = []
    for number, (position, weight) in enumerate(found):
        if number + 1 < len(found) and found[number + 1][0] == position:
            continue
        if not changes or changes[-1][1] != weight:
            changes.append((position, weight))
    return changes


def trained(rendered: Rendered, policy: MaskPolicy) -> list[tuple[int, int, float]]:
    """Characters (start, end) of a render that are trained, and their loss weight, ascending."""
    found = [*steps(rendered, policy), (len(rendered.text), 0.0)]
    return [(start, end, weight) for (start, weight), (end, _) in pairwise(found) if weight and end > start]
