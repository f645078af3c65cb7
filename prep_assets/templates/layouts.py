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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from prep_assets.samples import TOOL_CALL
from prep_assets.templates.rendered import Rendered, Span, Stop

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
