"""Plain chats derived a second time, by form: what each turn's text must have become, for every chat with the same roles at once.

`derive` takes the render of one chat of invented texts apart. What it finds there is kept as so many texts before, so many characters after, and holds
for every chat with these roles whose texts the template cannot tell from others. A text that holds a string of the template's own source may be
one that it looks for; a chat with such a text is derived by itself. No code of the layouts that builds write with is used.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.listed_arguments import Listed
from prep_assets.proofs.plain_samples import roles_and_answer, roles_and_texts, searching
from prep_assets.proofs.shaped_forms import Found, Shape, Spelling, spelled, taken_apart
from prep_assets.proofs.shaped_samples import Outline
from prep_assets.proofs.stretches import Derived, Expected, MaskOptions
from prep_assets.proofs.template_strings import strings_looked_for
from prep_assets.proofs.trained_texts import derive
from prep_assets.samples import PlainChat, Sample

if TYPE_CHECKING:
    from prep_assets.templates.chat_template import ChatTemplate

MOST_KNOWN = 4096
ONE_IN = 64
"""Share of the plain chats that are derived by themselves as well, by a hash of their last texts."""
_BLANKS = ("\n", " ", "\t", "\r\n", "\t \u3000\n")
"""White space put around words. A template may strip all of it, or line breaks only."""
_NAME = re.compile(r"Qz(\d{5})zQ")

Form = tuple[str, ...] | Shape
"""The roles of plain chats, or the shape of others."""
Edge = tuple[int, int]
"""A place: how many texts end before it, and so many characters after the last of these."""


@dataclass(frozen=True)
class PlainForm:
    """What chats with the same roles must have become.

    Attributes:
        frames: what the template writes before the first text, between neighbours and after the last.
        turns: whose text stands in each gap.
        strips: of each of these texts, whether white space at its beginning and at its end is left away.
        keeps_edges: whether this holds for texts with white space at their ends.
        stretches: what must be trained: where it begins and ends, its weight, and the control tokens at its end.
        controls: where the control tokens stand that the template wrote.
        shortenable: where the untrained texts stand that truncation may shorten.
        tagged: see `Derived`.
        spellings: of each text, how its JSON is written; none where all are written as they are.
    """

    frames: tuple[str, ...]
    turns: tuple[int, ...]
    strips: tuple[tuple[bool, bool], ...]
    keeps_edges: bool
    stretches: tuple[tuple[Edge, Edge, float, str], ...]
    controls: tuple[tuple[Edge, Edge], ...]
    shortenable: tuple[tuple[Edge, Edge, str], ...]
    tagged: bool = False
    spellings: tuple[Spelling, ...] = ()

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether arguments that are written one by one are of the sorts that are known."""
        return all(way.holds(texts[turn]) for turn, way in zip(self.turns, self.spellings, strict=False) if isinstance(way, Listed))

    def shown(self, texts: Sequence[str]) -> list[str]:
        """The texts of a chat as its render shows them, in its order."""
        return [each for [each] in self.all_shown([texts])]

    def all_shown(self, texts: Sequence[Sequence[str]]) -> list[list[str]]:
        """The same of several chats: each text of all of them."""
        found = [
            [_stripped(each[turn], *strips) for each in texts] if any(strips) else [each[turn] for each in texts]
            for turn, strips in zip(self.turns, self.strips, strict=True)
        ]
        return [[spelled(each, way) for each in own] if way else own for own, way in zip_longest(found, self.spellings)]


def _stripped(text: str, lead: bool, trail: bool) -> str:
    text = text.lstrip() if lead else text
    return text.rstrip() if trail else text


