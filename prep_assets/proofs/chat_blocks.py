"""Chats derived a second time by form, and proven a block at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected, MaskOptions, derive
from prep_assets.proofs.mask import IdentityProof, MaskProof
from prep_assets.samples import ASSISTANT, COMPLETION, PlainChat, Sample
from prep_assets.text.chats import Bools, ByteSearch, ChatColumns, Ints, Kind, Outline, as_json, outline_of, plain_chat
from prep_assets.text.environment import chat_template_utils
from prep_assets.text.forms import Form, Known, Laid, Learned, Located, agreed, form_of

if TYPE_CHECKING:
    from prep_assets.text.template import ChatTemplate

# The strings of a chat template's source that a text may be compared with or searched for: all but those that are only written.


@bounded_cache("strings looked for", 16)
def strings_looked_for(*sources: str) -> tuple[str, ...]:
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


# Chats derived a second time, by form: what each must have become, for every chat of the form at once.
#
# `derive` takes the renders of chats of invented texts apart. What it finds there holds for every chat of the form whose texts the template cannot tell from
# others. A text that holds a string of the template's own source may be one that it looks for; a chat with such a text is derived by itself.

ONE_IN = 64
"""Share of the chats that are derived by themselves as well: one in so many."""


def answer_chat(sample: Sample) -> PlainChat | None:
    """A conversation in columns whose regions say that its last turn is trained, an answer, and no other; `None` for any other."""
    *before, last = sample.turns
    weights = [{region.loss_weight for region in turn.regions} for turn in sample.turns]
    if last.role not in (ASSISTANT, COMPLETION) or weights != [{0.0}] * len(before) + [{1.0}]:
        return None
    bare = (replace(turn, regions=tuple(replace(region, loss_weight=None) for region in turn.regions)) for turn in sample.turns)
    return plain_chat(replace(sample, turns=tuple(bare)))


def moved(words: Derived, form: Form, shown: Sequence[str]) -> Derived:
    """What `derive` finds of a chat of a form, from what it finds of the invented texts, and the texts as the render shows them."""
    at, text = form.mover(shown), form.text(shown)

    def stretch(each: Expected) -> Expected:
        start, end = at(each.start), at(each.end)
        return Expected(text[start:end], each.weight, each.stop, start, end)

    controls = tuple([(at(start), at(end)) for start, end in words.controls])
    shortenable = tuple([(at(start), at(end), role) for start, end, role in words.shortenable])
    return Derived(text, tuple(map(stretch, words.expected)), controls, words.typed, shortenable, words.tagged)


@bounded_cache(
    "derived forms", 16, key=lambda template, options, plain, *, prompted: repr((template.hash, template.control, options, plain, prompted))
)
def derived_forms(template: ChatTemplate, options: MaskOptions, plain: MaskOptions, *, prompted: bool) -> Learned[Derived]:
    """What is derived of each form, plain ones under a policy of their own. Control tokens are numbered as those of the template."""

    def learn(kind: Kind, spaced: bool) -> Located[Derived] | None:
        outline, policy = outline_of(kind), options if isinstance(kind, Outline) else plain
        answers: dict[tuple[str, ...], Derived] = {}

        def answer(texts: tuple[str, ...]) -> Derived:
            if texts not in answers:
                answers[texts] = derive(outline.sample(texts), policy, template, prompted=prompted)
            return answers[texts]

        try:
            form = form_of(kind, spaced, lambda texts: answer(texts).text)
            words = None if form is None else agreed(form, answer, moved)
        except CheckFailed:
            return None
        if form is None or words is None or not all(each.text.rstrip().endswith(each.stop) for each in words.expected):
            return None
        controls = [(start, end, template.control.index(words.text[start:end])) for start, end in words.controls]
        steps = [(0, 0.0)]
        for each in words.expected:
            steps = [step for step in steps if step[0] != each.start]
            steps += [(each.start, each.weight), (each.end, 0.0)]
        return Located.of(form, words, controls, steps)

    return Learned(learn, plain_at_once=True)


class PlainDerivation:
    """`derive` for many samples under one policy: plain chats by their forms, all others by themselves, and one in `ONE_IN` plain chats both ways.

    Attributes:
        forms: what is derived of each form.
        template: the template.
        looked_for: strings of which any chat is derived by itself.
    """

    def __init__(
        self,
        options: MaskOptions,
        template: ChatTemplate,
        *,
        typed_controls: bool,
        read: Callable[[Sample], PlainChat | None] = plain_chat,
        plain: MaskOptions | None = None,
        prompted: bool = False,
    ) -> None:
        """With a policy and a template.

        Args:
            typed_controls, prompted: see `derive`.
            read: a plain sample in columns.
            plain: the policy of what `read` gives, where samples carry weights of their own that say the same.
        """
        self.template, self._options, self._typed_controls, self._prompted, self._read = template, options, typed_controls, prompted, read
        self.forms = derived_forms(template, options, plain or options, prompted=prompted)
        self.looked_for = (*strings_looked_for(template.source, template.training), *template.control)
        self._suspect = re.compile("|".join([*map(re.escape, sorted(self.looked_for)), "[\ud800-\udfff]"]))

    def __call__(self, sample: Sample) -> Derived:
        """What a sample must have become.

        Raises:
            CheckFailed: see `derive`; or the two ways differ.
        """
        chat, known = self._read(sample), None
        if chat is not None and all(map(str.strip, chat.texts)) and not any(map(self._suspect.search, chat.texts)):
            known = self.forms.of(chat.roles, any(text != text.strip() for text in chat.texts))
        if chat is None or known is None:
            return self._alone(sample)
        found = moved(known.words, known.form, known.form.shown(chat.texts))
        if zlib.crc32(chat.texts[-1].encode()) % ONE_IN == 0 and (again := self._alone(sample)) != found:
            raise CheckFailed(f"derived by itself a chat is {again.text[:200]!r}, by its form {found.text[:200]!r}; nothing is proven")
        return found

    def _alone(self, sample: Sample) -> Derived:
        return derive(sample, self._options, self.template, prompted=self._prompted, typed_controls=self._typed_controls)


def answers_derivation(template: ChatTemplate) -> PlainDerivation:
    """`derive` for conversations whose regions say themselves whether they are trained, such as the sides of a pair."""
    return PlainDerivation(MaskOptions(mask={}), template, typed_controls=False, read=answer_chat, plain=MaskOptions(train_turns="last"))


# Chats proven by the block: both proofs of many records at once, as arrays.
#
# Of a block of chats the second derivation gives one text: what all of them must have become, one after the other, with the places where control tokens and
# trained stretches begin and end. Three comparisons prove them: the reference tokenizer's ids of that text are those that are stored; their bytes are the
# text; and the weights change where the trained stretches begin and end, to the weights that these have.
#
# What differs in any of this is not proven here and not judged: it is for the proofs of single rows, which say what is wrong. So are chats of which a form is
# not known, that hold a string that is looked for, and the share that is derived by itself as well.


@dataclass(frozen=True, slots=True)
class Claims:
    """What a store has of some chats.

    Attributes:
        lengths: int64[n], tokens of each.
        ids, mask: of all of them, one after the other.
    """

    lengths: Ints
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.generic]

    def of(self, chosen: Bools) -> Claims:
        """Only of the chosen chats."""
        if chosen.all():
            return self
        tokens = np.repeat(chosen, self.lengths)
        return Claims(self.lengths[chosen], self.ids[tokens], self.mask[tokens])


class PlainBlocks:
    """Proves blocks of chats, and counts them in both proofs."""

    def __init__(self, derivation: PlainDerivation, masks: MaskProof, identities: IdentityProof, looked_for: Iterable[str]) -> None:
        """`looked_for`: strings of which any chat is for the proofs of single rows."""
        self._derivation, self._masks, self._identities = derivation, masks, identities
        listed = {*derivation.looked_for, *looked_for}
        bare = listed | {each.strip() for each in listed} - {""}  # texts of outlines have no white space at their ends
        within_json = {as_json(each)[1:-1] for each in bare}
        self._suspects = {False: ByteSearch(listed), True: ByteSearch(bare | within_json)}
        self._ids = np.array([*map(masks.vocabulary.control.__getitem__, derivation.template.control), -1], np.int64)
        """By the number of a control token, the last of ordinary text."""

    def prove(self, chats: ChatColumns, claims: Claims) -> Bools:
        """Which of the chats are proven."""
        known = self._known(chats)
        proven: Bools = known.form >= 0
        if not proven.any():
            return proven
        laid, those = known.lay(chats), claims.of(proven)
        good = self._ids_agree(laid, those) & self._masks_agree(laid, those)
        if good.any():
            trained = int(np.count_nonzero((those.mask != 0) & np.repeat(good, those.lengths)))
            counts = np.bincount(laid.form[good], minlength=len(known.located)).tolist()
            seen = [(each.words, count) for each, count in zip(known.located, counts, strict=True) if count]
            stops = {stretch.stop for words, _ in seen for stretch in words.expected if stretch.stop}
            self._masks.proven(sum(counts), trained, stops, sum(count for words, count in seen if words.tagged))
            self._identities.proven(sum(counts))
        proven[proven] = good
        return proven

    def _known(self, chats: ChatColumns) -> Known[Derived]:
        """Which of the chats have a form."""
        blank, edged = chats.white()
        allowed = (chats.kind >= 0) & ~blank & ~chats.sampled(ONE_IN)
        outlined = np.array([isinstance(kind, Outline) for kind in chats.kinds], bool)
        for other in {*outlined.tolist()}:
            allowed[chats.holding(self._suspects[other]) & (outlined[chats.kind] == other)] = False
        return self._derivation.forms.known(chats, allowed, edged)

    def _ids_agree(self, laid: Laid, claims: Claims) -> Bools:
        """Of which rows the stored ids are the reference tokenizer's."""
        starts, _, token = laid.items.T
        begins = laid.base[np.searchsorted(laid.base, starts, "right") - 1] == starts
        flat = self._identities.reference.encode_pieces(laid.data, np.append(starts, len(laid.data)), self._ids[token], begins)
        lengths = np.diff(flat.offsets[np.searchsorted(starts, laid.base)])
        good: Bools = lengths == claims.lengths
        ids, stored = flat.ids, claims.ids
        if not good.all():
            ids, stored = ids[np.repeat(good, lengths)], stored[np.repeat(good, claims.lengths)]
        wrong = np.searchsorted(np.cumsum(lengths[good]), np.flatnonzero(ids != stored), "right")
        good[np.flatnonzero(good)[wrong]] = False
        return good

    def _masks_agree(self, laid: Laid, claims: Claims) -> Bools:
        """Of which rows the bytes of the stored ids are the render, and the trained runs the stretches that must be trained."""
        looked_at = self._masks.table.take(len(claims.ids), lambda: np.asarray(claims.ids))
        if looked_at is None:
            return np.zeros(len(claims.lengths), bool)
        data, bounds = looked_at
        first = np.concatenate([[0], np.cumsum(claims.lengths)])
        good = _bytes_agree(laid, data, bounds[first])
        starts, ends, weights = _runs(claims.mask, first)
        rows = np.searchsorted(first, starts, "right") - 1
        runs = np.stack([rows, bounds[starts] - bounds[first[rows]], bounds[ends] - bounds[first[rows]]], axis=1)
        stretches, wanted_weights = _stretches(laid)
        good &= np.bincount(rows, minlength=len(good)) == np.bincount(stretches[:, 0], minlength=len(good))
        here, there = good[rows], good[stretches[:, 0]]
        found, wanted = runs[here], stretches[there]
        same = weights[here] == wanted_weights[there]
        inner = np.stack([bounds[starts + 1] - bounds[first[rows]], bounds[ends - 1] - bounds[first[rows]]], axis=1)[here]
        for at in np.flatnonzero(same & (found != wanted).any(axis=1)).tolist():
            same[at] = _but_for_spaces(laid, found[at].tolist(), wanted[at].tolist(), *inner[at].tolist())
        good[found[~same, 0]] = False
        return good


