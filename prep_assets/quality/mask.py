"""Mask alignment: trained tokens decode to exactly the trained texts, each with the token that ends its turn, and to nothing else.

The mask was made from character offsets of a render. This check goes the other way and shares no code with it: it cuts each record at the
borders of its mask, decodes every trained run with the tokenizer's own decoder, and compares with the texts of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from prep_assets.quality.trained_texts import Expected
from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.tokenization.vocabulary import Vocabulary

Cut = Literal["none", "start", "end", "turns"]
"""What truncation may have taken from a row: nothing, tokens at its start or end, or whole turns from the oldest."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record to be proven: its id, token ids and loss mask (both 1-D and equally long), what must be trained, and what may be
    missing of it."""

    id: str
    ids: npt.NDArray[np.integer]
    mask: npt.NDArray[np.generic]
    expected: tuple[Expected, ...]
    cut: Cut = "none"


def prove_masks(rows: Iterable[Row], vocabulary: Vocabulary, *, batch: int = 512) -> Verdict:
    """Check every row; the verdict shows the first that fails."""
    checked = failed = trained = 0
    worst: Worst | None = None
    stops: dict[str, int] = {}
    for part in _batches(rows, batch):
        decoded = iter(_decode_runs(part, vocabulary))
        for row in part:
            runs = _runs(row.mask)
            fault = _compare(row, runs, [next(decoded) for _ in runs], vocabulary, stops)
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
        return Verdict(
            True, f"{trained:,} trained tokens of {checked:,} rows decode to exactly the trained texts and {_ends(stops)}", numbers
        )
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


def _compare(
    row: Row, runs: Sequence[tuple[int, int]], decoded: Sequence[str], vocabulary: Vocabulary, stops: dict[str, int]
) -> str | None:
    if len(row.ids) != len(row.mask):
        return f"{len(row.ids):,} tokens, {len(row.mask):,} mask values"
    wanted = _wanted(row, len(decoded))
    if len(decoded) != len(wanted):
        return f"{len(decoded)} trained stretches, the source has {len(wanted)} trained texts; trained: {[text[:60] for text in decoded]}"
    for i, ((start, end), found, expected) in enumerate(zip(runs, decoded, wanted, strict=True)):
        cut_off = row.cut == "end" and i == len(wanted) - 1 and end == len(row.ids)
        cut_on = row.cut == "start" and i == 0 and start == 0
        text = found
        stop = next((token for token in vocabulary.control if found.endswith(token)), None) if expected.stops else None
        if expected.stops and stop is None and not cut_off:
            return f"the trained text ends {found[-40:]!r}, without the token that ends the turn"
        if stop is not None:
            text = found.removesuffix(stop)
            stops[stop] = stops.get(stop, 0) + 1
        if not _same(text.strip(), expected.text.strip(), cut_off=cut_off and (bool(text) or stop is not None), cut_on=cut_on):
            return f"trained {_difference(text.strip(), expected.text.strip())}"
        if (
            not cut_on
            and text[:1].isspace()
            and not expected.text[:1].isspace()
            and vocabulary.decode(row.ids[start : start + 1]).isspace()
        ):
            return f"the template's white space before {expected.text[:40]!r} is trained"
        if (fault := _weights_fault(row.mask[start:end], expected)) is not None:
            return fault
    return None


def _wanted(row: Row, runs: int) -> tuple[Expected, ...]:
    """The stretches that truncation has left: the first ones of a row whose end was cut, the last ones where the start or old turns went."""
    if row.cut == "none" or runs > len(row.expected):
        return row.expected
    return row.expected[:runs] if row.cut == "end" else row.expected[len(row.expected) - runs :]


def _same(found: str, expected: str, *, cut_off: bool, cut_on: bool) -> bool:
    """Whether two texts are equal; a cut may have left only the beginning or the end of the expected one.

    A cut can go through a character, of which the decoder then shows a replacement character.
    """
    if found == expected:
        return True
    if cut_off:
        return expected.startswith(found.rstrip("\ufffd"))
    return cut_on and expected.endswith(found.lstrip("\ufffd"))


def _weights_fault(weights: npt.NDArray[np.generic], expected: Expected) -> str | None:
    foreign = np.setdiff1d(weights.astype(np.float32), np.asarray(expected.weights, np.float32))
    if not len(foreign):
        return None
    meant = ", ".join(f"{weight:g}" for weight in expected.weights)
    return f"loss weight {foreign[0]:g} on {expected.text[:40]!r}, to which the source gives {meant}"


def _difference(found: str, expected: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected)))
    low = max(0, at - 20)
    return f"…{found[low : at + 40]!r}…, the source says …{expected[low : at + 40]!r}… (character {at})"
