"""Proofs of conversations: mask alignment and tokenization identity, and where a mask is wrong."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from prep_assets.array_types import Ints
from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected, Prompt
from prep_assets.proofs.rebuilt import Range, around, parting
from prep_assets.proofs.reference_ids import ReferenceIds, reference_ids, whole_ids
from prep_assets.proofs.verdict import Numbers, Verdict, Worst, holds, some_fail
from prep_assets.samples import SYSTEM, UNATTENDED, USER, Sample, changed
from prep_assets.stores.arrays import in_batches
from prep_assets.text.ids import NO_TEXTS
from prep_assets.text.vocabulary import Vocabulary

# Where a mask is wrong: the first token that should be trained and is not, or is and should not be.

Run = tuple[int, int]
BROKEN = "\ufffd"
"""What a decoder writes for a partial character, which truncation can leave at an end of a row."""


def first_wrong(
    ids: npt.NDArray[np.integer], runs: Sequence[Run], decoded: Sequence[str], expected: Sequence[str], vocabulary: Vocabulary
) -> int:
    """Return the first token where the trained runs of a row differ from the texts that its source trains; -1 if unknown.

    Args:
        runs: start and end of each trained run.
        decoded: the text of each run.
        expected: the texts that must be trained.
    """
    texts, wanted = [text.strip(BROKEN) for text in decoded], [text.strip(BROKEN) for text in expected]
    foreign = next((at for at, stripped in enumerate(texts) if stripped not in wanted), None)
    if foreign is None:  # a text is not trained at all, and its place is unknown
        return -1
    lacking = next((text for text, stripped in zip(expected, wanted, strict=True) if stripped not in texts), None)
    return runs[foreign][0] if lacking is None else _in_run(ids, runs[foreign], decoded[foreign], lacking, vocabulary)


def _in_run(ids: npt.NDArray[np.integer], run: Run, decoded: str, wanted: str, vocabulary: Vocabulary) -> int:
    start, end = run
    if decoded in wanted:  # the run is too short, at its beginning or at its end
        return start - 1 if not wanted.startswith(decoded) else min(end, len(ids) - 1)
    same = parting(decoded, wanted)
    ends = [len(vocabulary.decode(ids[start : at + 1].tolist())) for at in range(start, end)]
    return start + bisect_left(ends, same + 1)


# Mask alignment: trained tokens decode to exactly the trained texts, each with the stop tokens of its turn; tokens that are not
# attended decode to exactly the texts of regions without attention.
#
# The mask was made from character offsets of a render with marks. This check goes the other way and shares no code with it: it cuts each record where the
# weight of its mask changes, decodes every trained run with the tokenizer's own decoder, and compares with the texts of the source.

Cut = Literal["none", "start", "end"]
"""Where truncation removed tokens, perhaps inside a text."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One record of a conversation: its id, its token ids and weights (both 1-D and equally long; below 0 where a token is not attended, see
    `Table.weights`; no weights where ids alone are proven), and what its source leaves of it."""

    id: str
    ids: npt.NDArray[np.integer[Any]]
    mask: npt.NDArray[Any]
    left: Left


UNWEIGHED = np.zeros(0, np.float32)
"""No weights: only ids are proven."""
LONG = 1 << 20
"""A row of more tokens is a batch of its own, so that it is not copied with others."""


def prove_masks(rows: Iterable[Conversation], vocabulary: Vocabulary, *, batch: int = 512) -> Verdict:
    """Check every row; the verdict shows the first that fails."""
    proof = MaskProof(vocabulary, most=batch)
    proof.add(rows)
    return proof.verdict()


OPTIONAL = ("rows_by_tags_too", "rows_by_prefix", "unattended_tokens", "unserved_prompts")
"""Figures that a verdict has where they are not 0: rows of which a template's tags, or the prefix property, say where answers begin and end; tokens that are
not attended; trained answers behind a prompt that no server sends."""


class MaskProof(Struct):
    """The check for rows that come in batches.

    Attributes:
        numbers: figures so far.
        stops: the tokens that end turns so far.
        worst: the first row that fails.
        most: rows that are decoded at once.
    """

    vocabulary: Vocabulary
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("rows_checked", "rows_failed", "trained_tokens", *OPTIONAL), 0))
    stops: set[str] = field(default_factory=set)
    worst: Worst | None = None
    most: int = 512

    def proven(self, numbers: Numbers, stops: Iterable[str] = ()) -> None:
        """Count rows that were proven elsewhere."""
        for key, number in numbers.items():
            self.numbers[key] += int(number)
        self.stops.update(stops)

    def add(self, rows: Iterable[Conversation]) -> None:
        """Check rows."""
        for part in in_batches(rows, lambda row: len(row.ids), LONG, self.most):
            self._check(part)

    def _check(self, rows: Sequence[Conversation]) -> None:
        runs_of = [trained_runs(row, self.vocabulary) for row in rows]
        listed = [row.ids[start:end].tolist() for row, runs in zip(rows, runs_of, strict=True) for start, end in runs]
        decoded = iter(self.vocabulary.decode_batch(listed))
        for row, runs in zip(rows, runs_of, strict=True):
            trained, hidden = int((row.mask > 0).sum()), int((row.mask < 0).sum())
            derived = row.left.derived
            counted = (1, 0, trained, derived.tagged, derived.prefixed, hidden, len(derived.unserved))
            self.proven(dict(zip(self.numbers, counted, strict=True)))
            texts = [next(decoded) for _ in runs]
            fault = _compare(row, runs, texts, self.vocabulary, self.stops)
            if fault is not None:
                self.numbers["rows_failed"] += 1
                self.worst = self.worst or _worst(row, fault, runs, texts, self.vocabulary)

    def verdict(self) -> Verdict:
        """Return the verdict on all rows so far."""
        checked, failed, trained, tagged, prefixed, hidden, unserved = self.numbers.values()
        numbers = {key: number for key, number in self.numbers.items() if number or key not in OPTIONAL}
        if self.worst is not None:
            return some_fail(failed, checked, "rows train the wrong tokens", self.worst, numbers)
        oracles = f"; the prefix property says where the answers of {prefixed:,} rows begin and end" if prefixed else ""
        oracles += f"; tags in the template say the same of {tagged:,} rows" if tagged else ""
        summary = f"{trained:,} trained tokens of {checked:,} rows decode to exactly the trained texts and {_ends(self.stops)}{oracles}"
        summary += f"; {hidden:,} tokens without attention decode to exactly the texts without it" if hidden else ""
        summary += f"; {unserved:,} answers stand behind a prompt that no server sends" if unserved else ""
        return Verdict(True, summary, numbers)


def _worst(row: Conversation, fault: str, runs: Sequence[tuple[int, int]], decoded: Sequence[str], vocabulary: Vocabulary) -> Worst:
    expected = [stretch.text for stretch in row.left.expected]
    return Worst(
        row.id,
        fault,
        tuple(row.ids.tolist()),
        tuple(map(float, row.mask.tolist())),
        first_wrong(row.ids, runs, decoded, expected, vocabulary),
        tuple(zip_longest(decoded, expected, fillvalue="")),
    )


def _ends(stops: set[str]) -> str:
    listed = ", ".join(map(repr, sorted(stops)))
    return f"their stop token{'s' if len(stops) > 1 else ''} {listed}" if stops else "no stop token"


def _runs(mask: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Return start and end of each run of tokens with one weight other than 0."""
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    bounds = [0, *edges.tolist(), len(mask)] if len(mask) else []
    return [(start, end) for start, end in pairwise(bounds) if mask[start]]


