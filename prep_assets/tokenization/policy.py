"""Mask policies: which regions carry loss, and which of the tokens that end turns do; and the weight of a render as a step function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from prep_assets.errors import Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, THINKING, TOOL_CALL, UNATTENDED, Region
from prep_assets.templates.rendered import Rendered, Span

Action = Literal["train", "mask"]
EosPolicy = Literal["turn", "last", "all", "none"]


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """Which tokens are trained.

    Attributes:
        roles: role → ``train`` or ``mask``.
        default: action for a role that is not listed.
        train_on_eos: which stop tokens are trained: those after trained turns (``turn``), only the last of these (``last``), those after
            every turn (``all``), or ``none``.
        turns: ``all`` trained turns, or only the ``last`` one.
        thinking, tool_calls: whether reasoning and tool calls inside a trained turn are trained.
        headers: whether what the template writes before a trained turn (its role header) is trained as well.
    """

    roles: Mapping[str, Action] = field(default_factory=lambda: {ASSISTANT: "train", COMPLETION: "train", DOCUMENT: "train"})
    default: Action = "mask"
    train_on_eos: EosPolicy = "turn"
    turns: Literal["all", "last"] = "all"
    thinking: bool = True
    tool_calls: bool = True
    headers: bool = False

    def weights(self, spans: Sequence[Span]) -> list[float]:
        """Weight of each region of a conversation: its own where the source gives one, else its role's; `UNATTENDED` where it is not attended."""
        return [weight if span.region.attend else UNATTENDED for span, weight in zip(spans, self._loss_weights(spans), strict=True)]

    def _loss_weights(self, spans: Sequence[Span]) -> list[float]:
        weights = [self.weight(span.role, span.region) for span in spans]
        if self.turns == "all":
            return weights
        last = max((span.turn for span, weight in zip(spans, weights, strict=True) if weight), default=-1)
        return [weight if span.turn == last else 0.0 for span, weight in zip(spans, weights, strict=True)]

    def check_attention(self, rendered: Rendered) -> None:
        """Refuse (``trained_unattended``) a conversation with a region that is to be trained and not to be attended."""
        for span, weight in zip(rendered.spans, self._loss_weights(rendered.spans), strict=True):
            if weight and not span.region.attend:
                detail = (
                    f"region {span.region.kind!r} in turn {span.turn} of role {span.role} is not attended, and its loss weight is {weight:g}. What is not "
                    "attended is never trained: give the region the weight 0, or attend to it"
                )
                raise Refused("trained_unattended", detail, stage="render")

    def weight(self, role: str, region: Region) -> float:
        """Loss weight of a region in a turn of `role`, before `turns` leaves only the last one trained, attended or not."""
        if region.kind == IMAGE:  # placeholders are not predicted
            return 0.0
        if (region.kind == THINKING and not self.thinking) or (region.kind == TOOL_CALL and not self.tool_calls):
            return 0.0
        if region.loss_weight is not None:
            return float(region.loss_weight)
        return 1.0 if self.roles.get(role, self.default) == "train" else 0.0

    def check_stops(self, rendered: Rendered) -> None:
        """Refuse (``no_stop_token``) a conversation whose last answer is trained and is followed by no control token, though answers shall stop."""
        stops = self.stop_weights(rendered.spans, self.weights(rendered.spans))
        last = max((span.turn for span in rendered.spans if span.role == ASSISTANT and stops.get(span.turn)), default=None)
        if last is not None and all(stop.turn != last for stop in rendered.stops):
            end = max(span.end for span in rendered.spans if span.turn == last)
            detail = (
                f"after the last answer the template writes {rendered.text[end:][:40]!r}, which is not a control token, so that the model would never "
                "learn to stop there. Take a template that ends it, such as the training variant of its model, or train_on_eos: none"
            )
            raise Refused("no_stop_token", detail, stage="render")

    def stop_weights(self, spans: Sequence[Span], weights: Sequence[float]) -> dict[int, float]:
        """For each turn, the loss weight of the stop token that ends it: that of the turn's last region other than an image, as the policy allows.
        It is the template's, so it is attended whatever that region is."""
        ends: dict[int, float] = {}
        for span, weight in zip(spans, weights, strict=True):
            if span.region.kind != IMAGE or span.turn not in ends:
                ends[span.turn] = max(weight, 0.0)
        trained = [turn for turn, weight in ends.items() if weight]
        if self.train_on_eos == "all":
            return {turn: weight or 1.0 for turn, weight in ends.items()}
        chosen = {"turn": trained, "last": trained[-1:], "none": []}[self.train_on_eos]
        return {turn: ends[turn] for turn in chosen}


Step = tuple[int, float]
"""A character, and the weight from there on."""


def steps(rendered: Rendered, policy: MaskPolicy) -> list[Step]:
    """Where the weight of a render changes, ascending, the first at 0."""
    found: list[Step] = [(0, 0.0)]
    spans = rendered.spans
    weights = policy.weights(spans)
    stops = policy.stop_weights(spans, weights)
    ends = {stop.turn: (stop.start, stop.end) for stop in rendered.stops}
    turn_end = 0
    for i, (span, weight) in enumerate(zip(spans, weights, strict=True)):
        starts_turn = i == 0 or spans[i - 1].turn != span.turn
        start = turn_end if policy.headers and starts_turn and weight > 0 else span.start
        found += [(start, weight), (span.end, 0.0)]
        if i + 1 == len(spans) or spans[i + 1].turn != span.turn:
            stop, turn_end = ends.get(span.turn, (span.end, span.end))
            if stops.get(span.turn) and turn_end > stop:
                # white space before the stop token is generated with the text, so it is trained where the text is
                found += [(span.end if weight > 0 else stop, stops[span.turn]), (turn_end, 0.0)]
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
    """Characters (start, end) of a render that are trained or not attended, and their weight, ascending."""
    found = [*steps(rendered, policy), (len(rendered.text), 0.0)]
    return [(start, end, weight) for (start, weight), (end, _) in pairwise(found) if weight and end > start]
