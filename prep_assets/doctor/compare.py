"""Two labellings of one chat: the stretches on which they differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.samples import ASSISTANT, THINKING, TOOL_CALL
from prep_assets.templates.rendered import Rendered, Span
from prep_assets.tokenization.encode import Places

Side = Literal["theirs", "ours", "ids"]
AFTER_STOP = "white space after the stop token is trained; a model that has stopped is asked for nothing more"
HEADER = "the header of an answer is trained, which the generation prompt writes and not the model"
TEMPLATE = "text that the template writes is trained"
NO_STOP = "the stop token is not trained: the model does not learn to end its answer"
NOTHING = "a whole answer is not trained"
PART = "a part of an answer is not trained"
PIECES = "the trainer tokenizes in pieces, or renders messages alone: a model that is served sees the tokens of the whole chat"
LIBRARY = "transformers' class of this tokenizer gives other ids than its own file"
TYPED = "a control token that is typed in a text becomes the control token"


@dataclass(frozen=True, slots=True)
class Difference:
    """A stretch that only one side trains, or from which on the ids are others.

    Attributes:
        side: who trains it; ``ids`` where the tokens themselves differ.
        start, end: tokens, of our ids (theirs, where theirs are others).
        text: what it says.
        reason: why, in a sentence that is the same for the same fault.
    """

    side: Side
    start: int
    end: int
    text: str
    reason: str


def compare(rendered: Rendered, ours: Places, ids: Sequence[int], labels: Sequence[bool], decoded: str, why: str) -> list[Difference]:
    """Everything on which two labellings differ.

    Args:
        ids, labels: theirs.
        decoded: their ids from where they part from ours to where they meet again, as text.
        why: the reason, where ids differ.
    """
    trained = ours.loss != 0
    low, high = meeting(ours.ids, ids)
    found: list[Difference] = []
    if low + high < max(len(ids), len(trained)):
        found.append(Difference("ids", low, len(ids) - high, decoded, why))
    theirs = np.zeros(len(trained), bool)
    theirs[:low] = labels[:low]
    if high:
        theirs[-high:] = labels[-high:]
    known = np.zeros(len(trained), bool)
    known[:low] = True
    known[len(trained) - high :] = True
    found += _runs("theirs", theirs & ~trained & known, rendered, ours)
    found += _runs("ours", trained & ~theirs & known, rendered, ours)
    return sorted(found, key=lambda each: (each.start, each.side))


def meeting(ours: npt.NDArray[np.uint32], theirs: Sequence[int]) -> tuple[int, int]:
    """How many ids are equal from the front, and how many of the others from the back."""
    one, other = ours.astype(np.int64), np.asarray(theirs, np.int64)
    shortest = min(len(one), len(other))
    front = _equal(one[:shortest], other[:shortest])
    left = shortest - front
    return front, _equal(one[::-1][:left], other[::-1][:left])


def _equal(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> int:
    differs = one != other
    return int(differs.argmax()) if differs.any() else len(differs)


def _runs(side: Side, chosen: npt.NDArray[np.bool_], rendered: Rendered, ours: Places) -> Iterator[Difference]:
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    for start, end in edges.reshape(-1, 2).tolist():
        low, high = int(ours.starts[start]), int(ours.ends[end - 1])
        explain = _trained_by_them if side == "theirs" else _trained_by_us
        yield Difference(side, start, end, rendered.text[low:high], explain(rendered, low, high))


def _trained_by_them(rendered: Rendered, low: int, high: int) -> str:
    text = rendered.text[low:high]
    for span in rendered.spans:
        if span.role != ASSISTANT and span.start < high and low < span.end:
            return f"text of a {span.role} turn is trained"
    if text.isspace() and any(stop.end == low for stop in rendered.stops):
        return AFTER_STOP
    if any(stop.end <= low for stop in rendered.stops) and all(span.start < low for span in rendered.spans):
        return "what the template writes after the last stop token is trained"
    following = next((span for span in rendered.spans if span.start >= low), None)
    return HEADER if following is not None and following.role == ASSISTANT else TEMPLATE


def _trained_by_us(rendered: Rendered, low: int, high: int) -> str:
    touched = [span for span in rendered.spans if span.start < high and low < span.end]
    if not touched:
        return NO_STOP
    kinds = {span.region.kind for span in touched}
    if kinds == {THINKING}:
        return "reasoning is not trained"
    if kinds == {TOOL_CALL}:
        return "a tool call is not trained"
    return NOTHING if all(_whole(span, low, high) for span in touched) else PART


def _whole(span: Span, low: int, high: int) -> bool:
    return low <= span.start and span.end <= high
