"""How a template writes chats, learned once for each form, so that whole batches are written without it. Here those of plain chats are learned, in
`shaped_layouts` those of chats with tools, calls or reasoning.

The form of a plain chat is the roles of its turns. Its layout is what stands before, between and after the texts, and where the spans and stops of
its turns lie among them:

    render   <|user|>\\nHi<|end|><|assistant|>\\nHello!<|end|>
    frames   <|user|>\\n  <|end|><|assistant|>\\n      <|end|>

A layout is known where the template, run on invented words under watch (see `watching`), asks nothing that other texts may answer otherwise, and
where chats of three kinds (words, words amid white space, texts of every sort) are laid out as `render` has them. All other chats, and those that
hold one of the strings that the template looks for, are rendered by the template.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, zip_longest
from typing import TYPE_CHECKING

from prep_assets.errors import Refused
from prep_assets.samples import TEXT, TOOL_CALL, PlainChat, Sample
from prep_assets.templates.arguments import OneByOne
from prep_assets.templates.conversation import messages, pieces
from prep_assets.templates.questions import Questions, word
from prep_assets.templates.rendered import Rendered, Span, Stop
from prep_assets.templates.rendering import UNTEMPLATED, render
from prep_assets.templates.shapes import Shape

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

Form = tuple[str, ...] | Shape
"""What chats that differ in texts alone have in common: the roles of plain ones, the shape of others."""


def plain_chat(sample: Sample) -> PlainChat | None:
    """The sample in columns; `None` where it is more than a text for each turn."""
    if sample.tools or sample.documents or sample.template_options or sample.label is not None:
        return None
    texts: list[str] = []
    for turn in sample.turns:
        if len(turn.regions) != 1 or turn.name is not None or turn.tool_call_id is not None:
            return None
        region = turn.regions[0]
        if region.kind != TEXT or region.loss_weight is not None or region.drop or not region.attend:
            return None
        texts.append(region.text)
    return PlainChat(tuple([turn.role for turn in sample.turns]), tuple(texts))


MOST_KNOWN = 4096
_LEAD, _TRAIL = " \n\t", "\t\n "
SORTS = 'It’s 5 o\'clock;\n\n* {{a}} <b>&amp; "q" \\n 中文 😀'

Place = tuple[int, int]
"""A place in a layout: how many texts end before it, and so many characters after the last of these."""


@dataclass(frozen=True)
class Layout:
    """The layout of one form.

    Attributes:
        frames: what stands before the first text, between neighbours and after the last: one more than texts.
        order: the turn whose text stands in each gap between frames.
        trims: of each of these texts, whether white space is taken from its beginning and from its end.
        keeps_edges: whether texts with white space at their ends are laid out so as well.
        words: the render of invented words, from which all places come.
        ends: where their words end in it.
        spelled: of each text, how the template writes it where that is not as it is; none where all are written as they are.
        left_out: how many turns lose their reasoning.
    """

    frames: tuple[str, ...]
    order: tuple[int, ...]
    trims: tuple[tuple[bool, bool], ...]
    keeps_edges: bool
    words: Rendered
    ends: tuple[int, ...]
    spelled: tuple[Callable[[str], str] | None, ...] = ()
    left_out: int = 0

    def place(self, position: int) -> Place:
        """The place of a character of `words`."""
        before = bisect_right(self.ends, position)
        return before, position - (self.ends[before - 1] if before else 0)

    def start(self, number: int) -> int:
        """Where a word begins in `words`."""
        return (self.ends[number - 1] if number else 0) + len(self.frames[number])

    def columns(self, texts: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        """The texts of several chats as they stand in their renders: a column for each, in the order of the render."""
        columns = list(zip(*texts, strict=True))
        shown = [
            [_trimmed(text, *trims) for text in columns[turn]] if any(trims) else columns[turn]
            for turn, trims in zip(self.order, self.trims, strict=True)
        ]
        return [list(map(spell, own)) if spell else own for own, spell in zip_longest(shown, self.spelled)]

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether arguments that are written one by one are of the sorts that are known."""
        own = [(gap, way) for gap, way in enumerate(self.spelled) if isinstance(way, OneByOne)]
        return all(way.holds(texts[self.order[gap]], self.frames[gap], self.frames[gap + 1]) for gap, way in own)

    def render(self, texts: Sequence[str]) -> Rendered:
        """What `rendering.render` gives for a chat of this form that holds no needle, but for the regions of its spans. White space at the ends of a text
        counts as content here."""
        written = [column[0] for column in self.columns([texts])]
        lengths = [len(frame) + len(text) for frame, text in zip(self.frames, written, strict=False)]
        base = [0, *accumulate(lengths)]

        def at(position: int) -> int:
            gap, offset = self.place(position)
            return base[gap] + offset

        spans = tuple(replace(span, start=at(span.start), end=at(span.end)) for span in self.words.spans)
        stops = tuple(Stop(stop.turn, at(stop.start), at(stop.end)) for stop in self.words.stops)
        text = "".join(chain.from_iterable(zip(self.frames, written, strict=False))) + self.frames[-1]
        return Rendered(text, spans, tuple((end - len(each), end) for each, end in zip(written, base[1:], strict=True)), stops)


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


