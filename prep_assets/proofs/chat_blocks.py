"""Chats proven a block at a time, in columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.mask import IdentityProof, MaskProof
from prep_assets.proofs.plain_forms import MOST_KNOWN, ByteSearch, BytesForm, PlainDerivation
from prep_assets.proofs.shaped_forms import Outline, OutlinedSample, as_json
from prep_assets.samples import PlainChat
from prep_assets.stores.arrays import in_arrow

# Chats in columns: the texts of many as bytes, and what is asked of all of them at once.

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Chat = PlainChat | OutlinedSample
Kind = tuple[str, ...] | Outline
"""The roles of a plain chat, or the outline of another one."""

_MAY_BE_WHITE = np.array([byte >= 0x80 or chr(byte).isspace() for byte in range(256)])
"""Bytes that white space may begin or end with."""


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """Chats in columns.

    Attributes:
        kinds: what they are.
        kind: int64[n], which of these each is; -1 for a record that is another conversation, or a part of one: its texts mean nothing.
        data: all texts in UTF-8, one after the other.
        bounds: int64[t + 1], where each text begins, and the end of the last.
        first, count: int64[n], number of the first text of each chat, and how many it has. A text may be of none.
        texts: the same as strings, where they are at hand.
    """

    kinds: Sequence[Kind]
    kind: Ints
    data: bytes
    bounds: Ints
    first: Ints
    count: Ints
    texts: Sequence[str] | None = None

    @classmethod
    def of(cls, chats: Sequence[Chat | None]) -> ChatColumns:
        """`None` has no texts."""
        numbers: dict[Kind, int] = {}
        kinds = [-1 if chat is None else numbers.setdefault(kind_of(chat), len(numbers)) for chat in chats]
        texts = list(chain.from_iterable(chat.texts for chat in chats if chat is not None))
        data = list(map(str.encode, texts, repeat("utf-8"), repeat("surrogatepass")))
        count = np.array([0 if chat is None else len(chat.texts) for chat in chats], np.int64)
        bounds = np.cumsum([0, *map(len, data)])
        return cls(list(numbers), np.array(kinds, np.int64), b"".join(data), bounds, np.cumsum(count) - count, count, texts)

    @classmethod
    def joined(cls, parts: Sequence[ChatColumns]) -> ChatColumns:
        """Several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        numbers: dict[Kind, int] = {}
        kinds = [np.array([*(numbers.setdefault(each, len(numbers)) for each in part.kinds), -1])[part.kind] for part in parts]
        texts = None if any(part.texts is None for part in parts) else [text for part in parts for text in part.texts or ()]
        bounds = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]))])
        before = np.cumsum([0, *(len(part.bounds) - 1 for part in parts)])
        first = np.concatenate([part.first + shift for part, shift in zip(parts, before.tolist(), strict=False)])
        count = np.concatenate([part.count for part in parts])
        return cls(list(numbers), np.concatenate(kinds), b"".join(part.data for part in parts), bounds, first, count, texts)

    @classmethod
    def of_texts(cls, data: bytes, bounds: Ints, borders: Ints) -> ChatColumns:
        """Chats of which only the texts are known; `borders`: int64[n + 1], number of the first text of each, and of all."""
        first, count = borders[:-1], np.diff(borders)
        return cls([], np.full_like(first, -1), data, bounds, first, count)

    def taken(self, which: Ints) -> ChatColumns:
        """Some of them, in ascending order."""
        return replace(self, kind=self.kind[which], first=self.first[which], count=self.count[which])

    def only(self, chosen: Bools) -> ChatColumns:
        """The same, where all others are conversations of another kind."""
        return replace(self, kind=np.where(chosen, self.kind, -1))

    def __len__(self) -> int:
        return len(self.kind)

    def own(self, chat: int) -> list[str]:
        """The texts of one."""
        low = int(self.first[chat])
        own = range(low, low + int(self.count[chat]))
        return list(map(self._text, own)) if self.texts is None else list(self.texts[own.start : own.stop])

    def _text(self, number: int) -> str:
        return self.data[self.bounds[number] : self.bounds[number + 1]].decode("utf-8", "surrogatepass")

    def white(self) -> tuple[Bools, Bools]:
        """Of which chats a text is nothing but white space, or which have none; and of which one begins or ends with white space."""
        starts, ends, every = self.bounds[:-1], self.bounds[1:], np.frombuffer(self.data, np.uint8)
        doubtful = starts == ends
        some = np.flatnonzero(~doubtful)
        # no other text begins or ends with white space
        doubtful[some] = _MAY_BE_WHITE[every[starts[some]]] | _MAY_BE_WHITE[every[ends[some] - 1]]
        at = np.flatnonzero(doubtful)
        texts = list(map(self._text, at.tolist()))
        words, whole = (np.array(list(map(len, each)), np.int64) for each in (map(str.strip, texts), texts))
        return self.having(at[words == 0]) | (self.count == 0), self.having(at[words < whole])

    def holding(self, search: ByteSearch) -> Bools:
        """Which chats have a text in which something is found. What stands across the end of one counts as well."""
        return self.having(np.searchsorted(self.bounds, search.places(self.data), "right") - 1)

    def having(self, texts: Ints) -> Bools:
        """Which chats have one of these texts."""
        some = np.zeros(len(self.bounds), np.int64)
        some[texts + 1] = 1
        up_to = np.cumsum(some)
        found: Bools = up_to[self.first + self.count] > up_to[self.first]
        return found

    def sampled(self) -> Bools:
        """Which chats are derived by themselves as well; false for those without texts."""
        found, some = np.zeros(len(self), bool), self.count > 0
        last = (self.first + self.count)[some] - 1
        borders = zip(self.bounds[last].tolist(), self.bounds[last + 1].tolist(), strict=True)
        found[some] = [PlainDerivation.picks(self.data[low:high]) for low, high in borders]
        return found


