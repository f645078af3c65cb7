"""What must be trained of a conversation, derived from its source and not from marks or offsets: the other side of the mask proof.

The text of an ordinary turn is its own content. What a template writes around reasoning and tool calls is found by growth: the conversation up
to the turn, rendered with the generation prompt, is a prefix of the whole render, and what follows it up to the stop token is what a model
generates. Nothing is rendered for a chat of plain text, where the template writes nothing but white space before an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from prep_assets.errors import CheckFailed, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, PROMPT, TEXT, THINKING, TOOL_CALL, Region, Sample, Turn
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.conversation import messages, pieces

_END_OF_THINKING = "</think>"
_FIELDS = ("content", "reasoning_content")


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
    """Neighbouring regions of a turn of one kind and one weight, or the token that ends a turn. An image's is its placeholder."""

    kind: str
    weight: float
    text: str
    image: bool = False


def expected_texts(sample: Sample, options: MaskOptions, template: ChatTemplate, *, rendered: str | None = None) -> tuple[Expected, ...]:
    """The stretches of a sample that must be trained, in order.

    A build that has just rendered the whole conversation gives it as `rendered`; checks leave it out, so that it is rendered anew.

    Raises:
        CheckFailed: the template's renders do not grow by turns, so that nothing is proven.
    """
    untemplated = all(turn.role in (DOCUMENT, PROMPT, COMPLETION) for turn in sample.turns)
    turns = [_segments(turn, options, untemplated, template.image) for turn in sample.turns]
    chat = _Chat(sample, template, rendered)
    if not untemplated:
        needed = [any(segment.weight for segment in segments) or options.train_on_eos == "all" for segments in turns]
        turns = [_as_rendered(chat, i, segments) if needed[i] else segments for i, segments in enumerate(turns)]
    if options.train_turns == "last":
        last = max((i for i, segments in enumerate(turns) if any(segment.weight for segment in segments)), default=-1)
        turns = [segments if i == last else [replace(segment, weight=0.0) for segment in segments] for i, segments in enumerate(turns)]
    stops = _stop_weights([_end_weight(segments) for segments in turns], options.train_on_eos)
    if untemplated:
        return _untemplated(sample, turns, stops, template.special.get("eos_token", ""))
    found: list[Expected] = []
    trained: list[int] = []
    last = -1  # the turn whose end is the end of the last stretch
    for number, (segments, stop) in enumerate(zip(turns, stops, strict=True)):
        here = _of_turn(segments, stop if stop and _is_stopped(chat, number, segments) else 0.0)
        if not here:
            continue
        if options.train_headers and segments[0].weight:
            here[0] = _with_header(here[0], chat, number, segments)
            if last == number - 1 >= 0 and (found[-1].stops or not _is_stopped(chat, last, turns[last])):
                left = found.pop()
                here[0] = _joined(replace(left, text=left.text.rstrip()), here[0], chat.end_of(last, left))
        elif last >= 0 and segments[0].weight and (between := chat.between(last, number, found[-1].stops)) is not None:
            here[0] = _joined(found.pop(), here[0], between)
        found += here
        trained.append(number)
        last = number if here[-1].stops or segments[-1].weight else -1
    chat.check_order(trained)
    return tuple(found)


def _segments(turn: Turn, options: MaskOptions, blanks: bool, image: str) -> list[_Segment]:
    """A turn's segments in the order in which templates write them: reasoning, content, tool calls.

    White space at the outer ends of reasoning and of content is the template's to trim, so without `blanks` a region of nothing else is none.
    An image is what stands for it, untrained whatever its weight.
    """
    shown = [region for region in turn.regions if not region.drop and (blanks or region.text)]
    fields = [[region for region in shown if _field(region) == number] for number in range(3)]
    listed = []
    for region in [region for each in fields for region in (each if blanks else _without_outer_blanks(each))]:
        kind = region.kind if region.kind in (THINKING, TOOL_CALL) else TEXT
        weight = region.loss_weight
        if weight is None:
            weight = 1.0 if options.mask.get(turn.role, options.mask_default) == "train" else 0.0
        if (kind == THINKING and not options.train_thinking) or (kind == TOOL_CALL and not options.train_tool_calls):
            weight = 0.0
        is_image = region.kind == IMAGE
        listed.append(_Segment(kind, 0.0, image, True) if is_image else _Segment(kind, weight, region.text))
    merged = groupby(listed, key=lambda segment: (segment.kind, segment.weight, segment.image))
    return [_Segment(kind, weight, "".join(segment.text for segment in group), is_image) for (kind, weight, is_image), group in merged]


