"""Chats of one text a turn, derived a second time by form."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected, MaskOptions, derive
from prep_assets.proofs.shaped_forms import Found, Listed, Outline, Shape, Spelling, spelled, taken_apart
from prep_assets.samples import ASSISTANT, COMPLETION, TEXT, PlainChat, Sample
from prep_assets.text.environment import chat_template_utils

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# Where any of some strings stands in bytes: the places of the byte of each that is the rarest, and of these the ones with all of its other bytes around.

Ints = npt.NDArray[np.int64]

ONE_IN = 64
"""Share of the bytes by which it is told how often each byte stands."""
_BYTES = 256
_HALF, _SECOND = 0xED, 0xA0
"""How half of a surrogate pair begins in UTF-8: this byte, and one that is not below the second."""


class ByteSearch:
    """Finds some strings, and half of a surrogate pair.

    Args:
        strings: none of them empty.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        some = sorted({each.encode() for each in strings})
        # a string that holds another one is found with it
        self._strings = [each for each in some if not any(other in each for other in some if other != each)]

    def places(self, data: bytes) -> Ints:
        """Where they begin, in no order."""
        every = np.frombuffer(data, np.uint8)
        often = np.bincount(every[::ONE_IN], minlength=_BYTES)
        halves = np.flatnonzero(every[:-1] == _HALF) if _HALF in data else np.zeros(0, np.int64)
        found, standing = [halves[every[halves + 1] >= _SECOND]], dict[int, Ints]()
        for string in self._strings:
            order = sorted(range(len(string)), key=lambda at: (often[string[at]], string[at]))
            rarest = string[order[0]]
            if rarest not in standing:
                standing[rarest] = np.flatnonzero(every == rarest) if rarest in data else np.zeros(0, np.int64)
            begins = standing[rarest] - order[0]
            begins = begins[(begins >= 0) & (begins <= len(every) - len(string))]
            for at in order[1:]:
                begins = begins[every[begins + at] == string[at]]
            found.append(begins)
        return np.concatenate(found)


# Which samples are one text a turn with nothing beside, and hold no string that a template or a tokenizer may treat otherwise than any word.


def plain_chat(sample: Sample) -> PlainChat | None:
    """Such a sample in columns; `None` for any other."""
    if sample != Sample(sample.turns):
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


def roles_and_texts(sample: Sample) -> tuple[tuple[str, ...], list[str]] | None:
    """The roles and the texts of such a sample without blank texts; `None` for any other."""
    chat = plain_chat(sample)
    return (chat.roles, list(chat.texts)) if chat and all(map(str.strip, chat.texts)) else None


def roles_and_answer(sample: Sample) -> tuple[tuple[str, ...], list[str]] | None:
    """The same of a conversation whose regions say that its last turn is trained, an answer, and no other."""
    *before, last = sample.turns
    weights = [{region.loss_weight for region in turn.regions} for turn in sample.turns]
    if last.role not in (ASSISTANT, COMPLETION) or weights != [{0.0}] * len(before) + [{1.0}]:
        return None
    bare = (replace(turn, regions=tuple(replace(region, loss_weight=None) for region in turn.regions)) for turn in sample.turns)
    return roles_and_texts(replace(sample, turns=tuple(bare)))


