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
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import IMAGE, SYSTEM
from prep_assets.templates.rendered import Rendered
from prep_assets.tokenization.engines import Engines
from prep_assets.tokenization.flat import Flat
from prep_assets.tokenization.images import NOTHING, Placed, after_cut, cut_through
from prep_assets.tokenization.policy import MaskPolicy
from prep_assets.tokenization.truncation import Truncation, kept_tokens
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
        images: where the images of the `n` examples stand.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]
    refused: tuple[tuple[int, Refused], ...]
    images: Placed = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """One tokenized example.

    Attributes:
        ids: uint32[T].
        loss: float32[T], the loss weight of each token.
        starts, ends: int64[T], the characters of the render that each token stands for; whole ones, where it stands for a part.
        replaced: bool[T], whether truncation put another token there.
    """

    ids: npt.NDArray[np.uint32]
    loss: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    replaced: npt.NDArray[np.bool_]


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
    prompts: list[list[tuple[int, int]]] = field(default_factory=list)  # byte ranges of each example's untrained contents
    texts: list[str] = field(default_factory=list)
    text_start: list[int] = field(default_factory=list)
    images: list[tuple[int, int, int, str]] = field(default_factory=list)  # example, first item, number of items, path
    at: int = 0


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
    """

    vocabulary: Vocabulary
    engines: Engines
    policy: MaskPolicy
    max_seq_len: int | None = None
    trains: bool = True
    truncation: Truncation = "drop"
    keep_stop: bool = False

    def encode(self, batch: Sequence[Rendered]) -> Encoded:
        """Tokenize a batch. Every example is in the result or refused with a reason of stage ``tokenize``."""
        layout = _Layout()
        for rendered in batch:
            self._lay_out(rendered, layout)
        item_tokens, ids, starts, ends = self._tokenize(layout)
        per_item = np.concatenate([np.zeros(1, np.int64), np.cumsum(item_tokens)])
        item_bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(layout.examples, dtype=np.int64)])
        offsets = per_item[item_bounds]
        loss, faults = self._weigh(layout, starts, ends, offsets)
        faults |= self._lossy(layout, ends, per_item, item_bounds)
        chosen = self._cut_to_length(layout, ids, loss, starts, ends, offsets, faults)
        images = _placed(layout, per_item)
        for example, fault in cut_through(images, chosen).items() if layout.images else ():
            faults.setdefault(example, fault)
        return self._select(ids, loss, offsets, faults, chosen, images)

    def places(self, rendered: Rendered) -> Places:
        """One example, token by token, with what of its render each token stands for.

        Raises:
            Refused: as `encode` says of it.
        """
        layout = _Layout()
        self._lay_out(rendered, layout)
        _, ids, starts, ends = self._tokenize(layout)
        offsets = np.array([0, len(ids)], np.int64)
        loss, faults = self._weigh(layout, starts, ends, offsets)
        written = ids.copy()
        chosen = self._cut_to_length(layout, ids, loss, starts, ends, offsets, faults)
        for fault in faults.values():
            raise fault
        return Places(ids[chosen], loss[chosen], *characters(rendered.text, starts[chosen], ends[chosen]), (ids != written)[chosen])

    # -- cutting the render -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        texts = sorted(self.vocabulary.control, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    def _lay_out(self, rendered: Rendered, layout: _Layout) -> None:
        text, base, items_before = rendered.text, layout.at, len(layout.items)
        byte_of = _byte_positions(text)
        controls = list(self._template_controls(rendered))
        control_items: list[int] = []
        last = 0
        for start, end, token in [*controls, (len(text), len(text), -1)]:
            if start > last:
                layout.segments.append(text[last:start])
                layout.is_first.append(last == 0)
                layout.items.append(-1)
                layout.item_end.append(base + byte_of(start))
            if token >= 0:
                control_items.append(len(layout.items))
                layout.items.append(token)
                layout.item_end.append(base + byte_of(end))
            last = end
        for start, end, path in rendered.images:
            layout.images.append((len(layout.examples), *_placeholder_items(rendered, start, end, controls, control_items), path))
        layout.examples.append(len(layout.items) - items_before)
        for position, weight in self._steps(rendered):
            layout.breaks.append(base + byte_of(position))
            layout.weights.append(weight)
        layout.prompts.append(self._prompts(rendered, base) if self.truncation == "prompt" else [])
        layout.texts.append(text)
        layout.text_start.append(base)
        layout.at = base + byte_of(len(text))

    def _template_controls(self, rendered: Rendered) -> Iterator[tuple[int, int, int]]:
        """Control tokens outside all content: start, end, id."""
        if self._control is None:
            return
        last = 0
        for start, end in [*rendered.content, (len(rendered.text),) * 2]:
            for found in self._control.finditer(rendered.text, last, start):
                yield found.start(), found.end(), self.vocabulary.control[found[0]]
            last = end

    def _prompts(self, rendered: Rendered, base: int) -> list[tuple[int, int]]:
        byte_of = _byte_positions(rendered.text)
        spans = zip(rendered.spans, self.policy.weights(rendered.spans), strict=True)
        # an image is never shortened
        shown = [span for span, weight in spans if not weight and span.role != SYSTEM and span.region.kind != IMAGE]
        return [(base + byte_of(span.start), base + byte_of(span.end)) for span in shown]

    def _steps(self, rendered: Rendered) -> Iterable[tuple[int, float]]:
        """The loss weight as a step function: (character, weight from there on), ascending, the first at 0."""
        steps: list[tuple[int, float]] = [(0, 0.0)]
        spans = rendered.spans
        weights = self.policy.weights(spans)
        stops = self.policy.stop_weights(spans, weights)
        ends = {stop.turn: (stop.start, stop.end) for stop in rendered.stops}
        turn_end = 0
        for i, (span, weight) in enumerate(zip(spans, weights, strict=True)):
            starts_turn = i == 0 or spans[i - 1].turn != span.turn
            start = turn_end if self.policy.headers and starts_turn and weight else span.start
            steps += [(start, weight), (span.end, 0.0)]
            if i + 1 == len(spans) or spans[i + 1].turn != span.turn:
                stop, turn_end = ends.get(span.turn, (span.end, span.end))
                if stops.get(span.turn) and turn_end > stop:
                    # white space before the stop token is generated with the text, so it is trained where the text is
                    steps[-1] = (span.end if weight else stop, stops[span.turn])
                    steps.append((turn_end, 0.0))
        return steps

    def trained(self, rendered: Rendered) -> list[tuple[int, int, float]]:
        """Characters (start, end) of a render that are trained, and their loss weight, ascending."""
        steps = [*self._steps(rendered), (len(rendered.text), 0.0)]
        positions, weights = zip(*steps, strict=True)
        breaks, values = _changes(np.asarray(positions, np.int64), np.asarray(weights, np.float64))
        ends = [*breaks[1:].tolist(), len(rendered.text)]
        return [each for each in zip(breaks.tolist(), ends, values.tolist(), strict=True) if each[2]]

    # -- tokens and their bytes ---------------------------------------------------------------------------------------------------------

    def _tokenize(
        self, layout: _Layout
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Tokens per item; ids; and the byte positions in the batch where each token starts and ends."""
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
        return counts, ids, *self._token_spans(layout, ids, counts, bounds)

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

    def _token_spans(
        self, layout: _Layout, ids: npt.NDArray[np.uint32], counts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where each token starts and ends, counted from its item's start so that one lossy item does not shift the next."""
        item_end = np.asarray(layout.item_end, np.int64)
        item_start = np.concatenate([np.zeros(1, np.int64), item_end])[: len(item_end)]
        table = self.vocabulary.byte_lengths
        prefix = self._prefix_bytes(layout)
        if table is None:
            spans = np.repeat(item_start, counts), np.repeat(item_end, counts)
        else:
            lengths = table[ids]
            running = np.cumsum(lengths)
            before = np.concatenate([np.zeros(1, np.int64), running])[bounds[:-1]]
            ends = running + np.repeat(item_start - before - prefix, counts)
            spans = np.maximum(ends - lengths, np.repeat(item_start, counts)), ends
        # where the tokenizer changes a text before it tokenizes it, ids stand for other bytes than those of the text
        changed = self._changed(layout)
        self._set_spans_by_characters(layout, changed, item_start, bounds, spans)
        if table is not None:
            segment_items = np.flatnonzero(np.asarray(layout.items) < 0)
            for number in changed:
                item = segment_items[number]
                tokens = slice(bounds[item], bounds[item + 1])
                whole = int(lengths[tokens].sum()) - prefix[item] == len(self.vocabulary.normalized(layout.segments[number]).encode())
                # the library gives a composed character the span of its first part alone; an end that is not the item's says "lossy"
                spans[1][tokens][-1:] = item_end[item] if whole else item_start[item]
        return spans

    def _changed(self, layout: _Layout) -> list[int]:
        """Numbers of the segments that the tokenizer may change before it tokenizes them."""
        if all(map(self.vocabulary.is_normal, layout.texts)):
            return []
        return [number for number, text in enumerate(layout.segments) if not self.vocabulary.is_normal(text)]

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

    def _set_spans_by_characters(
        self,
        layout: _Layout,
        numbers: Sequence[int],
        item_start: npt.NDArray[np.int64],
        bounds: npt.NDArray[np.int64],
        spans: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    ) -> None:
        """Set the spans of some segments' tokens from the reference tokenizer's character offsets.

        The tokens of a character that is split over several all have the span of the whole character.
        """
        segment_items = np.flatnonzero(np.asarray(layout.items) < 0)
        for number in numbers:
            item, text = segment_items[number], layout.segments[number]
            reference = self.engines.reference if layout.is_first[number] else self.engines.rest_reference
            _, offsets = reference.char_spans(text)
            found = item_start[item] + _byte_table(text)[np.asarray(offsets, np.int64).reshape(-1, 2)]
            for side in (0, 1):
                spans[side][bounds[item] : bounds[item + 1]] = found[:, side]

    # -- weights and refusals -----------------------------------------------------------------------------------------------------------

    def _weigh(
        self, layout: _Layout, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], dict[int, Refused]]:
        """Weight of every token, and the examples in which a token lies across a border that matters."""
        breaks, weights = _changes(np.asarray(layout.breaks, np.int64), np.asarray(layout.weights, np.float32))
        first = np.searchsorted(breaks, starts, "right") - 1
        last = np.searchsorted(breaks, np.maximum(ends - 1, starts), "right") - 1
        loss = weights[first]
        faults: dict[int, Refused] = {}
        for token in np.flatnonzero(first != last):
            example = int(np.searchsorted(offsets, token, "right")) - 1
            text = _cut(layout, example, int(starts[token]), int(ends[token]))
            before = _cut(layout, example, int(starts[token]), int(breaks[first[token] + 1]))
            if loss[token] == 0 and last[token] == first[token] + 1 and not before.strip():
                # white space that the template writes before the answer, merged with its first word: the model has to produce this token
                loss[token] = weights[last[token]]
                continue
            detail = f"token {text!r} lies half inside a trained region; the template needs a control token or a line break there"
            faults.setdefault(example, Refused("mask_border_inside_token", detail, stage="tokenize"))
        return loss, faults

    def _lossy(
        self, layout: _Layout, ends: npt.NDArray[np.int64], per_item: npt.NDArray[np.int64], item_bounds: npt.NDArray[np.int64]
    ) -> dict[int, Refused]:
        """Examples whose tokens do not add up to their bytes: the tokenizer has lost or changed a character."""
        if self.vocabulary.byte_lengths is None:
            return {}
        item_end = np.asarray(layout.item_end, np.int64)
        last = per_item[1:] - 1
        wrong = (
            np.flatnonzero((np.diff(per_item) == 0) | (ends[np.maximum(last, 0)] != item_end)) if ends.size else np.arange(len(item_end))
        )
        examples = np.unique(np.searchsorted(item_bounds, wrong, "right") - 1)
        detail = "the tokenizer cannot represent some character of this text: its tokens do not decode to it"
        return {int(example): Refused("lossy_tokenizer", detail, stage="tokenize") for example in examples}

    def _cut_to_length(
        self,
        layout: _Layout,
        ids: npt.NDArray[np.uint32],
        loss: npt.NDArray[np.float32],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        faults: dict[int, Refused],
    ) -> npt.NDArray[np.bool_]:
        """Which tokens of the batch stay, as `truncation` says."""
        chosen = np.ones(len(ids), bool)
        lengths = np.diff(offsets)
        for example in np.flatnonzero(lengths > self.max_seq_len) if self.max_seq_len is not None else ():
            low, high = int(offsets[example]), int(offsets[example + 1])
            here = slice(low, high)
            prompts = [
                (int(np.searchsorted(starts[here], start)), int(np.searchsorted(ends[here], end, "right")))
                for start, end in layout.prompts[example]
            ]
            keep = kept_tokens(high - low, int(self.max_seq_len or 0), self.truncation, prompts)
            if keep is None:
                detail = f"{high - low:,} tokens, max_seq_len is {self.max_seq_len:,}"
                faults.setdefault(int(example), Refused("too_long", detail, stage="tokenize"))
                continue
            chosen[here] = keep
            if self.keep_stop and self.truncation == "end":
                self._end_with_stop(ids, loss, low + int(self.max_seq_len or 0) - 1, high)
        return chosen

    def _end_with_stop(self, ids: npt.NDArray[np.uint32], loss: npt.NDArray[np.float32], last: int, high: int) -> None:
        """Where the cut goes through a trained answer, its last token becomes the control token that ends that answer."""
        if not loss[last]:
            return
        end_of_run = last + int(np.argmax(loss[last:high] == 0)) if (loss[last:high] == 0).any() else high
        stop = int(ids[end_of_run - 1])
        if stop in self.vocabulary.control.values():
            ids[last] = stop

    def _select(
        self,
        ids: npt.NDArray[np.uint32],
        loss: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        faults: dict[int, Refused],
        chosen: npt.NDArray[np.bool_],
        images: Placed,
    ) -> Encoded:
        left = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen)])
        lengths = left[offsets[1:]] - left[offsets[:-1]]
        trained = np.concatenate([np.zeros(1, np.int64), np.cumsum((loss != 0) & chosen)])
        trained_tokens = trained[offsets[1:]] - trained[offsets[:-1]]
        for example in np.flatnonzero(trained_tokens == 0) if self.trains else ():
            faults.setdefault(int(example), Refused("nothing_to_train", "no token of this example carries loss", stage="tokenize"))
        keep = np.ones(len(lengths), bool)
        keep[list(faults)] = False
        left_images = after_cut(images, chosen, keep, offsets) if len(images) else images
        chosen = chosen & np.repeat(keep, np.diff(offsets))
        kept_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[keep])])
        refused = tuple(sorted(faults.items(), key=lambda item: item[0]))
        return Encoded(ids[chosen], loss[chosen], kept_offsets, np.flatnonzero(keep), refused, left_images)