def _end_weight(segments: Sequence[_Segment]) -> float | None:
    """The weight that a turn ends with: of its last text, 0 where it is nothing but images; `None` where nothing of it is shown."""
    return next((segment.weight for segment in reversed(segments) if not segment.image), 0.0 if segments else None)


def _field(region: Region) -> int:
    return {THINKING: 0, TOOL_CALL: 2}.get(region.kind, 1)


def _without_outer_blanks(field: list[Region]) -> list[Region]:
    return [region for i, region in enumerate(field) if region.kind == IMAGE or region.text.strip() or 0 < i < len(field) - 1]


def _stop_weights(weights: Sequence[float | None], train_on_eos: str) -> list[float]:
    """The loss weight of the token that ends each turn, from that of each turn's last region; a turn without text has none."""
    if train_on_eos == "all":
        return [0.0 if weight is None else weight or 1.0 for weight in weights]
    last = max((i for i, weight in enumerate(weights) if weight), default=-1)
    return [
        (weight or 0.0) if train_on_eos == "turn" or (train_on_eos == "last" and i == last) else 0.0 for i, weight in enumerate(weights)
    ]


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
        segments += [segment for segment in own if segment.text]
        segments += [_Segment(TEXT, stop, eos)] if eos and turn.role != PROMPT else []
    return tuple(Expected(text, False, weights) for text, weights in _runs(segments) if weights)


# -- what the template makes of it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chat:
    """A conversation and its renders, each made once and only where it is needed."""

    sample: Sample
    template: ChatTemplate
    rendered: str | None = None

    @cached_property
    def whole(self) -> str:
        return self.before(len(self.sample.turns)) if self.rendered is None else self.rendered

    def before(self, number: int, *, generation_prompt: bool = False) -> str:
        """The render of the turns before turn `number`."""
        key = (number, generation_prompt)
        if key not in self._renders:
            self._renders[key] = self._render(self.messages[:number], generation_prompt)
        return self._renders[key]

    @cached_property
    def _renders(self) -> dict[tuple[int, bool], str]:
        return {}

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        return _messages(self.sample, self.template)

    @cached_property
    def _fenced(self) -> tuple[str, dict[tuple[int, str], tuple[int, int]]]:
        """A render in which the words of every ``content`` and ``reasoning_content`` stand between two fences that the conversation has nowhere,
        and where: (turn, field) → where its first fence begins and its second one ends."""
        listed = [dict(message) for message in self.messages]
        used = {char for message in listed for key in _FIELDS for char in message.get(key, "")}
        char = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in used)
        fences = {
            (i, key): f"{char}{i}{key[0]}{char}" for i, message in enumerate(listed) for key in _FIELDS if message.get(key, "").strip()
        }
        for (i, key), fence in fences.items():
            text = listed[i][key]
            start, end = len(text) - len(text.lstrip()), len(text.rstrip())
            listed[i][key] = f"{text[:start]}{fence}{text[start:end]}{fence}{text[end:]}"
        rendered = self._render(listed, False)
        turns, places = {fence: at for at, fence in fences.items()}, dict[tuple[int, str], tuple[int, int]]()
        for found in re.finditer(f"{char}[0-9]+[{''.join(key[0] for key in _FIELDS)}]{char}", rendered):
            if (at := turns.get(found[0])) is not None:
                places[at] = places[at][0] if at in places else found.start(), found.end()
        return rendered, places

    def shows(self, number: int, key: str) -> bool:
        """Whether the template writes this field of a turn; reasoning may be left out of history."""
        return (number, key) in self._fenced[1]

    def lead(self, number: int) -> str:
        """What stands between the generation prompt and the words of an answer."""
        start, prompt = self.start(number), self.template.generation_prompt
        at = self._fenced[0].rfind(prompt, 0, start) if prompt and start > 0 else -1
        return "" if at < 0 else self._fenced[0][at + len(prompt) : start]

    def start(self, number: int) -> int:
        """Where the first words of a turn stand in the render with fences, -1 where it shows none."""
        return min((place[0] for key in _FIELDS if (place := self._fenced[1].get((number, key)))), default=-1)

    def position(self, number: int) -> int:
        """The same in the whole render."""
        start = self.start(number)
        return self._unfenced(start, self._fenced[0][start]) if start >= 0 else -1

    def _unfenced(self, at: int, fence: str) -> int:
        return len("".join(self._fenced[0][:at].split(fence)[::2]))

    def _after(self, number: int) -> str | None:
        """What stands between a turn's content and the next turn's header; `None` where the turn ends with something else."""
        if (number, "content") not in self._fenced[1] or self.sample.turns[number].regions[-1].kind == TOOL_CALL:
            return None
        end = self._fenced[1][number, "content"][1]
        return self.before(number + 1).rstrip()[self._unfenced(end, self._fenced[0][end - 1]) :]

    def end_of(self, number: int, stretch: Expected) -> str:
        """What is trained of a turn after the text of its last stretch, where the next header is trained as well."""
        after = self._after(number)
        stop = self.template.stop_token if stretch.stops else ""
        return stop if after is None or not stretch.text.strip() else after

    def stop(self, number: int) -> int | None:
        """Where the stop token ends that the template writes after a turn's content, with only white space between."""
        text, places = self._fenced
        token = self.template.stop_token
        if not token or (number, "content") not in places:
            return None
        found = re.compile(rf"\s*{re.escape(token)}").match(text, places[number, "content"][1])
        return found.end() if found else None

    def between(self, left: int, right: int, stopped: bool) -> str | None:
        """What stands between the contents of two turns where both are one stretch: the stop token of the first; `None` where they are not."""
        if self.sample.turns[right].role == ASSISTANT and self.template.generation_prompt:
            return None
        text, places = self._fenced
        if (left, "content") not in places:
            return None
        after = self.stop(left) if stopped else None
        end = after or places[left, "content"][1]
        start = self.start(right)
        if start < end or (start > end and not self._is_own(right, text[end:start])):
            return None
        return (self.template.stop_token if after else "") + text[end:start]

    def ends_plainly(self, number: int) -> bool:
        """Whether a render that ends with a turn has nothing but its stop token after its content, and has that where the whole render has it."""
        after = self._after(number)
        return after is None or after.strip() == (self.template.stop_token if self.stop(number) else "")

    def check_order(self, numbers: Sequence[int]) -> None:
        """Stop where the template moves trained turns, such as a system turn into the last user turn: their order in the render is another."""
        if any(self.sample.turns[number].role != ASSISTANT for number in numbers):
            starts = [start for number in numbers if (start := self.start(number)) >= 0]
            if starts != sorted(starts):
                raise CheckFailed(f"template {self.template.name} writes trained turns in another order, so nothing is proven")

    def _is_own(self, number: int, space: str) -> bool:
        """Whether white space before a turn's words is its content's own."""
        shown = [region for region in self.sample.turns[number].regions if not region.drop and _field(region) == 1]
        content = "".join(self.template.image if region.kind == IMAGE else region.text for region in shown)
        return space.isspace() and content.startswith(space)

    def says_something(self, number: int) -> bool:
        """Whether any text of a turn is shown."""
        calls = any(region.kind == TOOL_CALL and not region.drop for region in self.sample.turns[number].regions)
        return calls or any(self.shows(number, key) for key in _FIELDS)

    def _render(self, listed: list[dict[str, Any]], generation_prompt: bool) -> str:
        try:
            return self.template.render(listed, tools=self.sample.tools, generation_prompt=generation_prompt)
        except Refused as refusal:
            raise CheckFailed(f"template {self.template.name}: {refusal.detail}, so nothing is proven") from refusal


