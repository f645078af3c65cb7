"""Mask alignment: trained tokens decode to exactly the trained texts, each with the tokens that end its turn, and to nothing else; tokens that are not
attended decode to exactly the texts of regions without attention.

The mask was made from character offsets of a render with marks. This check goes the other way and shares no code with it: it cuts each record where
the weight of its mask changes, decodes every trained run with the tokenizer's own decoder, and compares with the texts of the source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.token_bytes import ByteTable
from prep_assets.proofs.trained_texts import Expected
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.proofs.wrong_token import BROKEN, first_wrong
from prep_assets.samples import UNATTENDED
from prep_assets.tokenization.vocabulary import Vocabulary

Cut = Literal["none", "start", "end"]
"""Where truncation took tokens away, perhaps amid a text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record to be proven: its id, token ids and weights (both 1-D and equally long; below 0 where a token is not attended, see
    `TokenStore.weights`), what must be trained or not attended of what truncation has left, where it was cut, the weight of each token where the row
    itself says it, and whether a template's tags say the same (`Derived.tagged`)."""

    id: str
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[Any]
    expected: tuple[Expected, ...]
    cut: Cut = "none"
    weights: npt.NDArray[np.float32] | None = None
    tagged: bool = False


LONG = 1 << 20
"""Tokens of a row that is checked by itself, so that they are not copied beside others."""


def prove_masks(rows: Iterable[Row], vocabulary: Vocabulary, *, batch: int = 512) -> Verdict:
    """Check every row; the verdict shows the first that fails."""
    proof = MaskProof(vocabulary)
    for part in _batches(rows, batch):
        proof.add(part)
    return proof.verdict()


@dataclass
class MaskProof:
    """The check, for rows that come in batches.

    Attributes:
        checked, failed, trained, tagged: rows and tokens so far, and rows of which a template's tags say the same.
        unattended: tokens that are not attended so far.
        stops: the tokens that end turns so far.
        worst: the first row that fails.
    """

    vocabulary: Vocabulary
    checked: int = 0
    failed: int = 0
    trained: int = 0
    tagged: int = 0
    unattended: int = 0
    stops: set[str] = field(default_factory=set)
    worst: Worst | None = None

    @cached_property
    def table(self) -> ByteTable:
        """The bytes of each id."""
        return ByteTable(self.vocabulary)

    def proven(self, rows: int, trained: int, stops: Iterable[str], tagged: int = 0, unattended: int = 0) -> None:
        """Count rows that somebody else has proven."""
        self.checked += rows
        self.unattended += unattended
        self.tagged += tagged
        self.trained += trained
        self.stops.update(stops)

    def add(self, part: Sequence[Row]) -> None:
        """Check some rows."""
        runs_of = [trained_runs(row, self.vocabulary) for row in part]
        exact = _exact(part, runs_of, self.table)
        decoded = iter(_decode_runs([each for each in zip(part, runs_of, exact, strict=True) if not each[2]], self.vocabulary))
        for row, runs, is_exact in zip(part, runs_of, exact, strict=True):
            trained = sum(end - start for start, end in runs if row.mask[start] > 0)
            self.proven(1, trained, (), row.tagged, sum(end - start for start, end in runs) - trained)
            if is_exact:
                self.stops.update(expected.stop for expected in row.expected if expected.stop)
                continue
            texts = [next(decoded) for _ in runs]
            fault = _compare(row, runs, texts, self.vocabulary, self.stops)
            if fault is not None:
                self.failed += 1
                self.worst = self.worst or _worst(row, fault, runs, texts, self.vocabulary)

    def verdict(self) -> Verdict:
        """What came of all rows."""
        numbers = {"rows_checked": self.checked, "rows_failed": self.failed, "trained_tokens": self.trained}
        if self.tagged:
            numbers["rows_by_tags_too"] = self.tagged
        if self.unattended:
            numbers["unattended_tokens"] = self.unattended
        if self.worst is None:
            by_tags = f"; tags in the template say the same of {self.tagged:,} rows" if self.tagged else ""
            said = f"{self.trained:,} trained tokens of {self.checked:,} rows decode to exactly the trained texts and {_ends(self.stops)}{by_tags}"
            said += f"; {self.unattended:,} tokens without attention decode to exactly the texts without it" if self.unattended else ""
            return Verdict(True, said, numbers)
        said = f"{self.failed:,} of {self.checked:,} rows train the wrong tokens; first {self.worst.where}: {self.worst.note}"
        return Verdict(False, said, numbers, self.worst)


