"""Chats derived a second time by form, and proven a block at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Bools, Ints
from prep_assets.caches import bounded_cache
from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected, MaskOptions, derive
from prep_assets.proofs.mask import IdentityProof, MaskProof
from prep_assets.proofs.words import Spelled
from prep_assets.samples import ASSISTANT, COMPLETION, PlainChat, Sample, changed
from prep_assets.text.chats import ChatColumns, Kind, Outline, any_of, as_json, outline_of, outlined, plain_chat
from prep_assets.text.environment import chat_template_utils
from prep_assets.text.forms import CompiledForm, FormCache, Layout, agreed, layout_of, render_forms

if TYPE_CHECKING:
    from prep_assets.text.spans import RenderedBlock
    from prep_assets.text.template import ChatTemplate

# Strings of a template's source that it may compare texts with or search texts for: all but those that it only writes.


@bounded_cache("strings looked for", 16)
def strings_looked_for(*sources: str) -> tuple[str, ...]:
    """Return the strings of templates, sorted, without single characters and identifiers."""
    from jinja2 import nodes

    trees = [chat_template_utils()._compile_jinja_template(source).environment.parse(source) for source in sources]
    shown = {id(node) for tree in trees for node in _only_shown(tree)}
    strings = {node.value for tree in trees for node in tree.find_all(nodes.Const) if isinstance(node.value, str) and id(node) not in shown}
    return tuple(sorted(node for node in strings if len(node.strip()) > 1 and not node.isidentifier()))


def _only_shown(node: Any) -> Iterator[Any]:
    """Yield the constants that a template only writes into its render, alone or joined with others. What a block captures for other
    use does not count."""
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
    """Whether a node is the body of ``{% generation %}``, which is written unchanged."""
    from jinja2 import nodes

    called = getattr(node, "call", None)
    return (
        isinstance(called, nodes.Call) and isinstance(called.node, nodes.ExtensionAttribute) and called.node.name == "_generation_support"
    )


# Chats derived a second time, by form, all chats of a form at once.
#
# `derive` takes renders of chats of invented texts apart. Its result holds for every chat of the form whose texts the template cannot tell from
# others. A template may look for a string of its own source, so a chat with such a string in a text is derived alone.

ONE_IN = 64
"""One in so many chats is also derived alone, and so is the first of each form."""


def answer_chat(sample: Sample) -> PlainChat | None:
    """Return a conversation in columns if its weights train the last turn, an answer, and no other; else `None`."""
    *before, last = sample.turns
    weights = [{region.loss_weight for region in turn.regions} for turn in sample.turns]
    if last.role not in (ASSISTANT, COMPLETION) or weights != [{0.0}] * len(before) + [{1.0}]:
        return None
    bare = (changed(turn, regions=tuple(changed(region, loss_weight=None) for region in turn.regions)) for turn in sample.turns)
    return plain_chat(changed(sample, turns=tuple(bare)))


def moved(derived: Derived, layout: Layout, shown: Sequence[str]) -> Derived:
    """Return the derivation of a chat of a form, moved from that of the invented texts; `shown`: its texts as rendered."""
    at, text = layout.mover(shown), layout.text(shown)

    def stretch(expected: Expected) -> Expected:
        start, end = at(expected.start), at(expected.end)
        return Expected(text[start:end], expected.weight, expected.stop, start, end)

    controls = tuple([(at(start), at(end)) for start, end in derived.controls])
    shortenable = tuple([(at(start), at(end), role) for start, end, role in derived.shortenable])
    return replace(derived, text=text, expected=tuple(map(stretch, derived.expected)), controls=controls, shortenable=shortenable)


@bounded_cache(
    "derived forms", 16, key=lambda template, options, plain, *, prompted: repr((template.hash, template.control, options, plain, prompted))
)
def derived_forms(template: ChatTemplate, options: MaskOptions, plain: MaskOptions, *, prompted: bool) -> FormCache[Derived]:
    """Return the derivations by form; plain chats have a policy of their own. Control tokens are indices into `template.control`."""

    def learn(kind: Kind, spaced: bool) -> CompiledForm[Derived] | None:
        outline, policy = outline_of(kind), options if isinstance(kind, Outline) else plain
        answers: dict[tuple[str, ...], Derived] = {}

        def answer(texts: tuple[str, ...]) -> Derived:
            if texts not in answers:
                answers[texts] = derive(outline.sample(texts), policy, template, prompted=prompted, prompts=True)
            return answers[texts]

        try:
            layout = layout_of(kind, spaced, lambda texts: answer(texts).text)
            derived = None if layout is None else agreed(layout, answer, moved)
        except CheckFailed:
            return None
        if layout is None or derived is None or not all(stretch.text.rstrip().endswith(stretch.stop) for stretch in derived.expected):
            return None
        controls = [(start, end, template.control.index(derived.text[start:end])) for start, end in derived.controls]
        steps = [(0, 0.0)]
        for stretch in derived.expected:
            steps = [step for step in steps if step[0] != stretch.start]
            steps += [(stretch.start, stretch.weight), (stretch.end, 0.0)]
        return CompiledForm.of(layout, derived, controls, steps)

    return FormCache(learn, plain_at_once=True)


class Firsts:
    """Tells the first chat of each form from later ones."""

    def __init__(self) -> None:
        self._seen = WeakSet[CompiledForm[Derived]]()

    def __call__(self, form: CompiledForm[Derived]) -> bool:
        """Whether this form comes for the first time."""
        is_first = form not in self._seen
        self._seen.add(form)
        return is_first


class PlainDerivation:
    """`derive` for many samples under one policy: plain chats by form, all others alone; the first plain chat of each form and one in `ONE_IN` both ways.

    Attributes:
        forms: the derivations by form.
        template: the template.
        read: sample → plain chat in columns, or `None`.
        looked_for: a chat with any of these strings is derived alone.
        alone: whether all chats are derived alone, as all are that code writes.
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
        prompts: bool = False,
        alone: bool = False,
    ) -> None:
        """With a policy and a template.

        Args:
            typed_controls, prompted, prompts: see `derive`.
            alone: see `PlainDerivation`.
            read: see `PlainDerivation`.
            plain: the policy for what `read` gives, equal to the weights that these samples carry.
        """
        self.template, self._options, self._typed_controls, self._prompted, self.read = template, options, typed_controls, prompted, read
        self.forms = derived_forms(template, options, plain or options, prompted=prompted)
        by_code = template.renderer is not None  # which tells nobody what it looks for in texts
        self.looked_for = (*(() if by_code else strings_looked_for(template.source, template.training)), *template.control)
        self._suspect = re.compile("|".join([*map(re.escape, sorted(self.looked_for)), "[\ud800-\udfff]"]))
        self.alone, self._begins, self._prompts = alone or by_code, Firsts(), prompts

    def __call__(self, sample: Sample) -> Derived:
        """Return what a sample must have become.

        Raises:
            CheckFailed: see `derive`; or both ways differ.
        """
        chat, known = None if self.alone else self.read(sample), None
        if chat is not None and all(map(str.strip, chat.texts)) and not any(map(self._suspect.search, chat.texts)):
            known = self.forms.of(chat.roles, any(text != text.strip() for text in chat.texts))
        if chat is None or known is None:
            return self._alone(sample, prompts=self._prompts)
        derived = moved(known.derived, known.layout, known.layout.shown(chat.texts))
        both = self._begins(known) or zlib.crc32(chat.texts[-1].encode()) % ONE_IN == 0
        if both and (derived_alone := self._alone(sample, prompts=True)) != derived:
            raise CheckFailed(
                f"derived by itself a chat is {derived_alone.text[:200]!r}, by its form {derived.text[:200]!r}; nothing is proven"
            )
        return derived

    def _alone(self, sample: Sample, *, prompts: bool) -> Derived:
        typed = self._typed_controls
        return derive(sample, self._options, self.template, prompted=self._prompted, typed_controls=typed, prompts=prompts)


