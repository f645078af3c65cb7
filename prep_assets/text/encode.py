"""Rendered → encoded: one tokenization of the whole render, and a loss weight for every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Keep
from prep_assets.errors import Refused
from prep_assets.text.engines import Engines
from prep_assets.text.ids import interleaved
from prep_assets.text.spans import (
    Cutter,
    Placed,
    Prompt,
    Rendered,
    RenderedBlock,
    Truncation,
    after_cut,
    bounds,
    byte_table,
    characters,
    cut_through,
    kept_tokens,
)
from prep_assets.text.vocabulary import Vocabulary

# Renders in columns → tokens: ids, and the bytes of the batch that each token covers.


@dataclass(frozen=True)
class Tokens:
    """The t tokens of a batch.

    Attributes:
        ids: uint32[t].
        per_item: int64[i + 1]; item `k` has tokens ``per_item[k]:per_item[k + 1]``.
        ends: int64[t], end of each token, in bytes of the batch.
        is_exact: whether the tokens of every item add up to its bytes, so that tokens are contiguous.
        by_offsets: whether positions come from the reference tokenizer, because ids do not stand for fixed bytes.
    """

    ids: npt.NDArray[np.uint32]
    per_item: Ints
    ends: Ints
    is_exact: bool
    by_offsets: bool = False
    _starts: Ints | None = None

    @cached_property
    def starts(self) -> Ints:
        """int64[t], start of each token, in bytes of the batch."""
        if self._starts is not None:
            return self._starts
        return np.concatenate([np.zeros(min(1, len(self.ends)), np.int64), self.ends[:-1]])


def tokenize(block: RenderedBlock, vocabulary: Vocabulary, engines: Engines) -> Tokens:
    """Tokenize a batch."""
    if engines.first is engines.rest:
        flat = engines.first.encode(block.segments)
    else:
        parts = (engines.first, block.is_first), (engines.rest, ~block.is_first)
        first_ids, rest_ids = (engine.encode(list(compress(block.segments, mask))) for engine, mask in parts)
        flat = interleaved(first_ids, rest_ids, block.is_first)
    is_control = block.items >= 0
    counts = np.ones(len(block.items), np.int64)
    counts[~is_control] = np.diff(flat.offsets)
    per_item = bounds(counts)
    control_positions = per_item[:-1][is_control]
    # the tokens of segments are in order already; insert the control tokens
    ids = np.insert(flat.ids, control_positions - np.arange(len(control_positions)), block.items[is_control].astype(np.uint32))
    del flat
    # segments that the tokenizer may normalize: their ids stand for other bytes than those of the text
    may_change = vocabulary.composes is not False
    changed = [number for number, text in enumerate(block.segments) if not vocabulary.is_normal(text)] if may_change else []
    table = vocabulary.byte_lengths
    if table is not None and not changed:
        return _by_lengths(block, ids, table, counts, per_item, vocabulary)
    if table is None:
        spans = np.repeat(block.item_starts, counts), np.repeat(block.item_ends, counts)
    else:
        exact = _by_lengths(block, ids, table, counts, per_item, vocabulary)
        spans = exact.starts.copy(), exact.ends.copy()
    _set_by_characters(block, changed, engines, per_item, spans)
    if table is not None:
        _close_segments(block, changed, table[ids], per_item, spans[1], vocabulary)
    return Tokens(ids, per_item, spans[1], False, table is None, spans[0])


def _by_lengths(
    block: RenderedBlock, ids: npt.NDArray[np.uint32], table: Ints, counts: Ints, per_item: Ints, vocabulary: Vocabulary
) -> Tokens:
    """Tokens placed by byte lengths, counted from the start of each item, so that a lossy item does not shift the next."""
    # narrow types, since a long text has many tokens
    longest = int(table.max(initial=0))
    lengths: npt.NDArray[np.integer[Any]] = table.astype(np.min_scalar_type(longest))[ids]
    is_short = len(ids) * longest < 1 << 31 or int(lengths.sum(dtype=np.int64)) < 1 << 31
    running: Any = np.cumsum(lengths, dtype=np.int32 if is_short else np.int64)
    before = np.where(per_item[:-1] > 0, running[per_item[:-1] - 1], 0) if len(running) else np.zeros(len(counts), np.int64)
    item_starts = block.item_starts
    shift = item_starts - before - _prefix_bytes(block, vocabulary)
    if not shift.any() and len(lengths) and lengths.min() > 0 and running[-1] == block.item_ends[-1]:
        return Tokens(ids, per_item, running, True)
    ends = running + np.repeat(shift, counts)
    return Tokens(ids, per_item, ends, False, False, np.maximum(ends - lengths, np.repeat(item_starts, counts)))


def _prefix_bytes(block: RenderedBlock, vocabulary: Vocabulary) -> Ints:
    """Per item, 1 if a SentencePiece tokenizer prepends a space that is not in the text, else 0."""
    prefix = np.zeros(len(block.items), np.int64)
    scheme = vocabulary.prefix_space
    if scheme != "never":
        segment_items = np.flatnonzero(block.items < 0)
        for number, text in enumerate(block.segments):
            if (scheme == "always" or block.is_first[number]) and not text.startswith((" ", "▁")):
                prefix[segment_items[number]] = 1
    return prefix


def _set_by_characters(block: RenderedBlock, numbers: Sequence[int], engines: Engines, per_item: Ints, spans: tuple[Ints, Ints]) -> None:
    """Set the token spans of the segments `numbers` from the character offsets of the reference tokenizer.

    All tokens of a character that is split get the span of the whole character.
    """
    item_starts, segment_items = block.item_starts, np.flatnonzero(block.items < 0)
    for number in numbers:
        item, text = segment_items[number], block.segments[number]
        reference = engines.reference if block.is_first[number] else engines.rest_reference
        _, offsets = reference.char_spans(text)
        byte_spans = item_starts[item] + byte_table(text)[np.asarray(offsets, np.int64).reshape(-1, 2)]
        for side in (0, 1):
            spans[side][per_item[item] : per_item[item + 1]] = byte_spans[:, side]


def _close_segments(
    block: RenderedBlock, changed: Sequence[int], lengths: Ints, per_item: Ints, ends: Ints, vocabulary: Vocabulary
) -> None:
    """End the last token of each normalized segment at the end of the segment, if its ids cover all of the normalized text."""
    item_starts, segment_items, prefix = block.item_starts, np.flatnonzero(block.items < 0), _prefix_bytes(block, vocabulary)
    for number in changed:
        item = segment_items[number]
        tokens = slice(per_item[item], per_item[item + 1])
        is_complete = int(lengths[tokens].sum()) - prefix[item] == len(vocabulary.normalized(block.segments[number]).encode())
        # the library gives a composed character the span of its first part only; an end before that of the item marks it as lossy
        ends[tokens][-1:] = block.item_ends[item] if is_complete else item_starts[item]


def regions(breaks: Ints, positions: Ints | Sequence[int]) -> Ints:
    """The index of the last break at or before each position."""
    return np.searchsorted(breaks, positions, "right") - 1


# Rendered → Encoded: one tokenization of the whole render, and a loss weight for every token, in batches of arrays.
#
# The render is cut only at the control tokens that the **template** wrote; the engine tokenizes the text between as a whole, header and content together, so
# that words merge across their border exactly as in the reference. A control token typed into content is plain text. Weights are a step function over the
# bytes of the render; each token takes the weight of its bytes:
#
#     bytes    <|user|>\\nHi <eos> <|assistant|>\\n H e l l o ! <eos>
#     weight   0 0 0 0 0 0 0  0     0 0 0 0 0 0 0   1 1 1 1 1 1  1
#     tokens   [<][|][user]…  [eos] [<][|]…[\\n]    [Hello][!]  [eos]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of tokenized examples, one after the other.

    Attributes:
        ids: uint32[T].
        loss: float32[T], the loss weight of each token; 0 for untrained tokens, `UNATTENDED` for unattended ones.
        offsets: int64[n + 1]; example `i` has tokens ``offsets[i]:offsets[i + 1]``.
        kept: positions in the batch of the `n` examples, ascending.
        refused: positions in the batch of the rejected examples, with the reasons.
        images: the images of the `n` examples.
        taken: int64[n], how many tokens truncation removed from each.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    refused: tuple[tuple[int, Refused], ...]
    images: Placed
    taken: Ints


class Places(Struct, frozen=True, eq=False):
    """One tokenized example.

    Attributes:
        ids: uint32[T].
        loss: float32[T], as of `Encoded`.
        starts, ends: int64[T], the characters of the render that each token covers; the whole character if it covers a part.
        replaced: bool[T], whether truncation replaced the token.
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
        trains: whether to reject an example without a trained token; prompts for rollouts have none.
        truncation: how to shorten a longer example, see `Truncation`; ``turns`` rejects it, and the pipeline renders it anew.
        keep_stop: whether the last token of an answer that ``end`` cuts off is replaced by the stop token.
        keeps: what ``prompt`` keeps of untrained texts, by role.
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
        """Tokenize a batch. Every example is either kept or rejected with a reason of stage ``tokenize``."""
        return self.encode_block(self.cutter.block(batch))

    def encode_block(self, block: RenderedBlock) -> Encoded:
        """Tokenize renders in columns. Clears the segments of the block to free memory."""
        tokens = tokenize(block, self.vocabulary, self.engines)
        block.segments.clear()
        ids, offsets = tokens.ids, tokens.per_item[block.item_bounds]
        loss, faults = weigh(block, tokens, offsets)
        faults |= lossy(block, tokens, self.vocabulary.unknown_id)
        keep_tokens = self._cut_to_length(block, tokens, loss, offsets, faults)
        images = block.placed(tokens.per_item)
        for example, fault in cut_through(images, keep_tokens).items() if len(images) else ():
            faults.setdefault(example, fault)
        keeps_all, lengths = bool(keep_tokens.all()), np.diff(offsets)
        # `add.reduceat` would first convert every element to eight bytes
        kept_lengths = lengths if keeps_all else np.array([np.count_nonzero(part) for part in np.split(keep_tokens, offsets[1:-1])])
        if self.trains:
            for example in np.flatnonzero(~_any_per_run(loss > 0 if keeps_all else (loss > 0) & keep_tokens, offsets)).tolist():
                faults.setdefault(example, Refused("nothing_to_train", "no token of this example carries loss", stage="tokenize"))
        keep_examples = np.ones(len(lengths), bool)
        keep_examples[list(faults)] = False
        kept_images = after_cut(images, keep_tokens, keep_examples, offsets) if len(images) else images
        kept_offsets, refused = bounds(kept_lengths[keep_examples]), tuple(sorted(faults.items(), key=lambda item: item[0]))
        if kept_offsets[-1] != len(ids):
            keep_tokens = keep_tokens & np.repeat(keep_examples, lengths)
            ids, loss = ids[keep_tokens], loss[keep_tokens]
        return Encoded(
            ids, loss, kept_offsets, np.flatnonzero(keep_examples), refused, kept_images, (lengths - kept_lengths)[keep_examples]
        )

    def places(self, rendered: Rendered) -> Places:
        """Tokenize one example, with the characters of the render that each token covers.

        Raises:
            Refused: the reason for which `encode` rejects it.
        """
        block = self.cutter.block([rendered])
        tokens = tokenize(block, self.vocabulary, self.engines)
        offsets = tokens.per_item[block.item_bounds]
        loss, faults = weigh(block, tokens, offsets)
        original_ids = tokens.ids.copy()
        keep_tokens = self._cut_to_length(block, tokens, loss, offsets, faults)
        for fault in faults.values():
            raise fault
        char_spans = characters(rendered.text, tokens.starts[keep_tokens], tokens.ends[keep_tokens])
        return Places(tokens.ids[keep_tokens], loss[keep_tokens], *char_spans, (tokens.ids != original_ids)[keep_tokens])

    def length(self, rendered: Rendered) -> int:
        """The number of tokens of a render before truncation."""
        return len(tokenize(self.cutter.block([rendered]), self.vocabulary, self.engines).ids)

    @cached_property
    def cutter(self) -> Cutter:
        """The cutter of its renders."""
        return Cutter(self.vocabulary.control, self.policy, self.truncation == "prompt")

    def _cut_to_length(
        self, block: RenderedBlock, tokens: Tokens, loss: npt.NDArray[np.float32], offsets: Ints, faults: Faults
    ) -> npt.NDArray[np.bool_]:
        """Which tokens of the batch truncation keeps, bool[T]; examples that cannot fit are added to `faults`."""
        keep_tokens = np.ones(len(tokens.ids), bool)
        if self.max_seq_len is None:
            return keep_tokens
        limit = self.max_seq_len
        for example in np.flatnonzero(np.diff(offsets) > limit).tolist():
            low, high = int(offsets[example]), int(offsets[example + 1])
            starts, ends = tokens.starts[low:high], tokens.ends[low:high]
            prompts = [  # untrained texts, in tokens
                Prompt(int(np.searchsorted(starts, start)), int(np.searchsorted(ends, end, "right")), role)
                for start, end, role in block.prompts.get(example, ())
            ]
            keep = kept_tokens(high - low, limit, self.truncation, prompts, self.keeps)
            if keep is None:
                detail = f"{high - low:,} tokens, max_seq_len is {limit:,}"
                faults.setdefault(example, Refused("too_long", detail, stage="tokenize"))
                continue
            keep_tokens[low:high] = keep
            last = low + limit - 1
            if self.keep_stop and self.truncation == "end" and loss[last] > 0:
                # if the cut goes through a trained answer, its last token becomes the stop of that answer
                untrained = loss[last:high] <= 0
                stop = int(tokens.ids[last + int(np.argmax(untrained)) - 1 if untrained.any() else high - 1])
                if stop in self.vocabulary.control.values():
                    tokens.ids[last] = stop
        return keep_tokens


