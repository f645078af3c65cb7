"""Rendered samples, mask policies, cuts at control tokens, and truncation."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Bools, Float32s, Ints
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Keep
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, SYSTEM, TEXT, USER, Region, Sample, changed
from prep_assets.stores.arrays import in_arrow

# Rendered samples: the text of a conversation, and the places of its regions and stops.


@dataclass(frozen=True, slots=True)
class Span:
    """The place of one region in the rendered text.

    Attributes:
        start, end: characters of `Rendered.text`, end exclusive.
        turn: index of its turn.
        role: role of its turn.
        region: the region itself.
        lead, trail: characters at its beginning and at its end that the template wrote: the space before an answer, tags of reasoning.
        header: character where the header of its turn begins; -1 if it has none.
    """

    start: int
    end: int
    turn: int
    role: str
    region: Region
    lead: int = 0
    trail: int = 0
    header: int = -1


@dataclass(frozen=True, slots=True)
class Stop:
    """The control tokens that end one turn: characters (start, end) of `Rendered.text`."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered sample.

    Attributes:
        text: the whole conversation.
        spans: the spans of its regions, ascending, not overlapping.
        content: characters (start, end) that come from the source, ascending. The template wrote all others: only there does the text of a control
            token mean that token.
        stops: the stops of its turns, ascending; a turn may have none.
        images: characters (start, end) of image placeholders with their regions, ascending; not part of `content`.
    """

    text: str
    spans: tuple[Span, ...]
    content: tuple[tuple[int, int], ...]
    stops: tuple[Stop, ...] = ()
    images: tuple[tuple[int, int, Region], ...] = ()


# The loss weight of a render as a step function, and conversations that a mask policy rejects.


def check_attention(policy: MaskPolicy, rendered: Rendered) -> None:
    """Reject (``trained_unattended``) a conversation with a region that is trained but not attended."""
    for span, weight in zip(rendered.spans, policy.loss_weights(rendered.spans), strict=True):
        if weight and not span.region.attend:
            detail = (
                f"region {span.region.kind!r} in turn {span.turn} of role {span.role} is not attended, and its loss weight is {weight:g}. What is not "
                "attended is never trained: give the region the weight 0, or attend to it"
            )
            raise Refused("trained_unattended", detail, stage="render")


def check_stops(policy: MaskPolicy, rendered: Rendered) -> None:
    """Reject (``no_stop_token``) a conversation whose last trained answer lacks the stop token that the policy trains."""
    stops = policy.stop_weights(rendered.spans, policy.weights(rendered.spans))
    last = max((span.turn for span in rendered.spans if span.role == ASSISTANT and stops.get(span.turn)), default=None)
    if last is not None and all(stop.turn != last for stop in rendered.stops):
        end = max(span.end for span in rendered.spans if span.turn == last)
        detail = (
            f"after the last answer the template writes {rendered.text[end:][:40]!r}, which is not a control token, so that the model would never "
            "learn to stop there. Take a template that ends it, such as the training variant of its model, or train_on_eos: none"
        )
        raise Refused("no_stop_token", detail, stage="render")


Step = tuple[int, float]
"""A character position, and the weight from there on."""


def steps(rendered: Rendered, policy: MaskPolicy) -> list[Step]:
    """The weight of a render as a step function: ascending, first step at character 0."""
    all_steps: list[Step] = [(0, 0.0)]
    spans = rendered.spans
    weights = policy.weights(spans)
    stop_weights = policy.stop_weights(spans, weights)
    stop_bounds = {stop.turn: (stop.start, stop.end) for stop in rendered.stops}
    for i, (span, weight) in enumerate(zip(spans, weights, strict=True)):
        starts_turn = i == 0 or spans[i - 1].turn != span.turn
        start = span.header if policy.train_headers and starts_turn and weight > 0 and span.header >= 0 else span.start
        all_steps += [(start, weight), (span.end, 0.0)]
        if i + 1 == len(spans) or spans[i + 1].turn != span.turn:
            stop, stop_end = stop_bounds.get(span.turn, (span.end, span.end))
            if stop_weights.get(span.turn) and stop_end > stop:
                # white space before the stop token is generated with the text, so it is trained where the text is; brackets around a result are not
                follows = weight > 0 and not rendered.text[span.end : stop].strip()
                all_steps += [(span.end if follows else stop, stop_weights[span.turn]), (stop_end, 0.0)]
    return _merge_steps(all_steps)


def _merge_steps(all_steps: list[Step]) -> list[Step]:
    """The same function with a step only where its value changes; of several steps at one position the last counts."""
    changes: list[Step] = []
    for number, (position, weight) in enumerate(all_steps):
        if number + 1 < len(all_steps) and all_steps[number + 1][0] == position:
            continue
        if not changes or changes[-1][1] != weight:
            changes.append((position, weight))
    return changes


def trained(rendered: Rendered, policy: MaskPolicy) -> list[tuple[int, int, float]]:
    """Stretches (start, end, weight) of a render that are trained or unattended, in characters, ascending."""
    bounded_steps = [*steps(rendered, policy), (len(rendered.text), 0.0)]
    return [(start, end, weight) for (start, weight), (end, _) in pairwise(bounded_steps) if weight and end > start]


def control_pattern(control: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for the text of any control token, longest first; `None` if there are none."""
    texts = sorted(control, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, texts))) if texts else None


