"""What must be trained of a conversation, derived from its source and not from marks or offsets: the other side of the mask proof.

The text of an ordinary turn is its own content. What a template writes around reasoning and tool calls is found by growth: the conversation up
to the turn, rendered with the generation prompt, is a prefix of the whole render, and what follows it up to the stop token is what a model
generates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from prep_assets.errors import CheckFailed, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, PROMPT, TEXT, THINKING, TOOL_CALL, Sample, Turn
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.conversation import messages, pieces


@dataclass(frozen=True, slots=True)
class Expected:
    """One unbroken stretch of trained tokens.

    Attributes:
        text: what it must decode to, white space at both ends aside, which a template may trim.
        stops: whether a control token that ends the turn must follow and be trained as well.
        weights: the loss weights that its tokens may have.
    """

    text: str
    stops: bool
    weights: tuple[float, ...] = (1.0,)


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
class _Segment:
    """Neighbouring regions of a turn of one kind and one weight, or the token that ends a turn."""

    kind: str
    weight: float
    text: str


def expected_texts(sample: Sample, options: MaskOptions, template: ChatTemplate) -> tuple[Expected, ...]:
    """The stretches of a sample that must be trained, in order.

    Raises:
        CheckFailed: the template's renders do not grow by turns, so that nothing is proven.
    """
    turns = [_segments(turn, options) for turn in sample.turns]
    if options.train_turns == "last":
        last = max((i for i, segments in enumerate(turns) if any(segment.weight for segment in segments)), default=-1)
        turns = [segments if i == last else [replace(segment, weight=0.0) for segment in segments] for i, segments in enumerate(turns)]
    stops = _stop_weights([segments[-1].weight if segments else 0.0 for segments in turns], options.train_on_eos)
    if all(turn.role in (DOCUMENT, PROMPT, COMPLETION) for turn in sample.turns):
        return _untemplated(sample, turns, stops, template.special.get("eos_token", ""))
    found: list[Expected] = []
    touches = False  # whether the turn before ends with a trained stop token
    for number, (segments, stop) in enumerate(zip(turns, stops, strict=True)):
        shown = _as_rendered(sample, number, segments, template)
        here = _of_turn(shown, stop)
        if options.train_headers and here and shown and shown[0].weight:
            here[0] = _with_header(here[0], sample, number, template)
            if touches:
                here[0] = _joined(found.pop(), here[0], template)
        found += here
        touches = bool(here) and here[-1].stops
    return tuple(found)


def _segments(turn: Turn, options: MaskOptions) -> list[_Segment]:
    """A turn's segments in the order in which templates write them: reasoning, content, tool calls."""
    shown = [region for region in turn.regions if not region.drop and region.text]
    listed = []
    for region in sorted(shown, key=lambda region: {THINKING: 0, TOOL_CALL: 2}.get(region.kind, 1)):
        kind = region.kind if region.kind in (THINKING, TOOL_CALL) else TEXT
        weight = region.loss_weight
        if weight is None:
            weight = 1.0 if options.mask.get(turn.role, options.mask_default) == "train" else 0.0
        if (kind == THINKING and not options.train_thinking) or (kind == TOOL_CALL and not options.train_tool_calls):
            weight = 0.0
        listed.append(_Segment(kind, weight, region.text))
    merged = groupby(listed, key=lambda segment: (segment.kind, segment.weight))
    return [_Segment(kind, weight, "".join(segment.text for segment in group)) for (kind, weight), group in merged]


def _stop_weights(weights: Sequence[float], train_on_eos: str) -> list[float]:
    """The loss weight of the token that ends each turn, from that of each turn's last region."""
    if train_on_eos == "all":
        return [weight or 1.0 for weight in weights]
    last = max((i for i, weight in enumerate(weights) if weight), default=-1)
    return [weight if train_on_eos == "turn" or (train_on_eos == "last" and i == last) else 0.0 for i, weight in enumerate(weights)]


def _of_turn(segments: Sequence[_Segment], stop: float) -> list[Expected]:
    """The trained stretches of one turn of a chat. A stop token may be trained on its own, after a turn that is not."""
    runs = _runs(segments) or [("", ())]
    if stop and not runs[-1][1]:
        runs[-1] = ("", (stop,))
    return [Expected(text, stop > 0 and i == len(runs) - 1, weights) for i, (text, weights) in enumerate(runs) if weights]


def _runs(segments: Sequence[_Segment]) -> list[tuple[str, tuple[float, ...]]]:
    """Text and weights of each run of trained segments; no text and no weights for each run of others."""
    runs: list[tuple[str, tuple[float, ...]]] = []
    for trained, group in groupby(segments, key=lambda segment: segment.weight > 0):
        run = list(group)
        weights = tuple(sorted({segment.weight for segment in run}))
        runs.append(("".join(segment.text for segment in run), weights) if trained else ("", ()))
    return runs