def answers_derivation(template: ChatTemplate, *, alone: bool = False) -> PlainDerivation:
    """Return `derive` for conversations whose regions carry their loss weights, such as the sides of a pair."""
    plain = MaskOptions(train_turns="last")
    return PlainDerivation(MaskOptions(mask={}), template, typed_controls=False, read=answer_chat, plain=plain, alone=alone)


# Chats proven in blocks: both proofs of many records at once, as arrays.
#
# For a block of chats the second derivation gives one text: all renders end to end, with the places where control tokens and
# trained stretches begin and end. Three comparisons prove them: the reference ids of that text are the stored ids; their bytes are the
# text; and the weights change exactly where the trained stretches begin and end.
#
# A chat that differs is not judged here: the proofs of single rows say what is wrong. They also take chats without a known
# form, chats with a string that is looked for, the first of each form, and the sample that is derived alone as well.


@dataclass(frozen=True, slots=True)
class Claims:
    """The stored tokens of chats.

    Attributes:
        lengths: int64[n], tokens of each chat.
        ids, mask: of all chats, end to end.
        spelled: the tokens as bytes, with those of other chats between them.
        begins: int64[n], which of these tokens is the first of each chat.
    """

    lengths: Ints
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.generic]
    spelled: Spelled
    begins: Ints

    def of(self, chosen: Bools) -> Claims:
        """Return the tokens of the chosen chats, at least one."""
        if chosen.all():
            return self
        tokens = np.repeat(chosen, self.lengths)
        return Claims(self.lengths[chosen], self.ids[tokens], self.mask[tokens], self.spelled, self.begins[chosen])


