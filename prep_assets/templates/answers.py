"""A conversation as one example for each of its answers.

Many templates leave reasoning out of history: a model sees its last thoughts only. Rendered as a whole, such a conversation trains the reasoning of
its last answer and loses all other. So each answer ends an example of its own, before which history stands as the model will see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prep_assets.samples import ASSISTANT, THINKING, Region, Sample, Turn
from prep_assets.templates.rendering import Rendered

Weight = Callable[[str, Region], float]
"""Loss weight of a region, by the role of its turn."""


def left_out(sample: Sample, rendered: Rendered) -> int:
    """How many turns of a rendered conversation lost their reasoning."""
    shown = {span.turn for span in rendered.spans if span.region.kind == THINKING}
    thinking = [number for number, turn in enumerate(sample.turns) if any(_thinks(region) for region in turn.regions)]
    return len(set(thinking) - shown)


def _thinks(region: Region) -> bool:
    return region.kind == THINKING and not region.drop and bool(region.text.strip())


def one_per_answer(sample: Sample, weight: Weight) -> tuple[Sample, ...]:
    """One example for each answer that is trained: the turns up to it, of which only those after the answer before may be trained.

    What follows the last of them would take its reasoning out of the render. So it is left out, or, where any of it is trained, one example more.
    """

    def is_trained(turn: Turn) -> bool:
        return any(weight(turn.role, region) for region in turn.regions if not region.drop)

    ends = [number for number, turn in enumerate(sample.turns, 1) if turn.role == ASSISTANT and is_trained(turn)]
    if not ends or any(map(is_trained, sample.turns[ends[-1] :])):
        ends.append(len(sample.turns))
    starts = [0, *ends[:-1]]
    return tuple(
        replace(sample, turns=(*map(_history, sample.turns[:start]), *sample.turns[start:end]))
        for start, end in zip(starts, ends, strict=True)
    )


def _history(turn: Turn) -> Turn:
    return replace(turn, regions=tuple(replace(region, loss_weight=0.0) for region in turn.regions))