def _messages(sample: Sample, template: ChatTemplate) -> list[dict[str, Any]]:
    return messages(sample, pieces(sample, image=template.image))


def _is_stopped(chat: _Chat, number: int, segments: Sequence[_Segment]) -> bool:
    """Whether the template writes a control token at the end of a turn; after a question some write none."""
    if not segments or segments[-1].kind != TEXT:
        return bool(segments)
    if chat.sample.turns[number].role == ASSISTANT and chat.template.every_answer_stops:
        return True
    return chat.stop(number) is not None


def _as_rendered(chat: _Chat, number: int, segments: list[_Segment]) -> list[_Segment]:
    """The turn's segments with the text that the template makes of them; reasoning that it leaves out of history is gone."""
    if chat.sample.turns[number].role != ASSISTANT:
        return segments
    if any(segment.kind == THINKING for segment in segments) and not chat.shows(number, "reasoning_content"):
        segments = [segment for segment in segments if segment.kind != THINKING]
    if not segments:
        return []
    if any(segment.kind != TEXT for segment in segments):
        return _generated(chat, number, segments)
    lead = chat.template.answer_lead
    if lead and not lead.isspace() and chat.shows(number, "content"):
        return [replace(segments[0], text=chat.lead(number) + segments[0].text.lstrip()), *segments[1:]]
    return [replace(segments[0], text=lead + segments[0].text), *segments[1:]]