Runs = list[tuple[int, int]]


def trained_runs(row: Conversation, vocabulary: Vocabulary) -> Runs:
    """Return start and end of each run of trained tokens of one weight. Where one token holds the white space between two trained texts and begins the
    second, both are in one run, which is split where the first text ends."""
    runs, split_runs = _runs(row.mask), list[tuple[int, int]]()
    missing = len(row.left.expected) - len(runs)
    for start, end in runs:
        while missing > 0 and (between := start + _length(row.left.expected[len(split_runs)].text, row.ids[start:end], vocabulary)) < end:
            split_runs.append((start, between))
            start, missing = between, missing - 1
        split_runs.append((start, end))
    return split_runs


def _length(text: str, ids: npt.NDArray[np.integer], vocabulary: Vocabulary) -> int:
    """Return how many of `ids` decode to a text and the white space before it; all, where they do not begin with it."""

    def begun(count: int) -> str:
        return solid(vocabulary.decode(ids[:count]).rstrip(BROKEN), vocabulary)

    wanted = solid(text, vocabulary)
    count = bisect_left(range(len(ids)), len(wanted), key=lambda count: len(begun(count)))
    if begun(count) != wanted:
        return len(ids)
    trailing = len(text) - len(text.rstrip())
    while trailing > 0 and (blank := vocabulary.decode(ids[count : count + 1])).isspace():
        count, trailing = count + 1, trailing - len(blank)
    return count


