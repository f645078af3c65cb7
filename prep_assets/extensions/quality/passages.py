"""Repeated passages: examples of which a large part stood before, word for word (exact substrings, Lee et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from prep_assets.extensions.quality.gopher import Share
from prep_assets.extensions.quality.steps import Examples, Judged, Step, quality_step
from prep_assets.extensions.quality.words import words_of
from prep_assets.samples import document
from prep_assets.stores.arrays import Spool, batches, compress, fill_column, sorted_groups, stretches, take, zeros

REASON = "repeated_passage"
_MOST_BITS = 26
"""Of the places of a table: 2 × 64 MiB."""
_SAID = "The old mill by the river was built of grey stone and its wheel turned for three hundred years without a stop until the flood came and took it. "


class RepeatedPassages(Step):
    """Notes 8 bytes for each passage of an example, on disk; sorts them at the end."""

    def __init__(self, words: int, max_share: float) -> None:
        self._words, self._max_share = words, max_share
        self.noted = self._passages, self._counts = Spool(np.uint64), Spool(np.int64)

    def judge(self, examples: Examples) -> Judged:
        """Note the examples."""
        self._passages.append(words_of(examples).n_grams(self._words)[0])
        self._counts.append(words_of(examples).parts.counts)
        return Judged()

    def finish(self, kept: npt.NDArray[np.bool_]) -> Judged:
        """Find what stood in an earlier example that is kept, or earlier in the same one."""
        passages, counts, size = self._passages.array(), np.asarray(self._counts.array()), self._words
        ends = np.cumsum(np.maximum(counts - size + 1, 0))
        again = zeros(len(passages), np.bool_)
        probable = compress(_may_be_again(passages))
        for group in sorted_groups(take(passages, probable)):
            places = probable[group]
            places = places[kept[np.searchsorted(ends, places, "right")]]
            same = passages[places[1:]] == passages[places[:-1]]
            again[places[1:][same]] = True
        repeated = np.zeros(len(counts), np.int64)
        for texts in batches(ends, 1 << 20):
            begin = int(ends[texts.start - 1]) if texts.start else 0
            repeated[texts] = _covered(again[begin : int(ends[texts.stop - 1])], counts[texts], size)
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


def _may_be_again(passages: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which passages there may be more than once: those that share a place in a table with another one."""
    bits = min(_MOST_BITS, (8 * len(passages)).bit_length())
    seen, several = np.zeros((2, 1 << bits), np.bool_)

    def place(part: slice) -> npt.NDArray[np.int64]:
        return (passages[part] >> np.uint64(64 - bits)).astype(np.int64)

    for part in stretches(len(passages)):
        places = np.sort(place(part))
        several[places[seen[places]]] = True
        several[places[1:][places[1:] == places[:-1]]] = True
        seen[places] = True
    return fill_column(len(passages), lambda part: several[place(part)], np.bool_)


def _covered(again: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """How many words of each text stand in passages that stood before.

    Args:
        again: of each passage of these texts, whether it stood before.
        counts: words of each text.
    """
    per_text = np.maximum(counts - size + 1, 0)
    shift = np.repeat(np.cumsum(counts) - counts - (np.cumsum(per_text) - per_text), per_text)  # from a passage to its first word
    begins = np.flatnonzero(again)
    begins = begins + shift[begins]
    changes = np.bincount(begins, minlength=int(counts.sum()) + 1) - np.bincount(begins + size, minlength=int(counts.sum()) + 1)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.cumsum(changes)[:-1] > 0)])
    return np.diff(sums[np.cumsum(counts)], prepend=0)


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