@dataclass
class PlainForms:
    """Forms of one template under one policy; `prompted`: of chats that end with what a model continues from."""

    template: ChatTemplate
    options: MaskOptions
    prompted: bool = False
    _known: dict[tuple[str, ...], PlainForm | None] = field(default_factory=dict)
    _bare: set[tuple[str, ...]] = field(default_factory=set)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The strings of the template's sources that a text may be compared with or searched for: all but those that are only shown."""
        return strings_looked_for(filter(None, (self.template.source, self.template.training)))

    def of(self, form: Form, *, spaced: bool = True) -> PlainForm | None:
        """What chats of this form must have become; `None` where each has to be derived by itself.

        Args:
            spaced: whether it shall be known what becomes of white space at the ends of texts, if it can be.
        """
        if not (isinstance(form, tuple) and isinstance(form[0], str)):
            return self._shaped(form)
        if form not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
                self._bare.clear()
            self._known[form] = self._found(form)
        found = self._known[form]
        if found is not None and spaced and form in self._bare:
            self._bare.remove(form)
            found = self._known[form] = self._spaced(form, found)
        return found

    def _derived(self, roles: tuple[str, ...], texts: Sequence[str]) -> Derived:
        return self._alone(PlainChat(roles, tuple(texts)).sample())

    def _alone(self, sample: Sample) -> Derived:
        return derive(sample, self.options, self.template, prompted=self.prompted)

    def _shaped(self, shape: Shape) -> PlainForm | None:
        forms = [replace(_taken(*each), keeps_edges=True) for each in taken_apart(shape, self._alone)]
        return forms[0] if forms and forms[0] == forms[1] and _ends_between(forms[0]) else None

    def _found(self, roles: tuple[str, ...]) -> PlainForm | None:
        names = _names(roles)
        try:
            bare = self._derived(roles, names)
        except CheckFailed:
            return None
        found = list(_NAME.finditer(bare.text))
        if sorted(name[0] for name in found) != names:
            return None
        self._bare.add(roles)
        return _taken(bare, [(*name.span(), int(name[1]), {}) for name in found])

    def _spaced(self, roles: tuple[str, ...], form: PlainForm) -> PlainForm:
        names = _names(roles)
        try:
            spaced = [self._derived(roles, [f"{blank}{name}{blank}" for name in names]) for blank in _BLANKS]
        except CheckFailed:
            return form
        return _with_edges(form, spaced, names)


def _names(roles: Sequence[str]) -> list[str]:
    return [f"Qz{number:05d}zQ" for number in range(len(roles))]


@bounded_cache("derived forms", 16, key=lambda template, options, *, prompted: repr((template.hash, template.control, options, prompted)))
def forms_of(template: ChatTemplate, options: MaskOptions, *, prompted: bool) -> PlainForms:
    """The forms of a template under a policy, which are found once in a process."""
    return PlainForms(template, options, prompted)


def _ends_between(form: PlainForm) -> bool:
    """Whether all places are between texts."""
    places = [*form.controls, *((start, end) for start, end, *_ in form.stretches), *((start, end) for start, end, _ in form.shortenable)]
    return all(after <= len(form.frames[gap]) for gap, after in chain.from_iterable(places))


def _taken(derived: Derived, names: Sequence[Found]) -> PlainForm:
    starts, ends = [start for start, *_ in names], [end for _, end, *_ in names]

    def edge(position: int) -> Edge:
        before = bisect_right(ends, position)
        return before, position - (ends[before - 1] if before else 0)

    return PlainForm(
        tuple(derived.text[left:right] for left, right in zip((0, *ends), (*starts, None), strict=True)),
        tuple(number for *_, number, _ in names),
        ((False, False),) * len(names),
        False,
        tuple((edge(each.start), edge(each.end), each.weight, each.stop) for each in derived.expected),
        tuple((edge(start), edge(end)) for start, end in derived.controls),
        tuple((edge(start), edge(end), role) for start, end, role in derived.shortenable),
        derived.tagged,
        tuple(way for *_, way in names),
    )


def _with_edges(form: PlainForm, spaced: Sequence[Derived], names: Sequence[str]) -> PlainForm:
    """The form with what becomes of white space at the ends of texts; the form itself where that is not the same for all white space."""
    first, blank = spaced[0].text, _BLANKS[0]
    strips = []
    for turn, before, after in zip(form.turns, form.frames, form.frames[1:], strict=False):
        at = first.find(names[turn])
        lead = not first[:at].endswith(before + blank)
        strips.append((lead, not first.startswith(blank + after, at + len(names[turn]))))
    full = replace(form, strips=tuple(strips), keeps_edges=True)
    for blank, derived in zip(_BLANKS, spaced, strict=True):
        again = derived_of(full, full.shown([f"{blank}{name}{blank}" for name in names]))
        if again != derived:
            return form
    return full


