"""Repeated passages: examples of which a large part stood before, word for word (exact substrings, Lee et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from prep_assets.quality.gopher import Share
from prep_assets.quality.steps import Examples, Judged, Step, quality_step
from prep_assets.samples import document

REASON = "repeated_passage"
_SAID = "The old mill by the river was built of grey stone and its wheel turned for three hundred years without a stop until the flood came and took it. "


class _Seen:
    """A growing set of 64-bit hashes: sorted arrays, each at least twice as long as the next, so that one of n hashes is looked up in log n of them."""

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def has(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of these were added before."""
        found = np.zeros(len(hashes), bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            found |= run[at] == hashes
        return found

    def add(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Add hashes, each once, sorted."""
        while self._runs and len(self._runs[-1]) < 2 * len(hashes):
            hashes = np.union1d(self._runs.pop(), hashes)
        if len(hashes):
            self._runs.append(hashes)


class RepeatedPassages(Step):
    """Notes 8 bytes in memory for each different passage."""

    def __init__(self, words: int, max_share: float) -> None:
        self._words, self._max_share, self._seen = words, max_share, _Seen()

    def judge(self, examples: Examples) -> Judged:
        """Find what stood in an earlier example, or earlier in the same one."""
        words, size = examples.words, self._words
        begins, hashes = words.passages(size)
        different, first = np.unique(hashes, return_index=True)
        again = np.ones(len(hashes), bool)
        again[first] = self._seen.has(different)
        self._seen.add(different)
        covered = np.zeros(len(words.ids) + 1, np.int64)
        np.add.at(covered, begins[again], 1)
        np.add.at(covered, begins[again] + size, -1)
        repeated, counts = words.total(np.cumsum(covered)[:-1] > 0), np.diff(words.ends, prepend=0)
        shares = repeated / np.maximum(counts, 1)
        found = {
            at: (
                REASON,
                f"{repeated[at]:,} of {counts[at]:,} words stand in passages of {size} words or more that stood before, at most "
                f"{self._max_share:.0%} may",
            )
            for at in np.flatnonzero(shares > self._max_share).tolist()
        }
        return Judged(found, {"share": np.round(shares, 4).tolist()})


@quality_step(
    "repeated_passages",
    source="Lee et al., 2022, ExactSubstr: passages of 50 tokens, here of words",
    corrupted=((document(_SAID * 2), document(f"A copy: {_SAID * 2}")), REASON),
)
def repeated_passages(*, words: Annotated[int, Field(ge=5, le=1000)] = 50, max_share: Share = 0.5) -> Step:
    """Examples of which a large part stood before, word for word, in an earlier example of the domain or in themselves.

    Args:
        words: words of a passage; shorter ones do not count.
        max_share: largest share of an example's words that may stand in such passages.
    """
    return RepeatedPassages(words, max_share)
