"""Rendered → encoded: one tokenization of the whole render, and a loss weight for every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.config.models import Keep
from prep_assets.errors import Refused
from prep_assets.text.engines import Engines
from prep_assets.text.ids import interleaved
from prep_assets.text.spans import (
    Cuts,
    Cutter,
    Ints,
    MaskPolicy,
    Placed,
    Prompt,
    Rendered,
    Truncation,
    after_cut,
    bounds,
    byte_table,
    characters,
    cut_through,
    kept_tokens,
    of_rows,
    trained,
)
from prep_assets.text.vocabulary import Vocabulary

# Cuts → tokens: ids, and the bytes of the batch that each token stands for.


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
    if engines.first is engines.rest:
        flat = engines.first.encode(cuts.segments)
    else:
        parts = (engines.first, cuts.is_first), (engines.rest, ~cuts.is_first)
        begins, others = (engine.encode(list(compress(cuts.segments, chosen))) for engine, chosen in parts)
        flat = interleaved(begins, others, cuts.is_first)
    is_control = cuts.items >= 0
    counts = np.ones(len(cuts.items), np.int64)
    counts[~is_control] = np.diff(flat.offsets)
    per_item = bounds(counts)
    at_control = per_item[:-1][is_control]
    # the tokens of segments are in order already; control tokens come in between
    ids = np.insert(flat.ids, at_control - np.arange(len(at_control)), cuts.items[is_control].astype(np.uint32))
    del flat
    # segments that the tokenizer may change before it tokenizes them: there ids stand for other bytes than those of the text
    may_change = vocabulary.composes is not False
    changed = [number for number, text in enumerate(cuts.segments) if not vocabulary.is_normal(text)] if may_change else []
    table = vocabulary.byte_lengths
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


def _item_starts(cuts: Cuts) -> Ints:
    starts: Ints = np.concatenate([np.zeros(1, np.int64), cuts.item_ends])[: len(cuts.item_ends)]
    return starts


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


# Rendered → Encoded: one tokenization of the whole render, and a loss weight for every token, in batches of arrays.
#
# The render is cut at the control tokens that the **template** wrote, and only there; what lies between is ordinary text to the engine, header and content in
# one piece, so words merge across their border exactly as in the reference. A control token that somebody typed into the content is plain text. Weights are a
# step function over the bytes of the render; each token takes the weight under its bytes:
#
#     bytes    <|user|>\\nHi <eos> <|assistant|>\\n H e l l o ! <eos>
#     weight   0 0 0 0 0 0 0  0     0 0 0 0 0 0 0   1 1 1 1 1 1  1
#     tokens   [<][|][user]…  [eos] [<][|]…[\\n]    [Hello][!]  [eos]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of tokenized examples, one after the other.

    Attributes:
        ids: uint32[T].
        loss: float32[T], the loss weight of each token; 0 where it is not trained, `UNATTENDED` where it is not attended.
        offsets: int64[n + 1]; example `i` has tokens ``offsets[i]:offsets[i + 1]``.
        kept: positions in the batch of the `n` examples that are here, ascending.
        refused: position in the batch and reason of every other example.
        images: where the images of the `n` examples stand.
        taken: int64[n], how many tokens truncation took from each.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    refused: tuple[tuple[int, Refused], ...]
    images: Placed
    taken: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """One tokenized example.

    Attributes:
        ids: uint32[T].
        loss: float32[T], as of `Encoded`.
        starts, ends: int64[T], the characters of the render that each token stands for; whole ones, where it stands for a part.
        replaced: bool[T], whether truncation put another token there.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    replaced: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Encoder:
    """Tokenizes rendered examples and derives their loss weights.

    Attributes:
        vocabulary, engines: the tokenizer.
        policy: which regions are trained.
        max_seq_len: longest example in tokens; `None` for no limit.
        trains: whether an example without a trained token is refused; prompts for rollouts have none.
        truncation: what happens to an example that is longer, see `truncation`; ``turns`` refuses here, the pipeline renders it anew.
        keep_stop: whether an answer that ``end`` cuts off has its last token replaced by the stop token.
        keeps: what ``prompt`` leaves of untrained texts, by role.
    """

    vocabulary: Vocabulary
    engines: Engines
    policy: MaskPolicy
    max_seq_len: int | None = None
    trains: bool = True
    truncation: Truncation = "drop"
    keep_stop: bool = False
    keeps: Mapping[str, Keep] = field(default_factory=dict)

    def encode(self, batch: Sequence[Rendered]) -> Encoded:
        """Tokenize a batch. Every example is in the result or refused with a reason of stage ``tokenize``."""
        return self.encode_cuts(of_rows([self.cutter.row(rendered) for rendered in batch]))

    def encode_cuts(self, cuts: Cuts) -> Encoded:
        """The same of a batch that is cut already. It takes the segments out of `cuts`: a text may be long, and has its tokens now."""
        tokens = tokenize(cuts, self.vocabulary, self.engines)
        cuts.segments.clear()
        ids, offsets = tokens.ids, tokens.per_item[cuts.item_bounds]
        loss, faults = weigh(cuts, tokens, offsets)
        faults |= lossy(cuts, tokens, self.vocabulary.unknown_id)
        chosen = self._cut_to_length(cuts, tokens, loss, offsets, faults)
        images = cuts.placed(tokens.per_item)
        for example, fault in cut_through(images, chosen).items() if len(images) else ():
            faults.setdefault(example, fault)
        everything, lengths = bool(chosen.all()), np.diff(offsets)
        left = lengths if everything else _sums(chosen, offsets)
        if self.trains:
            for example in np.flatnonzero(~_any(loss > 0 if everything else (loss > 0) & chosen, offsets)).tolist():
                faults.setdefault(example, Refused("nothing_to_train", "no token of this example carries loss", stage="tokenize"))
        keep = np.ones(len(lengths), bool)
        keep[list(faults)] = False
        left_images = after_cut(images, chosen, keep, offsets) if len(images) else images
        kept_offsets, refused = bounds(left[keep]), tuple(sorted(faults.items(), key=lambda item: item[0]))
        if kept_offsets[-1] != len(ids):
            chosen = chosen & np.repeat(keep, lengths)
            ids, loss = ids[chosen], loss[chosen]
        return Encoded(ids, loss, kept_offsets, np.flatnonzero(keep), refused, left_images, (lengths - left)[keep])

    def places(self, rendered: Rendered) -> Places:
        """One example, token by token, with what of its render each token stands for.

        Raises:
            Refused: as `encode` says of it.
        """
        cuts = of_rows([self.cutter.row(rendered)])
        tokens = tokenize(cuts, self.vocabulary, self.engines)
        offsets = tokens.per_item[cuts.item_bounds]
        loss, faults = weigh(cuts, tokens, offsets)
        written = tokens.ids.copy()
        chosen = self._cut_to_length(cuts, tokens, loss, offsets, faults)
        for fault in faults.values():
            raise fault
        shown = characters(rendered.text, tokens.starts[chosen], tokens.ends[chosen])
        return Places(tokens.ids[chosen], loss[chosen], *shown, (tokens.ids != written)[chosen])

    def length(self, rendered: Rendered) -> int:
        """How many tokens a whole render has."""
        return len(tokenize(of_rows([self.cutter.row(rendered)]), self.vocabulary, self.engines).ids)

    @cached_property
    def cutter(self) -> Cutter:
        """What cuts renders for it."""
        return Cutter(self.vocabulary.control, self.policy, self.truncation == "prompt")

    def trained(self, rendered: Rendered) -> list[tuple[int, int, float]]:
        """Characters (start, end) of a render that are trained or not attended, and their weight, ascending."""
        return trained(rendered, self.policy)

    def _cut_to_length(
        self, cuts: Cuts, tokens: Tokens, loss: npt.NDArray[np.float32], offsets: Ints, faults: Faults
    ) -> npt.NDArray[np.bool_]:
        """Which tokens of the batch stay, as `truncation` says."""
        chosen = np.ones(len(tokens.ids), bool)
        if self.max_seq_len is None:
            return chosen
        limit = self.max_seq_len
        for example in np.flatnonzero(np.diff(offsets) > limit).tolist():
            low, high = int(offsets[example]), int(offsets[example + 1])
            starts, ends = tokens.starts[low:high], tokens.ends[low:high]
            prompts = [  # each untrained content, by its tokens
                Prompt(int(np.searchsorted(starts, start)), int(np.searchsorted(ends, end, "right")), role)
                for start, end, role in cuts.prompts.get(example, ())
            ]
            keep = kept_tokens(high - low, limit, self.truncation, prompts, self.keeps)
            if keep is None:
                detail = f"{high - low:,} tokens, max_seq_len is {limit:,}"
                faults.setdefault(example, Refused("too_long", detail, stage="tokenize"))
                continue
            chosen[low:high] = keep
            last = low + limit - 1
            if self.keep_stop and self.truncation == "end" and loss[last] > 0:
                # where the cut goes through a trained answer, its last token becomes the control token that ends that answer
                untrained = loss[last:high] <= 0
                stop = int(tokens.ids[last + int(np.argmax(untrained)) - 1 if untrained.any() else high - 1])
                if stop in self.vocabulary.control.values():
                    tokens.ids[last] = stop
        return chosen