def _stretches(laid: Laid) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Row, start and end of each stretch that must be trained, in the bytes of its row; and their weights."""
    trained = laid.weights != 0
    starts, ends = laid.breaks[trained], np.append(laid.breaks[1:], len(laid.data))[trained]
    rows = np.searchsorted(laid.base, starts, "right") - 1
    return np.stack([rows, starts - laid.base[rows], ends - laid.base[rows]], axis=1), laid.weights[trained]


def _bytes_agree(laid: Laid, data: memoryview, base: Ints) -> Bools:
    """Of which rows the bytes, which begin at `base`, are the render."""
    found, wanted = (np.frombuffer(each, np.uint8) for each in (data, laid.data))  # a view is compared byte by byte
    if np.array_equal(base, laid.base) and np.array_equal(found, wanted):
        return np.ones(len(base) - 1, bool)
    borders = zip(base.tolist(), base[1:].tolist(), laid.base.tolist(), laid.base[1:].tolist(), strict=False)
    return np.array([np.array_equal(found[low:high], wanted[start:end]) for low, high, start, end in borders])


def _but_for_spaces(laid: Laid, run: Sequence[int], stretch: Sequence[int], first_ends: int, last_begins: int) -> bool:
    """Whether a trained run is its stretch, white space aside where the stretch itself begins or ends with some: one token may hold that and some of the
    template's. A token that holds nothing of the stretch is none of it.

    Args:
        first_ends, last_begins: where the first token of the run ends, and where its last one begins.
    """
    base = int(laid.base[run[0]])

    def alike(mine: int, other: int, own: int) -> bool:
        low, high = sorted((mine, other))
        return low == high or (laid.data[base + low : base + high].isspace() and laid.data[base + own : base + own + 1].isspace())

    holds = first_ends > stretch[1] and last_begins < stretch[2]
    return holds and alike(run[1], stretch[1], stretch[1]) and alike(run[2], stretch[2], stretch[2] - 1)


def _runs(mask: npt.NDArray[np.generic], first: Ints) -> tuple[Ints, Ints, npt.NDArray[np.generic]]:
    """Start, end and weight of each run of trained tokens of one weight; `first` is where rows begin."""
    begins = np.ones(len(mask) + 1, bool)
    begins[1:-1] = mask[1:] != mask[:-1]
    begins[first] = True
    starts = np.flatnonzero(begins[:-1])
    ends = np.append(starts[1:], len(mask))
    weights = mask[starts]
    return starts[weights != 0], ends[weights != 0], weights[weights != 0]