def kind_of(chat: Chat) -> Kind:
    """What a chat is without its texts."""
    return chat.roles if isinstance(chat, PlainChat) else chat.form


# Chats proven by the block: both proofs of many records at once, as arrays.
#
# Of a block of chats the second derivation gives one text: what all of them must have become, one after the other, with the places where control tokens and
# trained stretches begin and end. Three comparisons prove them: the reference tokenizer's ids of that text are those that are stored; their bytes are the
# text; and the weights change where the trained stretches begin and end, to the weights that these have.
#
# What differs in any of this is not proven here and not judged: it is for the proofs of single rows, which say what is wrong. So are chats of which a form is
# not known, that hold a string that is looked for, and the share that is derived by itself as well.

LEARN_AFTER = 3
"""Samples of an outline before its form is learned, which takes the time of two that are proven one by one."""
MOST_TEXTS = 1 << 15
"""Texts of all forms that are remembered, each of which takes some 2 KB."""


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


@dataclass(frozen=True, slots=True)
class _Known:
    """Of which chats a form is known.

    Attributes:
        forms: the forms.
        form: int64[n], which of these each has; -1 for one that is for the proofs of single rows.
        altered: of which the render does not show the texts as they are.
    """

    forms: Sequence[BytesForm]
    form: Ints
    altered: Bools


