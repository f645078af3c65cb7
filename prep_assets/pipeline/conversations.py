"""Conversations: samples → rendered → encoded, block by block; chats of one form are cut together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.caches import bounded_cache
from prep_assets.config.family import Domain
from prep_assets.config.models import Sft
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import CheckFailed, Refused, TemplateError
from prep_assets.pipeline.documents import TokenizedRows
from prep_assets.pipeline.examples import Given, Item
from prep_assets.pipeline.images import ImageFiles, ImageParts, shown_images, stored_image_id
from prep_assets.pipeline.sources import inline_reasoning
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.chat_blocks import Bools, ChatColumns, Kind
from prep_assets.proofs.derive import MaskOptions, derive, disagreement
from prep_assets.proofs.plain_forms import (
    MOST_KNOWN,
    ByteSearch,
    PlainDerivation,
    PlainForm,
    PlainForms,
    answers_derivation,
    derived_of,
    forms_of,
    plain_chat,
)
from prep_assets.proofs.shaped_forms import Listed, Outline, OutlinedSample, as_json, outlined
from prep_assets.samples import IMAGE, TOOL_CALL, PlainChat, Region, Sample
from prep_assets.stores.tokens import RecordWriter
from prep_assets.text.conversation import SpecialInContent, control_pattern, plain_messages, shown_messages, tool_call, treat
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.environment import END, WHITE_TO_PYTHON, MessageForm, Spelled, blocks_of, only_writes
from prep_assets.text.layouts import Form, FormCuts, Layout, joined, merged, outline
from prep_assets.text.render import UNTEMPLATED, InlineReasoning, left_out, one_per_answer, render
from prep_assets.text.spans import Cuts, Cutter, Ints, MaskPolicy, Rendered, rounds, without_oldest_rounds
from prep_assets.text.template import ChatTemplate

# The examples of one block, in the order of their records: some with renders of their own, some written by the layouts of their forms, some with the
# tokens that they bring.


@dataclass
class Block:
    """Examples in the order of their records.

    Attributes:
        at: the item of each.
        renders: the render of each; `None` for those in `groups`.
        groups: which examples are of one form, and how these are cut.
    """

    at: list[Item] = field(default_factory=list)
    renders: list[Rendered | None] = field(default_factory=list)
    groups: list[tuple[Sequence[int], FormCuts]] = field(default_factory=list)

    def add(self, item: Item, rendered: Rendered | None) -> None:
        """One more example."""
        self.at.append(item)
        self.renders.append(rendered)

    def kept(self, encoded: Encoded) -> list[Item]:
        """The items of those that are kept."""
        if len(encoded.kept) == len(self.at):
            return self.at
        return [self.at[number] for number in encoded.kept.tolist()]

    def cuts(self, cutter: Cutter) -> Cuts:
        """All of them, cut."""
        rows = {number: cutter.row(rendered) for number, rendered in enumerate(self.renders) if rendered is not None}
        return merged(len(self.at), rows, [(np.array(numbers, np.int64), cut) for numbers, cut in self.groups])

    def put(self, number: int, rendered: Rendered) -> None:
        """Give an example another render."""
        self.renders[number] = rendered
        self._without({number})

    def _without(self, gone: set[int]) -> None:
        left = []
        for numbers, cut in self.groups:
            keep = [at for at, number in enumerate(numbers) if number not in gone]
            if len(keep) == len(numbers):
                left.append((numbers, cut))
            elif keep:
                left.append(([numbers[at] for at in keep], cut.of(keep)))
        self.groups = left

    def of(self, chosen: Sequence[int]) -> Block:
        """Only the chosen examples."""
        self._without(set(range(len(self.at))) - set(chosen))
        number = {old: new for new, old in enumerate(chosen)}
        groups = [([number[old] for old in numbers], cut) for numbers, cut in self.groups]
        return Block([self.at[old] for old in chosen], [self.renders[old] for old in chosen], list(groups))

    def left_out(self, kept: Sequence[int]) -> int:
        """How many turns of these examples lost their reasoning."""
        given = ((self.at[number].given, rendered) for number in kept if (rendered := self.renders[number]) is not None)
        alone = sum(left_out(example, rendered) for example, rendered in given if isinstance(example, Sample))
        groups = ((set(numbers), cut.form.layout.left_out) for numbers, cut in self.groups if cut.form.layout.left_out)
        return alone + sum(count * len(numbers.intersection(kept)) for numbers, count in groups)


Part = tuple[list[Item], Encoded]
"""Kept items with their tokens."""


def in_order(items: Sequence[Item], texts: Part, brought: Part) -> Part:
    """Two parts of a block as one.

    Args:
        items: the whole block.
        texts: the part that was tokenized; images stand in it alone.
        brought: the part that brings its ids.
    """
    places, parts = {id(item.record): number for number, item in enumerate(items)}, (texts, brought)
    found = sorted((places[id(item.record)], part, at) for part, (kept, _) in enumerate(parts) for at, item in enumerate(kept))
    spans = [(parts[part][1], *parts[part][1].offsets[at : at + 2].tolist()) for _, part, at in found]
    ids = np.concatenate([texts[1].ids[:0], *(each.ids[low:high] for each, low, high in spans)])
    loss = np.concatenate([texts[1].loss[:0], *(each.loss[low:high] for each, low, high in spans)])
    offsets = np.cumsum([0, *(high - low for _, low, high in spans)], dtype=np.int64)
    taken = np.array([parts[part][1].taken[at] for _, part, at in found], np.int64)
    images = texts[1].images
    if len(images):
        numbers = np.array([new for new, (_, part, _) in enumerate(found) if part == 0], np.int64)
        images = replace(images, record=numbers[images.record])
    return [parts[part][0][at] for _, part, at in found], Encoded(ids, loss, offsets, np.arange(len(found)), (), images, taken)


def firsts(items: Sequence[Item]) -> npt.NDArray[np.bool_]:
    """Which of the kept examples are the first of their record: bool[n]."""
    return np.array([number == 0 or item.record is not items[number - 1].record for number, item in enumerate(items)], bool)


# A conversation rendered, with its mask derived a second time and compared before anything is tokenized: for answers that carry their own weights.


@dataclass(frozen=True)
class Proven:
    """Renders conversations of one template.

    Attributes:
        encoder: what makes their masks.
        derivation: what derives these a second time.
    """

    template: ChatTemplate
    encoder: Encoder
    derivation: PlainDerivation

    @classmethod
    def of(cls, template: ChatTemplate, encoder: Encoder) -> Proven:
        """With a derivation of its own."""
        return cls(template, encoder, answers_derivation(template))

    def render(self, sample: Sample) -> Rendered:
        """Its render.

        Raises:
            Refused: as rendering says; ``mask_not_provable``, where the two derivations of its mask differ or the second has no answer.
        """
        rendered = render(sample, self.template)
        try:
            derived = self.derivation(sample)
        except CheckFailed as error:
            raise Refused("mask_not_provable", str(error), stage="render") from error
        differs = disagreement(derived, rendered.text, self.encoder.trained(rendered))
        if differs is not None:
            raise Refused("mask_not_provable", differs, stage="render")
        return rendered


# Truncation by turns: a conversation that is too long is rendered anew without its oldest rounds.


def without_too_many(sample: Sample, whole: Rendered, render: Callable[[Sample], Rendered], encoder: Encoder) -> Rendered:
    """The render with as few of the oldest rounds left out as makes it fit; the whole one where nothing does."""
    few, many = 1, len(rounds(sample)) - 1
    found = whole
    while few <= many:
        count = (few + many) // 2
        try:
            shorter = render(without_oldest_rounds(sample, count))
        except Refused:
            return whole
        if not any(refusal.reason == "too_long" for _, refusal in encoder.encode([shorter]).refused):
            found, many = shorter, count - 1
        else:
            few = count + 1
    return found


# Chats of a block, cut by form: each is rendered, and is cut by its form if the render is what the form says. So a template may ask what it likes.
#
# Where spans stand in a form is told by the marks of `render`, and by the second derivation, which also says how texts are written. Both must agree on it.

ONE_IN = 1024
"""Share of the chats cut by their form that are taken apart as well: one in so many, by a hash of their last texts, and the first of each form."""
LEARN_AFTER = 3
"""Chats of a form before its layout is learned, which takes the time of as many renders."""
MOST_TEXTS = 1 << 15
"""Texts of all forms that are remembered, each of which takes some 2 KB."""

_SORTS = 'It’s 5 o\'clock;\n\n* {{a}} <b>&amp; "q" \\n 中文 😀'
_NONCHARACTERS = "\ufdd0".encode()[:2]
"""How those begin in UTF-8 that no text may have."""
_BARE = frozenset(UNTEMPLATED)
_BY_MARKS = frozenset(["template_rewrites_content", "template_drops_content", "template_refuses"])
"""Why a chat may be refused that is rendered well without marks."""
_OF_JSON = frozenset('{}",:')


class ShapedChat(OutlinedSample, frozen=True):
    """A sample in columns, as its template gets it.

    Attributes:
        whole: the sample.
        tools: its tools.
        calls: its calls, in order.
    """

    whole: Sample
    tools: tuple[Spelled, ...]
    calls: tuple[dict[str, Any], ...]


Chat = PlainChat | ShapedChat
_Known = tuple[Form, PlainForm]
"""How chats of one form are cut, and the same derived a second time."""


@dataclass
class PlainChats:
    """Cuts chats, plain ones and those with tools, calls or reasoning.

    Attributes:
        template, encoder: how they are rendered and tokenized.
        options: the policy, for the second derivation.
        looked_for: strings of which any text is taken apart by itself.
        by_layout: how many chats were cut by their form so far.
        compared: how many of these were taken apart as well.
    """

    template: ChatTemplate
    encoder: Encoder
    options: MaskOptions
    looked_for: tuple[str, ...]
    by_layout: int = 0
    compared: int = 0
    _forms: dict[tuple[Kind, bool], _Known | None] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _texts: int = 0
    _compared: set[Kind] = field(default_factory=set)
    _by_jinja: bool = False

    def cut(self, chats: Sequence[Chat | None]) -> list[tuple[list[int], FormCuts]]:
        """The chats that are cut by form, in groups: which they are, and how they are cut. All others are rendered and taken apart one by one."""
        columns = ChatColumns.of(chats)
        blank, spaced = columns.white()
        left = (columns.kind >= 0) & ~blank & ~self._holding(columns)
        keys, cuts = 2 * columns.kind + spaced, []
        for kind, count in zip(columns.kinds, np.bincount(columns.kind[columns.kind >= 0]).tolist(), strict=True):
            self._seen_again(kind, count)
        for key in np.flatnonzero(np.bincount(keys[left])).tolist():
            kind = columns.kinds[key >> 1]
            known = self._form(kind, spaced=bool(key & 1))
            if known is not None and (cut := self._cut(kind, *known, columns, np.flatnonzero(left & (keys == key)), chats)):
                cuts.append(cut)
        return cuts

    def render(self, sample: Sample) -> Rendered:
        """What `rendering.render` gives. Where that cannot follow its marks, it is by the form of the chat, if the template renders it so: whether a chat is
        kept must not depend on how many others there are of its form.

        Raises:
            Refused: as `rendering.render`.
        """
        try:
            return render(sample, self.template)
        except Refused as refusal:
            found = self.by_form(sample) if refusal.reason in _BY_MARKS else None
            if found is None:
                raise
            return found

    def by_form(self, sample: Given) -> Rendered | None:
        """The render of a chat by its form, however few there are of it; `None` where the template does not render it so."""
        if (chat := in_columns(sample)) is None:
            return None
        columns = ChatColumns.of([chat])
        [blank], [spaced] = columns.white()
        [kind] = columns.kinds
        self._seen_again(kind, 0)
        known = None if blank or self._holding(columns)[0] else self._form(kind, spaced=bool(spaced), at_once=True)
        if known is None:
            return None
        form, derived = known
        if _lists(derived) and not self._is_certain(form, derived, chat):
            return None
        shown = derived.shown(chat.texts)
        return form.layout.render(shown) if self._is_render(kind, chat, joined(derived.frames, shown) + END) else None

    def _holding(self, columns: ChatColumns) -> Bools:
        """Which chats hold something that only a template can be asked about."""
        found = columns.holding(self._search)
        return found | columns.holding(ByteSearch(map(chr, range(0xFDD0, 0xFDF0)))) if _NONCHARACTERS in columns.data else found

    def _seen_again(self, kind: Kind, count: int) -> None:
        """Count chats of a form, and forget all forms where there are too many."""
        if len(self._seen) >= MOST_KNOWN or self._texts >= MOST_TEXTS:
            self._texts = 0
            for each in (self._seen, self._forms, self._compared):
                each.clear()
        key = hash(kind)  # the shape of a long chat takes memory; of one that comes once nothing else is kept
        self._seen[key] = self._seen.get(key, 0) + count

    def _form(self, kind: Kind, *, spaced: bool, at_once: bool = False) -> _Known | None:
        """How chats of this form are cut, with white space at the ends of their texts or without, once there were enough of them to learn it: what
        becomes of white space takes longer than all else."""
        if (kind, spaced) not in self._forms and (at_once or self._seen.get(hash(kind), 0) >= LEARN_AFTER):
            self._texts += kind.size if isinstance(kind, Outline) else len(kind)
            self._forms[kind, spaced] = self._learned(kind, spaced)
        return self._forms.get((kind, spaced))

    def _learned(self, kind: Kind, spaced: bool) -> _Known | None:
        if (
            self.template.image
            or not self._tells_apart(kind, spaced)
            or (isinstance(kind, Outline) and {turn[0] for turn in kind.turns} & _BARE)
        ):
            return None
        derived = self._plain_forms.of(kind, spaced=spaced)
        if derived is None or not derived.turns or (spaced and not derived.keeps_edges):
            return None
        try:
            layout = self._layout(kind, derived, spaced)
            if layout is None:
                return None
            self.encoder.policy.check_stops(layout.words)
        except Refused:
            return None
        words = [layout.words.text[layout.start(number) : end] for number, end in enumerate(layout.ends)]
        if disagreement(derived_of(derived, words), layout.words.text, self.encoder.trained(layout.words)) is not None:
            return None
        return Form.of(layout, self.encoder.cutter), derived

    def _layout(self, kind: Kind, derived: PlainForm, spaced: bool) -> Layout | None:
        """The layout by marks, with the frames of the second derivation, if all invented chats have it."""
        layout: Layout | None = None
        for texts in _invented(kind, spaced):
            chat = in_columns(kind.sample(texts)) if isinstance(kind, Outline) else PlainChat(kind, tuple(texts))
            assert chat is not None
            sample = _sample(chat)
            rendered, written = render(sample, self.template), derived.shown(texts)
            if layout is None:
                layout = Layout.of(rendered, derived.frames, derived.turns, written, left_out(sample, rendered))
            if layout is None or outline(layout.render(written)) != outline(rendered):
                return None
            self._by_jinja |= not self._is_block(kind, [chat], rendered.text + END)
        return layout

    def _tells_apart(self, kind: Kind, spaced: bool) -> bool:
        """Whether no control token can begin in JSON, or in white space at the end of a text, and end in what stands beside it."""
        has_json = isinstance(kind, Outline) and bool(kind.json)
        spaced |= isinstance(kind, Outline) and any(
            what != TOOL_CALL and any(around) for *_, regions in kind.turns for what, _, around in regions
        )
        tokens = self.encoder.vocabulary.control if has_json or spaced else ()
        return not any(token != token.strip() or (has_json and _OF_JSON.intersection(token)) for token in tokens)

    @cached_property
    def _only_writes(self) -> bool:
        return self.template.form.content == "text" and only_writes(self.template.parsed)

    @cached_property
    def _plain_forms(self) -> PlainForms:
        return forms_of(self.template, self.options, prompted=False)

    @cached_property
    def _search(self) -> ByteSearch:
        strings = {*self.looked_for, *filter(None, map(str.strip, self.looked_for))}  # texts of shapes have no white space at their ends
        within_json = {as_json(each)[1:-1] for each in strings}
        return ByteSearch(strings | within_json | {*WHITE_TO_PYTHON, END})

    def _cut(
        self, kind: Kind, form: Form, derived: PlainForm, columns: ChatColumns, own: Ints, every: Sequence[Chat | None]
    ) -> tuple[list[int], FormCuts] | None:
        """Those of the chats that are rendered as their form says."""
        chats = [chat for number in own.tolist() if (chat := every[number])]
        if _lists(derived):
            own, chats = _some(own, chats, [self._is_certain(form, derived, chat) for chat in chats])
        shown = derived.all_shown([chat.texts for chat in chats])
        if not self._is_block(kind, chats, "".join(chain.from_iterable(_rows(derived.frames, shown)))):
            written = map("".join, _rows(derived.frames, shown))
            own, chats = _some(own, chats, [self._is_render(kind, chat, text) for chat, text in zip(chats, written, strict=True)])
            shown = derived.all_shown([chat.texts for chat in chats])
        if not chats:
            return None
        self._compare(form, derived, chats, is_first=kind not in self._compared)
        self._compared.add(kind)
        self.by_layout += len(chats)
        as_it_is = not any(derived.spellings) and not any(map(any, derived.strips))
        lengths = np.diff(columns.bounds)[columns.first[own] + np.array(derived.turns)[:, None]] if as_it_is else None
        return own.tolist(), form.cut(shown, lengths)

    def _is_block(self, kind: Kind, chats: Sequence[Chat], written: str) -> bool:
        """Whether these are the renders of the chats, each with `END` after it."""
        if not isinstance(kind, Outline) and (_BARE.issuperset(kind) or (self._only_writes and kind in self._compared)):
            return True
        blocks, form = None if self._by_jinja else blocks_of(self.template), self.template.form
        if blocks is None:
            return False
        listed = [_messages(chat, form) for chat in chats]
        tools = [chat.tools for chat in chats if isinstance(chat, ShapedChat) and chat.tools]
        return blocks.text(listed, tools) == written

    def _is_render(self, kind: Kind, chat: Chat, written: str) -> bool:
        """Whether this is the render of a chat with `END` after it."""
        return self._is_block(kind, [chat], written) or self._is_of_jinja(chat, written)

    def _is_of_jinja(self, chat: Chat, written: str) -> bool:
        try:
            tools = chat.tools if isinstance(chat, ShapedChat) else ()
            return self.template.render(_messages(chat, self.template.form), tools=tools) + END == written
        except Refused:
            return False

    def _is_certain(self, form: Form, derived: PlainForm, chat: Chat) -> bool:
        """Whether arguments that are listed are of the sorts that are known, and their names make no control token with what stands beside them."""
        if not derived.holds(chat.texts):
            return False
        tokens = self.template.ends.pattern
        text = joined(derived.frames, derived.shown(chat.texts))
        return tokens is None or len(tokens.findall(text)) == len(tokens.findall(form.layout.words.text))

    def _compare(self, form: Form, derived: PlainForm, chats: Sequence[Chat], *, is_first: bool) -> None:
        """Stop where the template itself renders one of a sample of the chats otherwise."""
        hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, [chat.texts[-1].encode() for chat in chats]), np.uint64, len(chats))
        sampled = hashes % ONE_IN == 0
        sampled[0] |= is_first
        for chat in [chats[number] for number in np.flatnonzero(sampled).tolist()]:
            self.compared += 1
            found = form.layout.render(derived.shown(chat.texts))
            try:
                rendered = render(_sample(chat), self.template)
            except Refused as refusal:
                if self._is_of_jinja(chat, found.text + END):  # it is the marks that cannot be followed
                    continue
                raise TemplateError(
                    f"template {self.template.name} refuses {found.text[:300]!r} ({refusal}), which its layout gives"
                ) from refusal
            if outline(rendered) != outline(found):
                raise TemplateError(
                    f"chat template {self.template.name} renders {rendered.text[:300]!r} where its layout, learned from other chats of the "
                    f"same form, gives {found.text[:300]!r}. This is a fault of prep-assets; please report it"
                )


def in_columns(sample: Given) -> Chat | None:
    """A sample in columns; `None` where a template has to see it as it is."""
    if isinstance(sample, PlainChat) or not isinstance(sample, Sample):
        return sample if isinstance(sample, PlainChat) else None
    if plain := plain_chat(sample):
        return plain
    calls = list[dict[str, Any]]()

    def read(region: Region) -> dict[str, Any]:
        calls.append(tool_call(region))
        return calls[-1]

    try:
        found = outlined(sample, read)
    except Refused:
        return None
    if found is None:
        return None
    spelled = iter([found.texts[number] for number in found.form.json])
    tools = tuple([Spelled(tool, next(spelled)) for tool in sample.tools])
    called = [{**call, "arguments": Spelled(call["arguments"], next(spelled) if call["arguments"] else "{}")} for call in calls]
    return ShapedChat(found.form, found.texts, sample, tools, tuple(called))


def _sample(chat: Chat) -> Sample:
    return chat.sample() if isinstance(chat, PlainChat) else chat.whole


def _messages(chat: Chat, form: MessageForm) -> list[dict[str, Any]]:
    return plain_messages(chat, form) if isinstance(chat, PlainChat) else shown_messages(chat.whole.turns, chat.calls, form)


def _lists(derived: PlainForm) -> bool:
    """Whether a template lists arguments of calls."""
    return any(isinstance(way, Listed) for way in derived.spellings)


def _some(numbers: Ints, chats: Sequence[Chat], chosen: Sequence[bool]) -> tuple[Ints, list[Chat]]:
    return numbers[np.array(chosen, bool)], list(compress(chats, chosen))


def _rows(frames: Sequence[str], columns: Sequence[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The pieces of each chat: frames and the texts between them, and `END`."""
    between = chain.from_iterable(zip(map(repeat, frames), columns, strict=False))
    return zip(*between, repeat(frames[-1] + END), strict=False)