def _worst(row: Row, fault: str, runs: Sequence[tuple[int, int]], decoded: Sequence[str], vocabulary: Vocabulary) -> Worst:
    expected = [each.text for each in row.expected]
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


def _batches(rows: Iterable[Row], size: int) -> Iterable[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        if batch and len(row.ids) > LONG:
            yield batch
            batch = []
        batch.append(row)
        if len(batch) == size or len(row.ids) > LONG:
            yield batch
            batch = []
    if batch:
        yield batch


def _runs(mask: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Start and end of each run of tokens of one weight other than 0."""
    edges = np.flatnonzero(mask[1:] != mask[:-1]) + 1
    bounds = [0, *edges.tolist(), len(mask)] if len(mask) else []
    return [(start, end) for start, end in pairwise(bounds) if mask[start]]


Runs = list[tuple[int, int]]


def trained_runs(row: Row, vocabulary: Vocabulary) -> Runs:
    """Start and end of each run of trained tokens of one weight. Where one token holds the white space between two trained texts and begins the
    second, they stand in one run, which is cut where the first ends."""
    runs, cut = _runs(row.mask), list[tuple[int, int]]()
    missing = len(row.expected) - len(runs)
    for start, end in runs:
        while missing > 0 and (between := start + _length(row.expected[len(cut)].text, row.ids[start:end], vocabulary)) < end:
            cut.append((start, between))
            start, missing = between, missing - 1
        cut.append((start, end))
    return cut


def _length(text: str, ids: npt.NDArray[np.integer], vocabulary: Vocabulary) -> int:
    """How many of `ids` stand for a text and for white space before it; all, where they do not begin with it."""

    def solid(count: int) -> str:
        return _solid(vocabulary.decode(ids[:count]).rstrip(BROKEN), vocabulary)

    wanted = _solid(text, vocabulary)
    count = bisect_left(range(len(ids)), len(wanted), key=lambda count: len(solid(count)))
    if solid(count) != wanted:
        return len(ids)
    own = len(text) - len(text.rstrip())
    while own > 0 and (blank := vocabulary.decode(ids[count : count + 1])).isspace():
        count, own = count + 1, own - len(blank)
    return count


def _decode_runs(rows: Sequence[tuple[Row, Runs, bool]], vocabulary: Vocabulary) -> list[str]:
    return vocabulary.decode_batch([row.ids[start:end].tolist() for row, runs, _ in rows for start, end in runs])


def _exact(rows: Sequence[Row], runs_of: Sequence[Runs], table: ByteTable) -> list[bool]:
    """Of which rows every trained run stands for the very bytes of its expected text, with its weight: what `_compare` finds no fault with."""
    ends = np.cumsum([0, *(len(row.ids) for row in rows)])
    looked_at = table.take(int(ends[-1]), lambda: np.concatenate([row.ids for row in rows]) if len(rows) > 1 else rows[0].ids)
    if looked_at is None:
        return [False] * len(rows)
    data, bounds = looked_at
    return [_is_exact(row, runs, data, bounds[first:]) for row, runs, first in zip(rows, runs_of, ends[:-1], strict=True)]


def _is_exact(row: Row, runs: Runs, data: memoryview, bounds: npt.NDArray[Any]) -> bool:
    if row.cut != "none" or row.weights is not None or len(runs) != len(row.expected) or len(row.mask) != len(row.ids):
        return False
    for (start, end), expected in zip(runs, row.expected, strict=True):
        if np.float32(row.mask[start]) != np.float32(expected.weight) or not expected.text.rstrip().endswith(expected.stop):
            return False
        if data[bounds[start] : bounds[end]] != expected.text.encode():
            return False
    return True


def _compare(row: Row, runs: Sequence[tuple[int, int]], decoded: Sequence[str], vocabulary: Vocabulary, stops: set[str]) -> str | None:
    if len(row.ids) != len(row.mask):
        return f"{len(row.ids):,} tokens, {len(row.mask):,} mask values"
    if row.weights is not None and (fault := _weight_fault(row.mask, row.weights)):
        return fault
    if len(decoded) != len(row.expected):
        shown, hidden = [text[:60] for text in decoded], (row.mask < 0).any() or any(each.weight < 0 for each in row.expected)
        word = "trained or unattended" if hidden else "trained"
        return f"{len(decoded)} {word} stretches, the source has {len(row.expected)} {word} texts; {word}: {shown}"
    for i, ((start, end), found, expected) in enumerate(zip(runs, decoded, row.expected, strict=True)):
        wanted = expected.text
        if row.cut == "end" and i == len(runs) - 1 and end == len(row.ids):
            # the cut may go through a character, and a stop token may have taken the place of the rest
            found, wanted = (
                text.removesuffix(expected.stop).rstrip(BROKEN) + expected.stop * text.endswith(expected.stop) for text in (found, wanted)
            )
        if row.cut == "start" and i == 0 and start == 0:
            found, wanted = found.lstrip(BROKEN), wanted.lstrip(BROKEN)
        weight = float(row.mask[start])
        word = "unattended" if weight < 0 else "trained"
        if np.float32(weight) != np.float32(expected.weight):
            given = "no attention" if expected.weight < 0 else f"{expected.weight:g}"
            return f"{_said(weight)} on {expected.text[:40]!r}, to which the source gives {given}"
        if expected.stop and not found.rstrip().endswith(expected.stop):
            return f"the trained text ends {found[-40:]!r}, without {expected.stop!r}, which ends the turn"
        if found.strip() != wanted.strip() and (
            (vocabulary.token_bytes is not None and not _puts_spaces(vocabulary)) or _solid(found, vocabulary) != _solid(wanted, vocabulary)
        ):
            return f"{word} {_difference(found.strip(), wanted.strip())}"
        if expected.stop:
            stops.add(expected.stop)
        before = len(found) - len(found.lstrip()) - (len(expected.text) - len(expected.text.lstrip())) - _own_space(row, start, vocabulary)
        if (i or row.cut != "start") and _is_blank(row.ids[start : start + 1], before, vocabulary):
            return f"the template's white space before {expected.text[:40]!r} is {word}"
        after = len(found) - len(found.rstrip()) - (len(expected.text) - len(expected.text.rstrip()))
        if _is_blank(row.ids[end - 1 : end], after, vocabulary):
            return f"the template's white space after {expected.text[-40:]!r} is {word}"
    return None


def _said(weight: float) -> str:
    if weight >= 0:
        return f"loss weight {weight:g}"
    return "no attention" if weight == UNATTENDED else f"loss weight {UNATTENDED - weight:g} and no attention"


def _puts_spaces(vocabulary: Vocabulary) -> bool:
    """Whether a tokenizer puts a space of its own after each control token."""
    return vocabulary.prefix_space == "always" or vocabulary.normalized("x") != "x"


def _own_space(row: Row, start: int, vocabulary: Vocabulary) -> int:
    """1 where the token at `start` may begin with a space of the tokenizer's own, else 0."""
    if start == 0:
        return int(vocabulary.prefix_space != "never" or _puts_spaces(vocabulary))
    return int(_puts_spaces(vocabulary) and row.ids[start - 1] in vocabulary.control.values())


def _is_blank(token: npt.NDArray[np.integer], most: int, vocabulary: Vocabulary) -> bool:
    """Whether a token is nothing but so much white space."""
    return most > 0 and (text := vocabulary.decode(token)).isspace() and len(text) <= most


def _solid(text: str, vocabulary: Vocabulary) -> str:
    """A text as a tokenizer reads it that changes texts before it tokenizes them, and decodes what it made of them; white space aside."""
    return "".join(vocabulary.normalized(text).replace("▁", " ").split())


def _weight_fault(mask: npt.NDArray[np.generic], weights: npt.NDArray[np.float32]) -> str | None:
    if len(mask) != len(weights):
        return f"{len(mask):,} mask values, the row brings {len(weights):,}"
    wrong = np.flatnonzero(mask.astype(np.float32) != weights)
    return f"token {wrong[0]:,} weighs {float(mask[wrong[0]]):g}, the row says {weights[wrong[0]]:g}" if len(wrong) else None


def _difference(found: str, expected: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected)))
    low = max(0, at - 20)
    return f"…{found[low : at + 40]!r}…, the source says …{expected[low : at + 40]!r}… (character {at})"