def _compare(
    row: Conversation, runs: Sequence[tuple[int, int]], decoded: Sequence[str], vocabulary: Vocabulary, stops: set[str]
) -> str | None:
    left = row.left
    if len(row.ids) != len(row.mask):
        return f"{len(row.ids):,} tokens, {len(row.mask):,} mask values"
    if left.weights is not None and (fault := _weight_fault(row.mask, left.weights)):
        return fault
    if len(decoded) != len(left.expected):
        shown, hidden = [text[:60] for text in decoded], (row.mask < 0).any() or any(stretch.weight < 0 for stretch in left.expected)
        word = "trained or unattended" if hidden else "trained"
        return f"{len(decoded)} {word} stretches, the source has {len(left.expected)} {word} texts; {word}: {shown}"
    for i, ((start, end), decoded_text, expected) in enumerate(zip(runs, decoded, left.expected, strict=True)):
        wanted = expected.text
        if left.cut == "end" and i == len(runs) - 1 and end == len(row.ids):
            # the cut may go through a character, and a stop token may have taken the place of the rest
            decoded_text, wanted = (
                text.removesuffix(expected.stop).rstrip(BROKEN) + expected.stop * text.endswith(expected.stop)
                for text in (decoded_text, wanted)
            )
        if left.cut == "start" and i == 0 and start == 0:
            decoded_text, wanted = decoded_text.lstrip(BROKEN), wanted.lstrip(BROKEN)
        weight = float(row.mask[start])
        word = "unattended" if weight < 0 else "trained"
        if np.float32(weight) != np.float32(expected.weight):
            return f"{_weight_text(weight)} on {expected.text[:40]!r}, to which the source gives {_weight_text(expected.weight)}"
        if expected.stop and not decoded_text.rstrip().endswith(expected.stop):
            return f"the trained text ends {decoded_text[-40:]!r}, without {expected.stop!r}, which ends the turn"
        if decoded_text.strip() != wanted.strip() and (
            (vocabulary.token_bytes is not None and not puts_spaces(vocabulary))
            or solid(decoded_text, vocabulary) != solid(wanted, vocabulary)
        ):
            return f"{word} {_difference(decoded_text.strip(), wanted.strip())}"
        if expected.stop:
            stops.add(expected.stop)
        before = (
            len(decoded_text)
            - len(decoded_text.lstrip())
            - (len(expected.text) - len(expected.text.lstrip()))
            - _prefix_space(row, start, vocabulary)
        )
        if (i or left.cut != "start") and _is_blank(row.ids[start : start + 1], before, vocabulary):
            return f"the template's white space before {expected.text[:40]!r} is {word}"
        after = len(decoded_text) - len(decoded_text.rstrip()) - (len(expected.text) - len(expected.text.rstrip()))
        if _is_blank(row.ids[end - 1 : end], after, vocabulary):
            return f"the template's white space after {expected.text[-40:]!r} is {word}"
    return None


