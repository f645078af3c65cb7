"""Chats proven by the block: both proofs of many records at once, as arrays.

Of a block of chats the second derivation gives one text: what all of them must have become, one after the other, with the places where control tokens
and trained stretches begin and end. Three comparisons prove them: the reference tokenizer's ids of that text are those that are stored; their bytes are
the text; and the weights change where the trained stretches begin and end, to the weights that these have.

What differs in any of this is not proven here and not judged: it is for the proofs of single rows, which say what is wrong. So are chats of which a
form is not known, that hold a string that is looked for, and the share that is derived by itself as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.byte_search import ByteSearch
from prep_assets.proofs.identity import IdentityProof
from prep_assets.proofs.mask import MaskProof
from prep_assets.proofs.plain_bytes import BytesForm
from prep_assets.proofs.plain_forms import MOST_KNOWN, PlainDerivation
from prep_assets.proofs.plain_texts import PlainTexts
from prep_assets.proofs.shaped_samples import Outline, OutlinedSample, as_json
from prep_assets.samples import PlainChat

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Chat = PlainChat | OutlinedSample
LEARN_AFTER = 3
"""Samples of an outline before its form is learned, which takes the time of two that are proven one by one."""
MOST_TEXTS = 1 << 15
"""Texts of all forms that are remembered, each of which takes some 2 KB."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Chats and what a store has of them.

    Attributes:
        chats: n chats; `None` for a record that is another conversation, or a part of one.
        lengths: int64[n], tokens of each.
        ids, mask: of all of them, one after the other.
    """

    chats: Sequence[Chat | None]
    lengths: Ints
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.generic]

    def of(self, chosen: Bools) -> Claims:
        """Only the chosen chats."""
        if chosen.all():
            return self
        tokens = np.repeat(chosen, self.lengths)
        chats = [chat for chat, take in zip(self.chats, chosen, strict=True) if take]
        return Claims(chats, self.lengths[chosen], self.ids[tokens], self.mask[tokens])


@dataclass(frozen=True, slots=True)
class _Laid:
    """What chats must have become.

    Attributes:
        data: their renders, one after the other.
        base: int64[n + 1], where each begins, and the end.
        items: int64[i, 3], start, end, and the id of a control token or -1 for ordinary text, in order.
        stretches: int64[s, 3], row, start and end of each trained stretch, in order; places count from the beginning of the row.
        weights: float32[s].
    """

    data: bytes
    base: Ints
    items: Ints
    stretches: Ints
    weights: npt.NDArray[np.float32]


_Shown = tuple[BytesForm, Sequence[bytes]]
"""A chat: its form, and its texts as its render shows them."""


class PlainBlocks:
    """Proves blocks of chats, and counts them in both proofs."""

    def __init__(self, derivation: PlainDerivation, masks: MaskProof, identities: IdentityProof, looked_for: Iterable[str]) -> None:
        """`looked_for`: strings of which any chat is for the proofs of single rows."""
        self._derivation, self._masks, self._identities = derivation, masks, identities
        listed = {*derivation.looked_for, *looked_for}
        bare = listed | {each.strip() for each in listed} - {""}  # texts of outlines have no white space at their ends
        within_json = {as_json(each)[1:-1] for each in bare}
        self._suspects = {PlainChat: ByteSearch(listed), OutlinedSample: ByteSearch(bare | within_json)}
        self._forms: dict[tuple[tuple[str, ...] | Outline, bool], BytesForm | None] = {}
        self._seen: Counter[int] = Counter()
        self._texts = 0

    def prove(self, claims: Claims) -> Bools:
        """Which of the chats are proven."""
        known = self._known(claims.chats)
        proven = np.array([chat is not None for chat in known], bool)
        if not proven.any():
            return proven
        fit = [chat for chat in known if chat is not None]
        laid, those = _laid(fit), claims.of(proven)
        good = self._ids_agree(laid, those) & self._masks_agree(laid, those)
        if good.any():
            trained = int(np.count_nonzero((those.mask != 0) & np.repeat(good, those.lengths)))
            held = [form for (form, _), is_good in zip(fit, good.tolist(), strict=True) if is_good]
            stops = {stop for form in set(held) for stop in form.stops}
            self._masks.proven(len(held), trained, stops, sum(form.form.tagged for form in held))
            self._identities.proven(len(held))
        proven[proven] = good
        return proven

    def _known(self, chats: Sequence[Chat | None]) -> list[_Shown | None]:
        """The form of each chat, and its texts as its render shows them; `None` where it is for the proofs of single rows."""
        self._count(chats)
        found: list[_Shown | None] = [None] * len(chats)
        for kind, suspect in self._suspects.items():
            texts = PlainTexts.of([chat if isinstance(chat, kind) else None for chat in chats])
            alone, edged = texts.holding(suspect) | texts.blank | texts.sampled(), texts.edged.tolist()
            for number, first, last in zip(np.flatnonzero(~alone).tolist(), *texts.bounds(~alone), strict=True):
                chat = chats[number]
                assert chat is not None
                form = self._form(chat.roles if isinstance(chat, PlainChat) else chat.form, edged[number])
                if form is not None and form.form.holds(chat.texts):
                    otherwise = edged[number] or any(form.form.spellings)
                    found[number] = form, form.stripped(chat.texts) if otherwise else form.in_order(texts.data[first:last])
        return found

    def _count(self, chats: Sequence[Chat | None]) -> None:
        """Count outlines, to learn the forms of those that come often; what is known is forgotten where it takes too much memory."""
        if len(self._seen) >= MOST_KNOWN or self._texts >= MOST_TEXTS:
            self._texts = 0
            self._seen.clear()
            self._forms.clear()
        self._seen.update(hash(chat.form) for chat in chats if isinstance(chat, OutlinedSample))

    def _form(self, kind: tuple[str, ...] | Outline, edged: bool) -> BytesForm | None:
        if isinstance(kind, Outline) and self._seen[hash(kind)] < LEARN_AFTER:
            return None
        if (kind, edged) not in self._forms:
            self._texts += kind.size if isinstance(kind, Outline) else len(kind)
            form = self._derivation.form(kind, edged=edged)
            self._forms[kind, edged] = None if form is None else BytesForm.of(form, self._masks.vocabulary.control)
        return self._forms[kind, edged]

    def _ids_agree(self, laid: _Laid, claims: Claims) -> Bools:
        """Of which rows the stored ids are the reference tokenizer's."""
        starts, ends, token = laid.items.T
        ordinary = np.flatnonzero(token < 0)
        texts = [laid.data[start:end] for start, end in zip(starts[ordinary].tolist(), ends[ordinary].tolist(), strict=True)]
        flat = self._identities.reference.encode_utf8(texts, np.isin(starts[ordinary], laid.base))
        counts = np.ones(len(token), np.int64)
        counts[ordinary] = np.diff(flat.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ids = np.repeat(token, counts)
        ids[ids < 0] = flat.ids
        lengths = np.diff(offsets[np.searchsorted(starts, laid.base)])
        good: Bools = lengths == claims.lengths
        if not good.all():
            ids, stored = ids[np.repeat(good, lengths)], claims.ids[np.repeat(good, claims.lengths)]
        else:
            stored = claims.ids
        wrong = np.searchsorted(np.cumsum(lengths[good]), np.flatnonzero(ids != stored), "right")
        good[np.flatnonzero(good)[wrong]] = False
        return good

    def _masks_agree(self, laid: _Laid, claims: Claims) -> Bools:
        """Of which rows the bytes of the stored ids are the render, and the trained runs the stretches that must be trained."""
        looked_at = self._masks.table.take(len(claims.ids), lambda: np.asarray(claims.ids))
        if looked_at is None:
            return np.zeros(len(claims.chats), bool)
        data, bounds = looked_at
        first = np.concatenate([[0], np.cumsum(claims.lengths)])
        good = _bytes_agree(laid, data, bounds[first])
        starts, ends, weights = _runs(claims.mask, first)
        rows = np.searchsorted(first, starts, "right") - 1
        runs = np.stack([rows, bounds[starts] - bounds[first[rows]], bounds[ends] - bounds[first[rows]]], axis=1)
        good &= np.bincount(rows, minlength=len(good)) == np.bincount(laid.stretches[:, 0], minlength=len(good))
        here, there = good[rows], good[laid.stretches[:, 0]]
        found, wanted = runs[here], laid.stretches[there]
        same = weights[here] == laid.weights[there]
        for at in np.flatnonzero(same & (found != wanted).any(axis=1)).tolist():
            same[at] = _but_for_spaces(laid, found[at].tolist(), wanted[at].tolist())
        good[found[~same, 0]] = False
        return good


def _laid(chats: Sequence[_Shown]) -> _Laid:
    """What chats must have become."""
    renders = [form.render(texts) for form, texts in chats]
    base = np.concatenate([[0], np.cumsum(np.fromiter(map(len, renders), np.int64))])
    lengths = np.fromiter(map(len, chain.from_iterable(texts for _, texts in chats)), np.int64)
    first = np.cumsum([0, *(len(texts) for _, texts in chats)])
    groups: dict[BytesForm, list[int]] = {}
    for number, (form, _) in enumerate(chats):
        groups.setdefault(form, []).append(number)
    listed = [(form, np.array(numbers)) for form, numbers in groups.items()]
    placed = [form.placed(rows, lengths[first[rows][:, None] + np.arange(len(form.frames) - 1)], base) for form, rows in listed]
    items = np.concatenate([each.items for each in placed])
    stretches, weights = (np.concatenate([getattr(each, name) for each in placed]) for name in ("stretches", "weights"))
    order = np.argsort(stretches[:, 0], kind="stable")
    return _Laid(b"".join(renders), base, items[np.argsort(items[:, 0])], stretches[order], weights[order])


def _bytes_agree(laid: _Laid, data: memoryview, base: Ints) -> Bools:
    """Of which rows the bytes, which begin at `base`, are the render."""
    if data == laid.data and np.array_equal(base, laid.base):
        return np.ones(len(base) - 1, bool)
    borders = zip(base.tolist(), base[1:].tolist(), laid.base.tolist(), laid.base[1:].tolist(), strict=False)
    return np.array([data[low:high] == laid.data[start:end] for low, high, start, end in borders])


def _but_for_spaces(laid: _Laid, run: Sequence[int], stretch: Sequence[int]) -> bool:
    """Whether a trained run is its stretch, white space aside where the stretch itself begins or ends with some: one token may hold that and some of the
    template's."""
    base = int(laid.base[run[0]])

    def alike(mine: int, other: int, own: int) -> bool:
        low, high = sorted((mine, other))
        return low == high or (laid.data[base + low : base + high].isspace() and laid.data[base + own : base + own + 1].isspace())

    return alike(run[1], stretch[1], stretch[1]) and alike(run[2], stretch[2], stretch[2] - 1)


def _runs(mask: npt.NDArray[np.generic], first: Ints) -> tuple[Ints, Ints, npt.NDArray[np.generic]]:
    """Start, end and weight of each run of trained tokens of one weight; `first` is where rows begin."""
    starts = np.union1d(first[:-1], np.flatnonzero(mask[1:] != mask[:-1]) + 1)
    ends = np.append(starts[1:], len(mask))
    weights = mask[starts]
    return starts[weights != 0], ends[weights != 0], weights[weights != 0]