# Renders in columns, cut at the control tokens that the template wrote: ordinary segments between them, and where loss weights change.


class Prompt(NamedTuple):
    """An untrained text that truncation may shorten: start, end, and the role of its turn."""

    start: int
    end: int
    role: str


class Placed(Struct, frozen=True, eq=False):
    """The k images of a batch of records, ascending by record and start.

    Attributes:
        record: int64[k], the record of the batch.
        start: int64[k], position of the first token: in the record, or in the batch before truncation.
        length: int64[k], number of tokens: one per patch, and those that the processor writes between them.
        regions: the image regions.
    """

    record: Ints
    start: Ints
    length: Ints
    regions: tuple[Region, ...]

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths or URLs of the images."""
        return tuple(region.text for region in self.regions)

    def at(self, mask: npt.NDArray[np.bool_]) -> Placed:
        """The images where `mask`, bool[k], is set."""
        if mask.all():
            return self
        regions = tuple(region for region, is_kept in zip(self.regions, mask.tolist(), strict=True) if is_kept)
        return Placed(self.record[mask], self.start[mask], self.length[mask], regions)

    def of(self, kept: npt.NDArray[np.bool_]) -> Placed:
        """The images of the records where `kept`, bool[n], is set; records are renumbered."""
        images = self.at(kept[self.record])
        return Placed((np.cumsum(kept) - 1)[images.record], images.start, images.length, images.regions)


NOTHING = Placed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), ())


class RenderedBlock(Struct, frozen=True, dict=True):
    """Renders end to end, n of them, each cut into items: its control tokens, and the ordinary segments between. All places are bytes of `data`.

        data       <|user|>Hi<|end|><|user|>Bye<|end|>
        starts     0                17                35      of each render, and the end
        items      1      -1 2      1       -1  2             id of a control token, or -1 for a segment
        item_ends  8      10 17     25      28  35

    Attributes:
        data: the renders in UTF-8.
        starts: int64[n + 1], start of each render, and the end of the last.
        items: int64[i], the id of a control token, or -1 for an ordinary segment.
        item_ends: int64[i], the end of each item.
        breaks: int64[b], where the loss weight changes, ascending.
        weights: float32[b], the weight after each break.
        prompts: render → its untrained texts; empty unless truncation needs them.
        images: render, first item, number of items, region.
    """

    data: bytes
    starts: Ints
    items: Ints
    item_ends: Ints
    breaks: Ints
    weights: Float32s
    prompts: Mapping[int, Sequence[Prompt]]
    images: Sequence[tuple[int, int, int, Region]]

    @classmethod
    def of(
        cls,
        data: bytes,
        starts: Ints,
        controls: Sequence[Ints],
        breaks: Ints,
        weights: Float32s,
        prompts: Mapping[int, Sequence[Prompt]],
        images: Sequence[tuple[int, int, int, Region]] = (),
    ) -> RenderedBlock:
        """Cut renders.

        Args:
            controls: int64[c] each, start, end and id of the control tokens, ascending.
            images: render, numbers of the first and the last control token, region.
        """
        borders = np.sort(np.concatenate([starts, *controls[:2]]))
        borders = borders[np.diff(borders, prepend=-1) > 0]
        items, numbers = np.full(len(borders) - 1, -1), np.searchsorted(borders, controls[0])
        items[numbers] = controls[2]
        placed = [(render, int(numbers[low]), int(numbers[high] - numbers[low]) + 1, region) for render, low, high, region in images]
        return cls(data, starts, items, borders[1:], breaks, weights, prompts, placed)

    @property
    def item_starts(self) -> Ints:
        """int64[i], the start of each item."""
        return np.concatenate([self.starts[:1], self.item_ends])[: len(self.items)]

    @property
    def item_bounds(self) -> Ints:
        """int64[n + 1]; render `r` has the items from ``item_bounds[r]`` to ``item_bounds[r + 1]``."""
        return np.searchsorted(self.item_starts, self.starts)

    @property
    def begins(self) -> Bools:
        """bool[i], whether a render begins with the item."""
        starts = self.item_starts
        begins: Bools = self.starts[np.searchsorted(self.starts, starts, "right") - 1] == starts
        return begins

    @cached_property
    def is_first(self) -> Bools:
        """bool[s], whether a render begins with the segment."""
        return self.begins[self.items < 0]

    @cached_property
    def segments(self) -> list[str]:
        """The s ordinary segments."""
        import pyarrow as pa

        edges, ordinary = np.append(self.item_starts, len(self.data)), np.flatnonzero(self.items < 0)
        pieces = pa.LargeStringArray.from_buffers(len(self.items), pa.py_buffer(edges), pa.py_buffer(self.data))
        segments: list[str] = pieces.take(in_arrow(ordinary)).to_pylist()
        return segments

    def text(self, number: int) -> str:
        """Return a render."""
        return self.data[self.starts[number] : self.starts[number + 1]].decode()

    def placed(self, per_item: Ints) -> Placed:
        """Return the images, with starts in tokens. `per_item`: first token of each item."""
        if not self.images:
            return NOTHING
        examples, items, counts, regions = zip(*self.images, strict=True)
        starts, ends = per_item[list(items)], per_item[np.add(items, counts)]
        return Placed(np.array(examples, np.int64), starts, ends - starts, regions)


def bounds(counts: Sequence[int] | Ints) -> Ints:
    """The offsets of runs of these lengths: int64[n + 1], from 0 to their sum."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


