"""What rendering gives, mask policies, cuts at control tokens, and truncation."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import Keep
from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import ASSISTANT, COMPLETION, DOCUMENT, IMAGE, SYSTEM, TEXT, THINKING, TOOL_CALL, UNATTENDED, USER, Region, Sample

# What rendering gives: the text of a conversation, and where in it regions and stops stand.


@dataclass(frozen=True, slots=True)
class Span:
    """Where one region stands in the rendered text.

    Attributes:
        start, end: characters of `Rendered.text`, end exclusive.
        turn: index of its turn.
        role: role of its turn.
        region: the region itself.
        lead, trail: how many characters at its beginning and at its end are the template's: the space before an answer, tags of reasoning.
    """

    start: int
    end: int
    turn: int
    role: str
    region: Region
    lead: int = 0
    trail: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the control tokens stand that end one turn: characters (start, end) of `Rendered.text`."""

    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered sample.

    Attributes:
        text: the whole conversation.
        spans: where each region stands, ascending, none overlapping.
        content: characters (start, end) that come from the source, ascending. All others are the template's own: only there can a control
            token's text mean the control token.
        stops: what ends each turn, ascending; a turn may have none.
        images: characters (start, end) of each image's placeholder and its region, ascending. They are no content.
    """

    text: str
    spans: tuple[Span, ...]
    content: tuple[tuple[int, int], ...]
    stops: tuple[Stop, ...] = ()
    images: tuple[tuple[int, int, Region], ...] = ()


# Mask policies: which regions carry loss, and which of the tokens that end turns do; and the weight of a render as a step function.

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


def control_pattern(control: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any control token's text, longest first; `None` where the tokenizer has none."""
    texts = sorted(control, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, texts))) if texts else None


# A batch of renders cut at the control tokens that the template wrote: ordinary segments between them, and where loss weights change.
#
# `Row` is one render, in places of its own. `Cuts` is a batch, whose byte positions count through all of it. Rows come from renders (`row_of`); for plain
# chats whose layout is known, `forms` gives the same for many at once.

Ints = npt.NDArray[np.int64]
Image = tuple[int, int, Region]
"""First item, number of items, region."""


class Prompt(NamedTuple):
    """An untrained text that may be shortened: where it starts and ends, and the role of its turn."""

    start: int
    end: int
    role: str


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The images of a batch of records, k of them, ascending by record and start.

    Attributes:
        record: int64[k], which record of the batch each belongs to.
        start: int64[k], place of its first token: in its record, or in the batch while that is not yet cut.
        length: int64[k], its tokens: one for each patch, and those that its processor writes between them.
        regions: what the record says of it.
    """

    record: Ints
    start: Ints
    length: Ints
    regions: tuple[Region, ...]

    def __len__(self) -> int:
        return len(self.regions)

    @property
    def paths(self) -> tuple[str, ...]:
        """Their paths or URLs."""
        return tuple(region.text for region in self.regions)

    def at(self, chosen: npt.NDArray[np.bool_]) -> Placed:
        """Only the chosen ones."""
        if chosen.all():
            return self
        regions = tuple(region for region, take in zip(self.regions, chosen.tolist(), strict=True) if take)
        return Placed(self.record[chosen], self.start[chosen], self.length[chosen], regions)

    def of(self, kept: npt.NDArray[np.bool_]) -> Placed:
        """Those of the records that are kept, bool[n], numbered among them."""
        here = self.at(kept[self.record])
        return Placed((np.cumsum(kept) - 1)[here.record], here.start, here.length, here.regions)


NOTHING = Placed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), ())


@dataclass(frozen=True, slots=True)
class Row:
    """One render, cut.

    Attributes:
        text: the render.
        segments: its ordinary texts, in order.
        first: whether the first segment is the very beginning of the text.
        items: what it consists of: the id of a control token, or -1 for the next segment.
        item_ends: where each item ends, in bytes.
        breaks: bytes where the loss weight changes, ascending.
        weights: the weight from there on.
        prompts: each untrained text, by bytes.
        images: its images.
    """

    text: str
    segments: list[str]
    first: bool
    items: list[int]
    item_ends: list[int]
    breaks: list[int]
    weights: list[float]
    prompts: list[Prompt] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cuts:
    """A batch of n renders, cut.

    Attributes:
        segments: the ordinary texts of all, s of them.
        is_first: bool[s], whether a segment is the very beginning of its render.
        items: int64[i], the id of a control token, or -1 for the next segment.
        item_ends: int64[i], where each item ends, in bytes of the batch.
        item_bounds: int64[n + 1]; render `r` has items ``item_bounds[r]:item_bounds[r + 1]``.
        starts: int64[n + 1], where each render begins, in bytes of the batch.
        breaks: int64[b], where the loss weight changes, ascending.
        weights: float32[b], the weight from there on.
        prompts: by render, each untrained text by bytes of the batch; empty where truncation does not ask for them.
        images: render, first item of the batch, number of items, region.
        text: the text of a render.
    """

    segments: list[str]
    is_first: npt.NDArray[np.bool_]
    items: Ints
    item_ends: Ints
    item_bounds: Ints
    starts: Ints
    breaks: Ints
    weights: npt.NDArray[np.float32]
    prompts: dict[int, list[Prompt]]
    images: list[tuple[int, int, int, Region]]
    text: Callable[[int], str]

    def between(self, example: int, start: int, end: int) -> str:
        """A part of a render, by bytes of the batch."""
        base = int(self.starts[example])
        return self.text(example).encode()[start - base : end - base].decode(errors="replace")

    def placed(self, per_item: Ints) -> Placed:
        """The images of the batch; their starts count through its tokens. `per_item`: where each item begins."""
        if not self.images:
            return NOTHING
        examples, items, counts, regions = zip(*self.images, strict=True)
        starts, ends = per_item[list(items)], per_item[np.add(items, counts)]
        return Placed(np.array(examples, np.int64), starts, ends - starts, regions)


def of_rows(rows: Sequence[Row]) -> Cuts:
    """A batch of rows."""
    starts, texts = bounds([row.item_ends[-1] if row.item_ends else 0 for row in rows]), [row.text for row in rows]
    item_bounds = bounds([len(row.items) for row in rows])
    base = starts[:-1].tolist()
    return Cuts(
        [segment for row in rows for segment in row.segments],
        np.array([row.first and number == 0 for row in rows for number in range(len(row.segments))], bool),
        np.array([item for row in rows for item in row.items], np.int64),
        np.array([at + end for row, at in zip(rows, base, strict=True) for end in row.item_ends], np.int64),
        item_bounds,
        starts,
        np.array([at + each for row, at in zip(rows, base, strict=True) for each in row.breaks], np.int64),
        np.array([weight for row in rows for weight in row.weights], np.float32),
        {number: moved(row.prompts, at) for number, (row, at) in enumerate(zip(rows, base, strict=True))},
        [(number, int(item_bounds[number]) + each[0], *each[1:]) for number, row in enumerate(rows) for each in row.images],
        texts.__getitem__,
    )


def moved(prompts: Sequence[Prompt], by: int) -> list[Prompt]:
    """Untrained texts in the bytes of a batch in which their render begins `by` bytes further on."""
    return [Prompt(start + by, end + by, role) for start, end, role in prompts]


def bounds(counts: Sequence[int] | Ints) -> Ints:
    """Where each of several runs begins, and where the last one ends: int64[n + 1]."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