def _weight_text(weight: float) -> str:
    if weight >= 0:
        return f"loss weight {weight:g}"
    return "no attention" if weight == UNATTENDED else f"loss weight {UNATTENDED - weight:g} and no attention"


def puts_spaces(vocabulary: Vocabulary) -> bool:
    """Whether a tokenizer adds a space after each control token."""
    return vocabulary.prefix_space == "always" or vocabulary.normalized("x") != "x"


def _prefix_space(row: Conversation, start: int, vocabulary: Vocabulary) -> int:
    """1 where the token at `start` may begin with a space that the tokenizer adds, else 0."""
    if start == 0:
        return int(vocabulary.prefix_space != "never" or puts_spaces(vocabulary))
    return int(puts_spaces(vocabulary) and row.ids[start - 1] in vocabulary.control.values())


def _is_blank(token: npt.NDArray[np.integer], most: int, vocabulary: Vocabulary) -> bool:
    """Whether a token is white space only, at most `most` characters."""
    return most > 0 and (text := vocabulary.decode(token)).isspace() and len(text) <= most


def solid(text: str, vocabulary: Vocabulary) -> str:
    """Return a text as the tokenizer normalizes it, without white space."""
    return "".join(vocabulary.normalized(text).replace("▁", " ").split())


def _weight_fault(mask: npt.NDArray[np.generic], weights: npt.NDArray[np.float32]) -> str | None:
    if len(mask) != len(weights):
        return f"{len(mask):,} mask values, the row brings {len(weights):,}"
    wrong = np.flatnonzero(mask.astype(np.float32) != weights)
    return f"token {wrong[0]:,} weighs {float(mask[wrong[0]]):g}, the row says {weights[wrong[0]]:g}" if len(wrong) else None


def _difference(decoded: str, expected: str) -> str:
    at = parting(decoded, expected)
    return f"{around(decoded, at)}, the source says {around(expected, at)} (character {at})"


# Tokenization identity of conversations: the tokens of every row are the reference tokenizer's for a fresh render of its source.
#
# The render is cut at the control tokens that the template wrote, and only there; the reference library tokenizes what lies between as ordinary text. Ids
# that decode to the same text but are not the tokenizer's own are caught as well.

BATCH_CHARACTERS = 1 << 21


def prove_identity(rows: Iterable[Conversation], vocabulary: Vocabulary) -> Verdict:
    """Tokenize every row with the reference tokenizer and compare; the verdict shows the first that differs."""
    proof = IdentityProof(vocabulary)
    proof.add(rows)
    return proof.verdict()


class IdentityProof(Struct, dict=True):
    """The check for rows that come in batches.

    Attributes:
        numbers: figures so far.
        worst: the first row that differs; later rows are skipped.
        whole: whether every text is tokenized whole.
    """

    vocabulary: Vocabulary
    numbers: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("rows_tokenized_again", "control_tokens_in_content", "tokens_cut_away"), 0)
    )
    worst: Worst | None = None
    whole: bool = False

    @cached_property
    def reference(self) -> ReferenceIds:
        """The reference tokenizer."""
        return whole_ids(self.vocabulary) if self.whole else reference_ids(self.vocabulary)

    def proven(self, numbers: Numbers) -> None:
        """Count rows that were proven elsewhere."""
        for key, number in numbers.items() if self.worst is None else ():
            self.numbers[key] += int(number)

    def add(self, rows: Iterable[Conversation]) -> None:
        """Tokenize rows with the reference tokenizer and compare."""
        for batch in () if self.worst else in_batches(rows, lambda row: len(row.left.derived.text), BATCH_CHARACTERS):
            self._compare(batch)
            if self.worst is not None:
                return

    def _compare(self, batch: Sequence[Conversation]) -> None:
        self.numbers["control_tokens_in_content"] += sum(row.left.derived.typed for row in batch)
        self.numbers["tokens_cut_away"] += sum(row.left.taken for row in batch)
        again = expected_ids([row.left.derived for row in batch if row.left.ids is None], self.vocabulary, self.reference)
        for row in batch:
            expected = next(again) if row.left.ids is None else row.left.ids
            self.numbers["rows_tokenized_again"] += 1
            if not np.array_equal(row.ids, expected):
                self.worst = _worst_ids(row, expected, self.vocabulary)
                return

    def verdict(self) -> Verdict:
        """Return the verdict on all rows so far."""
        numbers = {key: number for key, number in self.numbers.items() if number or key != "tokens_cut_away"}
        if self.worst is not None:
            return Verdict(False, f"{self.worst.where}: {self.worst.note}", numbers, self.worst)
        return holds(_identical, numbers)