def _sums(chosen: npt.NDArray[np.bool_], offsets: Ints) -> Ints:
    """How many are chosen between neighbouring offsets."""
    # not by `add.reduceat`, which makes a number of eight bytes of each first
    return np.fromiter((np.count_nonzero(chosen[low:high]) for low, high in pairwise(offsets.tolist())), np.int64, len(offsets) - 1)


def _any(chosen: npt.NDArray[np.bool_], offsets: Ints) -> npt.NDArray[np.bool_]:
    """Whether any is chosen between neighbouring offsets."""
    found, filled = np.zeros(len(offsets) - 1, bool), np.flatnonzero(np.diff(offsets))
    if len(filled):
        found[filled] = np.logical_or.reduceat(chosen, offsets[filled])
    return found


Faults = dict[int, Refused]
"""Number of an example → why it is refused."""
CANNOT_REPRESENT = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"


def weigh(cuts: Cuts, tokens: Tokens, offsets: Ints) -> tuple[npt.NDArray[np.float32], Faults]:
    """Weight of every token, float32[t], and the examples in which a token lies across a border that matters."""
    total = len(tokens.ids)
    if tokens.is_exact and total:
        # where tokens stand end to end, few breaks are looked up among many tokens, not the other way round
        at = np.searchsorted(tokens.ends, cuts.breaks.astype(tokens.ends.dtype), "right")  # of one type, else it copies all ends
        amid = (at < total) & (tokens.ends[at - 1] * (at > 0) < cuts.breaks)
        loss = np.repeat(cuts.weights, np.diff(at + amid, append=total))
        across = at[amid]
    else:
        low = regions(cuts.breaks, tokens.starts)
        loss = cuts.weights[low]
        across = np.flatnonzero(low != regions(cuts.breaks, np.maximum(tokens.ends - 1, tokens.starts)))
    return loss, _across(cuts, tokens, offsets, loss, across)