def _any_per_run(mask: npt.NDArray[np.bool_], offsets: Ints) -> npt.NDArray[np.bool_]:
    """Whether any element of each run is set."""
    any_set, nonempty = np.zeros(len(offsets) - 1, bool), np.flatnonzero(np.diff(offsets))
    if len(nonempty):
        any_set[nonempty] = np.logical_or.reduceat(mask, offsets[nonempty])
    return any_set


Faults = dict[int, Refused]
"""Number of an example → why it is rejected."""
CANNOT_REPRESENT = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"


def weigh(block: RenderedBlock, tokens: Tokens, offsets: Ints) -> tuple[npt.NDArray[np.float32], Faults]:
    """Weight of every token, float32[t], and the faults of examples in which a token straddles a border of trained text."""
    total = len(tokens.ids)
    if tokens.is_exact and total:
        # contiguous tokens: look up few breaks among many tokens; of equal dtype, else numpy copies all ends
        break_tokens = np.searchsorted(tokens.ends, block.breaks.astype(tokens.ends.dtype), "right")
        is_inside = (break_tokens < total) & (tokens.ends[break_tokens - 1] * (break_tokens > 0) < block.breaks)
        loss = np.repeat(block.weights, np.diff(break_tokens + is_inside, append=total))
        straddling = break_tokens[is_inside]
    else:
        low = regions(block.breaks, tokens.starts)
        loss = block.weights[low]
        straddling = np.flatnonzero(low != regions(block.breaks, np.maximum(tokens.ends - 1, tokens.starts)))
    return loss, _border_faults(block, tokens, offsets, loss, straddling)


