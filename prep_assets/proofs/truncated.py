"""What truncation must have left of a conversation, worked out from the reference tokenizer's ids of the whole one.

A row that fits is whole. Of one that does not, the part that must be left follows from the mode alone, token by token; so a cut row is proven as
exactly as a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.errors import CheckFailed
from prep_assets.proofs.identity import Conversation, expected_ids
from prep_assets.proofs.mask import Row
from prep_assets.proofs.reference_ids import reference_ids
from prep_assets.proofs.stretches import Derived, Expected, Prompt, Range
from prep_assets.samples import SYSTEM, USER, Sample
from prep_assets.tokenization.vocabulary import Vocabulary

Ids = npt.NDArray[np.integer[Any]]
Spans = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Truncation:
    """How long conversations are cut.

    Attributes:
        mode: ``drop``, ``start``, ``end``, ``prompt`` or ``turns``, as the configuration explains them.
        limit: the most tokens; `None` for no limit.
        keeps_stop: whether an answer that ``end`` cuts ends with its stop token.
        keeps: by role, which ``part`` of an untrained text ``prompt`` leaves, and how many tokens at the ``least``.
    """

    mode: str = "drop"
    limit: int | None = None
    keeps_stop: bool = False
    keeps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def leaves_whole(self, length: int) -> bool:
        """Whether a record of so many tokens can only be a whole conversation."""
        return self.limit is None or self.mode == "drop" or (length < self.limit and self.mode != "turns")


@dataclass(frozen=True, slots=True)
class Left:
    """What a record must be.

    Attributes:
        derived: its conversation, without rounds that were taken.
        expected: what must be trained of it.
        ids: its ids, where tokens were taken or ids were needed to know what is left; `None`: those of the whole render.
        cut: at which end tokens were taken, through a text perhaps.
        weights: the weight of each token, where the row itself says it.
        taken: how many tokens are gone.
    """

    derived: Derived
    expected: tuple[Expected, ...]
    ids: Ids | None = None
    cut: Literal["none", "start", "end"] = "none"
    weights: npt.NDArray[np.float32] | None = None
    taken: int = 0

    def row(self, identity: str, ids: Ids, mask: npt.NDArray[Any]) -> Row:
        """To prove the mask of a record."""
        return Row(identity, ids, mask, self.expected, self.cut, self.weights, self.derived.tagged)

    def conversation(self, identity: str, ids: Ids) -> Conversation:
        """To prove the ids of a record."""
        return Conversation(identity, ids, self.derived.text, self.derived.controls, self.derived.typed, self.ids, self.taken)


def left_of(sample: Sample, length: int, truncation: Truncation, derive: Callable[[Sample], Derived], vocabulary: Vocabulary) -> Left:
    """What must be left of a sample.

    Args:
        length: how many tokens its record has.

    Raises:
        CheckFailed: nothing of it can be left, so that the record cannot be of this source.
    """
    derived = derive(sample)
    limit, mode = truncation.limit, truncation.mode
    if limit is None or truncation.leaves_whole(length):
        return Left(derived, derived.expected)
    ids = ids_of(derived, vocabulary)
    if len(ids) <= limit:
        return Left(derived, derived.expected, ids)
    if mode == "turns":
        left = _newest_rounds(sample, limit, derive, vocabulary)
    else:
        left = _cut(derived, ids, limit, truncation, vocabulary)
    return replace(left, taken=len(ids) - len(left.ids if left.ids is not None else ids))


def _cut(derived: Derived, ids: npt.NDArray[np.int64], limit: int, truncation: Truncation, vocabulary: Vocabulary) -> Left:
    """What is left of the ids of one render."""
    spans = _spans(derived, vocabulary)
    if truncation.mode == "prompt":
        return Left(derived, derived.expected, ids[_shortened(spans, limit, derived.shortenable, truncation.keeps)])
    if truncation.mode == "start":
        low = int(spans[-limit - 1, 1])
        first = min(low, int(spans[-limit, 0]))  # of the character through which the cut goes, a part may be left
        kept = tuple(_clipped(each, low, len(derived.text)) for each in derived.expected if each.end > first)
        return Left(derived, kept, ids[-limit:], "start")
    return _beginning(derived, ids[:limit], spans, truncation, vocabulary)


def ids_of(derived: Derived, vocabulary: Vocabulary) -> npt.NDArray[np.int64]:
    """The reference tokenizer's ids of a whole conversation."""
    return next(expected_ids([derived], vocabulary, reference_ids(vocabulary))).astype(np.int64)