class PlainBlocks:
    """Proves blocks of chats, and counts them in both proofs."""

    def __init__(self, derivation: PlainDerivation, masks: MaskProof, identities: IdentityProof, looked_for: Iterable[str]) -> None:
        """`looked_for`: chats with any of these strings are left to the proofs of single rows."""
        self._derivation, self._masks, self._identities, self._begins = derivation, masks, identities, Firsts()
        listed = {*derivation.looked_for, *looked_for}
        bare = listed | {string.strip() for string in listed} - {""}  # texts of outlines have no white space at their ends
        within_json = {as_json(string)[1:-1] for string in bare}
        self._suspects = {False: any_of(listed), True: any_of(bare | within_json)}
        self._ids = np.array([*map(masks.vocabulary.control.__getitem__, derivation.template.control), -1], np.int64)
        """Token id by index of the control token; the last, -1, is ordinary text."""

    def prove(self, sources: Sequence[Sample | PlainChat | None], claims: Claims) -> Bools:
        """Return which conversations are proven; `None` never is."""
        read = self._derivation.read
        chats = ChatColumns.of([(read(source) or outlined(source)) if isinstance(source, Sample) else source for source in sources])
        forms, numbers = self._assigned(chats)
        proven: Bools = numbers >= 0
        if not proven.any():
            return proven
        block, proven_claims = render_forms(chats, forms, numbers), claims.of(proven)
        good = self._ids_agree(block, proven_claims) & self._masks_agree(block, proven_claims)
        trained = int(np.count_nonzero((proven_claims.mask != 0) & np.repeat(good, proven_claims.lengths)))
        counts = np.bincount(numbers[proven][good], minlength=len(forms)).tolist()
        counted = [(form.derived, count) for form, count in zip(forms, counts, strict=True) if count]
        stops = {stretch.stop for derived, _ in counted for stretch in derived.expected if stretch.stop}
        tagged, prefixed = (sum(count for derived, count in counted if getattr(derived, by)) for by in ("tagged", "prefixed"))
        unserved = sum(len(derived.unserved) * count for derived, count in counted)
        self._masks.proven(
            {
                "rows_checked": sum(counts),
                "trained_tokens": trained,
                "rows_by_tags_too": tagged,
                "rows_by_prefix": prefixed,
                "unserved_prompts": unserved,
            },
            stops,
        )
        self._identities.proven({"rows_tokenized_again": sum(counts)})
        proven[proven] = good
        return proven

    def _assigned(self, chats: ChatColumns) -> tuple[list[CompiledForm[Derived]], Ints]:
        """Return the forms of chats, and the number of that of each; -1 for chats that are left to the proofs of single rows."""
        blank, edged = chats.white()
        allowed = (chats.kind >= 0) & ~blank & ~chats.sampled(ONE_IN)
        outlined = np.array([isinstance(kind, Outline) for kind in chats.kinds], bool)
        for is_outline in {*outlined.tolist()}:
            allowed[chats.holding(self._suspects[is_outline]) & (outlined[chats.kind] == is_outline)] = False
        forms, numbers = self._derivation.forms.assign(chats, allowed, edged)
        for number, form in enumerate(forms):
            if self._begins(form):
                numbers[np.argmax(numbers == number)] = -1
        return forms, numbers

    def _ids_agree(self, block: RenderedBlock, claims: Claims) -> Bools:
        """Return the rows whose stored ids are the reference ids."""
        edges = np.append(block.item_starts, len(block.data))
        flat = self._identities.reference.encode_pieces(block.data, edges, self._ids[block.items], block.begins)
        lengths = np.diff(flat.offsets[block.item_bounds])
        good: Bools = lengths == claims.lengths
        ids, stored = flat.ids, claims.ids
        if not good.all():
            ids, stored = ids[np.repeat(good, lengths)], stored[np.repeat(good, claims.lengths)]
        wrong = np.searchsorted(np.cumsum(lengths[good]), np.flatnonzero(ids != stored), "right")
        good[np.flatnonzero(good)[wrong]] = False
        return good

    def _masks_agree(self, block: RenderedBlock, claims: Claims) -> Bools:
        """Return the rows whose ids have the bytes of the render, and whose trained runs are the expected stretches."""
        places, first = claims.spelled.places, np.concatenate([[0], np.cumsum(claims.lengths)])
        good = _bytes_agree(block, claims)
        starts, ends, weights = _runs(claims.mask, first)
        rows = np.searchsorted(first, starts, "right") - 1
        base, moved_by = places[claims.begins[rows]], claims.begins[rows] - first[rows]
        starts, ends = starts + moved_by, ends + moved_by
        runs = np.stack([rows, places[starts] - base, places[ends] - base], axis=1)
        stretches, wanted_weights = _stretches(block)
        good &= np.bincount(rows, minlength=len(good)) == np.bincount(stretches[:, 0], minlength=len(good))
        kept_runs, kept_stretches = good[rows], good[stretches[:, 0]]
        found_runs, wanted = runs[kept_runs], stretches[kept_stretches]
        same = weights[kept_runs] == wanted_weights[kept_stretches]
        inner = np.stack([places[starts + 1] - base, places[ends - 1] - base], axis=1)[kept_runs]
        for at in np.flatnonzero(same & (found_runs != wanted).any(axis=1)).tolist():
            same[at] = _but_for_spaces(block, found_runs[at].tolist(), wanted[at].tolist(), *inner[at].tolist())
        good[found_runs[~same, 0]] = False
        return good


