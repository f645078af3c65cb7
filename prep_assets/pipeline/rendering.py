"""Render chats with a template, many of one form at a time, and prove their masks.

    samples    user: Hi | assistant: Hello!      user: Bye | assistant: So long.
    data       <|user|>Hi<|end|><|assistant|>Hello!<|end|><|user|>Bye<|end|><|assistant|>So long.<|end|>
    starts     0                                          47                                             93
    weights                                 1 ……………… 0                                      1 …………………… 0

`BlockRenderer.render_block` gives renders in columns, `BlockRenderer.render` one of them, the slow and obvious way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakSet, proxy

import numpy as np
from msgspec import Struct

from prep_assets.array_types import Bools, Ints
from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed, Refused, TemplateError
from prep_assets.pipeline.asset import DERIVATIONS_DIFFER
from prep_assets.pipeline.examples import AnyExample
from prep_assets.proofs.chat_blocks import PlainDerivation, answers_derivation, derived_forms
from prep_assets.proofs.derive import Derived, MaskOptions, disagreement
from prep_assets.proofs.rebuilt import ImplementationsDiffer, RendersDiffer
from prep_assets.samples import TOOL_CALL, PlainChat, Region, Sample, Spelled, changed
from prep_assets.text.chats import ChatColumns, Kind, Outline, OutlinedSample, any_of, as_json, outline_of, outlined, plain_chat
from prep_assets.text.conversation import plain_message, shown_messages, tool_call
from prep_assets.text.encode import Encoder
from prep_assets.text.environment import MessageForm
from prep_assets.text.forms import CompiledForm, FormCache, Layout, agreed, layout_of, render_forms
from prep_assets.text.minijinja_blocks import END, WHITE_TO_PYTHON, blocks_of, only_writes
from prep_assets.text.render import UNTEMPLATED, left_out, render, unserved_prompts
from prep_assets.text.spans import Rendered, RenderedBlock, Span, Stop, check_stops, steps, trained
from prep_assets.text.template import ChatTemplate

# Many chats of one form at a time. A chat is cut by its form if its render is the one that the form predicts. So templates may branch on any text.
#
# The spans of a form are derived from the marks of `render` and by the second derivation. Both must agree.

ONE_IN = 1024
"""One in so many chats of a known form is parsed as well, chosen by a hash of its last text, and so is the first of each form."""

_NONCHARACTERS = "\ufdd0".encode()[:2]
"""First bytes of the noncharacters, in UTF-8; no text may hold one."""
_BARE = frozenset(UNTEMPLATED)
_FAULTS_OF_MARKS = frozenset(["template_rewrites_content", "template_drops_content", "template_refuses"])
"""Reasons that may come from the marks: without them such a chat may render well."""
_JSON_CHARACTERS = frozenset('{}",:')


class ShapedChat(OutlinedSample, frozen=True):
    """A sample in columns, with what its template is given.

    Attributes:
        whole: the sample.
        tools: its tools.
        calls: its tool calls, in order.
    """

    whole: Sample
    tools: tuple[Spelled, ...]
    calls: tuple[dict[str, Any], ...]


Chat = PlainChat | ShapedChat


def in_columns(sample: AnyExample | None) -> Chat | None:
    """A sample in columns; `None` if its template must see it as it is."""
    if isinstance(sample, PlainChat) or not isinstance(sample, Sample):
        return sample if isinstance(sample, PlainChat) else None
    if plain := plain_chat(sample):
        return plain
    calls = list[dict[str, Any]]()

    def read(region: Region) -> dict[str, Any]:
        calls.append(tool_call(region))
        return calls[-1]

    try:
        columns = outlined(sample, read)
    except Refused:
        return None
    if columns is None:
        return None
    tools = tuple(
        [tool if isinstance(tool, Spelled) else Spelled(tool, text) for tool, text in zip(sample.tools, columns.texts, strict=False)]
    )
    spelled = iter([columns.texts[number] for number in columns.form.json[len(tools) :]])
    called = [{**call, "arguments": Spelled(call["arguments"], next(spelled) if call["arguments"] else "{}")} for call in calls]
    return ShapedChat(columns.form, columns.texts, sample, tools, tuple(called))


class FormSpans(NamedTuple):
    """The render of a chat without its texts, and what of its turns is lost. Adjacent calls of a turn with equal weights are one span, since the
    border between them makes no difference.

    Attributes:
        rendered: the render.
        left_out: how many turns lose their reasoning.
        unserved: how many trained answers stand behind a prompt that no server sends.
    """

    rendered: Rendered
    left_out: int
    unserved: int

    @classmethod
    def of(cls, rendered: Rendered, left_out: int, unserved: int) -> FormSpans:
        """From the render of a chat."""
        spans: list[Span] = []
        for span in rendered.spans:
            lead, trail = (0, 0) if span.region.kind == TOOL_CALL else (span.lead, span.trail)
            span = replace(span, region=changed(span.region, text=""), lead=lead, trail=trail)
            last = spans[-1] if spans and span.region.kind == TOOL_CALL else None
            if last and (last.turn, last.end, last.region) == (span.turn, span.start, span.region):
                span = replace(spans.pop(), end=span.end)
            spans.append(span)
        return cls(replace(rendered, spans=tuple(spans), content=()), left_out, unserved)

    def moved(self, layout: Layout, shown: Sequence[str]) -> FormSpans:
        """Move spans and stops from the invented texts of a form to those of a chat, as its render shows them."""
        at = layout.mover(shown)
        spans = tuple(
            [
                replace(span, start=at(span.start), end=at(span.end), header=at(span.header) if span.header >= 0 else -1)
                for span in self.rendered.spans
            ]
        )
        stops = tuple([Stop(stop.turn, at(stop.start), at(stop.end)) for stop in self.rendered.stops])
        return self._replace(rendered=Rendered(layout.text(shown), spans, (), stops))


@dataclass(frozen=True)
class RenderedChats:
    """Chats in columns.

    Attributes:
        rows: int64[n], their positions among the samples, ascending.
        block: their renders.
        left_out, unserved: int64[n], of each chat, as of `FormSpans`.
    """

    rows: Ints
    block: RenderedBlock
    left_out: Ints
    unserved: Ints


class BlockRenderer:
    """Renders chats: plain ones and those with tools, calls or reasoning.

    Attributes:
        compared: how many chats of known forms were parsed as well.
    """

    def __init__(self, template: ChatTemplate, encoder: Encoder, options: MaskOptions, searched: Iterable[str]) -> None:
        """For a template, a tokenizer and a policy. Chats that hold one of the strings `searched` are never cut by form."""
        self._template, self._encoder = template, encoder
        self._derived_forms = derived_forms(template, options, options, prompted=False)
        self._forms = FormCache(partial(BlockRenderer._learn, proxy(self)), plain_at_once=False)
        strings = {*searched}
        strings |= {*map(str.strip, strings)} - {""}  # texts of outlines are stripped
        self._search = any_of(strings | {as_json(string)[1:-1] for string in strings} | {*WHITE_TO_PYTHON, END})
        self._only_writes = template.renderer is None and template.form.content == "text" and only_writes(template.parsed)
        self._compared, self._by_jinja, self.compared = WeakSet[CompiledForm[FormSpans]](), False, 0

    def render_block(self, samples: Sequence[AnyExample | None], *, whole: bool = False) -> RenderedChats | None:
        """The renders of all samples of known forms, if there are any; `render` takes the others one by one.

        Args:
            whole: take only chats that lose no reasoning and have no answer behind a prompt that no server sends.

        Raises:
            TemplateError: the template itself renders a chat otherwise than its form. The first of each form and one in `ONE_IN` are compared.
        """
        chats = list(map(in_columns, samples))
        columns = ChatColumns.of(chats)
        forms, numbers = self._forms.assign(columns, *self._cuttable(columns))
        rows = np.flatnonzero(numbers >= 0)
        if not len(rows):
            return None
        block, sampled, good = render_forms(columns, forms, numbers), columns.sampled(ONE_IN), np.zeros(len(chats), bool)
        for number, form in enumerate(forms):
            own = rows[numbers[rows] == number]
            listed = [chat for row in own.tolist() if (chat := chats[row])]
            if listed and not self._needs_no_render(form, listed[0]):
                own = own[self._renders(form, listed, list(map(block.text, np.searchsorted(rows, own).tolist())))]
            both = sampled[own]
            both[:1] |= form not in self._compared
            for chat in [chats[row] for row in own[both].tolist()]:
                self._compare(form, chat)
            if own.size:
                self._compared.add(form)
            good[own] = not (whole and form.derived.left_out + form.derived.unserved)
        kept = numbers[good]
        if not len(kept):
            return None
        if len(kept) < len(rows):
            block = render_forms(columns, forms, np.where(good, numbers, -1))
        lost, unserved = np.array([form.derived[1:] for form in forms], np.int64)[kept].T
        return RenderedChats(np.flatnonzero(good), block, lost, unserved)

    def render(self, sample: Sample) -> Rendered:
        """Render a chat as `text.render.render`. If that cannot follow its marks, fall back to the chat's form, provided the template renders it that way:
        whether a chat is kept must not depend on how many others share its form.

        Raises:
            Refused: as `text.render.render`.
        """
        try:
            return render(sample, self._template)
        except Refused as refusal:
            rendered = self.by_form(sample) if refusal.reason in _FAULTS_OF_MARKS else None
            if rendered is None:
                raise
            return rendered

    def lost(self, sample: Sample, rendered: Rendered) -> tuple[int, int]:
        """How many turns of a sample lose their reasoning, and how many trained answers stand behind a prompt that no server sends."""
        return left_out(sample, rendered), sum(1 for _ in unserved_prompts(sample, rendered, self._template, self._encoder.policy))

    def by_form(self, sample: AnyExample) -> Rendered | None:
        """The render of a chat by its form, even if it is the only one of that form; `None` if the template renders it differently."""
        if (chat := in_columns(sample)) is None:
            return None
        columns = ChatColumns.of([chat])
        [allowed], [spaced] = self._cuttable(columns)
        form = self._forms.of(columns.kinds[0], bool(spaced), at_once=True) if allowed else None
        if form is None or not form.layout.holds(chat.texts):
            return None
        shown = form.layout.shown(chat.texts)
        rendered = form.derived.moved(form.layout, shown).rendered
        if not self._needs_no_render(form, chat) and not self._renders(form, [chat], [rendered.text]).all():
            return None
        ends = form.layout.ends_of(shown)[1:]
        return replace(rendered, content=tuple((end - len(text), end) for text, end in zip(shown, ends, strict=True)))

    def _cuttable(self, columns: ChatColumns) -> tuple[Bools, Bools]:
        """The chats that may be cut by form, and those with white space at the ends of texts."""
        blank, spaced = columns.white()
        if self._template.renderer is not None:  # each chat is compared with the second implementation
            return np.zeros(len(blank), bool), spaced
        held = columns.holding(self._search)
        if _NONCHARACTERS in columns.data:
            held |= columns.holding(any_of(map(chr, range(0xFDD0, 0xFDF0))))
        return (columns.kind >= 0) & ~blank & ~held, spaced

    def _learn(self, kind: Kind, spaced: bool) -> CompiledForm[FormSpans] | None:
        outline = outline_of(kind)
        if (
            self._template.marks
            or not self._keeps_control_tokens_apart(outline, spaced)
            or (kind is outline and {turn[0] for turn in outline.turns} & _BARE)
        ):
            return None
        second = self._derived_forms.of(kind, spaced, at_once=True)
        if second is None:
            return None

        @lru_cache(8)
        def answer(texts: tuple[str, ...]) -> FormSpans:
            sample = outline.sample(texts)
            rendered = render(sample, self._template)
            if (chat := in_columns(sample)) and not _is_bare(chat):
                self._by_jinja |= not self._minijinja_renders([chat], [rendered.text])
            return FormSpans.of(rendered, *self.lost(sample, rendered))

        try:
            layout = layout_of(kind, spaced, lambda texts: answer(texts).rendered.text)
            derived = None if layout is None else agreed(layout, answer, FormSpans.moved)
            if layout is None or derived is None:
                return None
            rendered, policy, cutter = derived.rendered, self._encoder.policy, self._encoder.cutter
            if disagreement(second.derived, rendered.text, trained(rendered, policy)) is not None:
                return None
            check_stops(policy, rendered)
        except Refused:
            return None
        return CompiledForm.of(layout, derived, cutter.controls(rendered), steps(rendered, policy), cutter.prompts_of(rendered))

    def _keeps_control_tokens_apart(self, outline: Outline, spaced: bool) -> bool:
        """Whether no control token can start in JSON, or in white space at the end of a text, and run into what follows."""
        spaced |= any(kind != TOOL_CALL and any(around) for *_, regions in outline.turns for kind, _, around in regions)
        tokens = self._encoder.vocabulary.control if outline.json or spaced else ()
        return not any(token != token.strip() or (outline.json and _JSON_CHARACTERS.intersection(token)) for token in tokens)

    def _needs_no_render(self, form: CompiledForm[FormSpans], chat: Chat | None) -> bool:
        """Whether chats of a form can only render one way: no template applies, or it does nothing but write their texts."""
        return isinstance(chat, PlainChat) and (_is_bare(chat) or (self._only_writes and form in self._compared))

    def _renders(self, form: CompiledForm[FormSpans], chats: Sequence[Chat], written: Sequence[str]) -> Bools:
        """The chats of a form that certainly render to the given texts."""
        good, tokens = np.ones(len(chats), bool), self._template.ends.pattern
        if form.layout.lists and tokens is not None:  # argument names may form a control token with their surroundings
            count = len(tokens.findall(form.derived.rendered.text))
            good = np.array([len(tokens.findall(text)) == count for text in written], bool)
        if not good.all() or not self._minijinja_renders(chats, written):
            for at in np.flatnonzero(good).tolist():
                good[at] = self._minijinja_renders([chats[at]], [written[at]]) or self._jinja_renders(chats[at], written[at])
        return good

    def _minijinja_renders(self, chats: Sequence[Chat], written: Sequence[str]) -> bool:
        """Whether MiniJinja renders the chats to the given texts."""
        blocks = None if self._by_jinja else blocks_of(self._template)
        if blocks is None:
            return False
        listed = [_messages(chat, self._template.form) for chat in chats]
        tools = [chat.tools for chat in chats if isinstance(chat, ShapedChat) and chat.tools]
        return blocks.text(listed, tools) == END.join([*written, ""])

    def _jinja_renders(self, chat: Chat, written: str) -> bool:
        try:
            tools = chat.tools if isinstance(chat, ShapedChat) else ()
            return self._template.render(_messages(chat, self._template.form), tools=tools) == written
        except Refused:
            return False

    def _compare(self, form: CompiledForm[FormSpans], chat: Chat) -> None:
        """Raise `TemplateError` if the template itself renders a chat differently."""
        self.compared += 1
        sample = chat.sample() if isinstance(chat, PlainChat) else chat.whole
        found = form.derived.moved(form.layout, form.layout.shown(chat.texts))
        text, name = found.rendered.text, self._template.name
        try:
            rendered = render(sample, self._template)
            marked = FormSpans.of(rendered, *self.lost(sample, rendered))
        except Refused as refusal:
            if self._jinja_renders(chat, text):  # only the marks could not be followed
                return
            raise TemplateError(f"template {name} refuses {text[:300]!r} ({refusal}), which its layout gives") from refusal
        if marked != found:
            raise TemplateError(
                f"chat template {name} renders {marked.rendered.text[:300]!r} where its layout, learned from other chats of the "
                f"same form, gives {text[:300]!r}. This is a fault of prep-assets; please report it"
            )


def _is_bare(chat: Chat) -> bool:
    """Whether a chat is text without a template."""
    return isinstance(chat, PlainChat) and _BARE.issuperset(chat.roles)


def _messages(chat: Chat, form: MessageForm) -> list[dict[str, Any]]:
    if isinstance(chat, PlainChat):
        return [plain_message(role, text, form) for role, text in zip(chat.roles, chat.texts, strict=True)]
    return shown_messages(chat.whole.turns, chat.calls, form)


@bounded_cache(
    "block renderers",
    2,
    key=lambda template, encoder, options, searched: repr(
        (template.hash, template.control, options, encoder.policy, encoder.truncation, encoder.vocabulary.hash, searched)
    ),
)
def block_renderer(template: ChatTemplate, encoder: Encoder, options: MaskOptions, searched: tuple[str, ...]) -> BlockRenderer:
    """The process-wide renderer of chats. Shards and domains with equal settings share it, so that each form is learned once."""
    return BlockRenderer(template, encoder, options, searched)


# Rendering with proof: the mask is derived a second time and compared before anything is tokenized. For answers that carry their own weights.


class Proven(Struct, frozen=True, dict=True):
    """Renders conversations with one template, and proves their masks.

    Attributes:
        encoder: makes the masks.
    """

    template: ChatTemplate
    encoder: Encoder

    @cached_property
    def derivation(self) -> PlainDerivation:
        """The second derivation of the masks."""
        return answers_derivation(self.template)

    def render(self, sample: Sample) -> Rendered:
        """Render a sample.

        Raises:
            Refused: see `text.render.render` and `check_mask`.
        """
        rendered = render(sample, self.template)
        check_mask(rendered, self.encoder, lambda: self.derivation(sample))
        return rendered


def check_mask(rendered: Rendered, encoder: Encoder, derived: Callable[[], Derived]) -> None:
    """Reject a render whose mask a second derivation cannot derive (``mask_not_provable``), or contradicts (``derivations_differ``), which stops a build that
    meets more than `asset.DIFFERING` of them; or which another implementation of its format writes otherwise (``renderers_differ``)."""
    try:
        differs = disagreement(derived(), rendered.text, trained(rendered, encoder.policy))
    except RendersDiffer as error:
        raise Refused(DERIVATIONS_DIFFER, str(error), stage="render") from error
    except ImplementationsDiffer as error:
        detail = f"{error}. Write such rows as both do, or leave them out"
        raise Refused("renderers_differ", detail, stage="render") from error
    except CheckFailed as error:  # e.g. the template treats two texts in the same place differently
        raise Refused("mask_not_provable", str(error), stage="render") from error
    if differs is not None:
        raise Refused(DERIVATIONS_DIFFER, differs, stage="render")
