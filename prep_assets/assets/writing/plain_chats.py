"""Chats of a block, cut by form: each is rendered, and is cut by its form if the render is what the form says. So a template may ask what it likes.

Where spans stand in a form is told by the marks of `render`, and by the second derivation, which also says how texts are written. Both must agree on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, compress, repeat
from typing import Any

import numpy as np
import xxhash

from prep_assets.assets.reading.examples import Given
from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, TemplateError
from prep_assets.proofs.agreement import disagreement
from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.chat_columns import Bools, ChatColumns, Kind
from prep_assets.proofs.listed_arguments import Listed
from prep_assets.proofs.plain_forms import MOST_KNOWN, PlainForm, PlainForms, derived_of, forms_of
from prep_assets.proofs.plain_samples import plain_chat
from prep_assets.proofs.shaped_samples import Outline, OutlinedSample, as_json, outlined
from prep_assets.proofs.trained_texts import MaskOptions
from prep_assets.samples import TOOL_CALL, PlainChat, Region, Sample
from prep_assets.templates.answers import left_out
from prep_assets.templates.blocks import END, WHITE_TO_PYTHON, Spelled, blocks_of, only_writes
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.conversation import plain_messages, shown_messages
from prep_assets.templates.form import MessageForm
from prep_assets.templates.layouts import Layout, joined, outline
from prep_assets.templates.rendering import UNTEMPLATED, Rendered, render
from prep_assets.templates.tool_calls import tool_call
from prep_assets.tokenization.cuts import Ints
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.forms import Form, FormCuts

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
