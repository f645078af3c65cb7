"""Mask alignment: trained tokens decode to exactly the trained texts, each with the token that ends its turn, and to nothing else.

The mask was made from character offsets of a render. This check goes the other way and shares no code with it: it cuts each record at the
borders of its mask, decodes every trained run with the tokenizer's own decoder, and compares with the texts of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Expected:
    """A text that must be trained: neighbouring trained regions of one turn, joined.

    Attributes:
        text: what its tokens must decode to, white space at both ends aside, which a template may trim.
        stops: whether a control token that ends the turn must follow and be trained as well.
    """

    text: str
    stops: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One record to be proven: its id, token ids and loss mask (both 1-D and equally long), and what must be trained."""

    id: str
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.generic]
    expected: tuple[Expected, ...]


def prove_masks(rows: Iterable[Row], vocabulary: Vocabulary, *, batch: int = 512) -> Verdict:
    """Check every row; the verdict shows the first that fails."""
    checked = failed = trained = 0
    worst: Worst | None = None
    stops: dict[str, int] = {}
    for part in _batches(rows, batch):
        decoded = iter(_decode_runs(part, vocabulary))
        for row in part:
            runs = _runs(row.mask)
            fault = _compare(row, [next(decoded) for _ in runs], vocabulary, stops)
            checked += 1
            trained += int(sum(end - start for start, end in runs))
            if fault is not None:
                failed += 1
                worst = worst or Worst(row.id, fault, tuple(row.ids.tolist()), tuple(row.mask.astype(float).tolist()))
    if worst is None and len(stops) > 1:
        failed = min(stops.values())
        worst = Worst("all rows", f"turns end with different control tokens: {stops}")
    numbers = {"rows_checked": checked, "rows_failed": failed, "trained_tokens": trained}
    if worst is None:
        return Verdict(True, f"{trained:,} trained tokens of {checked:,} rows decode to exactly the trained texts and {_ends(stops)}", numbers)
    return Verdict(False, f"{failed:,} of {checked:,} rows train the wrong tokens; first {worst.where}: {worst.note}", numbers, worst)


def _ends(stops: dict[str, int]) -> str:
    return f"their stop token {next(iter(stops))!r}" if stops else "no stop token"


def _batches(rows: Iterable[Row], size: int) -> Iterable[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _runs(mask: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Start and end of each run of trained tokens."""
    edges = np.flatnonzero(np.diff((mask != 0).astype(np.int8), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _decode_runs(rows: Sequence[Row], vocabulary: Vocabulary) -> list[str]:
    return vocabulary.decode_batch([row.ids[start:end].tolist() for row in rows for start, end in _runs(row.mask)])


def _compare(row: Row, decoded: list[str], vocabulary: Vocabulary, stops: dict[str, int]) -> str | None:
    if len(row.ids) != len(row.mask):
        return f"{len(row.ids):,} tokens, {len(row.mask):,} mask values"
    if len(decoded) != len(row.expected):
        return f"{len(decoded)} trained stretches, the source has {len(row.expected)} trained texts; trained: {[text[:60] for text in decoded]}"
    for found, expected in zip(decoded, row.expected, strict=True):
        text = found
        if expected.stops:
            stop = next((token for token in vocabulary.control if found.endswith(token)), None)
            if stop is None:
                return f"the trained text ends {found[-40:]!r}, without the token that ends the turn"
            text = found.removesuffix(stop)
            stops[stop] = stops.get(stop, 0) + 1
        if text.strip() != expected.text.strip():
            return f"trained {_difference(text.strip(), expected.text.strip())}"
    return None


def _difference(found: str, expected: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected)))
    low = max(0, at - 20)
    return f"…{found[low : at + 40]!r}…, the source says …{expected[low : at + 40]!r}… (character {at})"