@dataclass(frozen=True)
class Cutter:
    """Cuts renders.

    Attributes:
        control: the tokenizer's control tokens and their ids.
        policy: which regions are trained.
        prompts: whether truncation asks for the untrained texts.
    """

    control: Mapping[str, int]
    policy: MaskPolicy
    prompts: bool

    def row(self, rendered: Rendered) -> Row:
        """One render, cut."""
        text, controls = rendered.text, self.controls(rendered)
        byte_of = range(len(text) + 1) if text.isascii() else byte_table(text).tolist()
        row = Row(text, [], not controls or controls[0][0] > 0, [], [], [], [])
        control_items: list[int] = []
        last = 0
        for start, end, token in [*controls, (len(text), len(text), -1)]:
            if start > last:
                row.segments.append(text[last:start])
                row.items.append(-1)
                row.item_ends.append(byte_of[start])
            if token >= 0:
                control_items.append(len(row.items))
                row.items.append(token)
                row.item_ends.append(byte_of[end])
            last = end
        for start, end, region in rendered.images:
            row.images.append((*_placeholder_items(rendered, start, end, controls, control_items), region))
        for position, weight in steps(rendered, self.policy):
            row.breaks.append(byte_of[position])
            row.weights.append(weight)
        row.prompts.extend(Prompt(byte_of[start], byte_of[end], role) for start, end, role in self.prompts_of(rendered))
        return row

    def controls(self, rendered: Rendered) -> list[tuple[int, int, int]]:
        """Control tokens outside all content: start, end, id."""
        if self._pattern is None:
            return []
        found: list[tuple[int, int, int]] = []
        last = 0
        for start, end in [*rendered.content, (len(rendered.text),) * 2]:
            found += [(*each.span(), self.control[each[0]]) for each in self._pattern.finditer(rendered.text, last, start)]
            last = end
        return found

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.control)

    def prompts_of(self, rendered: Rendered) -> list[Prompt]:
        """Each untrained text by its characters, where truncation asks for them. Images, reasoning and tool calls are never shortened, nor is
        what the template wrote; texts of one turn that stand end to end are one."""
        spans = zip(rendered.spans, self.policy.weights(rendered.spans), strict=True) if self.prompts else ()
        found: list[tuple[Prompt, int]] = []
        for span, weight in spans:
            if weight or span.role == SYSTEM or span.region.kind != TEXT:
                continue
            start, end = span.start + span.lead, span.end - span.trail
            if found and (found[-1][0].end, found[-1][1]) == (start, span.turn):
                start = found.pop()[0].start
            found.append((Prompt(start, end, span.role), span.turn))
        return [prompt for prompt, _ in found]