def _trimmed(text: str, lead: bool, trail: bool) -> str:
    text = text.lstrip() if lead else text
    return text.rstrip() if trail else text


@dataclass
class Layouts:
    """What is known of the layouts of one template.

    Attributes:
        needles: strings that the template looks for in texts.
    """

    template: ChatTemplate
    needles: set[str] = field(default_factory=set)
    _known: dict[tuple[str, ...], Layout | None] = field(default_factory=dict)
    _bare: set[tuple[str, ...]] = field(default_factory=set)

    def of(self, form: Form, *, spaced: bool = True) -> Layout | None:
        """The layout of chats of this form; `None` where the template has to render them.

        Args:
            spaced: whether it shall be known what becomes of white space at the ends of texts, if it can be.
        """
        if isinstance(form, Shape):  # of which there may be many, each of which is remembered where it is used
            return self._shaped(form)
        if form not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
                self._bare.clear()
            self._known[form] = self._learned(form)
        layout = self._known[form]
        if layout is not None and spaced and form in self._bare:
            self._bare.remove(form)
            layout = self._known[form] = self._with_edges(layout, form)
        return layout

    def _shaped(self, shape: Shape) -> Layout | None:
        from prep_assets.templates.shaped_layouts import shaped_layout

        found = shaped_layout(shape, self.template) if not self.template.image else None
        self.needles |= found[1] if found else set()
        return found[0] if found else None

    def _learned(self, roles: tuple[str, ...]) -> Layout | None:
        if self.template.image:
            return None
        words = [word(number) for number in range(len(roles))]
        rendered = self._rendered(roles, words)
        if rendered is None:
            return None
        asked = self._asked(roles, words, rendered.text)
        if asked.open or any(rendered.text.count(each) != 1 for each in words):
            return None
        order = tuple(sorted(range(len(words)), key=lambda turn: rendered.text.index(words[turn])))
        starts = [rendered.text.index(words[turn]) for turn in order]
        ends = tuple(start + len(words[turn]) for start, turn in zip(starts, order, strict=True))
        frames = tuple(rendered.text[left:right] for left, right in zip((0, *ends), (*starts, None), strict=True))
        bare = Layout(frames, order, ((False, False),) * len(roles), False, rendered, ends)
        sorts = [f"{each}{SORTS}{each}" for each in words]
        if not is_between_words(bare) or not _right(bare, sorts, self._rendered(roles, sorts)):
            return None
        self.needles |= asked.needles
        if not asked.trims_some and not any(control != control.strip() for control in self.template.control):
            self._bare.add(roles)
        return bare

    def _asked(self, roles: tuple[str, ...], words: Sequence[str], text: str) -> Questions:
        """What the template asks while it renders the words; open where it then renders otherwise."""
        if all(role in UNTEMPLATED for role in roles):
            return Questions()
        sample = PlainChat(roles, tuple(words)).sample()
        found, asked = self.template.watched(messages(sample, pieces(sample, form=self.template.form), "none", self.template.form))
        if found != text:
            asked.cannot_tell("another render under watch")
        return asked

    def _with_edges(self, bare: Layout, roles: tuple[str, ...]) -> Layout:
        """The layout with what becomes of white space at the ends of texts, where that is known."""
        words = [word(number) for number in range(len(roles))]
        texts = [f"{_LEAD}{each}{_TRAIL}" for each in words]
        rendered = self._rendered(roles, texts)
        text = rendered.text if rendered else ""
        places = [(text.find(words[turn]), len(words[turn])) for turn in bare.order]
        trims = tuple((not text.endswith(_LEAD, 0, at), not text.startswith(_TRAIL, at + length)) for at, length in places)
        full = Layout(bare.frames, bare.order, trims, True, bare.words, bare.ends)
        return full if _right(full, texts, rendered) else bare

    def _rendered(self, roles: tuple[str, ...], texts: Sequence[str]) -> Rendered | None:
        """The render of a chat; `None` where the template refuses it."""
        try:
            return render(PlainChat(roles, tuple(texts)).sample(), self.template)
        except Refused:
            return None


def _right(layout: Layout, texts: Sequence[str], expected: Rendered | None) -> bool:
    """Whether a layout writes a chat as the template does."""
    return expected is not None and outline(layout.render(texts)) == outline(expected)


def is_between_words(layout: Layout) -> bool:
    """Whether all spans and stops begin and end between the words, none amid one."""
    where = [(each.start, each.end) for each in layout.words.spans] + [(each.start, each.end) for each in layout.words.stops]
    edges = [edge for each in where for edge in each]
    places = [layout.place(edge) for edge in edges]
    return all(offset <= len(layout.frames[gap]) for gap, offset in places)
