"""How a template writes chats of one form, learned from one render of invented texts, so that whole batches are written and cut without taking each
render apart.

The form of a plain chat is the roles of its turns, of another all of it but its texts. A layout is what stands before, between and after the texts, and
where the spans and stops of the turns lie among them:

    render   <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
    frames   <|user|>\\n  <|end|><|assistant|>\\n      <|end|>

A chat has this layout if its texts, put between the frames, are what the template makes of it. Whoever uses a layout has to look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt

from prep_assets.samples import TOOL_CALL
from prep_assets.text.spans import Cuts, Cutter, Ints, Prompt, Rendered, Row, Span, Stop, bounds, moved, of_rows, steps

Place = tuple[int, int]
"""A place in a layout: how many texts end before it, and so many characters after the last of these."""


def joined(frames: Sequence[str], written: Sequence[str]) -> str:
    """Texts between frames, of which there is one more."""
    return "".join(chain.from_iterable(zip(frames, written, strict=False))) + frames[-1]


@dataclass(frozen=True)
class Layout:
    """The layout of one form.

    Attributes:
        frames: what stands before the first text, between neighbours and after the last: one more than texts.
        order: which text of a chat stands in each gap between frames.
        words: the render of invented texts, from which all places come.
        ends: where each of these ends in it.
        left_out: how many turns lose their reasoning.
    """

    frames: tuple[str, ...]
    order: tuple[int, ...]
    words: Rendered
    ends: tuple[int, ...]
    left_out: int = 0

    @classmethod
    def of(cls, rendered: Rendered, frames: Sequence[str], order: Sequence[int], written: Sequence[str], left_out: int) -> Layout | None:
        """That of a render, if it is these frames with these texts, and all its spans and stops begin and end between texts, none amid one."""
        if joined(frames, written) != rendered.text:
            return None
        ends = accumulate(len(frame) + len(text) for frame, text in zip(frames, written, strict=False))
        layout = cls(tuple(frames), tuple(order), joined_calls(rendered), tuple(ends), left_out)
        where = [(each.start, each.end) for each in layout.words.spans] + [(each.start, each.end) for each in layout.words.stops]
        edges = chain.from_iterable(where)
        return layout if all(offset <= len(frames[gap]) for gap, offset in map(layout.place, edges)) else None

    def place(self, position: int) -> Place:
        """The place of a character of `words`."""
        before = bisect_right(self.ends, position)
        return before, position - (self.ends[before - 1] if before else 0)

    def start(self, number: int) -> int:
        """Where a text begins in `words`."""
        return (self.ends[number - 1] if number else 0) + len(self.frames[number])

    def render(self, written: Sequence[str]) -> Rendered:
        """What `rendering.render` gives for a chat of this layout, but for the regions of its spans, from its texts as they stand in its render. White
        space at the ends of a text counts as content here."""
        base = [0, *accumulate(len(frame) + len(text) for frame, text in zip(self.frames, written, strict=False))]

        def at(position: int) -> int:
            gap, offset = self.place(position)
            return base[gap] + offset

        spans = tuple(replace(span, start=at(span.start), end=at(span.end)) for span in self.words.spans)
        stops = tuple(Stop(stop.turn, at(stop.start), at(stop.end)) for stop in self.words.stops)
        content = tuple((end - len(each), end) for each, end in zip(written, base[1:], strict=True))
        return Rendered(joined(self.frames, written), spans, content, stops)


def joined_calls(rendered: Rendered) -> Rendered:
    """The render with the calls of a turn that are trained alike as one span: where one ends between them makes no difference."""
    spans: list[Span] = []
    for span in rendered.spans:
        last = spans[-1] if spans else None
        if span.region.kind == TOOL_CALL:
            span = replace(span, lead=0, trail=0)
            if last and (last.turn, last.end, last.region.kind, last.region.loss_weight) == (
                span.turn,
                span.start,
                TOOL_CALL,
                span.region.loss_weight,
            ):
                span = replace(spans.pop(), end=span.end)
        spans.append(span)
    return replace(rendered, spans=tuple(spans))


def outline(rendered: Rendered) -> tuple[object, ...]:
    """All that decides what is trained of a render."""
    spans = [
        (each.start, each.end, each.turn, each.role, each.region.kind, each.region.loss_weight, each.lead, each.trail)
        for each in joined_calls(rendered).spans
    ]
    return rendered.text, spans, rendered.stops


# Plain chats of one form, cut all at once: their layout says where control tokens, texts and changes of the loss weight stand in every one of them.
#
# Everything comes from the render of invented words of a `Layout`: it is cut like any other render, and each place in it is kept as so many texts before, so
# many bytes after. With the lengths of real texts these places become those of real renders, for a whole batch in a few additions. Groups of forms and chats
# that were rendered one by one are merged to one batch.

Places = tuple[Ints, Ints]
"""For each of several places: how many texts end before it, and bytes after these."""
Part = str | int
"""A stretch of a segment: template text, or the number of a text in the order of the layout."""


@dataclass(frozen=True)
class Form:
    """How chats of one layout are cut.

    Attributes:
        layout: the layout.
        items: int64[i], the id of a control token, or -1 for the next segment.
        item_bytes: int64[i], bytes of each item without its texts.
        item_of: for each text, in which item it stands.
        segments: what each segment consists of.
        is_first: whether the first segment is the very beginning.
        breaks: for each change of the loss weight: how many texts end before it, bytes after these.
        weights: float32, the weight from there on.
        prompts: where each untrained content starts and ends, one after the other, as `breaks`; none where truncation does not ask for them.
        prompt_roles: the role of each of these.
    """

    layout: Layout
    items: Ints
    item_bytes: Ints
    item_of: tuple[int, ...]
    segments: tuple[tuple[Part, ...], ...]
    is_first: bool
    breaks: Places
    weights: npt.NDArray[np.float32]
    prompts: Places
    prompt_roles: tuple[str, ...]

    @classmethod
    def of(cls, layout: Layout, cutter: Cutter) -> Form:
        """How chats of a layout are cut."""
        rendered = layout.words
        controls = cutter.controls(rendered)
        items: list[int] = []
        item_bytes: list[int] = []
        item_of: list[int] = []
        segments: list[tuple[Part, ...]] = []
        last = 0
        for start, end, token in [*controls, (len(rendered.text), len(rendered.text), -1)]:
            if start > last:
                parts = _parts(layout, last, start)
                item_of += [len(items)] * sum(isinstance(part, int) for part in parts)
                segments.append(parts)
                items.append(-1)
                item_bytes.append(sum(len(part.encode()) for part in parts if isinstance(part, str)))
            if token >= 0:
                items.append(token)
                item_bytes.append(len(rendered.text[start:end].encode()))
            last = end
        changes = steps(rendered, cutter.policy)
        prompts = cutter.prompts_of(rendered)
        return cls(
            layout,
            np.array(items, np.int64),
            np.array(item_bytes, np.int64),
            tuple(item_of),
            tuple(segments),
            not controls or controls[0][0] > 0,
            _places(layout, [position for position, _ in changes]),
            np.array([weight for _, weight in changes], np.float32),
            _places(layout, [position for start, end, _ in prompts for position in (start, end)]),
            tuple(role for _, _, role in prompts),
        )

    def cut(self, columns: Sequence[Sequence[str]], lengths: Ints | None = None) -> FormCuts:
        """Chats of this form, given by their texts as they stand in their renders: a column for each, in that order.

        Args:
            lengths: bytes of each text, a row for each column, where they are known.
        """
        count = len(columns[0])
        if lengths is None:
            lengths = np.array([[len(text) if text.isascii() else len(text.encode()) for text in column] for column in columns], np.int64)
        item_bytes = np.repeat(self.item_bytes[None], count, axis=0)
        for item, column in zip(self.item_of, lengths, strict=True):
            item_bytes[:, item] += column
        frames = np.array([len(frame.encode()) for frame in self.layout.frames], np.int64)
        ends = np.zeros((count, len(columns) + 1), np.int64)
        np.cumsum(lengths.T + frames[:-1], axis=1, out=ends[:, 1:])
        breaks, prompts = (ends[:, gap] + after for gap, after in (self.breaks, self.prompts))
        return FormCuts(self, columns, np.cumsum(item_bytes, axis=1), breaks, prompts)


def _places(layout: Layout, positions: Sequence[int]) -> Places:
    """For each character of the render of words: how many texts end before it, and bytes after these."""
    places = [layout.place(position) for position in positions]
    after = [len(layout.frames[gap][:offset].encode()) for gap, offset in places]
    return np.array([gap for gap, _ in places], np.int64), np.array(after, np.int64)


def _parts(layout: Layout, start: int, end: int) -> tuple[Part, ...]:
    """What stands between two characters of the render of words."""
    parts: list[Part] = []
    text, at = layout.words.text, start
    for number, word_end in enumerate(layout.ends):
        word_start = layout.start(number)
        if start <= word_start and word_end <= end:
            parts += [text[at:word_start], number]
            at = word_end
    return tuple(part for part in (*parts, text[at:end]) if part != "")


@dataclass(frozen=True)
class FormCuts:
    """A group of chats of one form, cut.

    Attributes:
        form: their form.
        columns: the texts as they stand in the render: one column for each, in its order.
        item_ends: int64[n, i], where each item of each chat ends, in its own bytes.
        breaks: int64[n, b], bytes of each chat where its loss weight changes.
        prompts: int64[n, 2 p], where each untrained content of each chat starts and ends; none where truncation does not ask for them.
    """

    form: Form
    columns: Sequence[Sequence[str]]
    item_ends: Ints
    breaks: Ints
    prompts: Ints

    def of(self, chosen: Sequence[int]) -> FormCuts:
        """Only the chosen chats."""
        columns = [[column[number] for number in chosen] for column in self.columns]
        return FormCuts(self.form, list(columns), self.item_ends[chosen], self.breaks[chosen], self.prompts[chosen])

    def segments(self) -> list[list[str]]:
        """The ordinary texts: a column for each segment."""
        return [self._joined(parts) for parts in self.form.segments]

    def _joined(self, parts: Sequence[Part]) -> list[str]:
        count = len(self.item_ends)
        if len(parts) == 1 and isinstance(parts[0], int):
            return list(self.columns[parts[0]])
        if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], int):
            return [parts[0] + text for text in self.columns[parts[1]]]
        listed = [[part] * count if isinstance(part, str) else self.columns[part] for part in parts]
        return ["".join(each) for each in zip(*listed, strict=True)]

    def text(self, number: int) -> str:
        """The render of one chat."""
        return joined(self.form.layout.frames, [column[number] for column in self.columns])


Group = tuple[Ints, FormCuts]
"""Which rows of a batch, and how these are cut."""


def merged(count: int, rows: Mapping[int, Row], groups: Sequence[Group]) -> Cuts:
    """A batch of `count` rows, each of which is in `rows` or in one of `groups`."""
    alone = np.array(list(rows), np.int64)
    single = of_rows(list(rows.values()))
    if not groups:
        return single
    batch = _Batch(*(np.zeros(count, np.int64) for _ in range(4)))
    batch.measure(alone, list(rows.values()), groups)
    items, segments, breaks, starts = (bounds(each) for each in (batch.items, batch.segments, batch.breaks, batch.bytes))
    made = Cuts(
        [],
        np.zeros(int(segments[-1]), bool),
        np.empty(int(items[-1]), np.int64),
        np.empty(int(items[-1]), np.int64),
        items,
        starts,
        np.empty(int(breaks[-1]), np.int64),
        np.empty(int(breaks[-1]), np.float32),
        {},
        [],
        _texts(rows, groups),
    )
    texts = np.empty(int(segments[-1]), object)
    for at, cut in groups:
        _put_group(made, texts, at, cut, (items, segments, breaks, starts))
    if len(alone):
        _put_rows(made, texts, single, batch, alone, (items, segments, breaks, starts))
    made.segments.extend(texts.tolist())
    return made


@dataclass(frozen=True, slots=True)
class _Batch:
    """How many items, segments, breaks and bytes each row has: int64[n] each."""

    items: Ints
    segments: Ints
    breaks: Ints
    bytes: Ints

    def measure(self, alone: Ints, rows: Sequence[Row], groups: Sequence[Group]) -> None:
        """Fill in the sizes."""
        self.items[alone] = [len(row.items) for row in rows]
        self.segments[alone] = [len(row.segments) for row in rows]
        self.breaks[alone] = [len(row.breaks) for row in rows]
        self.bytes[alone] = [row.item_ends[-1] if row.item_ends else 0 for row in rows]
        for at, cut in groups:
            self.items[at], self.segments[at], self.breaks[at] = len(cut.form.items), len(cut.form.segments), len(cut.form.weights)
            self.bytes[at] = cut.item_ends[:, -1]


def _put_group(made: Cuts, texts: npt.NDArray[np.object_], rows: Ints, cut: FormCuts, places: tuple[Ints, ...]) -> None:
    form = cut.form
    items, segments, breaks, starts = (each[rows] for each in places)
    here = items[:, None] + np.arange(len(form.items))
    made.items[here], made.item_ends[here] = form.items, cut.item_ends + starts[:, None]
    here = breaks[:, None] + np.arange(len(form.weights))
    made.breaks[here], made.weights[here] = cut.breaks + starts[:, None], form.weights
    made.is_first[segments[: len(segments) * bool(form.segments)]] = form.is_first
    for number, column in enumerate(cut.segments()):
        texts[segments + number] = column
    if cut.prompts.size:
        for row, edges in zip(rows.tolist(), (cut.prompts + starts[:, None]).tolist(), strict=True):
            made.prompts[row] = list(map(Prompt, edges[::2], edges[1::2], form.prompt_roles))


def _put_rows(
    made: Cuts, texts: npt.NDArray[np.object_], single: Cuts, batch: _Batch, alone: Ints, places: tuple[Ints, Ints, Ints, Ints]
) -> None:
    def ranges(starts: Ints, sizes: Ints) -> Ints:
        """The places of all rows, one run after the other."""
        counts = sizes[alone]
        return np.repeat(starts[alone] - bounds(counts)[:-1], counts) + np.arange(counts.sum())

    items, segments, breaks, starts = places
    shift = starts[alone] - single.starts[:-1]
    here = ranges(items, batch.items)
    made.items[here], made.item_ends[here] = single.items, single.item_ends + np.repeat(shift, batch.items[alone])
    here = ranges(breaks, batch.breaks)
    made.breaks[here], made.weights[here] = single.breaks + np.repeat(shift, batch.breaks[alone]), single.weights
    here = ranges(segments, batch.segments)
    made.is_first[here], texts[here] = single.is_first, np.array([*single.segments, None], object)[:-1]
    for number, (row, by) in enumerate(zip(alone.tolist(), shift.tolist(), strict=True)):
        if prompts := single.prompts[number]:
            made.prompts[row] = moved(prompts, by)
    for number, first, count, path in single.images:
        row = int(alone[number])
        made.images.append((row, first - int(single.item_bounds[number]) + int(items[row]), count, path))


def _texts(rows: Mapping[int, Row], groups: Sequence[Group]) -> Callable[[int], str]:
    whole = {row: each.text for row, each in rows.items()}

    def text(row: int) -> str:
        if row in whole:
            return whole[row]
        at, cut = next((at, cut) for at, cut in groups if row in at)
        return cut.text(int(np.flatnonzero(at == row)[0]))

    return text