class PlainBlocks:
    """Proves blocks of chats, and counts them in both proofs."""

    def __init__(self, derivation: PlainDerivation, masks: MaskProof, identities: IdentityProof, looked_for: Iterable[str]) -> None:
        """`looked_for`: strings of which any chat is for the proofs of single rows."""
        self._derivation, self._masks, self._identities = derivation, masks, identities
        listed = {*derivation.looked_for, *looked_for}
        bare = listed | {each.strip() for each in listed} - {""}  # texts of outlines have no white space at their ends
        within_json = {as_json(each)[1:-1] for each in bare}
        self._suspects = {False: ByteSearch(listed), True: ByteSearch(bare | within_json)}
        self._forms: dict[tuple[Kind, bool], BytesForm | None] = {}
        self._seen: Counter[int] = Counter()
        self._texts = 0

    def prove(self, chats: ChatColumns, claims: Claims) -> Bools:
        """Which of the chats are proven."""
        known = self._known(chats)
        proven: Bools = known.form >= 0
        if not proven.any():
            return proven
        laid, those = _laid(chats, known), claims.of(proven)
        good = self._ids_agree(laid, those) & self._masks_agree(laid, those)
        if good.any():
            trained = int(np.count_nonzero((those.mask != 0) & np.repeat(good, those.lengths)))
            counts = np.bincount(known.form[proven][good], minlength=len(known.forms)).tolist()
            stops = {stop for form, count in zip(known.forms, counts, strict=True) if count for stop in form.stops}
            tagged = sum(count for form, count in zip(known.forms, counts, strict=True) if form.form.tagged)
            self._masks.proven(sum(counts), trained, stops, tagged)
            self._identities.proven(sum(counts))
        proven[proven] = good
        return proven

    def _known(self, chats: ChatColumns) -> _Known:
        self._count(chats)
        blank, edged = chats.white()
        alone = blank | chats.sampled() | (chats.kind < 0)
        outlined = np.array([isinstance(kind, Outline) for kind in chats.kinds])
        for other in {*outlined.tolist()}:
            alone |= chats.holding(self._suspects[other]) & (outlined[chats.kind] == other)
        forms, form, altered = list[BytesForm](), np.full(len(chats), -1), edged.copy()
        keys = 2 * chats.kind + edged
        for key in np.flatnonzero(np.bincount(keys[~alone])).tolist():
            found = self._form(chats.kinds[key >> 1], bool(key & 1))
            if found is not None:
                own, spelled = np.flatnonzero(~alone & (keys == key)), any(found.form.spellings)
                if spelled:
                    own = own[[found.form.holds(chats.own(number)) for number in own.tolist()]]
                form[own], altered[own] = len(forms), spelled or bool(key & 1)
                forms.append(found)
        return _Known(forms, form, altered)

    def _count(self, chats: ChatColumns) -> None:
        """Count outlines, to learn the forms of those that come often; what is known is forgotten where it takes too much memory."""
        if len(self._seen) >= MOST_KNOWN or self._texts >= MOST_TEXTS:
            self._texts = 0
            self._seen.clear()
            self._forms.clear()
        for kind, count in zip(chats.kinds, np.bincount(chats.kind[chats.kind >= 0], minlength=len(chats.kinds)).tolist(), strict=True):
            if isinstance(kind, Outline):
                self._seen[hash(kind)] += count

    def _form(self, kind: Kind, edged: bool) -> BytesForm | None:
        if isinstance(kind, Outline) and self._seen[hash(kind)] < LEARN_AFTER:
            return None
        if (kind, edged) not in self._forms:
            self._texts += kind.size if isinstance(kind, Outline) else len(kind)
            form = self._derivation.form(kind, edged=edged)
            self._forms[kind, edged] = None if form is None else BytesForm.of(form, self._masks.vocabulary.control)
        return self._forms[kind, edged]

    def _ids_agree(self, laid: _Laid, claims: Claims) -> Bools:
        """Of which rows the stored ids are the reference tokenizer's."""
        starts, _, token = laid.items.T
        begins = laid.base[np.searchsorted(laid.base, starts, "right") - 1] == starts
        flat = self._identities.reference.encode_pieces(laid.data, np.append(starts, len(laid.data)), token, begins)
        lengths = np.diff(flat.offsets[np.searchsorted(starts, laid.base)])
        good: Bools = lengths == claims.lengths
        ids, stored = flat.ids, claims.ids
        if not good.all():
            ids, stored = ids[np.repeat(good, lengths)], stored[np.repeat(good, claims.lengths)]
        wrong = np.searchsorted(np.cumsum(lengths[good]), np.flatnonzero(ids != stored), "right")
        good[np.flatnonzero(good)[wrong]] = False
        return good

    def _masks_agree(self, laid: _Laid, claims: Claims) -> Bools:
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
        good &= np.bincount(rows, minlength=len(good)) == np.bincount(laid.stretches[:, 0], minlength=len(good))
        here, there = good[rows], good[laid.stretches[:, 0]]
        found, wanted = runs[here], laid.stretches[there]
        same = weights[here] == laid.weights[there]
        inner = np.stack([bounds[starts + 1] - bounds[first[rows]], bounds[ends - 1] - bounds[first[rows]]], axis=1)[here]
        for at in np.flatnonzero(same & (found != wanted).any(axis=1)).tolist():
            same[at] = _but_for_spaces(laid, found[at].tolist(), wanted[at].tolist(), *inner[at].tolist())
        good[found[~same, 0]] = False
        return good