def _stretches(block: RenderedBlock) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Return row, start and end (bytes in the row) of each stretch that must be trained, and their weights."""
    trained = block.weights != 0
    starts, ends = block.breaks[trained], np.append(block.breaks[1:], len(block.data))[trained]
    rows = np.searchsorted(block.starts, starts, "right") - 1
    return np.stack([rows, starts - block.starts[rows], ends - block.starts[rows]], axis=1), block.weights[trained]


def _bytes_agree(block: RenderedBlock, claims: Claims) -> Bools:
    """Return the rows whose bytes are the render."""
    data, places = claims.spelled
    lows, highs = places[claims.begins], places[claims.begins + claims.lengths]
    borders = zip(lows.tolist(), highs.tolist(), block.starts.tolist(), block.starts[1:].tolist(), strict=False)
    return np.array([data[low:high] == block.data[start:end] for low, high, start, end in borders])


def _but_for_spaces(block: RenderedBlock, run: Sequence[int], stretch: Sequence[int], first_ends: int, last_begins: int) -> bool:
    """Whether a trained run is its stretch, apart from white space: one token may hold both the template's and a part of the stretch. A token outside the
    stretch is never part of it.

    Args:
        first_ends, last_begins: end of the first token of the run, and start of its last.
    """
    base = int(block.starts[run[0]])

    def alike(edge: int, expected_edge: int) -> bool:
        low, high = sorted((base + edge, base + expected_edge))
        return not block.data[low:high].strip()

    return first_ends > stretch[1] and last_begins < stretch[2] and alike(run[1], stretch[1]) and alike(run[2], stretch[2])


def _runs(mask: npt.NDArray[np.generic], first: Ints) -> tuple[Ints, Ints, npt.NDArray[np.generic]]:
    """Return start, end and weight of each run of trained tokens of one weight; `first`: where rows begin."""
    begins = np.ones(len(mask) + 1, bool)
    begins[1:-1] = mask[1:] != mask[:-1]
    begins[first] = True
    starts = np.flatnonzero(begins[:-1])
    ends = np.append(starts[1:], len(mask))
    weights = mask[starts]
    return starts[weights != 0], ends[weights != 0], weights[weights != 0]