class Cutter(Struct, frozen=True, dict=True):
    """Cuts renders at control tokens.

    Attributes:
        control: the tokenizer's control tokens and their ids.
        policy: which regions are trained.
        prompts: whether truncation needs the untrained texts.
    """

    control: Mapping[str, int]
    policy: MaskPolicy
    prompts: bool

    def block(self, renders: Sequence[Rendered]) -> RenderedBlock:
        """Renders in columns."""
        controls, breaks, starts = list[tuple[int, int, int]](), list[Step](), [0]
        prompts, images = dict[int, list[Prompt]](), list[tuple[int, int, int, Region]]()
        for number, rendered in enumerate(renders):
            byte_of, own = (starts[-1] + byte_table(rendered.text)).tolist(), self.controls(rendered)
            for start, end, region in rendered.images:
                low, high = _controls_within(rendered, start, end, own)
                images.append((number, len(controls) + low, len(controls) + high, region))
            controls += [(byte_of[start], byte_of[end], token) for start, end, token in own]
            breaks += [(byte_of[position], weight) for position, weight in steps(rendered, self.policy)]
            prompts[number] = [Prompt(byte_of[start], byte_of[end], role) for start, end, role in self.prompts_of(rendered)]
            starts.append(byte_of[-1])
        return RenderedBlock.of(
            "".join([rendered.text for rendered in renders]).encode(),
            np.array(starts),
            tuple(np.array(controls, np.int64).reshape(-1, 3).T),
            np.array([position for position, _ in breaks], np.int64),
            np.array([weight for _, weight in breaks], np.float32),
            prompts,
            images,
        )

    def controls(self, rendered: Rendered) -> list[tuple[int, int, int]]:
        """Control tokens outside content: start, end, id."""
        if self._pattern is None:
            return []
        controls: list[tuple[int, int, int]] = []
        last = 0
        for start, end in [*rendered.content, (len(rendered.text),) * 2]:
            controls += [(*match.span(), self.control[match[0]]) for match in self._pattern.finditer(rendered.text, last, start)]
            last = end
        return controls

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.control)

    def prompts_of(self, rendered: Rendered) -> list[Prompt]:
        """The untrained texts, in characters, if truncation needs them. Images, reasoning, tool calls and the text of the template are never
        shortened; adjacent texts of a turn are merged."""
        spans = zip(rendered.spans, self.policy.weights(rendered.spans), strict=True) if self.prompts else ()
        prompts: list[tuple[Prompt, int]] = []
        for span, weight in spans:
            if weight or span.role == SYSTEM or span.region.kind != TEXT:
                continue
            start, end = span.start + span.lead, span.end - span.trail
            if prompts and (prompts[-1][0].end, prompts[-1][1]) == (start, span.turn):
                start = prompts.pop()[0].start
            prompts.append((Prompt(start, end, span.role), span.turn))
        return [prompt for prompt, _ in prompts]