def derived_of(form: PlainForm, shown: Sequence[str]) -> Derived:
    """What `derive` finds of one chat of a form, from its texts as the render shows them."""
    text, ends = form.frames[0], [0]
    for own, frame in zip(shown, form.frames[1:], strict=True):
        text += own
        ends.append(len(text))
        text += frame

    def at(edge: Edge) -> int:
        return ends[edge[0]] + edge[1]

    expected = tuple(Expected(text[at(start) : at(end)], weight, stop, at(start), at(end)) for start, end, weight, stop in form.stretches)
    controls = tuple((at(start), at(end)) for start, end in form.controls)
    shortenable = tuple((at(start), at(end), role) for start, end, role in form.shortenable)
    return Derived(text, expected, controls, 0, shortenable, form.tagged)


class PlainDerivation:
    """`derive` for many samples under one policy: plain chats by their forms, all others by themselves, and one in `ONE_IN` plain chats both ways."""

    def __init__(
        self,
        options: MaskOptions,
        template: ChatTemplate,
        *,
        typed_controls: bool,
        read: Callable[[Sample], tuple[tuple[str, ...], list[str]] | None] = roles_and_texts,
        forms: MaskOptions | None = None,
        prompted: bool = False,
    ) -> None:
        """With a policy and a template.

        Args:
            typed_controls, prompted: see `derive`.
            read: the roles and texts of a plain sample.
            forms: the policy of what `read` gives, where samples carry weights of their own that say the same.
        """
        self._options, self._typed_controls, self._read = options, typed_controls, read
        self._forms, self._shaped = (forms_of(template, each, prompted=prompted) for each in (forms or options, options))
        self.looked_for = (*self._forms.written, *template.control)
        self._suspect = searching(self.looked_for)

    def __call__(self, sample: Sample) -> Derived:
        """What a sample must have become.

        Raises:
            CheckFailed: see `derive`; or the two ways differ.
        """
        plain = self._read(sample)
        edged = plain is not None and any(text != text.strip() for text in plain[1])
        form = self.form(plain[0], edged=edged) if plain is not None else None
        if plain is None or form is None or any(map(self._suspect.search, plain[1])):
            return self._alone(sample)
        texts = plain[1]
        found = derived_of(form, form.shown(texts))
        if self.in_sample(texts) and (again := self._alone(sample)) != found:
            raise CheckFailed(f"derived by itself a chat is {again.text[:200]!r}, by its form {found.text[:200]!r}; nothing is proven")
        return found

    def form(self, form: Form, *, edged: bool) -> PlainForm | None:
        """What chats of this form must have become; `None` where each has to be derived by itself.

        Args:
            edged: whether a text may begin or end with white space. What becomes of it is learned where it is asked for.
        """
        found = (self._shaped if isinstance(form, Outline) else self._forms).of(form, spaced=edged)
        return None if found is None or (edged and not found.keeps_edges) else found

    @staticmethod
    def in_sample(texts: Sequence[str]) -> bool:
        """Whether a chat is derived by itself as well."""
        return PlainDerivation.picks(texts[-1].encode(errors="surrogatepass"))

    @staticmethod
    def picks(last: bytes) -> bool:
        """The same by its last text: the first may be the same in all rows."""
        return zlib.crc32(last) % ONE_IN == 0

    def _alone(self, sample: Sample) -> Derived:
        forms = self._forms
        return derive(sample, self._options, forms.template, prompted=forms.prompted, typed_controls=self._typed_controls)


def answers_derivation(template: ChatTemplate) -> PlainDerivation:
    """`derive` for conversations whose regions say themselves whether they are trained, such as the sides of a pair."""
    return PlainDerivation(
        MaskOptions(mask={}), template, typed_controls=False, read=roles_and_answer, forms=MaskOptions(train_turns="last")
    )