def _border_faults(block: RenderedBlock, tokens: Tokens, offsets: Ints, loss: npt.NDArray[np.float32], straddling: Ints) -> Faults:
    """Faults of the tokens that straddle a break. If white space merged with the word behind it, the token takes the weight of the word: a model that
    has to produce the word produces the space with it. The same holds before an unattended region, and where a trained text that ends with a space
    stands before one that is not trained."""
    faults: Faults = {}
    for token in dict.fromkeys(straddling.tolist()):  # a token may straddle several breaks
        start, end = int(tokens.starts[token]), int(tokens.ends[token])
        first, last = regions(block.breaks, [start, max(end - 1, start)]).tolist()
        if block.weights[first] == block.weights[last] and last == first + 1:
            continue
        example = int(np.searchsorted(offsets, token, "right")) - 1
        if last == first + 1 and not block.data[start : int(block.breaks[first + 1])].decode(errors="replace").strip():
            # of a trained text other tokens must be left
            ends_text = block.weights[last] == 0 and token > offsets[example] and loss[token - 1] == block.weights[first] > 0
            if block.weights[first] == 0 or ends_text:
                loss[token] = block.weights[last]
                continue
        text = block.data[start:end].decode(errors="replace")
        kind = "an unattended" if (block.weights[first : last + 1] < 0).any() else "a trained"
        detail = (
            f"token {text!r} lies half inside {kind} region. Between parts of a text, let each part begin with the space before its first word; between "
            "turns the template needs a control token or a line break"
        )
        faults.setdefault(example, Refused("mask_border_inside_token", detail, stage="tokenize"))
    return faults


def lossy(block: RenderedBlock, tokens: Tokens, unknown: int | None = None) -> Faults:
    """Faults of examples in which the tokenizer lost or changed a character: their tokens do not add up to their bytes or, if ids do not stand
    for fixed bytes, include the `unknown` id."""
    if tokens.is_exact or (tokens.by_offsets and unknown is None):
        return {}
    if tokens.by_offsets:
        wrong = np.searchsorted(tokens.per_item, np.flatnonzero(tokens.ids == unknown), "right") - 1
        wrong = wrong[block.items[wrong] < 0]
    else:
        ends, last = tokens.ends, tokens.per_item[1:] - 1
        is_empty = np.diff(tokens.per_item) == 0
        wrong = np.flatnonzero(is_empty | (ends[np.maximum(last, 0)] != block.item_ends)) if ends.size else np.arange(len(block.item_ends))
    examples = np.unique(np.searchsorted(block.item_bounds, wrong, "right") - 1)
    return {int(example): Refused("lossy_tokenizer", CANNOT_REPRESENT, stage="tokenize") for example in examples}