def _identical(numbers: Numbers) -> str:
    return f"{numbers['rows_tokenized_again']:,} rows have the reference tokenizer's ids of their render"


def expected_ids(rows: Sequence[Derived], vocabulary: Vocabulary, reference: ReferenceIds) -> Iterator[npt.NDArray[np.uint32]]:
    """Yield the reference ids of each whole row: its control tokens, and the text between them as ordinary text."""
    texts: list[bytes] = []
    begins: list[bool] = []
    row_pieces: list[list[int | None]] = []  # of each row: ids of control tokens, and nothing for the next of `texts`
    for row in rows:
        pieces: list[int | None] = []
        last = 0
        for start, end in (*row.controls, (len(row.text),) * 2):
            if start > last:
                texts.append(row.text[last:start].encode())
                begins.append(last == 0)
                pieces.append(None)
            if end > start:
                pieces.append(vocabulary.control[row.text[start:end]])
            last = end
        row_pieces.append(pieces)
    flat = reference.encode_utf8(texts, np.fromiter(begins, bool))
    del texts
    segments = (flat.ids[start:end] for start, end in pairwise(flat.offsets.tolist()))
    for pieces in row_pieces:
        parts = [next(segments) if piece is None else np.array([piece], np.uint32) for piece in pieces]
        yield np.concatenate([NO_TEXTS.ids, *parts])


def _worst_ids(row: Conversation, expected: npt.NDArray[Any], vocabulary: Vocabulary) -> Worst:
    shorter = min(len(row.ids), len(expected))
    differing = np.flatnonzero(row.ids[:shorter] != expected[:shorter])
    at = int(differing[0]) if len(differing) else shorter
    stored, render = (vocabulary.decode(ids[max(0, at - 5) : at + 5]) for ids in (row.ids, expected))
    lengths = f"{len(row.ids):,} ids, the reference tokenizer gives {len(expected):,}"
    note = f"{lengths}; from token {at:,} on they differ: …{stored!r}…, the render has …{render!r}…"
    return Worst(row.id, note, tuple(row.ids.tolist()), at=min(at, len(row.ids) - 1), derivations=((stored, render),))


# What truncation must leave of a conversation, computed from the reference ids of the whole one.
#
# A row that fits is whole. For one that does not, the mode alone decides, token by token, what is left; so a cut row is proven as exactly as
# a whole one.

Ids = npt.NDArray[np.integer[Any]]


