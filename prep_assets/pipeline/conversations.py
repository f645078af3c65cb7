"""Render and tokenize conversations, block by block. Chats of one form are cut as a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import compress
from typing import Any, NamedTuple
from weakref import WeakSet, proxy

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Bools, Ints
from prep_assets.caches import bounded_cache
from prep_assets.config.family import Domain
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import CheckFailed, Refused, TemplateError
from prep_assets.pipeline.asset import DERIVATIONS_DIFFER
from prep_assets.pipeline.documents import TokenizedRows
from prep_assets.pipeline.examples import AnyExample, Item
from prep_assets.pipeline.images import ImageFiles, ImageParts, media_ids, shown_images
from prep_assets.pipeline.sources import inline_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.chat_blocks import PlainDerivation, answers_derivation, derived_forms
from prep_assets.proofs.derive import Derived, MaskOptions, derive, disagreement
from prep_assets.proofs.rebuilt import RendersDiffer
from prep_assets.samples import MEDIA, TOOL_CALL, PlainChat, Region, Sample, Spelled, changed
from prep_assets.stores.teachers import TeacherBlock
from prep_assets.stores.tokens import RecordWriter
from prep_assets.text.chats import ChatColumns, Kind, Outline, OutlinedSample, any_of, as_json, outline_of, outlined, plain_chat
from prep_assets.text.conversation import SpecialInContent, control_pattern, plain_message, shown_messages, tool_call, treat
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.environment import MessageForm
from prep_assets.text.forms import ChatForm, Laid, Learned, Located, agreed, form_of
from prep_assets.text.minijinja_blocks import END, WHITE_TO_PYTHON, blocks_of, only_writes
from prep_assets.text.render import UNTEMPLATED, InlineReasoning, left_out, one_per_answer, render, unserved_prompts
from prep_assets.text.spans import (
    Placed,
    Rendered,
    Span,
    Stop,
    bounds,
    check_attention,
    check_stops,
    rounds,
    steps,
    trained,
    without_oldest_rounds,
)
from prep_assets.text.template import ChatTemplate

# Parts of a block, tokenized separately: chats cut by form, chats rendered one by one, and rows that bring their tokens.


def in_order(parts: Sequence[tuple[Ints, Encoded]], without: Ints | None = None) -> Encoded:
    """Merge batches into one, in the order of the examples.

    Args:
        parts: positions of a batch's examples, and the batch.
        without: positions to leave out.
    """
    at = np.concatenate([places[encoded.kept] for places, encoded in parts])
    order = np.argsort(at, kind="stable")
    if without is not None:
        order = order[~np.isin(at[order], without)]
    elif len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(parts[0][0]))):
        return parts[0][1]
    lengths = np.concatenate([np.diff(encoded.offsets) for _, encoded in parts])
    offsets = bounds(lengths[order])
    tokens = np.repeat(bounds(lengths)[:-1][order] - offsets[:-1], lengths[order]) + np.arange(offsets[-1])
    ids, loss, taken = (np.concatenate([getattr(encoded, name) for _, encoded in parts]) for name in ("ids", "loss", "taken"))
    faults = [(int(places[number]), fault) for places, encoded in parts for number, fault in encoded.refused]
    number, images = np.full(len(at), -1), [encoded.images for _, encoded in parts]
    number[order] = np.arange(len(order))
    first = bounds([len(encoded.kept) for _, encoded in parts]).tolist()
    record = np.concatenate([number[located.record + before] for located, before in zip(images, first, strict=False)])
    shown = np.argsort(record, kind="stable")
    shown = shown[record[shown] >= 0]
    start, length = (np.concatenate([getattr(located, name) for located in images])[shown] for name in ("start", "length"))
    regions = [region for located in images for region in located.regions]
    placed = Placed(record[shown], start, length, tuple([regions[image] for image in shown.tolist()]))
    rejections = tuple(sorted(faults, key=lambda fault: fault[0]))
    return Encoded(ids[tokens], loss[tokens], offsets, at[order], rejections, placed, taken[order])


@dataclass(frozen=True)
class ByForm:
    """Chats that are cut by form.

    Attributes:
        rows: int64[n], their positions, ascending.
        laid: their renders.
        left_out: int64[n], turns per chat that lose their reasoning.
        unserved: int64[n], trained answers per chat whose prompt no server sends.
    """

    rows: Ints
    laid: Laid
    left_out: Ints
    unserved: Ints


Turns = Callable[[Sample, Rendered], tuple[int, int]]
"""A chat and its render → its turns that lose their reasoning, and its trained answers whose prompt no server sends."""


@dataclass
class Block:
    """Examples in the order of their records.

    Attributes:
        at: their items.
        renders: position → render, of the examples not cut by form.
        cut: the examples cut by form, if any.
        shortened: position → what truncation left of a chat that was too long, of which `renders` has the render.
    """

    at: list[Item] = field(default_factory=list)
    renders: dict[int, Rendered] = field(default_factory=dict)
    cut: ByForm | None = None
    shortened: dict[int, Sample] = field(default_factory=dict)

    def kept(self, encoded: Encoded) -> list[Item]:
        """The items that tokenization kept."""
        if len(encoded.kept) == len(self.at):
            return self.at
        return [self.at[number] for number in encoded.kept.tolist()]

    def encoded(self, encoder: Encoder) -> Encoded:
        """Tokenize all examples."""
        parts = [] if self.cut is None else [(self.cut.rows, encoder.encode_cuts(self.cut.laid.cuts()))]
        if self.renders or not parts:
            parts.append((np.array(list(self.renders), np.int64), encoder.encode(list(self.renders.values()))))
        return in_order(parts)

    def turns(self, kept: Ints, of: Turns) -> tuple[int, int]:
        """What `of` counts in the kept examples, of what truncation left of them."""
        alone = [number for number in kept.tolist() if number in self.renders]
        chats = ((self.shortened.get(number, self.at[number].content), self.renders[number]) for number in alone)
        counts = [of(example, rendered) for example, rendered in chats if isinstance(example, Sample) and example.tokenized is None]
        lost, unserved = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 0)
        if self.cut is None:
            return lost, unserved
        by_form = np.isin(self.cut.rows, kept) & ~np.isin(self.cut.rows, alone)
        return lost + int(self.cut.left_out[by_form].sum()), unserved + int(self.cut.unserved[by_form].sum())


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """The examples that come first in their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)


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
    meets more than `asset.DIFFERING` of them."""
    try:
        differs = disagreement(derived(), rendered.text, trained(rendered, encoder.policy))
    except RendersDiffer as error:
        raise Refused(DERIVATIONS_DIFFER, str(error), stage="render") from error
    except CheckFailed as error:  # e.g. the template treats two texts in the same place differently
        raise Refused("mask_not_provable", str(error), stage="render") from error
    if differs is not None:
        raise Refused(DERIVATIONS_DIFFER, differs, stage="render")


# Truncation by turns: a conversation that is too long is rendered again without its oldest rounds.


def without_rounds_that_overflow(
    sample: Sample, whole: Rendered, render: Callable[[Sample], Rendered], encoder: Encoder
) -> tuple[Sample, Rendered]:
    """Drop the fewest oldest rounds that make the render fit; return the sample and `whole` if none do."""
    few, many = 1, len(rounds(sample)) - 1
    shortest = sample, whole
    while few <= many:
        count = (few + many) // 2
        left = without_oldest_rounds(sample, count)
        try:
            shorter = render(left)
        except Refused:
            return sample, whole
        if not any(refusal.reason == "too_long" for _, refusal in encoder.encode([shorter]).refused):
            shortest, many = (left, shorter), count - 1
        else:
            few = count + 1
    return shortest


# Cutting by form: a chat is rendered, and cut by its form if the render is the one that the form predicts. So templates may branch on any text.
#
# The spans of a form are derived from the marks of `render` and by the second derivation. Both must agree.

ONE_IN = 1024
"""One in so many chats cut by form is parsed as well, chosen by a hash of its last texts, and so is the first of each form."""

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


class Marked(NamedTuple):
    """The render of a chat without its texts, and what `Turns` counts of it. Adjacent calls of a turn with equal weights are one span, since the
    border between them makes no difference."""

    rendered: Rendered
    left_out: int
    unserved: int

    @classmethod
    def of(cls, sample: Sample, rendered: Rendered, turns: Turns) -> Marked:
        """From a sample and its render."""
        spans: list[Span] = []
        for span in rendered.spans:
            lead, trail = (0, 0) if span.region.kind == TOOL_CALL else (span.lead, span.trail)
            span = replace(span, region=changed(span.region, text=""), lead=lead, trail=trail)
            last = spans[-1] if spans and span.region.kind == TOOL_CALL else None
            if last and (last.turn, last.end, last.region) == (span.turn, span.start, span.region):
                span = replace(spans.pop(), end=span.end)
            spans.append(span)
        return cls(replace(rendered, spans=tuple(spans), content=()), *turns(sample, rendered))

    def moved(self, form: ChatForm, shown: Sequence[str]) -> Marked:
        """Move spans and stops from the invented texts of a form to those of a chat, as its render shows them."""
        at = form.mover(shown)
        spans = tuple(
            [
                replace(span, start=at(span.start), end=at(span.end), header=at(span.header) if span.header >= 0 else -1)
                for span in self.rendered.spans
            ]
        )
        stops = tuple([Stop(stop.turn, at(stop.start), at(stop.end)) for stop in self.rendered.stops])
        return Marked(Rendered(form.text(shown), spans, (), stops), self.left_out, self.unserved)


Chat = PlainChat | ShapedChat


class PlainChats:
    """Cuts chats by form: plain ones and those with tools, calls or reasoning.

    Attributes:
        compared: how many chats cut by form were parsed as well.
    """

    def __init__(self, template: ChatTemplate, encoder: Encoder, options: MaskOptions, searched: Iterable[str]) -> None:
        """For a template, a tokenizer and a policy. Chats that hold one of the strings `searched` are never cut by form."""
        self._template, self._encoder = template, encoder
        self._derived_forms = derived_forms(template, options, options, prompted=False)
        self._forms = Learned(partial(PlainChats._learn, proxy(self)), plain_at_once=False)
        strings = {*searched}
        strings |= {*map(str.strip, strings)} - {""}  # texts of outlines are stripped
        self._search = any_of(strings | {as_json(string)[1:-1] for string in strings} | {*WHITE_TO_PYTHON, END})
        self._only_writes = template.form.content == "text" and only_writes(template.parsed)
        self._compared, self._by_jinja, self.compared = WeakSet[Located[Marked]](), False, 0

    def cut(self, chats: Sequence[Chat | None], *, whole: bool = False) -> ByForm | None:
        """The chats that can be cut by form, if any. All others are rendered and parsed one by one.

        Args:
            whole: take only chats that lose no reasoning and have no answer behind a prompt that no server sends.
        """
        columns = ChatColumns.of(chats)
        known = self._forms.known(columns, *self._cuttable(columns))
        if not (known.form >= 0).any():
            return None
        laid, sampled = known.lay(columns), columns.sampled(ONE_IN)
        good = np.zeros(len(laid.rows), bool)
        for number, located in enumerate(known.located):
            at_form = np.flatnonzero(laid.form == number)
            if at_form.size and not self._needs_no_render(located, chats[laid.rows[at_form[0]]]):
                listed = [chat for row in laid.rows[at_form].tolist() if (chat := chats[row])]
                at_form = at_form[self._renders(located, listed, [laid.render(at).decode() for at in at_form.tolist()])]
            good[at_form] = True
            picked = sampled[laid.rows[at_form]]
            picked[:1] |= located not in self._compared
            for chat in [chats[row] for row in laid.rows[at_form[picked]].tolist()]:
                self._compare(located, chat)
            if at_form.size:
                self._compared.add(located)
        lost, unserved = np.array([learned.words[1:] for learned in known.located], np.int64)[laid.form].T
        good &= (lost + unserved == 0) | (not whole)
        if not good.any():
            return None
        if not good.all():
            known.form[laid.rows[~good]] = -1
            laid = known.lay(columns)
        return ByForm(laid.rows, laid, lost[good], unserved[good])

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

    def turns(self, sample: Sample, rendered: Rendered) -> tuple[int, int]:
        """See `Turns`."""
        return left_out(sample, rendered), sum(1 for _ in unserved_prompts(sample, rendered, self._template, self._encoder.policy))

    def by_form(self, sample: AnyExample) -> Rendered | None:
        """The render of a chat by its form, even if it is the only one of that form; `None` if the template renders it differently."""
        if (chat := in_columns(sample)) is None:
            return None
        columns = ChatColumns.of([chat])
        [allowed], [spaced] = self._cuttable(columns)
        located = self._forms.of(columns.kinds[0], bool(spaced), at_once=True) if allowed else None
        if located is None or not located.form.holds(chat.texts):
            return None
        shown = located.form.shown(chat.texts)
        rendered = located.words.moved(located.form, shown).rendered
        if not self._needs_no_render(located, chat) and not self._renders(located, [chat], [rendered.text]).all():
            return None
        ends = located.form.ends_of(shown)[1:]
        return replace(rendered, content=tuple((end - len(text), end) for text, end in zip(shown, ends, strict=True)))

    def _cuttable(self, columns: ChatColumns) -> tuple[Bools, Bools]:
        """The chats that may be cut by form, and those with white space at the ends of texts."""
        blank, spaced = columns.white()
        held = columns.holding(self._search)
        if _NONCHARACTERS in columns.data:
            held |= columns.holding(any_of(map(chr, range(0xFDD0, 0xFDF0))))
        return (columns.kind >= 0) & ~blank & ~held, spaced

    def _learn(self, kind: Kind, spaced: bool) -> Located[Marked] | None:
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
        def answer(texts: tuple[str, ...]) -> Marked:
            sample = outline.sample(texts)
            rendered = render(sample, self._template)
            if (chat := in_columns(sample)) and not _is_bare(chat):
                self._by_jinja |= not self._minijinja_renders([chat], [rendered.text])
            return Marked.of(sample, rendered, self.turns)

        try:
            form = form_of(kind, spaced, lambda texts: answer(texts).rendered.text)
            words = None if form is None else agreed(form, answer, Marked.moved)
            if (
                form is None
                or words is None
                or disagreement(second.words, words.rendered.text, trained(words.rendered, self._encoder.policy)) is not None
            ):
                return None
            check_stops(self._encoder.policy, words.rendered)
        except Refused:
            return None
        cutter = self._encoder.cutter
        return Located.of(
            form, words, cutter.controls(words.rendered), steps(words.rendered, cutter.policy), cutter.prompts_of(words.rendered)
        )

    def _keeps_control_tokens_apart(self, outline: Outline, spaced: bool) -> bool:
        """Whether no control token can start in JSON, or in white space at the end of a text, and run into what follows."""
        spaced |= any(kind != TOOL_CALL and any(around) for *_, regions in outline.turns for kind, _, around in regions)
        tokens = self._encoder.vocabulary.control if outline.json or spaced else ()
        return not any(token != token.strip() or (outline.json and _JSON_CHARACTERS.intersection(token)) for token in tokens)

    def _needs_no_render(self, located: Located[Marked], chat: Chat | None) -> bool:
        """Whether chats of a form can only render one way: no template applies, or it does nothing but write their texts."""
        return isinstance(chat, PlainChat) and (_is_bare(chat) or (self._only_writes and located in self._compared))

    def _renders(self, located: Located[Marked], chats: Sequence[Chat], written: Sequence[str]) -> Bools:
        """The chats of a form that certainly render to the given texts."""
        good, tokens = np.ones(len(chats), bool), self._template.ends.pattern
        if located.form.lists and tokens is not None:  # argument names may form a control token with their surroundings
            count = len(tokens.findall(located.words.rendered.text))
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

    def _compare(self, located: Located[Marked], chat: Chat) -> None:
        """Raise `TemplateError` if the template itself renders a chat differently."""
        self.compared += 1
        sample, found = _sample(chat), located.words.moved(located.form, located.form.shown(chat.texts))
        text, name = found.rendered.text, self._template.name
        try:
            marked = Marked.of(sample, render(sample, self._template), self.turns)
        except Refused as refusal:
            if self._jinja_renders(chat, text):  # only the marks could not be followed
                return
            raise TemplateError(f"template {name} refuses {text[:300]!r} ({refusal}), which its layout gives") from refusal
        if marked != found:
            raise TemplateError(
                f"chat template {name} renders {marked.rendered.text[:300]!r} where its layout, learned from other chats of the "
                f"same form, gives {text[:300]!r}. This is a fault of prep-assets; please report it"
            )


def in_columns(sample: AnyExample) -> Chat | None:
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


def _is_bare(chat: Chat) -> bool:
    """Whether a chat is text without a template."""
    return isinstance(chat, PlainChat) and _BARE.issuperset(chat.roles)


def _sample(chat: Chat) -> Sample:
    return chat.sample() if isinstance(chat, PlainChat) else chat.whole


def _messages(chat: Chat, form: MessageForm) -> list[dict[str, Any]]:
    if isinstance(chat, PlainChat):
        return [plain_message(role, text, form) for role, text in zip(chat.roles, chat.texts, strict=True)]
    return shown_messages(chat.whole.turns, chat.calls, form)


@bounded_cache(
    "plain chats",
    2,
    key=lambda template, encoder, options, searched: repr(
        (template.hash, template.control, options, encoder.policy, encoder.truncation, encoder.vocabulary.hash, searched)
    ),
)
def plain_chats_of(template: ChatTemplate, encoder: Encoder, options: MaskOptions, searched: tuple[str, ...]) -> PlainChats:
    """The process-wide cutter of chats. Shards and domains with equal settings share it, so that each form is learned once."""
    return PlainChats(template, encoder, options, searched)


# Samples → rendered → encoded, block by block; rejected records go to quarantine.


class Conversations(Struct, dict=True, weakref=True):
    """Renders and tokenizes blocks of samples.

    Attributes:
        template, encoder: the chat template, and the tokenizer with its mask policy.
        reasoning: how reasoning in the text of answers is read.
        special_in_content: what happens to control tokens that are typed in content.
        images: the images of records.
        quarantine: where rejected records go.
        made_by: the tokenizer that made the ids that rows bring, from the domain's configuration; `None` if it names none.
        media: the ids that stand for images and audio.
        expand: whether a record becomes one example per answer if the template would drop reasoning from history, or write another than a server's prompt
            before an answer.
        reasoning_left_out: turns of kept records that lost their reasoning so far.
        unserved_prompts: trained answers of kept records behind a prompt that no server sends so far.
        control_tokens: control tokens found in contents so far.
        images_cut_away: images that truncation took from kept records so far.
    """

    template: ChatTemplate
    encoder: Encoder
    reasoning: InlineReasoning
    special_in_content: SpecialInContent
    images: ImageParts
    quarantine: Quarantine
    made_by: str | None = None
    media: tuple[int, ...] = ()
    expand: bool = False
    control_tokens: int = 0
    reasoning_left_out: int = 0
    unserved_prompts: int = 0
    images_cut_away: int = 0

    @cached_property
    def tokenized(self) -> TokenizedRows:
        """The proof of rows that bring their ids."""
        this = proxy(self)  # what is kept here does not hold the tokenizer when this goes
        render, sample = partial(Conversations._render_messages, this), partial(Conversations._sample, this)
        return TokenizedRows(self.encoder, render, sample, self.quarantine, self.made_by, self.media)

    def encode(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items of a block and their tokens; rejected ones are in quarantine."""
        ready = [item for item in items if isinstance(item.content, Sample) and item.content.tokenized is not None]
        if len(ready) == len(items) > 0:
            return self.tokenized.of(ready)
        brought_ids = set(map(id, ready))
        block, encoded = self._encoded([item for item in items if id(item) not in brought_ids])
        texts = block.kept(encoded), encoded
        if not ready:
            return texts
        brought_rows, numbers = self.tokenized.of(ready), {id(item.record): number for number, item in enumerate(items)}
        parts = [
            (
                np.array([numbers[id(item.record)] for item in kept_items], np.int64),
                replace(tokens, kept=np.arange(len(kept_items)), refused=()),
            )
            for kept_items, tokens in (texts, brought_rows)
        ]
        items = sorted([*texts[0], *brought_rows[0]], key=lambda item: numbers[id(item.record)])
        return items, replace(in_order(parts), kept=np.arange(len(items)))

    def _render_messages(self, sample: Sample) -> Rendered:
        """Render the messages of a row that brings its ids."""
        return self._render(treat(sample, self._pattern, self.special_in_content)[0])

    def examples(self, items: Sequence[Item]) -> tuple[list[Item], list[Rendered], Encoded]:
        """As `encode`, with the render of each kept item."""
        block, encoded = self._encoded(items, by_form=False)
        return block.kept(encoded), [block.renders[position] for position in encoded.kept.tolist()], encoded

    def _encoded(self, items: Sequence[Item], *, by_form: bool = True) -> tuple[Block, Encoded]:
        """The examples of a block, and the tokens of the kept ones. Examples not cut by form have renders."""
        examples = self._examples(items, by_form and self.special_in_content != "allow")
        encoded = examples.encoded(self.encoder)
        too_long = [position for position, refusal in encoded.refused if refusal.reason == "too_long"]
        if self.encoder.truncation == "turns" and too_long:
            lengths = np.zeros(len(examples.at), np.int64)
            for position in too_long:
                item = examples.at[position]
                assert isinstance(item.example, Sample)
                whole = examples.renders.get(position) or self._render(item.example)
                lengths[position] = self.encoder.length(whole)
                left, examples.renders[position] = without_rounds_that_overflow(item.example, whole, self._render, self.encoder)
                examples.shortened[position] = left
            shorter = self.encoder.encode([examples.renders[position] for position in too_long])
            rest = replace(encoded, refused=tuple(rejection for rejection in encoded.refused if rejection[0] not in too_long))
            encoded = in_order([(np.arange(len(examples.at)), rest), (np.array(too_long), shorter)])
            whole_rounds, now = lengths[encoded.kept], np.diff(encoded.offsets)
            encoded = replace(encoded, taken=np.where(whole_rounds, whole_rounds - now, 0))
        rejected = self._quarantine_rejected(examples.at, encoded)
        if self.expand and rejected:
            encoded = in_order([(np.arange(len(examples.at)), encoded)], np.array(rejected))
        if self.template.marks:
            shown = sum(len(shown_images(item.example.turns)) for item in examples.kept(encoded) if isinstance(item.example, Sample))
            self.images_cut_away += shown - len(encoded.images)
        lost, unserved = examples.turns(encoded.kept, self._plain_chats.turns)
        self.reasoning_left_out += 0 if self.expand else lost
        self.unserved_prompts += unserved
        return examples, encoded

    def _examples(self, items: Sequence[Item], by_form: bool) -> Block:
        """The examples of a block: cut by form if the form is known, else rendered one by one."""
        # with `expand`, chats that become several examples are rendered
        cut = self._plain_chats.cut([in_columns(item.content) for item in items], whole=self.expand) if by_form else None
        if cut is not None and len(cut.rows) == len(items):
            return Block(list(items), {}, cut)
        examples, known = Block(), set[int]() if cut is None else set(cut.rows.tolist())
        places: list[int] = []
        for number, item in enumerate(items):
            if number in known:
                places.append(len(examples.at))
                examples.at.append(item)
                continue
            try:
                renders = self._renders(item)
            except Refused as refusal:
                item.reject(self.quarantine, refusal)
            else:
                for sample, rendered in renders:
                    examples.renders[len(examples.at)] = rendered
                    examples.at.append(Item(item.file, item.record, sample))
        examples.cut = cut and replace(cut, rows=np.array(places, np.int64))
        return examples

    @cached_property
    def _plain_chats(self) -> PlainChats:
        searched = (*self.encoder.vocabulary.control, *self.reasoning.strings)
        return plain_chats_of(self.template, self.encoder, self._options, searched)

    def _renders(self, item: Item) -> list[tuple[Sample, Rendered]]:
        """The examples of a record, with their renders: one, or with `expand` one per answer if the template drops reasoning."""
        sample, count = treat(self._sample(item), self._pattern, self.special_in_content)
        self.control_tokens += count
        if self.expand and any(self._plain_chats.turns(sample, self._marked(sample))):
            return [(part, self._render(part)) for part in one_per_answer(sample, self.encoder.policy.weight)]
        return [(sample, self._render(sample))]

    def _quarantine_rejected(self, at: Sequence[Item], encoded: Encoded) -> list[int]:
        """Put the record of each rejected example into quarantine, once. Return the positions of all examples of these records."""
        faults: dict[int, Refused] = {}
        for position, fault in encoded.refused:
            if faults.setdefault(id(at[position].record), fault) is fault:
                at[position].reject(self.quarantine, fault)
        return [position for position, item in enumerate(at) if id(item.record) in faults] if faults else []

    def _sample(self, item: Item) -> Sample:
        example = item.example
        if not isinstance(example, Sample):
            raise Refused("not_a_sample", f"the schema gives {type(example).__name__}, SFT needs a Sample", stage="render")
        if example.label is False:
            why = "its label says that the answer is a bad one; SFT would teach it. Read such rows as preferences, or leave them out"
            raise Refused("undesirable", why, stage="render")
        # without their tokens, rendering rejects the record, whatever its files are
        return self.reasoning.read(self.images.ready(example) if self.template.marks else example)

    def _marked(self, sample: Sample) -> Rendered:
        return render(sample, self.template) if self.special_in_content == "allow" else self._plain_chats.render(sample)

    def _render(self, sample: Sample) -> Rendered:
        rendered = self._marked(sample)
        check_attention(self.encoder.policy, rendered)
        check_stops(self.encoder.policy, rendered)
        if self.special_in_content == "allow":
            self._reject_typed_images(sample)
        check_mask(rendered, self.encoder, lambda: derive(sample, self._options, self.template, rendered=rendered.text))
        return replace(rendered, content=()) if self.special_in_content == "allow" else rendered

    def _reject_typed_images(self, sample: Sample) -> None:
        """Reject typed image tokens. With control tokens allowed, they would count as images that do not exist."""
        tokens = {*self.template.marks.values(), *self.images.tokens.values()}
        for region in (region for turn in sample.turns for region in turn.regions if region.kind not in MEDIA):
            if typed := sorted(token for token in tokens if token in region.text):
                raise Refused("image_token_in_content", f"{typed[0]!r} stands for images, and is typed in a text", stage="render")

    @cached_property
    def _options(self) -> MaskOptions:
        return MaskOptions.of(self.encoder.policy.model_dump())

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.encoder.vocabulary.control)