def _laid(chats: ChatColumns, known: _Known) -> _Laid:
    """What the chats that have a form must have become."""
    import pyarrow as pa

    rows = np.flatnonzero(known.form >= 0)
    form, altered = known.form[rows], known.altered[rows]
    gaps = np.array([len(each.turns) for each in known.forms])[form]
    # the pieces of a render are a frame, a text, a frame, …: each is one of all frames, of all texts, or of those that renders alter
    begins = np.concatenate([[0], np.cumsum(2 * gaps + 1)])
    pieces = np.empty(begins[-1], np.int64)
    frames = [frame for each in known.forms for frame in each.written]
    instead = [text for at in np.flatnonzero(altered).tolist() for text in known.forms[form[at]].stripped(chats.own(int(rows[at])))]
    first_altered = np.cumsum(np.where(altered, gaps, 0)) - gaps + len(frames) + len(chats.bounds) - 1
    groups = [(each, np.flatnonzero(form == number)) for number, each in enumerate(known.forms)]
    before = 0
    for each, own in groups:
        at = begins[own][:, None] + np.arange(2 * len(each.turns) + 1)
        as_it_is = len(frames) + chats.first[rows[own]][:, None] + each.turns
        pieces[at[:, 0::2]] = before + np.arange(len(each.written))
        pieces[at[:, 1::2]] = np.where(altered[own][:, None], first_altered[own][:, None] + np.arange(len(each.turns)), as_it_is)
        before += len(each.written)
    sizes = np.concatenate([list(map(len, frames)), np.diff(chats.bounds), list(map(len, instead))])
    bounds = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    data = b"".join([*frames, chats.data, *instead])
    every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    taken = every.take(in_arrow(pieces))
    places = np.frombuffer(taken.buffers()[1], np.int64, len(pieces) + 1)
    base, lengths = places[begins], np.diff(places)
    placed = [each.placed(own, lengths[begins[own][:, None] + np.arange(1, 2 * len(each.turns), 2)], base) for each, own in groups]
    items = np.concatenate([each.items for each in placed])
    stretches, weights = (np.concatenate([getattr(each, name) for each in placed]) for name in ("stretches", "weights"))
    order = np.argsort(stretches[:, 0], kind="stable")
    return _Laid(taken.buffers()[2].to_pybytes(), base, items[np.argsort(items[:, 0])], stretches[order], weights[order])


def _bytes_agree(laid: _Laid, data: memoryview, base: Ints) -> Bools:
    """Of which rows the bytes, which begin at `base`, are the render."""
    found, wanted = (np.frombuffer(each, np.uint8) for each in (data, laid.data))  # a view is compared byte by byte
    if np.array_equal(base, laid.base) and np.array_equal(found, wanted):
        return np.ones(len(base) - 1, bool)
    borders = zip(base.tolist(), base[1:].tolist(), laid.base.tolist(), laid.base[1:].tolist(), strict=False)
    return np.array([np.array_equal(found[low:high], wanted[start:end]) for low, high, start, end in borders])


def _but_for_spaces(laid: _Laid, run: Sequence[int], stretch: Sequence[int], first_ends: int, last_begins: int) -> bool:
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
