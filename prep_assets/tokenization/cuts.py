"""A batch of renders cut at the control tokens that the template wrote: ordinary segments between them, and where loss weights change.

`Row` is one render, in places of its own. `Cuts` is a batch, whose byte positions count through all of it. Rows come from renders (`row_of`); for
plain chats whose layout is known, `forms` gives the same for many at once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError
from prep_assets.samples import SYSTEM, TEXT, Region
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.policy import MaskPolicy, steps

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
        byte_of = BytePositions(rendered.text)
        controls = self.controls(rendered)
        row = Row(rendered.text, [], not controls or controls[0][0] > 0, [], [], [], [])
        control_items: list[int] = []
        last = 0
        for start, end, token in [*controls, (len(rendered.text), len(rendered.text), -1)]:
            if start > last:
                row.segments.append(rendered.text[last:start])
                row.items.append(-1)
                row.item_ends.append(byte_of(start))
            if token >= 0:
                control_items.append(len(row.items))
                row.items.append(token)
                row.item_ends.append(byte_of(end))
            last = end
        for start, end, region in rendered.images:
            row.images.append((*_placeholder_items(rendered, start, end, controls, control_items), region))
        for position, weight in steps(rendered, self.policy):
            row.breaks.append(byte_of(position))
            row.weights.append(weight)
        byte_of = BytePositions(rendered.text)
        row.prompts.extend(Prompt(byte_of(start), byte_of(end), role) for start, end, role in self.prompts_of(rendered))
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
        texts = sorted(self.control, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, texts))) if texts else None

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


class BytePositions:
    """Character position → byte position in the UTF-8 form of a text. Positions are asked for in ascending order."""

    __slots__ = ("_bytes", "_chars", "_text")

    def __init__(self, text: str) -> None:
        self._text = None if text.isascii() else text
        self._chars = self._bytes = 0

    def __call__(self, position: int) -> int:
        """The byte position of a character."""
        if self._text is None:
            return position
        if position < self._chars:
            self._chars = self._bytes = 0
        self._bytes += len(self._text[self._chars : position].encode())
        self._chars = position
        return self._bytes


def byte_table(text: str) -> Ints:
    """Byte position of every character of `text` in its UTF-8 form, and of its end: int64[len(text) + 1]."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    return bounds(1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF).astype(np.int64))


def characters(text: str, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Byte positions in the UTF-8 form of a text → characters; a stretch that lies within a character becomes all of it."""
    table = byte_table(text)
    first, last = np.searchsorted(table, [starts, ends], "right") - 1
    return first, last + (table[last] < ends)
