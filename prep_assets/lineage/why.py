"""Why a token is trained or not: which part of the render it stands for, and which option or weight decided."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from prep_assets.samples import IMAGE, THINKING, TOOL_CALL
from prep_assets.templates.rendered import Rendered, Span
from prep_assets.tokenization.policy import MaskPolicy

Part = Literal["content", "stop", "template", "begin", "end", "sentinel", "sampled", "brought", "padding", "image"]
"""What a token stands for: words of the source; what ends a turn; what the template writes around it; what begins and ends a document; a sentinel
of fill-in-the-middle; an id that a model sampled; one that the row brings; nothing; an image."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a token is trained or not.

    Attributes:
        trained: whether it is.
        part: what it stands for.
        because: the reason, in a sentence.
        option: the option of the family that decided, e.g. ``mask.user``; empty where the data or the code did.
        turn, role, kind: number and role of the turn that it belongs to, and the kind of region there; `None` where it belongs to none.
        region: characters (start, end) of that region in the text.
        content: the region's text, as the source has it.
    """

    trained: bool
    part: Part
    because: str
    option: str = ""
    turn: int | None = None
    role: str | None = None
    kind: str | None = None
    region: tuple[int, int] | None = None
    content: str | None = None


PADDING = Why(False, "padding", "it fills the row; padding is never trained")


def why_in_render(rendered: Rendered, policy: MaskPolicy, span: tuple[int, int], weight: float, *, replaced: bool = False) -> Why:
    """Why a token of a render weighs what it weighs.

    Args:
        span: the characters that it stands for.
        weight: its weight in the loss, below 0 where it is not attended.
        replaced: whether truncation put it where another token was.
    """
    if replaced:
        return Why(
            weight != 0,
            "stop",
            "the answer is cut off here, and its last token is replaced by the one that stops it",
            "truncation_keeps_stop",
        )
    start, end = span
    # a token that begins in front of an answer with white space and is trained belongs to the answer
    for place in (start, max(end - 1, start)):
        found = _at(rendered, policy, place)
        if found.trained == (weight > 0):
            return found
    return _at(rendered, policy, start)


def _at(rendered: Rendered, policy: MaskPolicy, place: int) -> Why:
    weights = policy.weights(rendered.spans)
    for number, span in enumerate(rendered.spans):
        if span.start <= place < span.end:
            return _content(span, weights[number], policy)
    stops = policy.stop_weights(rendered.spans, weights)
    for stop in rendered.stops:
        # white space between the words and the stop token is generated with them
        last = max(span.end for span in rendered.spans if span.turn == stop.turn)
        if stop.start <= place < stop.end or (stops.get(stop.turn) and last <= place < stop.end):
            return _stop(rendered, stop.turn, stops.get(stop.turn, 0.0), policy)
    return _template(rendered, place, weights, policy)


def _content(span: Span, weight: float, policy: MaskPolicy) -> Why:
    region, role = span.region, span.role
    where: dict[str, Any] = {"turn": span.turn, "role": role, "kind": region.kind, "region": (span.start, span.end), "content": region.text}
    if region.kind == IMAGE:
        return Why(False, "image", "it stands for an image; placeholders are never trained", **where)
    alone = policy.weight(role, region)
    if not region.attend:
        because, option = f"the {region.kind} of this {role} turn is not attended to, and what is not is never trained", ""
    elif region.kind == THINKING and not policy.thinking:
        because, option = "train_thinking is false: reasoning is not trained", "train_thinking"
    elif region.kind == TOOL_CALL and not policy.tool_calls:
        because, option = "train_tool_calls is false: tool calls are not trained", "train_tool_calls"
    elif alone and not weight:
        because, option = f"train_turns: last, and turn {span.turn} is not the last trained one", "train_turns"
    elif region.loss_weight is not None:
        because, option = f"the {region.kind} of this {role} turn has the loss weight {region.loss_weight:g}", ""
    elif role in policy.roles:
        because, option = f"mask.{role}: {policy.roles[role]}", f"mask.{role}"
    else:
        because, option = f"mask_default: {policy.default}, and mask does not name the role {role!r}", "mask_default"
    return Why(weight > 0, "content", because, option, **where)


def _stop(rendered: Rendered, turn: int, weight: float, policy: MaskPolicy) -> Why:
    last = [span for span in rendered.spans if span.turn == turn][-1]
    rule = f"train_on_eos: {policy.train_on_eos}"
    because = {
        "turn": f"{rule} trains what ends trained turns, and turn {turn} is {'trained' if weight else 'not trained'}",
        "last": f"{rule} trains what ends the last trained turn, and turn {turn} is {'that one' if weight else 'another'}",
        "all": f"{rule} trains what ends every turn",
        "none": f"{rule} trains no stop token",
    }[policy.train_on_eos]
    return Why(weight != 0, "stop", because, "train_on_eos", turn, last.role)


def _template(rendered: Rendered, place: int, weights: list[float], policy: MaskPolicy) -> Why:
    """Text of the template's own: the header of the turn that comes next, or what stands after the last one."""
    for number, (before, span) in enumerate(pairwise([None, *rendered.spans])):
        if span is None or span.start <= place:
            continue
        starts_turn = before is None or before.turn != span.turn
        if not starts_turn:
            break
        if weights[number] <= 0:
            return Why(False, "template", f"the template writes it before turn {span.turn}, which is not trained", "", span.turn, span.role)
        end = max(
            (stop.end for stop in rendered.stops if before is not None and stop.turn == before.turn), default=before.end if before else 0
        )
        trained = policy.headers and place >= end
        because = f"the template writes it before turn {span.turn}, and train_headers is {str(policy.headers).lower()}"
        return Why(trained, "template", because, "train_headers", span.turn, span.role)
    return Why(False, "template", "the template writes it between or after the turns; no option trains it")