def searching(strings: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the strings, and half of a surrogate pair."""
    return re.compile("|".join([*map(re.escape, sorted(strings)), "[\ud800-\udfff]"]))


# The strings of a chat template's source that a text may be compared with or searched for: all but those that are only written.


def strings_looked_for(sources: Iterable[str]) -> tuple[str, ...]:
    """The strings of some templates, sorted; those of one character and names of fields are left out."""
    from jinja2 import nodes

    trees = [chat_template_utils()._compile_jinja_template(source).environment.parse(source) for source in sources]
    shown = {id(each) for tree in trees for each in _only_shown(tree)}
    found = {each.value for tree in trees for each in tree.find_all(nodes.Const) if isinstance(each.value, str) and id(each) not in shown}
    return tuple(sorted(each for each in found if len(each.strip()) > 1 and not each.isidentifier()))


def _only_shown(node: Any) -> Iterator[Any]:
    """The constants of which a template does nothing but write them into its render, alone or joined with others. What a block catches to use it
    otherwise is not of the render."""
    from jinja2 import nodes

    if isinstance(node, nodes.Const):
        yield node
    elif isinstance(node, nodes.Output | nodes.Concat | nodes.Add):
        yield from chain.from_iterable(map(_only_shown, node.iter_child_nodes()))
    elif isinstance(node, nodes.CondExpr):
        yield from chain.from_iterable(map(_only_shown, (node.expr1, node.expr2)))
    elif isinstance(node, nodes.Template | nodes.For | nodes.If) or _is_generation(node):
        for part in (part for name in ("body", "elif_", "else_") for part in getattr(node, name, ())):
            if isinstance(part, nodes.Stmt):
                yield from _only_shown(part)


def _is_generation(node: Any) -> bool:
    """Whether a part of a template is what ``{% generation %}`` encloses, which is written as it is."""
    from jinja2 import nodes

    called = getattr(node, "call", None)
    return (
        isinstance(called, nodes.Call) and isinstance(called.node, nodes.ExtensionAttribute) and called.node.name == "_generation_support"
    )


# Plain chats derived a second time, by form: what each turn's text must have become, for every chat with the same roles at once.
#
# `derive` takes the render of one chat of invented texts apart. What it finds there is kept as so many texts before, so many characters after, and holds for
# every chat with these roles whose texts the template cannot tell from others. A text that holds a string of the template's own source may be one that it
# looks for; a chat with such a text is derived by itself. No code of the layouts that builds write with is used.

MOST_KNOWN = 4096
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


# A form of plain chats in bytes: where things stand in the renders of many chats with the same roles, from the lengths of their texts alone.


@dataclass(frozen=True, slots=True)
class Placed:
    """Where things stand in the renders of some chats: see `plain_blocks`."""

    items: Ints
    stretches: Ints
    weights: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BytesForm:
    """A form in bytes.

    Attributes:
        form: the same in characters.
        written: what stands before, between and after the texts.
        frames: int64[t + 1], bytes of each of these.
        turns: int64[t], which text of a chat stands in each gap.
        stretches: int64[s, 2, 2], begin and end of each trained stretch: how many texts end before it, and so many bytes after these.
        weights: float32[s].
        controls: int64[c, 2, 2], the same of each control token.
        tokens: int64[c], their ids.
        stops: the tokens that end turns.
    """

    form: PlainForm
    written: tuple[bytes, ...]
    frames: Ints
    turns: Ints
    stretches: Ints
    weights: npt.NDArray[np.float32]
    controls: Ints
    tokens: Ints
    stops: frozenset[str]

    @classmethod
    def of(cls, form: PlainForm, control: Mapping[str, int]) -> BytesForm | None:
        """A form in bytes; `None` where something in it begins or ends inside a text, so that each chat has to be looked at.

        Args:
            control: the tokenizer's control tokens and their ids.
        """
        pairs = [(start, end) for start, end, _, _ in form.stretches]
        if any(start[0] != end[0] for start, end in form.controls):
            return None
        written = [form.frames[start[0]][start[1] : end[1]] for start, end in form.controls]
        if any(edge[1] > len(form.frames[edge[0]]) for pair in (*pairs, *form.controls) for edge in pair):
            return None
        if any(text not in control for text in written) or not all(_ends_with(form, end, stop) for _, end, _, stop in form.stretches):
            return None
        frames = tuple(frame.encode() for frame in form.frames)
        return cls(
            form,
            frames,
            np.array([len(frame) for frame in frames]),
            np.array(form.turns, np.int64),
            _in_bytes(form, pairs),
            np.array([weight for _, _, weight, _ in form.stretches], np.float32),
            _in_bytes(form, form.controls),
            np.array([control[text] for text in written], np.int64),
            frozenset(stop for *_, stop in form.stretches if stop),
        )

    def stripped(self, texts: Sequence[str]) -> list[bytes]:
        """The texts of any chat as its render shows them, in its order."""
        return [text.encode() for text in self.form.shown(texts)]

    def placed(self, rows: Ints, lengths: Ints, base: Ints) -> Placed:
        """Where things stand in the renders of these rows.

        Args:
            rows: int64[n], their numbers.
            lengths: int64[n, t], bytes of their texts as the renders show them.
            base: where the render of each number begins, and the end of the last.
        """
        ends = np.zeros((len(rows), len(self.frames)), np.int64)
        np.cumsum(lengths + self.frames[:-1], axis=1, out=ends[:, 1:])
        low, high = (ends[:, self.stretches[:, side, 0]] + self.stretches[:, side, 1] for side in (0, 1))
        of_row = np.repeat(rows, len(self.weights))
        stretches = np.stack([of_row, low.ravel(), high.ravel()], axis=1)
        return Placed(self._items(ends, base[rows], base[rows + 1]), stretches, np.tile(self.weights, len(rows)))

    def _items(self, ends: Ints, first: Ints, last: Ints) -> Ints:
        low, high = (first[:, None] + ends[:, self.controls[:, side, 0]] + self.controls[:, side, 1] for side in (0, 1))
        begins = np.concatenate([first[:, None], high], axis=1).ravel()
        ends = np.concatenate([low, last[:, None]], axis=1).ravel()
        ordinary = np.stack([begins, ends, np.full(len(begins), -1)], axis=1)
        control = np.stack([low.ravel(), high.ravel(), np.tile(self.tokens, len(first))], axis=1)
        return np.concatenate([ordinary[begins < ends], control])


def _in_bytes(form: PlainForm, pairs: Sequence[tuple[Edge, Edge]]) -> Ints:
    places = [[(gap, len(form.frames[gap][:after].encode())) for gap, after in pair] for pair in pairs]
    return np.array(places, np.int64).reshape(len(pairs), 2, 2)


def _ends_with(form: PlainForm, end: Edge, stop: str) -> bool:
    """Whether a stretch that ends there ends with its stop token."""
    return form.frames[end[0]][: end[1]].rstrip().endswith(stop)