def _spans(derived: Derived, vocabulary: Vocabulary) -> Spans:
    """Characters (start, end) of every token of the whole conversation, int64[n, 2]; tokens of a part of a character have all of it."""
    return np.array(list(_each_span(derived, vocabulary)))


def _each_span(derived: Derived, vocabulary: Vocabulary) -> Iterator[Range]:
    last = 0
    for start, end in (*derived.controls, (len(derived.text),) * 2):
        if start > last:
            found = reference_ids(vocabulary).char_spans(derived.text[last:start], first=last == 0)
            yield from ((last + low, last + high) for low, high in found)
        if end > start:
            yield start, end
        last = end


def _clipped(expected: Expected, low: int, high: int) -> Expected:
    """The part of a stretch between two characters of the render."""
    start, end = max(low, expected.start), min(high, expected.end)
    text = expected.text[start - expected.start : end - expected.start]
    return replace(
        expected, text=text, stop=expected.stop if end == expected.end and text.endswith(expected.stop) else "", start=start, end=end
    )


def _beginning(derived: Derived, ids: npt.NDArray[np.int64], spans: Spans, truncation: Truncation, vocabulary: Vocabulary) -> Left:
    """The first tokens; where the cut goes through an answer, its stop token may take the place of the last one."""
    high, last = int(spans[len(ids), 0]), spans[len(ids) - 1]
    # the last token may be a part of the character at which the cut is
    touched = [each for each in derived.expected if each.start < max(high, int(last[1]))]
    through = next((each for each in touched if each.weight > 0 and each.start <= last[0] < each.end), None)
    stop = _last_stop(derived.expected, through, vocabulary) if truncation.keeps_stop else None
    if stop is None or through is None:
        return Left(derived, tuple(_clipped(each, 0, max(high, each.start)) for each in touched), ids, "end")
    kept = [_clipped(each, 0, max(int(last[0]), each.start)) for each in touched]
    number = touched.index(through)
    kept[number] = replace(kept[number], text=kept[number].text + stop, stop=stop)
    return Left(derived, tuple(kept[: number + 1]), np.append(ids[:-1], vocabulary.control[stop]), "end")


def _last_stop(expected: Sequence[Expected], through: Expected | None, vocabulary: Vocabulary) -> str | None:
    """The control token at the end of what is trained without a gap."""
    if through is None:
        return None
    for each in expected[expected.index(through) :]:
        if each.start > through.end or each.weight < 0:
            break
        through = each
    return next((token for token in sorted(vocabulary.control, key=len, reverse=True) if through.text.endswith(token)), None)


def _shortened(spans: Spans, limit: int, shortenable: Sequence[Prompt], keeps: Mapping[str, Mapping[str, Any]]) -> npt.NDArray[np.bool_]:
    """Which tokens stay where the longest untrained texts give up one end, as far as their roles allow it."""
    excess, keep = len(spans) - limit, np.ones(len(spans), bool)
    inside = [(np.flatnonzero((spans[:, 0] >= start) & (spans[:, 1] <= end)), keeps.get(role, {})) for start, end, role in shortenable]
    for tokens, own in sorted(inside, key=lambda each: -len(each[0])):
        stays = max(min(len(tokens), own.get("least", 1)), len(tokens) - excess)
        gone = tokens[: len(tokens) - stays] if own.get("part") == "end" else tokens[stays:]
        keep[gone] = False
        excess -= len(gone)
    if excess:
        raise CheckFailed(f"{len(spans):,} tokens, which no shortening of untrained texts makes {limit:,}")
    return keep


def _newest_rounds(sample: Sample, limit: int, derive: Callable[[Sample], Derived], vocabulary: Vocabulary) -> Left:
    """The system turns and as many of the newest rounds as fit."""
    users = [number for number, turn in enumerate(sample.turns) if turn.role == USER]
    begins = [number for number in users if number == 0 or sample.turns[number - 1].role != USER]
    head = tuple(turn for turn in sample.turns[: begins[0]] if turn.role == SYSTEM) if begins else ()
    low, high = 1, len(begins) - 1
    found: Left | None = None
    while low <= high:
        middle = (low + high) // 2
        shorter = derive(replace(sample, turns=(*head, *sample.turns[begins[middle] :])))
        ids = ids_of(shorter, vocabulary)
        if len(ids) <= limit:
            found, high = Left(shorter, shorter.expected, ids), middle - 1
        else:
            low = middle + 1
    if found is None:
        raise CheckFailed(f"not even its last round fits in {limit:,} tokens")
    return found