def _placeholder_items(
    rendered: Rendered, start: int, end: int, controls: Sequence[tuple[int, int, int]], items: Sequence[int]
) -> tuple[int, int]:
    """The first item of a placeholder and the number of its items: control tokens, with nothing but white space between them."""
    low, high = bisect_left(controls, (start,)), bisect_left(controls, (end,))
    edges = [start, *(edge for begin, stop, _ in controls[low:high] for edge in (begin, stop)), end]
    if any(rendered.text[left:right].strip() for left, right in zip(edges[::2], edges[1::2], strict=True)):
        raise ConfigError(f"{rendered.text[start:end][:80]!r} stands for an image, and not all of it is control tokens of the tokenizer")
    return items[low], items[high - 1] - items[low] + 1


def byte_table(text: str) -> Ints:
    """Byte position of every character of `text` in its UTF-8 form, and of its end: int64[len(text) + 1]."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))


def characters(text: str, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Byte positions in the UTF-8 form of a text → characters; a stretch that lies within a character becomes all of it."""
    table = byte_table(text)
    first, last = np.searchsorted(table, [starts, ends], "right") - 1
    return first, last + (table[last] < ends)


# Truncation: which tokens of an example that is too long are left. An image is kept whole, cut away whole, or makes its example refused.
#
# drop     none: the example is refused
# end      the first max_seq_len tokens
# start    the last max_seq_len tokens
# prompt   everything but a part of the longest untrained texts (Cerebras Model Zoo's prompt-first shortening): system turns, reasoning, tool
#          calls and what the template writes stay whole; refused where that is not enough
# turns    whole rounds from the oldest, the system turn kept; needs a new render, so the pipeline does it (see `without_oldest_rounds`)

Truncation = Literal["drop", "start", "end", "turns", "prompt"]
Bools = npt.NDArray[np.bool_]


def kept_tokens(length: int, limit: int, mode: Truncation, prompts: Sequence[Prompt], keeps: Mapping[str, Keep]) -> Bools | None:
    """Which tokens of an example stay, bool[length]; `None` where this mode cannot make it fit.

    Args:
        length: its tokens, more than `limit`.
        prompts: its untrained texts, by tokens.
        keeps: what is left of them, by role.
    """
    keep, excess = np.ones(length, bool), length - limit
    if mode in ("end", "start"):
        keep[slice(limit, None) if mode == "end" else slice(excess)] = False
        return keep
    # from the longest prompts, one after the other; each keeps what its role says
    for start, end, role in sorted(prompts if mode == "prompt" else (), key=lambda prompt: (prompt.start - prompt.end, prompt.start)):
        own = keeps.get(role, Keep())
        taken = min(excess, end - start - own.least)
        if taken > 0:
            keep[slice(end - taken, end) if own.part == "start" else slice(start, start + taken)] = False
            excess -= taken
    return keep if excess == 0 else None


def rounds(sample: Sample) -> list[int]:
    """Where rounds of a conversation begin: turn numbers of user turns that follow something else than a user turn."""
    roles = [turn.role for turn in sample.turns]
    return [i for i, role in enumerate(roles) if role == USER and (i == 0 or roles[i - 1] != USER)]


def without_oldest_rounds(sample: Sample, count: int) -> Sample:
    """`sample` without its `count` oldest rounds; system turns before the first round stay."""
    begins = rounds(sample)
    first, cut = begins[0], begins[count]
    system = tuple(turn for turn in sample.turns[:first] if turn.role == SYSTEM)
    return replace(sample, turns=(*system, *sample.turns[cut:]))


def cut_through(images: Placed, chosen: npt.NDArray[np.bool_]) -> dict[int, Refused]:
    """The records in which truncation would leave a part of an image: the first such image of each.

    Args:
        images: with `start` counted through the batch.
        chosen: bool[T], which tokens of the batch stay.
    """
    left = _kept_before(chosen)
    kept = left[images.start + images.length] - left[images.start]
    faults: dict[int, Refused] = {}
    for number in np.flatnonzero((kept > 0) & (kept < images.length)):
        detail = f"truncation would leave {kept[number]:,} of the {images.length[number]:,} tokens of {images.regions[number].text[:200]!r}"
        faults.setdefault(int(images.record[number]), Refused("image_cut", detail, stage="tokenize"))
    return faults


def after_cut(images: Placed, chosen: npt.NDArray[np.bool_], keep: npt.NDArray[np.bool_], offsets: Ints) -> Placed:
    """The images that are left, numbered and placed within the records that are left.

    Args:
        chosen: bool[T], which tokens of the batch stay.
        keep: bool[n], which records stay.
        offsets: int64[n + 1], where records begin in the batch.
    """
    left, number = _kept_before(chosen), np.cumsum(keep) - 1
    here = Placed(number[images.record], left[images.start] - left[offsets[images.record]], images.length, images.regions)
    return here.at(keep[images.record] & chosen[images.start])


def _kept_before(chosen: npt.NDArray[np.bool_]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen)])