def conversations_of(workspace: Workspace, domain: Domain, quarantine: Quarantine) -> Conversations:
    """The renderer and tokenizer of a domain's samples."""
    family = workspace.family(Sft)
    encoder = Encoder(
        workspace.vocabulary(family),
        workspace.engines(family),
        MaskPolicy.of(dict(family)),
        family.preprocessing.max_seq_len,
        truncation=family.truncation,
        keep_stop=family.truncation_keeps_stop,
        keeps=family.truncation_keeps,
    )
    template, reasoning = workspace.template(family), inline_reasoning(workspace, family)
    if domain.tokenized_by is not None:
        workspace.check_tokenized_by(family, domain.tokenized_by)
    return Conversations(
        template,
        encoder,
        reasoning,
        family.special_in_content,
        ImageParts.of_domain(workspace, family, domain),
        quarantine,
        domain.tokenized_by,
        tuple(media_ids(workspace, family).values()),
        family.expand == "turns",
    )


def write_records(
    writer: RecordWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    files: ImageFiles,
    teacher: TeacherBlock | None = None,
) -> None:
    """Write the chosen records of a batch to a stream, with their images and what a teacher says of their tokens."""
    lengths, block, origin = np.diff(encoded.offsets), arrays, items
    if not chosen.all():
        tokens = np.repeat(chosen, lengths)
        block = {key: array[tokens] for key, array in arrays.items()}
        origin = list(compress(items, chosen.tolist()))
    images = files.block(encoded.images.of(chosen)) if len(encoded.images) else None
    numbers, rows = [item.record.file for item in origin], [item.record.row for item in origin]
    writer.append(block, lengths[chosen], numbers, rows, images, None if teacher is None else teacher.only(chosen, lengths))
