"""The turns of a scored group: each response after its prompt, with weights that train the answer alone."""

from __future__ import annotations

from dataclasses import replace

from prep_assets.assets.writing.images import refuse_images
from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, Group, Sample, Turn


def conversations(group: Group) -> tuple[Sample, ...]:
    """The prompt with each response: the prompt's weights are 0, those of an answer 1, where the source does not say otherwise.

    Raises:
        Refused: an image; a weight that is neither 0 nor 1, which a mask cannot hold.
    """
    refuse_images((*group.prompt, *(turn for response in group.responses for turn in response)), "group")
    prompt = tuple(_weighted(turn, 0.0) for turn in group.prompt)
    return tuple(conversation_of(group, (*prompt, *map(_answer, response))) for response in group.responses)


def conversation_of(group: Group, turns: tuple[Turn, ...]) -> Sample:
    """Turns of a group with what the whole group has: tools, documents, variables of the template."""
    return Sample(turns, group.tools, documents=group.documents, template_options=group.template_options)


def _answer(turn: Turn) -> Turn:
    if turn.role not in (ASSISTANT, COMPLETION):
        return _weighted(turn, 0.0)
    weights = [1.0 if region.loss_weight is None else region.loss_weight for region in turn.regions]
    if not set(weights) <= {0.0, 1.0}:
        raise Refused("fractional_weight", f"loss weights {weights}; the mask of a response has 0 and 1 only", stage="group")
    return replace(turn, regions=tuple(replace(region, loss_weight=weight) for region, weight in zip(turn.regions, weights, strict=True)))


def _weighted(turn: Turn, weight: float) -> Turn:
    return replace(turn, regions=tuple(replace(region, loss_weight=weight) for region in turn.regions))