def _placeholder_items(
    rendered: Rendered, start: int, end: int, controls: Sequence[tuple[int, int, int]], items: Sequence[int]
) -> tuple[int, int]:
    """The first item of a placeholder and the number of its items, which are copies of one control token."""
    low, high = bisect_left(controls, (start,)), bisect_left(controls, (end,))
    here = controls[low:high]
    if len({token for _, _, token in here}) != 1 or sum(stop - begin for begin, stop, _ in here) != end - start:
        raise ConfigError(f"{rendered.text[start:end][:80]!r} stands for images, and is no control token of the tokenizer")
    return items[low], high - low


def _placed(layout: _Layout, per_item: npt.NDArray[np.int64]) -> Placed:
    """The images of a batch; their starts count through the batch."""
    if not layout.images:
        return NOTHING
    examples, items, counts, paths = zip(*layout.images, strict=True)
    return Placed(np.array(examples, np.int64), per_item[list(items)], np.array(counts, np.int64), paths)


def _changes(breaks: npt.NDArray[np.int64], weights: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """The same step function with a break only where its value changes; of several breaks at one position the last counts."""
    decides = np.append(breaks[1:] != breaks[:-1], True)[: len(breaks)]
    breaks, weights = breaks[decides], weights[decides]
    changes = np.insert(weights[1:] != weights[:-1], 0, True)[: len(breaks)]
    return breaks[changes], weights[changes]


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


def _byte_table(text: str) -> npt.NDArray[np.int64]:
    """Byte position of every character of `text` in its UTF-8 form, and of its end: int64[len(text) + 1]."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    widths = 1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])


def characters(
    text: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Byte positions in the UTF-8 form of a text → characters; a stretch that lies within a character becomes all of it."""
    table = _byte_table(text)
    first, last = np.searchsorted(table, [starts, ends], "right") - 1
    return first, last + (table[last] < ends)


def _cut(layout: _Layout, example: int, start: int, end: int) -> str:
    base = layout.text_start[example]
    return layout.texts[example].encode()[start - base : end - base].decode(errors="replace")
