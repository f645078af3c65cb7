"""Cuts → tokens: ids, and the bytes of the batch that each token stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.tokenization.cuts import Cuts, Ints, bounds, byte_table
from prep_assets.tokenization.engines import Engines
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch, t of them.

    Attributes:
        ids: uint32[t].
        per_item: int64[i + 1]; item `k` has tokens ``per_item[k]:per_item[k + 1]``.
        ends: int64[t], where each token ends, in bytes of the batch.
        is_exact: whether the tokens of every item add up to its bytes, so that tokens stand end to end.
        by_offsets: whether positions are those that the reference tokenizer tells, because ids do not stand for fixed bytes.
    """

    ids: npt.NDArray[np.uint32]
    per_item: Ints
    ends: Ints
    is_exact: bool
    by_offsets: bool = False
    _starts: Ints | None = None

    @cached_property
    def starts(self) -> Ints:
        """int64[t], where each token starts, in bytes of the batch."""
        if self._starts is not None:
            return self._starts
        return np.concatenate([np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]])


def tokenize(cuts: Cuts, vocabulary: Vocabulary, engines: Engines) -> Tokens:
    """The tokens of a batch."""
    flat = _segments(cuts, engines)
    is_control = cuts.items >= 0
    counts = np.ones(len(cuts.items), np.int64)
    counts[~is_control] = np.diff(flat.offsets)
    per_item = bounds(counts)
    at_control = per_item[:-1][is_control]
    # the tokens of segments are in order already; control tokens come in between
    ids = np.insert(flat.ids, at_control - np.arange(len(at_control)), cuts.items[is_control].astype(np.uint32))
    del flat
    table, changed = vocabulary.byte_lengths, _changed(cuts, vocabulary)
    if table is not None and not changed:
        return _by_lengths(cuts, ids, table, counts, per_item, vocabulary)
    if table is None:
        spans = np.repeat(_item_starts(cuts), counts), np.repeat(cuts.item_ends, counts)
    else:
        exact = _by_lengths(cuts, ids, table, counts, per_item, vocabulary)
        spans = exact.starts.copy(), exact.ends.copy()
    _set_by_characters(cuts, changed, engines, per_item, spans)
    if table is not None:
        _close(cuts, changed, table[ids], per_item, spans[1], vocabulary)
    return Tokens(ids, per_item, spans[1], False, table is None, spans[0])


def _changed(cuts: Cuts, vocabulary: Vocabulary) -> list[int]:
    """Numbers of the segments that the tokenizer may change before it tokenizes them: there ids stand for other bytes than those of the text."""
    if vocabulary.composes is False:
        return []
    return [number for number, text in enumerate(cuts.segments) if not vocabulary.is_normal(text)]


def _item_starts(cuts: Cuts) -> Ints:
    starts: Ints = np.concatenate([np.zeros(1, np.int64), cuts.item_ends])[: len(cuts.item_ends)]
    return starts


def _segments(cuts: Cuts, engines: Engines) -> Flat:
    if engines.first is engines.rest:
        return engines.first.encode(cuts.segments)
    first = cuts.is_first
    parts = (engines.first, first), (engines.rest, ~first)
    encoded = [engine.encode([cuts.segments[i] for i in np.flatnonzero(chosen)]) for engine, chosen in parts]
    counts = np.empty(len(first), np.int64)
    for (_, chosen), flat in zip(parts, encoded, strict=True):
        counts[chosen] = np.diff(flat.offsets)
    offsets = bounds(counts)
    ids = np.empty(int(offsets[-1]), np.uint32)
    token_is_first = np.repeat(first, counts)
    ids[token_is_first], ids[~token_is_first] = encoded[0].ids, encoded[1].ids
    return Flat(ids, offsets)


def _by_lengths(cuts: Cuts, ids: npt.NDArray[np.uint32], table: Ints, counts: Ints, per_item: Ints, vocabulary: Vocabulary) -> Tokens:
    """Counted from each item's start, so that one lossy item does not shift the next."""
    # a long text has many tokens, so that types are narrow where they can be
    longest = int(table.max(initial=0))
    lengths: npt.NDArray[np.integer[Any]] = table.astype(np.min_scalar_type(longest))[ids]
    is_short = len(ids) * longest < 1 << 31 or int(lengths.sum(dtype=np.int64)) < 1 << 31
    running: Any = np.cumsum(lengths, dtype=np.int32 if is_short else np.int64)
    before = np.where(per_item[:-1] > 0, running[per_item[:-1] - 1], 0) if len(running) else np.zeros(len(counts), np.int64)
    item_starts = _item_starts(cuts)
    shift = item_starts - before - _prefix_bytes(cuts, vocabulary)
    if not shift.any() and len(lengths) and lengths.min() > 0 and running[-1] == cuts.item_ends[-1]:
        return Tokens(ids, per_item, running, True)
    ends = running + np.repeat(shift, counts)
    return Tokens(ids, per_item, ends, False, False, np.maximum(ends - lengths, np.repeat(item_starts, counts)))


def _prefix_bytes(cuts: Cuts, vocabulary: Vocabulary) -> Ints:
    """1 for an item in front of which a SentencePiece tokenizer puts a space that is not in the text, else 0."""
    prefix = np.zeros(len(cuts.items), np.int64)
    scheme = vocabulary.prefix_space
    if scheme != "never":
        segment_items = np.flatnonzero(cuts.items < 0)
        for number, text in enumerate(cuts.segments):
            if (scheme == "always" or cuts.is_first[number]) and not text.startswith((" ", "▁")):
                prefix[segment_items[number]] = 1
    return prefix


def _set_by_characters(cuts: Cuts, numbers: Sequence[int], engines: Engines, per_item: Ints, spans: tuple[Ints, Ints]) -> None:
    """Set the spans of some segments' tokens from the reference tokenizer's character offsets.

    The tokens of a character that is split over several all have the span of the whole character.
    """
    item_starts, segment_items = _item_starts(cuts), np.flatnonzero(cuts.items < 0)
    for number in numbers:
        item, text = segment_items[number], cuts.segments[number]
        reference = engines.reference if cuts.is_first[number] else engines.rest_reference
        _, offsets = reference.char_spans(text)
        found = item_starts[item] + byte_table(text)[np.asarray(offsets, np.int64).reshape(-1, 2)]
        for side in (0, 1):
            spans[side][per_item[item] : per_item[item + 1]] = found[:, side]


def _close(cuts: Cuts, changed: Sequence[int], lengths: Ints, per_item: Ints, ends: Ints, vocabulary: Vocabulary) -> None:
    """End the last token of each changed segment where the segment ends, if its ids stand for all of what it was changed to."""
    item_starts, segment_items, prefix = _item_starts(cuts), np.flatnonzero(cuts.items < 0), _prefix_bytes(cuts, vocabulary)
    for number in changed:
        item = segment_items[number]
        tokens = slice(per_item[item], per_item[item + 1])
        whole = int(lengths[tokens].sum()) - prefix[item] == len(vocabulary.normalized(cuts.segments[number]).encode())
        # the library gives a composed character the span of its first part alone; an end that is not the item's says "lossy"
        ends[tokens][-1:] = cuts.item_ends[item] if whole else item_starts[item]


def regions(breaks: Ints, places: Ints | Sequence[int]) -> Ints:
    """Between which breaks each place lies: the number of the last break up to it."""
    return np.searchsorted(breaks, places, "right") - 1
