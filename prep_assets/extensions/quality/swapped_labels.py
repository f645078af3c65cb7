"""Pairs whose labels look swapped: a cheap scorer, which learned from the other pairs, prefers the rejected answer."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Annotated

import numpy as np
import numpy.typing as npt
import xxhash
from pydantic import Field

from prep_assets.array_types import Floats
from prep_assets.extensions.quality.steps import CHOSEN, REJECTED, Examples, Judged, Step, quality_step
from prep_assets.samples import Pair, PlainChat, PlainPair
from prep_assets.stores.arrays import Spool

REASON = "swapped_labels"
COLUMNS = 1 << 16
"""Columns that words and pairs of neighbouring words are hashed into."""
FEWEST = 50
"""Pairs that a scorer can learn from."""
_WORD = re.compile(r"\w+|[^\w\s]")
_MOST_WORDS, _FOLDS, _STEPS = 300, 5, 40


def _features(answer: str) -> list[int]:
    words = _WORD.findall(answer.casefold())[:_MOST_WORDS]
    pairs = (f"{first} {second}" for first, second in pairwise(words))
    return [xxhash.xxh3_64_intdigest(text.encode()) % COLUMNS for text in (*words, *pairs)]


def _learned(columns: npt.NDArray[np.int32], values: Floats, row: npt.NDArray[np.int64], takes_part: npt.NDArray[np.bool_]) -> Floats:
    """The weights of a logistic regression without intercept, all of whose labels are "chosen": accelerated gradient descent.

    Rows have length 1, so the mean loss curves by a quarter at most, and a step of 4 converges.
    """
    weights = ahead = np.zeros(COLUMNS)
    count = max(1, int(takes_part.sum()))
    for step in range(_STEPS):
        margins = np.bincount(row, ahead[columns] * values, len(takes_part))
        doubt = 1 / (1 + np.exp(margins))
        gradient = np.bincount(columns, doubt[row] * values, COLUMNS) / count - ahead / count
        before, weights = weights, ahead + 4 * gradient
        ahead = weights + step / (step + 3) * (weights - before)
    return weights


def swapped_probability(scores: Floats) -> Floats:
    """float64[n], how probable it is that the labels of each pair are swapped.

    Scores of right labels are taken as a normal distribution around a mean, those of swapped ones as its mirror image around minus that mean; mean, deviation
    and the share of swapped pairs are those that make the scores most probable (expectation maximization).
    """
    share, mean, variance = 0.05, max(1e-9, float(np.mean(scores))), max(1e-12, float(np.var(scores)))
    swapped = np.zeros(len(scores))
    for _ in range(200):
        odds = np.log((1 - share) / share) + 2 * mean * scores / variance
        swapped = 1 / (1 + np.exp(np.clip(odds, -500, 500)))
        turned = scores * (1 - 2 * swapped)
        share = float(np.clip(np.mean(swapped), 1e-6, 0.5))
        mean = max(1e-9, float(np.mean(turned)))
        variance = max(1e-12, float(np.mean((1 - swapped) * (scores - mean) ** 2 + swapped * (scores + mean) ** 2)))
    return swapped


class SwappedLabels(Step):
    """Notes what the chosen answer of each pair has more of than the rejected one, as rows of a sparse matrix of unit length; scores all pairs at the end."""

    def __init__(self, at_least: float) -> None:
        self._at_least = at_least
        self.noted = self._columns, self._values, self._sizes = Spool(np.int32), Spool(np.float32), Spool(np.int64)

    def judge(self, examples: Examples) -> Judged:
        """Note the pairs."""
        for parts in examples.parts:
            chosen, rejected = ("".join(text for role, text in parts if role == side) for side in (CHOSEN, REJECTED))
            more = Counter(_features(chosen))
            more.subtract(_features(rejected))
            differing = [(column, count) for column, count in more.items() if count]
            counts = np.array([count for _, count in differing], np.float32)
            values = np.sign(counts) * np.log1p(np.abs(counts))
            self._columns.append(np.array([column for column, _ in differing], np.int32))
            self._values.append(values / max(1e-6, float(np.sqrt(values @ values))))
            self._sizes.append(np.array([len(differing)], np.int64))
        return Judged()

    def _scores(self, kept: npt.NDArray[np.bool_]) -> Floats:
        """float64[n], how much the chosen answer of each pair is preferred by logistic regressions that learned from the kept pairs of the other folds."""
        columns, values, sizes = self._columns.array(), self._values.array(), np.asarray(self._sizes.array())
        row, scores = np.repeat(np.arange(len(sizes)), sizes), np.zeros(len(sizes))
        fold = np.arange(len(sizes)) % _FOLDS
        for number in range(_FOLDS):
            learned_from = kept & (fold != number)
            mine, judged = learned_from[row], fold[row] == number
            weights = _learned(np.asarray(columns[mine]), np.asarray(values[mine], np.float64), row[mine], learned_from)
            scores += np.bincount(row[judged], weights[columns[judged]] * values[judged], len(sizes))
        return scores

    def finish(self, kept: npt.NDArray[np.bool_]) -> Judged:
        """Find the kept pairs whose labels are probably swapped."""
        probability = np.zeros(len(kept))
        if kept.sum() >= FEWEST:
            probability[kept] = swapped_probability(self._scores(kept)[kept])
        found = {
            number: (REASON, f"the rejected answer is preferred: swapped with a probability of {probability[number]:.3f}")
            for number in np.flatnonzero(probability >= self._at_least).tolist()
        }
        return Judged(found, {"probability": [round(value, 3) for value in probability.tolist()]})


_ASKED = [PlainChat(("user",), (f"What is {n}?",)) for n in range(60)]
_GOOD = [PlainPair(asked, f"It is the number {n}, clearly.", f"No idea about {n}!").pair() for n, asked in enumerate(_ASKED)]


@quality_step(
    "swapped_labels",
    source="our own: a logistic regression on words, cross-fitted, after confident learning (Northcutt et al., 2021)",
    corrupted=([*_GOOD, Pair(_GOOD[0].prompt, _GOOD[0].rejected, _GOOD[0].chosen)], REASON),
    takes=(Pair,),
)
def swapped_labels(*, at_least: Annotated[float, Field(ge=0.5, lt=1)] = 0.99) -> Step:
    """Pairs whose labels look swapped: by what all other pairs teach, the rejected answer is the better one.

    Args:
        at_least: how probable it must be.
    """
    return SwappedLabels(at_least)