def _controls_within(rendered: Rendered, start: int, end: int, controls: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Return the numbers of the first and the last control token of a placeholder; between them are white space and times of frames.

    Raises:
        ConfigError: it holds other text.
    """
    low, high = bisect_left(controls, (start,)), bisect_left(controls, (end,))
    edges = [start, *(edge for begin, stop, _ in controls[low:high] for edge in (begin, stop)), end]
    if any(_TIME.sub("", rendered.text[left:right]).strip() for left, right in zip(edges[::2], edges[1::2], strict=True)):
        raise ConfigError(f"{rendered.text[start:end][:80]!r} stands for an image, and not all of it is control tokens of the tokenizer")
    return low, high - 1


_TIME = re.compile(r"<\d+\.\d seconds>")


def byte_table(text: str) -> Ints:
    """UTF-8 byte position of every character of `text`, and of its end: int64[len(text) + 1]."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def characters(text: str, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Convert UTF-8 byte positions in `text` to characters; a stretch within a character becomes that character."""
    table = byte_table(text)
    first, last = np.searchsorted(table, [starts, ends], "right") - 1
    return first, last + (table[last] < ends)


# Truncation: which tokens of an example that is too long are kept. An image is kept whole or removed whole; otherwise its example is rejected.
#
# drop     none: the example is rejected
# end      the first max_seq_len tokens
# start    the last max_seq_len tokens
# prompt   everything but a part of the longest untrained texts (Cerebras Model Zoo's prompt-first shortening): system turns, reasoning, tool
#          calls and the text of the template stay whole; rejected if that is not enough
# turns    without the oldest rounds, the system turn kept; needs a new render, so the pipeline does it (see `without_oldest_rounds`)

Truncation = Literal["drop", "start", "end", "turns", "prompt"]


def kept_tokens(length: int, limit: int, mode: Truncation, prompts: Sequence[Prompt], keeps: Mapping[str, Keep]) -> Bools | None:
    """Which tokens of an example to keep, bool[length]; `None` if this mode cannot make it fit.

    Args:
        length: its number of tokens, more than `limit`.
        prompts: its untrained texts, in tokens.
        keeps: what must stay of them, by role.
    """
    keep, excess = np.ones(length, bool), length - limit
    if mode in ("end", "start"):
        keep[slice(limit, None) if mode == "end" else slice(excess)] = False
        return keep
    # shorten the longest prompt first, down to the minimum of its role
    for start, end, role in sorted(prompts if mode == "prompt" else (), key=lambda prompt: (prompt.start - prompt.end, prompt.start)):
        role_keep = keeps.get(role, Keep())
        removed = min(excess, end - start - role_keep.least)
        if removed > 0:
            keep[slice(end - removed, end) if role_keep.part == "start" else slice(start, start + removed)] = False
            excess -= removed
    return keep if excess == 0 else None


def rounds(sample: Sample) -> list[int]:
    """Turn numbers where rounds begin: user turns that do not follow another user turn."""
    roles = [turn.role for turn in sample.turns]
    return [i for i, role in enumerate(roles) if role == USER and (i == 0 or roles[i - 1] != USER)]


def without_oldest_rounds(sample: Sample, count: int) -> Sample:
    """`sample` without its `count` oldest rounds; system turns before the first round stay."""
    begins = rounds(sample)
    first, cut = begins[0], begins[count]
    system = tuple(turn for turn in sample.turns[:first] if turn.role == SYSTEM)
    return changed(sample, turns=(*system, *sample.turns[cut:]))


def cut_through(images: Placed, keep_tokens: npt.NDArray[np.bool_]) -> dict[int, Refused]:
    """The records in which truncation would cut through an image, with the error for the first such image.

    Args:
        images: with `start` in tokens of the batch.
        keep_tokens: bool[T], which tokens of the batch are kept.
    """
    new_positions = _kept_before(keep_tokens)
    kept_counts = new_positions[images.start + images.length] - new_positions[images.start]
    faults: dict[int, Refused] = {}
    for number in np.flatnonzero((kept_counts > 0) & (kept_counts < images.length)):
        detail = f"truncation would leave {kept_counts[number]:,} of the {images.length[number]:,} tokens of {images.regions[number].text[:200]!r}"
        faults.setdefault(int(images.record[number]), Refused("image_cut", detail, stage="tokenize"))
    return faults


def after_cut(images: Placed, keep_tokens: npt.NDArray[np.bool_], keep_records: npt.NDArray[np.bool_], offsets: Ints) -> Placed:
    """The kept images, with record numbers among the kept records and starts within their records.

    Args:
        keep_tokens: bool[T], which tokens of the batch are kept.
        keep_records: bool[n], which records are kept.
        offsets: int64[n + 1], first token of each record in the batch.
    """
    new_positions, new_numbers = _kept_before(keep_tokens), np.cumsum(keep_records) - 1
    renumbered = Placed(
        new_numbers[images.record], new_positions[images.start] - new_positions[offsets[images.record]], images.length, images.regions
    )
    return renumbered.at(keep_records[images.record] & keep_tokens[images.start])


def _kept_before(keep_tokens: npt.NDArray[np.bool_]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(keep_tokens)])