def _generated(chat: _Chat, number: int, segments: list[_Segment]) -> list[_Segment]:
    """What the template writes after the turn's generation prompt and before its stop token, divided among the segments.

    Only where the conversation before the turn, with the generation prompt, is how the whole render begins.
    """
    template, prefix = chat.template, chat.before(number, generation_prompt=True)
    if not chat.whole.startswith(prefix):
        raise CheckFailed(
            f"template {template.name}: the render up to turn {number} is not how the whole render begins, so nothing is proven"
        )
    generated = chat.whole[len(prefix) :]
    at = len(template.answer_lead) if segments[0].kind == TEXT and generated.startswith(template.answer_lead) else 0
    bounds: list[tuple[int, int]] = []
    for segment in segments:
        words = "" if segment.kind == TOOL_CALL else segment.text.strip()
        start = generated.find(words, at)
        if start < 0:
            raise CheckFailed(f"turn {number}: its text {words[:60]!r} is not in what the template renders")
        own = segment.text[: len(segment.text) - len(segment.text.lstrip())] if words else ""
        kept = next((i for i in range(len(own)) if generated[at:start].endswith(own[i:])), len(own))
        bounds.append((start - len(own) + kept, start + len(words)))
        at = start + len(words)
        closing = generated.find(_END_OF_THINKING, at) if segment.kind == THINKING else -1
        at = at if closing < 0 else closing + len(_END_OF_THINKING)
    end = _stop_at(generated, at, template.stop_token, chat.messages[number]) if template.stop_token else -1
    if end < 0:
        raise CheckFailed(f"turn {number}: no stop token {template.stop_token!r} after {generated[-60:]!r}")
    return _divide(segments, bounds, generated[:end])


def _stop_at(generated: str, at: int, stop: str, message: Mapping[str, Any]) -> int:
    """Where a turn's stop token stands after `at`; what a tool call holds of the same text comes before it."""
    typed = sum(json.dumps(call["function"], ensure_ascii=False).count(stop) for call in message.get("tool_calls", ()))
    end = generated.find(stop, at)
    for _ in range(typed):
        end = generated.find(stop, end + len(stop)) if end >= 0 else -1
    return end


def _divide(segments: list[_Segment], bounds: list[tuple[int, int]], text: str) -> list[_Segment]:
    """Cut what a model generates into the turn's segments: tags of reasoning go to the reasoning, all around tool calls to the calls."""
    cuts = [0]
    for i in range(1, len(segments)):
        kinds, end = (segments[i - 1].kind, segments[i].kind), bounds[i - 1][1]
        if kinds == (TOOL_CALL, TOOL_CALL) and bool(segments[i - 1].weight) != bool(segments[i].weight):
            raise CheckFailed("of several tool calls in one turn some are trained and some are not; where one ends cannot be proven")
        if kinds == (THINKING, TOOL_CALL) and _END_OF_THINKING in text[end:]:
            closing = text.index(_END_OF_THINKING, end) + len(_END_OF_THINKING)
            cuts.append(len(text) - len(text[closing:].lstrip()))
        else:
            cuts.append(end if kinds[1] == TOOL_CALL else bounds[i][0])
    cuts.append(bounds[-1][1] if segments[-1].kind == TEXT else len(text))
    return [replace(segment, text=text[cuts[i] : cuts[i + 1]]) for i, segment in enumerate(segments)]


def _with_header(first: Expected, chat: _Chat, number: int, segments: Sequence[_Segment]) -> Expected:
    """A turn's first stretch with what the template writes before it, from the end of the turn before."""
    after, before = chat.before(number + 1), chat.before(number).rstrip() if number else ""
    if not chat.whole.startswith(after.rstrip()) or not chat.whole.startswith(before):
        raise CheckFailed(f"template {chat.template.name}: its render does not grow by turns at turn {number}, so nothing is proven")
    if number and not chat.ends_plainly(number - 1):
        raise CheckFailed(f"what the template writes after turn {number - 1} is not its stop token alone, so no header can be told from it")
    if number and not chat.says_something(number - 1):
        raise CheckFailed(f"turn {number - 1} has no text, so where the header of turn {number} begins is not known")
    words = first.text.strip()
    if chat.sample.turns[number].role == ASSISTANT and any(segment.kind != TEXT for segment in segments):
        start = len(chat.before(number, generation_prompt=True)) + len(first.text) - len(first.text.lstrip())
    else:
        start = chat.position(number)
        start -= len(chat.lead(number).lstrip()) if chat.sample.turns[number].role == ASSISTANT and chat.template.answer_lead.strip() else 0
    if start < len(before) or not chat.whole.startswith(words, start):
        raise CheckFailed(f"template {chat.template.name}: turn {number} does not stand after the turns before it, so nothing is proven")
    kept = first.text.lstrip()
    return replace(first, text=chat.whole[len(before) : start] + (kept if chat.whole.startswith(kept, start) else words))


def _joined(left: Expected, right: Expected, stop: str) -> Expected:
    """Two stretches with nothing between them but the stop token of the first."""
    weights = tuple(sorted({*left.weights, *right.weights}))
    return Expected(left.text + stop + right.text, right.stops, weights)