def _invented(kind: Kind, spaced: bool) -> list[Sequence[str]]:
    """Invented texts of a form: words, texts of all sorts, and where it is asked for words amid white space."""
    size = kind.size if isinstance(kind, Outline) else len(kind)
    words = [f"vx{number:04}xv" for number in range(size)]
    sorts = [f"{each}{_SORTS}{each}" for each in words]
    if isinstance(kind, Outline):
        return [kind.texts(words, lambda each: {each: each, "n": 7}), kind.texts(sorts, _json_of_all_sorts)]
    return [words, sorts, *([[f" \n\t{each}\t\n " for each in words]] if spaced else [])]


def _json_of_all_sorts(each: str) -> dict[str, Any]:
    return {"z": each, "a": [_SORTS, -1.5e-7, 10**20, True, None, {"": [], "a/b": {}, "\u2028\x7f": "'"}, each]}


def _cut_alike(template: ChatTemplate, encoder: Encoder, options: MaskOptions, looked_for: tuple[str, ...]) -> str:
    return repr((template.hash, template.control, options, encoder.policy, encoder.truncation, encoder.vocabulary.hash, looked_for))


@bounded_cache("plain chats", 2, key=_cut_alike)
def plain_chats_of(template: ChatTemplate, encoder: Encoder, options: MaskOptions, looked_for: tuple[str, ...]) -> PlainChats:
    """What cuts plain chats in this process: one for all shards and domains that are cut alike, so that each form is learned once."""
    return PlainChats(template, encoder, options, looked_for)


