"""Rendered → Encoded: one tokenization of the whole render, and a loss weight for every token, in batches of arrays.

The render is cut at the control tokens that the **template** wrote, and only there; what lies between is ordinary text to the engine, header
and content in one piece, so words merge across their border exactly as in the reference. A control token that somebody typed into the content
is plain text. Weights are a step function over the bytes of the render; each token takes the weight under its bytes:

    bytes    <|user|>\\nHi <eos> <|assistant|>\\n H e l l o ! <eos>
    weight   0 0 0 0 0 0 0  0     0 0 0 0 0 0 0   1 1 1 1 1 1  1
    tokens   [<][|][user]…  [eos] [<][|]…[\\n]    [Hello][!]  [eos]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from prep_assets.errors import Refused
from prep_assets.templates.rendering import Rendered, Span
from prep_assets.tokenization.engines import Engines, Flat
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch of tokenized examples, one after the other.

    Attributes:
        ids: uint32[T].
        loss: float32[T], the loss weight of each token; 0 where it is not trained.
        offsets: int64[n + 1]; example `i` has tokens ``offsets[i]:offsets[i + 1]``.
        kept: positions in the batch of the `n` examples that are here, ascending.
        refused: position in the batch and reason of every other example.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    refused: tuple[tuple[int, Refused], ...]


@dataclass(slots=True)
class _Layout:
    """A batch, cut into ordinary segments and control tokens; byte positions count through the whole batch."""

    segments: list[str] = field(default_factory=list)
    is_first: list[bool] = field(default_factory=list)
    items: list[int] = field(default_factory=list)  # id of a control token, or -1 for the next segment
    item_end: list[int] = field(default_factory=list)  # byte position where the item ends
    examples: list[int] = field(default_factory=list)  # number of items of each example
    breaks: list[int] = field(default_factory=list)  # byte positions where the loss weight changes
    weights: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    text_start: list[int] = field(default_factory=list)
    at: int = 0


@dataclass(frozen=True)
class Encoder:
    """Tokenizes rendered examples and derives their loss weights.

    Attributes:
        vocabulary, engines: the tokenizer.
        policy: which regions are trained.
        max_seq_len: longest example in tokens; `None` for no limit. A longer one is refused, never cut.
        trains: whether an example without a trained token is refused; prompts for rollouts have none.
    """

    vocabulary: Vocabulary
    engines: Engines
    policy: MaskPolicy
    max_seq_len: int | None = None
    trains: bool = True

    def encode(self, batch: Sequence[Rendered]) -> Encoded:
        """Tokenize a batch. Every example is in the result or refused with a reason of stage ``tokenize``."""
        layout = _Layout()
        for rendered in batch:
            self._lay_out(rendered, layout)
        item_tokens, ids, ends = self._tokenize(layout)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if ends.size else ends
        per_item = np.concatenate([np.zeros(1, np.int64), np.cumsum(item_tokens)])
        item_bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(layout.examples, dtype=np.int64)])
        offsets = per_item[item_bounds]
        loss, faults = self._weigh(layout, starts, ends, offsets)
        faults |= self._lossy(layout, ends, per_item, item_bounds)
        return self._select(ids, loss, offsets, faults)

    # -- cutting the render -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        texts = sorted(self.vocabulary.control, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    def _lay_out(self, rendered: Rendered, layout: _Layout) -> None:
        text, base, items_before = rendered.text, layout.at, len(layout.items)
        byte_of = _byte_positions(text)
        controls = list(self._template_controls(rendered))
        last = 0
        for start, end, token in [*controls, (len(text), len(text), -1)]:
            if start > last:
                layout.segments.append(text[last:start])
                layout.is_first.append(last == 0)
                layout.items.append(-1)
                layout.item_end.append(base + byte_of(start))
            if token >= 0:
                layout.items.append(token)
                layout.item_end.append(base + byte_of(end))
            last = end
        layout.examples.append(len(layout.items) - items_before)
        for position, weight in self._steps(rendered, controls):
            layout.breaks.append(base + byte_of(position))
            layout.weights.append(weight)
        layout.texts.append(text)
        layout.text_start.append(base)
        layout.at = base + byte_of(len(text))

    def _template_controls(self, rendered: Rendered) -> Iterator[tuple[int, int, int]]:
        """Control tokens outside all content: start, end, id."""
        if self._control is None:
            return
        last = 0
        for start, end in [*((span.start, span.end) for span in rendered.spans), (len(rendered.text),) * 2]:
            for found in self._control.finditer(rendered.text, last, start):
                yield found.start(), found.end(), self.vocabulary.control[found[0]]
            last = end

    def _steps(self, rendered: Rendered, controls: Sequence[tuple[int, int, int]]) -> Iterable[tuple[int, float]]:
        """The loss weight as a step function: (character, weight from there on), ascending, the first at 0."""
        steps: list[tuple[int, float]] = [(0, 0.0)]
        spans = rendered.spans
        for i, span in enumerate(spans):
            weight = self.policy.weight(span)
            end = span.end
            ends_turn = i + 1 == len(spans) or spans[i + 1].turn != span.turn
            if weight and ends_turn and self.policy.train_on_eos == "turn":
                end = _stop_after(rendered.text, span, controls)
            steps += [(span.start, weight), (end, 0.0)]
        return steps

    # -- tokens and their bytes ---------------------------------------------------------------------------------------------------------

    def _tokenize(self, layout: _Layout) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Tokens per item; ids; and the byte position in the batch where each token ends."""
        flat = self._segments(layout)
        items = np.asarray(layout.items, np.int64)
        is_control = items >= 0
        counts = np.ones(len(items), np.int64)
        counts[~is_control] = np.diff(flat.offsets)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        at_control = np.zeros(int(bounds[-1]), bool)
        at_control[bounds[:-1][is_control]] = True
        ids = np.empty(int(bounds[-1]), np.uint32)
        ids[at_control] = items[is_control]
        ids[~at_control] = flat.ids
        return counts, ids, self._token_ends(layout, ids, counts, bounds)

    def _segments(self, layout: _Layout) -> Flat:
        if self.engines.first is self.engines.rest:
            return self.engines.first.encode(layout.segments)
        first = np.asarray(layout.is_first, bool)
        parts = (self.engines.first, first), (self.engines.rest, ~first)
        encoded = [engine.encode([layout.segments[i] for i in np.flatnonzero(chosen)]) for engine, chosen in parts]
        counts = np.empty(len(first), np.int64)
        for (_, chosen), flat in zip(parts, encoded, strict=True):
            counts[chosen] = np.diff(flat.offsets)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        ids = np.empty(int(offsets[-1]), np.uint32)
        token_is_first = np.repeat(first, counts)
        ids[token_is_first], ids[~token_is_first] = encoded[0].ids, encoded[1].ids
        return Flat(ids, offsets)

    def _token_ends(
        self, layout: _Layout, ids: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Where each token ends, counted from its item's start so that one lossy item does not shift the next."""
        lengths = self.vocabulary.byte_lengths
        if lengths is None:
            return self._ends_from_offsets(layout, counts, bounds)
        item_end = np.asarray(layout.item_end, np.int64)
        item_start = np.concatenate([np.zeros(1, np.int64), item_end[:-1]])
        running = np.cumsum(lengths[ids])
        before = np.concatenate([np.zeros(1, np.int64), running])[bounds[:-1]]
        prefix = self._prefix_bytes(layout)
        return running + np.repeat(item_start - before - prefix, counts)

    def _prefix_bytes(self, layout: _Layout) -> npt.NDArray[np.int64]:
        """1 for an item in front of which a SentencePiece tokenizer puts a space that is not in the text, else 0."""
        prefix = np.zeros(len(layout.items), np.int64)
        scheme = self.vocabulary.prefix_space
        if scheme != "never":
            segment_items = np.flatnonzero(np.asarray(layout.items) < 0)
            for number, text in enumerate(layout.segments):
                if (scheme == "always" or layout.is_first[number]) and not text.startswith((" ", "▁")):
                    prefix[segment_items[number]] = 1
        return prefix

    def _ends_from_offsets(self, layout: _Layout, counts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Token ends from the reference tokenizer's character offsets, for tokenizers whose ids do not stand for fixed bytes."""
        ends = np.repeat(np.asarray(layout.item_end, np.int64), counts)
        segments = iter(layout.segments)
        for item, token in enumerate(layout.items):
            if token >= 0:
                continue
            text = next(segments)
            byte_of = _byte_positions(text)
            start = layout.item_end[item] - byte_of(len(text))
            _, offsets = self.engines.reference.char_spans(text)
            ends[bounds[item] : bounds[item + 1]] = [start + byte_of(end) for _, end in offsets]
        return ends

    # -- weights and refusals -----------------------------------------------------------------------------------------------------------

    def _weigh(
        self, layout: _Layout, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], dict[int, Refused]]:
        """Weight of every token, and the examples in which a token lies across a border that matters."""
        breaks = np.asarray(layout.breaks, np.int64)
        weights = np.asarray(layout.weights, np.float32)
        at_start = weights[np.searchsorted(breaks, starts, "right") - 1]
        at_end = weights[np.searchsorted(breaks, np.maximum(ends - 1, starts), "right") - 1]
        faults: dict[int, Refused] = {}
        for token in np.flatnonzero(at_start != at_end):
            example = int(np.searchsorted(offsets, token, "right")) - 1
            text = _cut(layout, example, int(starts[token]), int(ends[token]))
            border = int(breaks[np.searchsorted(breaks, starts[token], "right")])
            before = _cut(layout, example, int(starts[token]), border)
            if at_start[token] == 0 and not before.strip():
                # white space that the template writes before the answer, merged with its first word: the model has to produce this token
                at_start[token] = at_end[token]
                continue
            detail = f"token {text!r} lies half inside a trained region; the template needs a control token or a line break there"
            faults.setdefault(example, Refused("mask_border_inside_token", detail, stage="tokenize"))
        return at_start, faults

    def _lossy(
        self, layout: _Layout, ends: npt.NDArray[np.int64], per_item: npt.NDArray[np.int64], item_bounds: npt.NDArray[np.int64]
    ) -> dict[int, Refused]:
        """Examples whose tokens do not add up to their bytes: the tokenizer has lost or changed a character."""
        if self.vocabulary.byte_lengths is None:
            return {}
        item_end = np.asarray(layout.item_end, np.int64)
        last = per_item[1:] - 1
        wrong = np.flatnonzero((np.diff(per_item) == 0) | (ends[np.maximum(last, 0)] != item_end)) if ends.size else np.arange(len(item_end))
        examples = np.unique(np.searchsorted(item_bounds, wrong, "right") - 1)
        detail = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"
        return {int(example): Refused("lossy_tokenizer", detail, stage="tokenize") for example in examples}

    def _select(
        self, ids: npt.NDArray[np.uint32], loss: npt.NDArray[np.float32], offsets: npt.NDArray[np.int64], faults: dict[int, Refused]
    ) -> Encoded:
        lengths = np.diff(offsets)
        trained = np.concatenate([np.zeros(1, np.int64), np.cumsum(loss != 0)])
        trained_tokens = trained[offsets[1:]] - trained[offsets[:-1]]
        for example in np.flatnonzero(trained_tokens == 0) if self.trains else ():
            faults.setdefault(int(example), Refused("nothing_to_train", "no token of this example carries loss", stage="tokenize"))
        if self.max_seq_len is not None:
            for example in np.flatnonzero(lengths > self.max_seq_len):
                detail = f"{lengths[example]:,} tokens, max_seq_len is {self.max_seq_len:,}"
                faults.setdefault(int(example), Refused("too_long", detail, stage="tokenize"))
        keep = np.ones(len(lengths), bool)
        keep[list(faults)] = False
        chosen = np.repeat(keep, lengths)
        kept_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[keep])])
        return Encoded(ids[chosen], loss[chosen], kept_offsets, np.flatnonzero(keep), tuple(sorted(faults.items(), key=lambda item: item[0])))


def _stop_after(text: str, span: Span, controls: Sequence[tuple[int, int, int]]) -> int:
    """Where a trained turn ends: after the control token that follows it, with nothing but white space between; else at its own end."""
    for start, end, _ in controls:
        if start >= span.end:
            return end if not text[span.end : start].strip() else span.end
    return span.end


class _byte_positions:
    """Character position → byte position in the UTF-8 form of a text. Positions are asked for in ascending order."""

    __slots__ = ("_bytes", "_chars", "_text")

    def __init__(self, text: str) -> None:
        self._text = None if text.isascii() else text
        self._chars = self._bytes = 0

    def __call__(self, position: int) -> int:
        if self._text is None:
            return position
        if position < self._chars:
            self._chars = self._bytes = 0
        self._bytes += len(self._text[self._chars : position].encode())
        self._chars = position
        return self._bytes


def _cut(layout: _Layout, example: int, start: int, end: int) -> str:
    base = layout.text_start[example]
    return layout.texts[example].encode()[start - base : end - base].decode(errors="replace")