def _untemplated(sample: Sample, turns: Sequence[list[_Segment]], stops: Sequence[float], eos: str) -> tuple[Expected, ...]:
    """Turns that stand end to end, so that trained ones are neighbours; `eos` ends each completion and document."""
    segments: list[_Segment] = []
    for turn, own, stop in zip(sample.turns, turns, stops, strict=True):
        segments += own if turn.role == PROMPT else [*own, _Segment(TEXT, stop, eos)]
    return tuple(Expected(text, False, weights) for text, weights in _runs(segments) if weights)


# -- growth -----------------------------------------------------------------------------------------------------------------------------


def _as_rendered(sample: Sample, number: int, segments: list[_Segment], template: ChatTemplate) -> list[_Segment]:
    """The turn's segments with the text that the template makes of them; reasoning that it leaves out of history is gone."""
    if sample.turns[number].role != ASSISTANT or not any(segment.weight for segment in segments):
        return segments
    lead = template.answer_lead
    if all(segment.kind == TEXT for segment in segments) and (not lead or lead.isspace()):
        return [replace(segments[0], text=lead + segments[0].text), *segments[1:]]
    generated = _generated(sample, number, template)
    shown: list[_Segment] = []
    bounds: list[tuple[int, int]] = []
    at = 0
    for segment in segments:
        words = "" if segment.kind == TOOL_CALL else segment.text.strip()
        start = generated.find(words, at)
        if start < 0 and segment.kind == THINKING:
            continue
        if start < 0:
            raise CheckFailed(f"turn {number}: its text {words[:60]!r} is not in what the template renders")
        shown.append(segment)
        bounds.append((start, start + len(words)))
        at = start + len(words)
    end = generated.find(template.stop_token, at) if template.stop_token else -1
    if end < 0:
        raise CheckFailed(f"turn {number}: no stop token {template.stop_token!r} after {generated[-60:]!r}")
    return _divide(shown, bounds, generated[:end])


def _divide(segments: list[_Segment], bounds: list[tuple[int, int]], text: str) -> list[_Segment]:
    """Cut what a model generates into the turn's segments: tags of reasoning go to the reasoning, all around tool calls to the calls."""
    cuts = [0]
    for i in range(1, len(segments)):
        kinds, end = (segments[i - 1].kind, segments[i].kind), bounds[i - 1][1]
        if kinds == (THINKING, TOOL_CALL) and "</think>" in text[end:]:
            closing = text.index("</think>", end) + len("</think>")
            cuts.append(len(text) - len(text[closing:].lstrip()))
        else:
            cuts.append(end if kinds[1] == TOOL_CALL else bounds[i][0])
    cuts.append(bounds[-1][1] if segments[-1].kind == TEXT else len(text))
    return [replace(segment, text=text[cuts[i] : cuts[i + 1]]) for i, segment in enumerate(segments)]


def _generated(sample: Sample, number: int, template: ChatTemplate) -> str:
    """The whole render from the generation prompt of a turn on."""
    whole, prefix = _render(sample, template), _render(replace(sample, turns=sample.turns[:number]), template, generation_prompt=True)
    if not whole.startswith(prefix):
        raise CheckFailed(f"template {template.name}: the render up to turn {number} is not how the whole render begins, so nothing is proven")
    return whole[len(prefix) :]


def _with_header(first: Expected, sample: Sample, number: int, template: ChatTemplate) -> Expected:
    """A turn's first stretch with what the template writes before it, from the end of the turn before."""
    whole, after = _render(sample, template), _render(replace(sample, turns=sample.turns[: number + 1]), template)
    before = _render(replace(sample, turns=sample.turns[:number]), template).rstrip() if number else ""
    if not whole.startswith(after.rstrip()) or not whole.startswith(before):
        raise CheckFailed(f"template {template.name}: its render does not grow by turns at turn {number}, so nothing is proven")
    words = first.text.strip()
    content = after.rfind(words, len(before)) if words else len(after.rstrip())
    return replace(first, text=whole[len(before) : content] + words)


def _joined(left: Expected, right: Expected, template: ChatTemplate) -> Expected:
    """Two stretches with nothing between them but the stop token of the first."""
    weights = tuple(sorted({*left.weights, *right.weights}))
    return Expected(left.text + template.stop_token + right.text, right.stops, weights)


def _render(sample: Sample, template: ChatTemplate, *, generation_prompt: bool = False) -> str:
    try:
        found = pieces(sample, image_token=template.options.get("image_token"))
        return template.render(messages(sample, found), tools=sample.tools, generation_prompt=generation_prompt)
    except Refused as refusal:
        raise CheckFailed(f"template {template.name}: {refusal.detail}, so nothing is proven") from refusal