class Truncation(Struct, frozen=True):
    """How conversations are truncated.

    Attributes:
        mode: ``drop``, ``start``, ``end``, ``prompt`` or ``turns``, as the configuration explains them.
        limit: the most tokens; `None` for no limit.
        keeps_stop: whether an answer that ``end`` cuts ends with its stop token.
        keeps: by role, which ``part`` of an untrained text ``prompt`` keeps, and how many tokens at the ``least``.
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
    """What a record must be after truncation.

    Attributes:
        derived: its conversation, without removed rounds.
        expected: what must be trained of it.
        ids: its ids, where truncation had to be computed; `None`: those of the whole render.
        cut: the end where tokens were removed, perhaps inside a text.
        weights: the weight of each token, where the row itself gives it.
        taken: how many tokens were removed.
    """

    derived: Derived
    expected: tuple[Expected, ...]
    ids: Ids | None = None
    cut: Cut = "none"
    weights: npt.NDArray[np.float32] | None = None
    taken: int = 0


def left_of(sample: Sample, length: int, truncation: Truncation, derive: Callable[[Sample], Derived], vocabulary: Vocabulary) -> Left:
    """Return what truncation must leave of a sample.

    Args:
        length: how many tokens its record has.

    Raises:
        CheckFailed: nothing can be left, so the record cannot come from this source.
    """
    derived = derive(sample)
    limit, mode = truncation.limit, truncation.mode
    if limit is None or truncation.leaves_whole(length):
        return Left(derived, derived.expected)
    ids = ids_of(derived, vocabulary)
    if len(ids) <= limit:
        return Left(derived, derived.expected, ids)
    if mode == "turns":
        remainder = _newest_rounds(sample, limit, derive, vocabulary)
    else:
        remainder = _cut(derived, ids, limit, truncation, vocabulary)
    assert remainder.ids is not None
    return replace(remainder, taken=len(ids) - len(remainder.ids))


def _cut(derived: Derived, ids: npt.NDArray[np.int64], limit: int, truncation: Truncation, vocabulary: Vocabulary) -> Left:
    """Return what is left of the ids of one render."""
    spans = _spans(derived, vocabulary)
    if truncation.mode == "prompt":
        return Left(derived, derived.expected, ids[_shortened(spans, limit, derived.shortenable, truncation.keeps)])
    if truncation.mode == "start":
        low = int(spans[-limit - 1, 1])
        first = min(low, int(spans[-limit, 0]))  # the cut may leave a part of a character
        stretches = tuple(_clipped(stretch, low, stretch.end) for stretch in derived.expected if stretch.end > first)
        return Left(derived, stretches, ids[-limit:], "start")
    return _beginning(derived, ids[:limit], spans, truncation, vocabulary)


def ids_of(derived: Derived, vocabulary: Vocabulary) -> npt.NDArray[np.int64]:
    """Return the reference ids of a whole conversation."""
    return next(expected_ids([derived], vocabulary, reference_ids(vocabulary))).astype(np.int64)


def _spans(derived: Derived, vocabulary: Vocabulary) -> Ints:
    """Return characters (start, end) of every token of the whole conversation, int64[n, 2]; a token of a partial character spans all of it."""
    return np.array(list(_token_spans(derived, vocabulary)))


def straddled(derived: Derived, vocabulary: Vocabulary) -> bool:
    """Return whether a token of the reference has characters of several weights, other than white space before a word: it gets the weight of the word, unless
    nothing else of a trained text before it is left."""
    weight = np.zeros(len(derived.text))
    for stretch in derived.expected:
        weight[stretch.start : stretch.end] = stretch.weight
    spans = [(start, end) for start, end in _spans(derived, vocabulary).tolist() if len({*weight[start:end]}) > 1]
    for start, end in spans:
        first = weight[start]
        border = start + int(np.argmax(weight[start:end] != first))
        takes_next = not first or (first > 0 and weight[border] == 0 and start > 0 and weight[start - 1] == first)
        if derived.text[start:border].strip() or len({*weight[border:end]}) > 1 or not takes_next:
            return True
    return False


def _token_spans(derived: Derived, vocabulary: Vocabulary) -> Iterator[Range]:
    last = 0
    for start, end in (*derived.controls, (len(derived.text),) * 2):
        if start > last:
            spans = reference_ids(vocabulary).char_spans(derived.text[last:start], first=last == 0)
            yield from ((last + low, last + high) for low, high in spans)
        if end > start:
            yield start, end
        last = end


def _clipped(expected: Expected, low: int, high: int) -> Expected:
    """Return what is left of a stretch between two characters of the render; its place there stays."""
    start, end = max(low, expected.start), min(high, expected.end)
    text = expected.text[start - expected.start : end - expected.start]
    return replace(expected, text=text, stop=expected.stop if end == expected.end and text.endswith(expected.stop) else "")


def _beginning(derived: Derived, ids: npt.NDArray[np.int64], spans: Ints, truncation: Truncation, vocabulary: Vocabulary) -> Left:
    """Return what is left at the start; where the cut falls inside an answer, its stop token may replace the last token."""
    high, last = int(spans[len(ids), 0]), spans[len(ids) - 1]
    # the last token may be a part of the character at the cut
    touched = [stretch for stretch in derived.expected if stretch.start < max(high, int(last[1]))]
    through = next((stretch for stretch in touched if stretch.weight > 0 and stretch.start <= last[0] < stretch.end), None)
    if through is None or not truncation.keeps_stop or (stop := _last_stop(derived.expected, through, vocabulary)) is None:
        return Left(derived, tuple(_clipped(stretch, stretch.start, max(high, stretch.start)) for stretch in touched), ids, "end")
    stretches = [_clipped(stretch, stretch.start, max(int(last[0]), stretch.start)) for stretch in touched]
    number = touched.index(through)
    stretches[number] = replace(stretches[number], text=stretches[number].text + stop, stop=stop)
    return Left(derived, tuple(stretches[: number + 1]), np.append(ids[:-1], vocabulary.control[stop]), "end")


def _last_stop(expected: Sequence[Expected], through: Expected, vocabulary: Vocabulary) -> str | None:
    """Return the control token at the end of the gapless trained run from `through` on."""
    for stretch in expected[expected.index(through) :]:
        if stretch.start > through.end or stretch.weight < 0:
            break
        through = stretch
    return max(filter(through.text.endswith, vocabulary.control), key=len, default=None)


def _shortened(spans: Ints, limit: int, shortenable: Sequence[Prompt], keeps: Mapping[str, Mapping[str, Any]]) -> npt.NDArray[np.bool_]:
    """Return which tokens are kept when the longest untrained texts are shortened at one end, as far as their roles allow."""
    excess, keep = len(spans) - limit, np.ones(len(spans), bool)
    inside = [(np.flatnonzero((spans[:, 0] >= start) & (spans[:, 1] <= end)), keeps.get(role, {})) for start, end, role in shortenable]
    for tokens, rule in sorted(inside, key=lambda text: -len(text[0])):
        stays = max(min(len(tokens), rule.get("least", 1)), len(tokens) - excess)
        removed = tokens[: len(tokens) - stays] if rule.get("part") == "end" else tokens[stays:]
        keep[removed] = False
        excess -= len(removed)
    if excess:
        raise CheckFailed(f"{len(spans):,} tokens, which no shortening of untrained texts makes {limit:,}")
    return keep


def _newest_rounds(sample: Sample, limit: int, derive: Callable[[Sample], Derived], vocabulary: Vocabulary) -> Left:
    """Return the system turns and as many of the newest rounds as fit."""
    asks = [turn.role == USER for turn in sample.turns]
    begins = [number for number, (before, now) in enumerate(pairwise([False, *asks])) if now and not before]
    head = tuple(turn for turn in sample.turns[: begins[0]] if turn.role == SYSTEM) if begins else ()
    low, high = 1, len(begins) - 1
    longest: Left | None = None
    while low <= high:
        middle = (low + high) // 2
        shorter = derive(changed(sample, turns=(*head, *sample.turns[begins[middle] :])))
        ids = ids_of(shorter, vocabulary)
        if len(ids) <= limit:
            longest, high = Left(shorter, shorter.expected, ids), middle - 1
        else:
            low = middle + 1
    if longest is None:
        raise CheckFailed(f"not even its last round fits in {limit:,} tokens")
    return longest