# Samples → rendered → encoded, block by block; what is refused goes to quarantine.


@dataclass
class Conversations:
    """Renders and tokenizes blocks of samples.

    Attributes:
        template, encoder: how.
        reasoning: how reasoning in the text of answers is read.
        special_in_content: what happens to control tokens that are typed in content.
        images: the images of records.
        quarantine: where refused records go.
        made_by: the tokenizer that made the ids that rows bring, as the domain names it; `None` where it names none.
        image: the id that stands for an image; `None` where there can be none.
        expand: whether a record becomes one example for each answer where its reasoning would be left out of history.
        reasoning_left_out: how many turns of the kept records lost their reasoning so far.
        control_tokens: how many control tokens were found in contents so far.
        images_cut_away: how many images truncation took from the kept records so far.
    """

    template: ChatTemplate
    encoder: Encoder
    reasoning: InlineReasoning
    special_in_content: SpecialInContent
    images: ImageParts
    quarantine: Quarantine
    made_by: str | None = None
    image: int | None = None
    expand: bool = False
    control_tokens: int = 0
    reasoning_left_out: int = 0
    images_cut_away: int = 0

    @cached_property
    def tokenized(self) -> TokenizedRows:
        """What takes rows that bring their ids."""
        return TokenizedRows(self.encoder, self._again, self._sample, self.quarantine, self.made_by, self.image)

    def encode(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        """The kept items of a block and their tokens; the others are in quarantine."""
        ready = [item for item in items if isinstance(item.given, Sample) and item.given.tokenized is not None]
        if not ready:
            return self._texts(items)
        if len(ready) == len(items):
            return self.tokenized.of(ready)
        brought = set(map(id, ready))
        return in_order(items, self._texts([item for item in items if id(item) not in brought]), self.tokenized.of(ready))

    def _texts(self, items: Sequence[Item]) -> tuple[list[Item], Encoded]:
        block, encoded = self._encoded(items)
        return block.kept(encoded), encoded

    def _again(self, sample: Sample) -> Rendered:
        """The render of the messages of a row that brings its ids."""
        return self._render(treat(sample, self._pattern, self.special_in_content)[0])

    def examples(self, items: Sequence[Item]) -> tuple[list[Item], list[Rendered], Encoded]:
        """As `encode`, with the render of each kept item."""
        block, encoded = self._encoded(items, by_form=False)
        return block.kept(encoded), [rendered for position in encoded.kept.tolist() if (rendered := block.renders[position])], encoded

    def _encoded(self, items: Sequence[Item], *, by_form: bool = True) -> tuple[Block, Encoded]:
        """The examples of a block, and the tokens of those that are kept. Those that are not cut by form have renders."""
        examples = self._examples(items, by_form and self.special_in_content != "allow")
        encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        too_long = [position for position, refusal in encoded.refused if refusal.reason == "too_long"]
        lengths: dict[int, int] = {}
        if self.encoder.truncation == "turns" and too_long:
            for position in too_long:
                item = examples.at[position]
                assert isinstance(item.example, Sample)
                whole = examples.renders[position] or self._render(item.example)
                lengths[id(item)] = self.encoder.length(whole)
                examples.put(position, without_too_many(item.example, whole, self._render, self.encoder))
            encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        left = self._refuse_records(examples.at, encoded)
        if len(left) != len(encoded.kept):
            examples = examples.of(left)
            encoded = self.encoder.encode_cuts(examples.cuts(self.encoder.cutter))
        if lengths:
            now = np.diff(encoded.offsets)
            whole_rounds = [lengths.get(id(item), length) for item, length in zip(examples.kept(encoded), now.tolist(), strict=True)]
            encoded = replace(encoded, taken=np.array(whole_rounds, np.int64) - now)
        if self.template.image:
            shown = sum(len(shown_images(item.example.turns)) for item in examples.kept(encoded) if isinstance(item.example, Sample))
            self.images_cut_away += shown - len(encoded.images)
        if not self.expand:
            self.reasoning_left_out += examples.left_out(encoded.kept.tolist())
        return examples, encoded

    def _examples(self, items: Sequence[Item], by_form: bool) -> Block:
        """The examples of a block: by their layouts where these are known, all others rendered one by one."""
        chats = [in_columns(item.given) for item in items] if by_form else []
        # where a chat becomes several if it loses reasoning, those that lose some are rendered
        groups = [group for group in self._plain_chats.cut(chats) if not (self.expand and group[1].form.layout.left_out)]
        if sum(len(numbers) for numbers, _ in groups) == len(items):
            return Block(list(items), [None] * len(items), list(groups))
        by_layout = {number for numbers, _ in groups for number in numbers}
        examples = Block()
        places: dict[int, int] = {}
        for number, item in enumerate(items):
            if number in by_layout:
                places[number] = len(examples.at)
                examples.add(item, None)
                continue
            try:
                renders = self._renders(item)
            except Refused as refusal:
                item.refuse(self.quarantine, refusal)
            else:
                for sample, rendered in renders:
                    examples.add(Item(item.file, item.record, sample), rendered)
        examples.groups = [([places[number] for number in numbers], cut) for numbers, cut in groups]
        return examples

    @cached_property
    def _plain_chats(self) -> PlainChats:
        looked_for = (*self.encoder.vocabulary.control, *self.reasoning.strings)
        return plain_chats_of(self.template, self.encoder, self._options, looked_for)

    def _renders(self, item: Item) -> list[tuple[Sample, Rendered]]:
        """The examples of a record, each with its render: one, or with `expand` one for each answer where the template drops reasoning."""
        sample, count = treat(self._sample(item), self._pattern, self.special_in_content)
        self.control_tokens += count
        if self.expand and left_out(sample, self._marked(sample)):
            return [(part, self._render(part)) for part in one_per_answer(sample, self.encoder.policy.weight)]
        return [(sample, self._render(sample))]

    def _refuse_records(self, at: Sequence[Item], encoded: Encoded) -> list[int]:
        """Put the record of each refused example into quarantine, once, and give the positions of the examples of all other records."""
        faults: dict[int, Refused] = {}
        for position, fault in encoded.refused:
            if faults.setdefault(id(at[position].record), fault) is fault:
                at[position].refuse(self.quarantine, fault)
        if not self.expand:  # one example a record
            kept: list[int] = encoded.kept.tolist()
            return kept
        return [position for position, item in enumerate(at) if id(item.record) not in faults]

    def _sample(self, item: Item) -> Sample:
        example = item.example
        if not isinstance(example, Sample):
            raise Refused("not_a_sample", f"the schema gives {type(example).__name__}, SFT needs a Sample", stage="render")
        if example.label is False:
            why = "its label says that the answer is a bad one; SFT would teach it. Read such rows as preferences, or leave them out"
            raise Refused("undesirable", why, stage="render")
        # without an image token rendering refuses the record, whatever its images are
        return self.reasoning.read(self.images.ready(example) if self.template.image else example)

    def _marked(self, sample: Sample) -> Rendered:
        return render(sample, self.template) if self.special_in_content == "allow" else self._plain_chats.render(sample)

    def _render(self, sample: Sample) -> Rendered:
        rendered = self._marked(sample)
        self.encoder.policy.check_attention(rendered)
        self.encoder.policy.check_stops(rendered)
        if self.special_in_content == "allow":
            self._refuse_typed_images(sample)
        try:
            derived = derive(sample, self._options, self.template, rendered=rendered.text)
        except CheckFailed as error:  # such as a template that treats a text otherwise than another in its place
            raise Refused("mask_not_provable", str(error), stage="render") from error
        rendered = replace(rendered, content=()) if self.special_in_content == "allow" else rendered
        differs = disagreement(derived, rendered.text, self.encoder.trained(rendered))
        if differs is not None:
            raise Refused("mask_not_provable", differs, stage="render")
        return rendered

    def _refuse_typed_images(self, sample: Sample) -> None:
        """Where typed control tokens are let through, one that stands for images would be an image that nobody has."""
        tokens = {self.template.image_token, self.images.token} - {""}
        for region in (region for turn in sample.turns for region in turn.regions if region.kind != IMAGE):
            if typed := sorted(token for token in tokens if token in region.text):
                raise Refused("image_token_in_content", f"{typed[0]!r} stands for images, and is typed in a text", stage="render")

    @cached_property
    def _options(self) -> MaskOptions:
        policy = self.encoder.policy
        return MaskOptions(
            policy.roles,
            policy.default,
            policy.train_on_eos,
            policy.turns,
            train_thinking=policy.thinking,
            train_tool_calls=policy.tool_calls,
            train_headers=policy.headers,
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return control_pattern(self.encoder.vocabulary.control)


def policy(family: Sft) -> MaskPolicy:
    """The mask policy that the configuration asks for."""
    return MaskPolicy(
        family.mask,
        family.mask_default,
        family.train_on_eos,
        family.train_turns,
        thinking=family.train_thinking,
        tool_calls=family.train_tool_calls,
        headers=family.train_headers,
    )


def conversations_of(workspace: Workspace, domain: Domain, quarantine: Quarantine) -> Conversations:
    """What renders and tokenizes the samples of a domain."""
    family = workspace.family(Sft)
    encoder = Encoder(
        workspace.vocabulary(family),
        workspace.engines(family),
        policy(family),
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
        stored_image_id(workspace, family),
        family.expand == "turns",
    )


def write_records(
    writer: RecordWriter,
    encoded: Encoded,
    items: Sequence[Item],
    chosen: npt.NDArray[np.bool_],
    arrays: dict[str, npt.NDArray[Any]],
    files: ImageFiles,
) -> None:
    """Write the chosen records of a batch to a stream, with the images in them."""
    lengths, block, origin = np.diff(encoded.offsets), arrays, items
    if not chosen.all():
        tokens = np.repeat(chosen, lengths)
        block = {key: array[tokens] for key, array in arrays.items()}
        origin = list(compress(items, chosen.tolist()))
    images = files.block(encoded.images.of(chosen)) if len(encoded.images) else None
    numbers, rows = [item.record.file for item in origin], [item.record.row for item in origin]
    writer.append(block, lengths[chosen], numbers, rows, images)
