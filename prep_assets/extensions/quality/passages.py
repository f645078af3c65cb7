"""Repeated passages: examples of which a large part stood before, word for word (exact substrings, Lee et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from prep_assets.extensions.quality.characters import ALONE
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.extensions.quality.gopher import Share
from prep_assets.extensions.quality.steps import Examples, Judged, Step, quality_step
from prep_assets.extensions.quality.words import Words, characters_of, words_of
from prep_assets.samples import document
from prep_assets.stores.arrays import Spool, compress, fill_column, sorted_groups, stretches, take, zeros

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
        characters = characters_of(examples)
        words = Words.of(characters, ALONE) if (characters.kinds & ALONE).any() else words_of(examples)
        self._passages.append(words.n_grams(self._words)[0])
        self._counts.append(words.parts.counts)
        return Judged()

    def finish(self, kept: npt.NDArray[np.bool_]) -> Judged:
        """Find what stood in an earlier example that is kept, or earlier in the same one."""
        passages, counts, size = self._passages.array(), np.asarray(self._counts.array()), self._words
        ends = np.cumsum(np.maximum(counts - size + 1, 0))
        again = zeros(len(passages), np.bool_)
        probable = compress(_may_be_again(passages))
        are_kept = fill_column(len(probable), lambda part: kept[np.searchsorted(ends, probable[part], "right")], np.bool_)
        probable = compress(are_kept, probable)
        for group in sorted_groups(take(passages, probable)):
            places = probable[group]
            same = passages[places[1:]] == passages[places[:-1]]
            again[places[1:][same]] = True
        repeated = _covered(again, counts, size)
        shares = repeated / np.maximum(counts, 1)
        detail = f"words stand in passages of {size} words or more that stood before, at most {self._max_share:.0%} may"
        wrong = np.flatnonzero(shares > self._max_share).tolist()
        found = {at: (REASON, f"{repeated[at]:,} of {counts[at]:,} {detail}") for at in wrong}
        return Judged(found, {"share": np.round(shares, 4).tolist()})


def _may_be_again(passages: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which passages there may be more than once: those that share a place in a table with another one."""
    bits = min(_MOST_BITS, (8 * len(passages)).bit_length())
    seen, several = np.zeros((2, 1 << bits), np.bool_)
    for part in stretches(len(passages)):
        _count(passages[part], np.uint64(64 - bits), seen, several)
    return fill_column(len(passages), lambda part: several[(passages[part] >> np.uint64(64 - bits)).astype(np.int64)], np.bool_)


@compiled
def _count(passages: npt.NDArray[np.uint64], shift: np.uint64, seen: npt.NDArray[np.bool_], several: npt.NDArray[np.bool_]) -> None:
    """Mark the places of passages in a table, and those of several."""
    for passage in passages:
        place = passage >> shift
        several[place] |= seen[place]
        seen[place] = True


@compiled
def _covered(again: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """How many words of each text stand in passages that stood before.

    Args:
        again: of each passage, whether it stood before.
        counts: words of each text.
    """
    covered, begin = np.zeros(len(counts), np.int64), 0
    for text in range(len(counts)):
        until = 0
        for word in range(counts[text] - size + 1):
            if again[begin + word]:
                covered[text] += word + size - max(word, until)
                until = word + size
        begin += max(counts[text] - size + 1, 0)
    return covered


@quality_step(
    "repeated_passages",
    source="Lee et al., 2022, ExactSubstr: passages of 50 tokens, here of words",
    corrupted=((document(_SAID * 2), document(f"A copy: {_SAID * 2}")), REASON),
    version=2,
)
def repeated_passages(*, words: Annotated[int, Field(ge=5, le=1000)] = 50, max_share: Share = 0.5) -> Step:
    """Examples of which a large part stood before, word for word, in an earlier example of the domain or in themselves.

    Args:
        words: words of a passage; shorter ones do not count.
        max_share: largest share of an example's words that may stand in such passages.
    """
    return RepeatedPassages(words, max_share)