def _across(cuts: Cuts, tokens: Tokens, offsets: Ints, loss: npt.NDArray[np.float32], across: Ints) -> Faults:
    """Faults of the tokens that lie across a break. White space that the template writes before an answer, merged with its first word, takes the
    answer's weight: the model has to produce this token. So it does before a region that is not attended."""
    faults: Faults = {}
    for token in dict.fromkeys(across.tolist()):  # several breaks may lie in one
        start, end = int(tokens.starts[token]), int(tokens.ends[token])
        first, last = regions(cuts.breaks, [start, max(end - 1, start)]).tolist()
        if cuts.weights[first] == cuts.weights[last] and last == first + 1:
            continue
        example = int(np.searchsorted(offsets, token, "right")) - 1
        if cuts.weights[first] == 0 and last == first + 1 and not cuts.between(example, start, int(cuts.breaks[first + 1])).strip():
            loss[token] = cuts.weights[last]
            continue
        text = cuts.between(example, start, end)
        which = "an unattended" if (cuts.weights[first : last + 1] < 0).any() else "a trained"
        detail = f"token {text!r} lies half inside {which} region; the template needs a control token or a line break there"
        faults.setdefault(example, Refused("mask_border_inside_token", detail, stage="tokenize"))
    return faults


def lossy(cuts: Cuts, tokens: Tokens, unknown: int | None = None) -> Faults:
    """Examples in which the tokenizer lost or changed a character: their tokens do not add up to their bytes, or, where ids do not stand for
    fixed bytes, one of them is the `unknown` id."""
    if tokens.is_exact or (tokens.by_offsets and unknown is None):
        return {}
    if tokens.by_offsets:
        wrong = np.searchsorted(tokens.per_item, np.flatnonzero(tokens.ids == unknown), "right") - 1
        wrong = wrong[cuts.items[wrong] < 0]
    else:
        ends, last = tokens.ends, tokens.per_item[1:] - 1
        is_empty = np.diff(tokens.per_item) == 0
        wrong = np.flatnonzero(is_empty | (ends[np.maximum(last, 0)] != cuts.item_ends)) if ends.size else np.arange(len(cuts.item_ends))
    examples = np.unique(np.searchsorted(cuts.item_bounds, wrong, "right") - 1)
    return {int(example): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for example in examples}
