"""Chats of a block, cut by form without rendering each; what was derived of them a second time is compared for every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
import xxhash

from prep_assets.caches import bounded_cache
from prep_assets.errors import Refused, TemplateError
from prep_assets.proofs.agreement import disagreement
from prep_assets.proofs.plain_forms import MOST_KNOWN, PlainForm, PlainForms, derived_of, forms_of
from prep_assets.proofs.trained_texts import MaskOptions
from prep_assets.samples import PlainChat
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.layouts import Form as LayoutForm
from prep_assets.templates.layouts import outline
from prep_assets.templates.rendering import render
from prep_assets.templates.search import Search, search_for
from prep_assets.templates.shapes import Shape, ShapedChat, json_of
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.forms import Form, FormCuts

ONE_IN = 256
"""Share of the chats written by their layout that the template renders as well: one in so many, by a hash of their last texts, and the first of each
form."""
LEARN_AFTER = 3
"""Chats of a form before its layout is learned, which takes the time of as many renders."""
MOST_TEXTS = 1 << 15
"""Texts of all forms that are remembered, each of which takes some 2 KB."""

_OF_JSON = frozenset('{}",:')
Chat = PlainChat | ShapedChat
_Known = tuple[Form, PlainForm]
"""How chats of one form are cut, and the same derived a second time."""


@dataclass
class PlainChats:
    """Cuts chats, plain ones and those with tools, calls or reasoning.

    Attributes:
        template, encoder: how they are rendered and tokenized.
        options: the policy, for the second derivation.
        looked_for: strings of which any text is rendered by the template.
        by_layout: how many chats were written by their layout so far.
        compared: how many of these the template rendered as well.
    """

    template: ChatTemplate
    encoder: Encoder
    options: MaskOptions
    looked_for: tuple[str, ...]
    by_layout: int = 0
    compared: int = 0
    _forms: dict[tuple[LayoutForm, bool], _Known | None] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _texts: int = 0
    _compared: set[LayoutForm] = field(default_factory=set)

    def cut(self, chats: Sequence[Chat | None]) -> list[tuple[list[int], FormCuts]]:
        """The chats that are cut by form, in groups: which they are, and how they are cut. All others are for the template."""
        by_form: dict[LayoutForm, list[int]] = {}
        for number, chat in enumerate(chats):
            if chat is not None:
                by_form.setdefault(chat.roles if isinstance(chat, PlainChat) else chat.form, []).append(number)
        groups: list[tuple[LayoutForm, _Known, list[int]]] = []
        for kind, numbers in by_form.items():
            texts = list(chain.from_iterable([chat.texts for number in numbers if (chat := chats[number])]))
            words = list(map(str.strip, texts))
            known = self._form(kind, len(numbers), spaced=words != texts)  # to learn what becomes of white space takes longer than all else
            if known is None:
                continue
            good = numbers if all(words) and _holds(known, texts, words) else _unsuspicious(known, chats, numbers)
            if isinstance(kind, Shape):
                layout, derived = known[0].layout, known[1]
                good = [at for at in good if (chat := chats[at]) and layout.holds(chat.texts) and derived.holds(chat.texts)]
            if good:
                groups.append((kind, known, good))
        # layouts that were learned just now may have brought further needles
        suspects = self._search().suspects(chats)
        cuts = []
        for kind, known, good in groups:
            left = [number for number in good if number not in suspects] if suspects else good
            if left:
                cuts.append((left, self._cut(kind, *known, [chat for number in left if (chat := chats[number])])))
        return cuts

    def _form(self, kind: LayoutForm, count: int, *, spaced: bool) -> _Known | None:
        """How chats of this form are cut, with white space at the ends of their texts or without, once there are enough of them to learn it."""
        if len(self._seen) >= MOST_KNOWN or self._texts >= MOST_TEXTS:
            self._texts = 0
            for each in (self._seen, self._forms, self._compared):
                each.clear()
        key = hash(kind)  # the shape of a long chat takes memory; of one that comes once nothing else is kept
        self._seen[key] = self._seen.get(key, 0) + count
        if (kind, spaced) not in self._forms and self._seen[key] >= LEARN_AFTER:
            self._texts += kind.size if isinstance(kind, Shape) else len(kind)
            self._forms[kind, spaced] = self._learned(kind, spaced)
        return self._forms.get((kind, spaced))

    def _learned(self, kind: LayoutForm, spaced: bool) -> _Known | None:
        if isinstance(kind, Shape) and not self._tells_apart(kind):
            return None
        layout, derived = self.template.layouts.of(kind, spaced=spaced), self._plain_forms.of(kind, spaced=spaced)
        if layout is None or derived is None:
            return None
        try:
            self.encoder.policy.check_stops(layout.words)
        except Refused:
            return None
        words = [layout.words.text[layout.start(number) : end] for number, end in enumerate(layout.ends)]
        expected = derived_of(derived, words)
        if derived.turns != layout.order or disagreement(expected, layout.words.text, self.encoder.trained(layout.words)) is not None:
            return None
        return Form.of(layout, self.encoder.cutter), derived

    def _tells_apart(self, shape: Shape) -> bool:
        """Whether no control token can begin in JSON, or in white space at the end of a text, and end in what stands beside it."""
        spaced = any(region.lead or region.trail for turn in shape.turns for region in turn.regions)
        tokens = self.encoder.vocabulary.control if shape.json or spaced else ()
        return not any(token != token.strip() or (shape.json and _OF_JSON.intersection(token)) for token in tokens)

    @cached_property
    def _plain_forms(self) -> PlainForms:
        return forms_of(self.template, self.options, prompted=False)

    def _search(self) -> Search:
        listed = (*self.looked_for, *self.template.layouts.needles, *self._plain_forms.written)
        strings = (*listed, *filter(None, map(str.strip, listed)))  # texts of shapes have no white space at their ends
        return search_for(frozenset((*strings, *(json_of(each)[1:-1] for each in strings))))  # as they are, and within JSON

    def _cut(self, kind: LayoutForm, form: Form, derived: PlainForm, chats: Sequence[Chat]) -> FormCuts:
        texts = [chat.texts for chat in chats]
        found, shown = form.cut(texts), derived.all_shown(texts)
        if derived.frames != form.layout.frames or shown != list(map(list, found.columns)):
            both = zip(zip(*found.columns, strict=True), zip(*shown, strict=True), strict=True)
            wrong = next((at for at, (one, other) in enumerate(both) if one != other), 0)
            raise TemplateError(
                f"the layout of template {self.template.name} gives {found.text(wrong)[:300]!r}, which its second derivation does not. "
                "This is a fault of prep-assets; please report it"
            )
        self._compare(form, chats, is_first=kind not in self._compared)
        self._compared.add(kind)
        self.by_layout += len(chats)
        return found

    def _compare(self, form: Form, chats: Sequence[Chat], *, is_first: bool) -> None:
        """Stop where the template itself renders one of a sample of the chats otherwise."""
        hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, [chat.texts[-1].encode() for chat in chats]), np.uint64, len(chats))
        sampled = hashes % ONE_IN == 0
        sampled[0] |= is_first
        for chat in [chats[number] for number in np.flatnonzero(sampled).tolist()]:
            self.compared += 1
            found = form.layout.render(chat.texts)
            try:
                rendered = render(chat.sample(), self.template)
            except Refused as refusal:
                raise TemplateError(
                    f"template {self.template.name} refuses {found.text[:300]!r} ({refusal}), which its layout gives"
                ) from refusal
            if outline(rendered) != outline(found):
                raise TemplateError(
                    f"chat template {self.template.name} renders {rendered.text[:300]!r} where its layout, learned from other chats of the "
                    f"same form, gives {found.text[:300]!r}. This is a fault of prep-assets; please report it"
                )


def _cut_alike(template: ChatTemplate, encoder: Encoder, options: MaskOptions, looked_for: tuple[str, ...]) -> str:
    return repr((template.hash, template.control, options, encoder.policy, encoder.truncation, encoder.vocabulary.hash, looked_for))


@bounded_cache("plain chats", 2, key=_cut_alike)
def plain_chats_of(template: ChatTemplate, encoder: Encoder, options: MaskOptions, looked_for: tuple[str, ...]) -> PlainChats:
    """What cuts plain chats in this process: one for all shards and domains that are cut alike, so that each form is learned once."""
    return PlainChats(template, encoder, options, looked_for)


def _holds(known: _Known, texts: Sequence[str], words: Sequence[str]) -> bool:
    """Whether what is known of a form holds for these texts, of which `words` are without the white space at their ends."""
    form, derived = known
    return (form.layout.keeps_edges and derived.keeps_edges) or words == texts


def _unsuspicious(known: _Known, chats: Sequence[Chat | None], numbers: list[int]) -> list[int]:
    """Of the chats of a form those whose texts are not blank, and end in no white space of which nobody knows what becomes."""
    good = list[int]()
    for number in numbers:
        if (chat := chats[number]) is not None:
            words = list(map(str.strip, chat.texts))
            if all(words) and _holds(known, list(chat.texts), words):
                good.append(number)
    return good
