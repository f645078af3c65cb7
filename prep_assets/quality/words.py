"""The words of a block of texts, in columns: split once for all steps that look at words, and compared by numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
Ints = npt.NDArray[np.int64]
_BASE, _SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_COUNTERS = 8
"""Counters of n-grams for each word."""


def words_of(text: str) -> list[str]:
    """Words and runs of punctuation."""
    return _WORD.findall(text)


class Words(Struct, frozen=True, eq=False):
    """The words of n texts, one after another.

    Attributes:
        ids: int64[N], index of each word into `known`.
        ends: int64[n], where the words of each text end.
        known: each word once.
    """

    ids: Ints
    ends: Ints
    known: list[str]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Words:
        """Split texts into words."""
        split, number = [words_of(text) for text in texts], defaultdict[str, int]()
        number.default_factory = number.__len__
        ends = np.cumsum([*map(len, split)], dtype=np.int64)
        ids = np.fromiter(map(number.__getitem__, chain.from_iterable(split)), np.int64, int(ends[-1]) if len(ends) else 0)
        return cls(ids, ends, [*number])

    def each(self, value: Callable[[str], int]) -> Ints:
        """A number of each word, worked out once for each that is known: int64[N]."""
        return np.array([value(word) for word in self.known], np.int64)[self.ids]

    def total(self, values: npt.NDArray[Any]) -> Ints:
        """The sum over the words of each text: int64[n]."""
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
        return np.diff(sums[self.ends], prepend=0)

    def _largest(self, values: Ints) -> Ints:
        """The largest of the values of each text's words, 0 for a text without words: int64[n]."""
        largest = np.zeros(len(self.ends), np.int64)
        counts = np.diff(self.ends, prepend=0)
        if len(values):
            largest[counts > 0] = np.maximum.reduceat(values, (self.ends - counts)[counts > 0])
        return largest

    def may_repeat(
        self, characters: Ints, top: Sequence[tuple[int, float]], repeated: Sequence[tuple[int, float]]
    ) -> dict[int, npt.NDArray[np.bool_]]:
        """n → which texts may repeat n-grams of words more than is allowed. All others certainly do not, so few need be counted one by one.

        N-grams are compared by a hash of their characters, and the most frequent ones counted by a part of it, which says too much where it errs.

        Args:
            characters: int64[n], of each text.
            top: n → the largest share of a text's characters that its most frequent n-gram may have.
            repeated: the same of n-grams that stood before, for n above those of `top`, without gaps between them.
        """
        lengths, hashes, powers = self.each(len), *self._hashes()
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        text, allowed = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0)), dict(top)
        seed, bits = text.astype(np.uint64) * _SPREAD, max(1, (_COUNTERS * len(self.ids)).bit_length())
        grams, may = hashes, dict[int, npt.NDArray[np.bool_]]()
        for n in range(2, repeated[0][0] + 1):
            grams = grams[:-1] * powers[n - 1 :] + hashes[n - 1 :]
            inside = text[: len(grams)] == text[n - 1 :]
            bucket = (_mixed(grams ^ seed[: len(grams)]) >> np.uint64(64 - bits)).astype(np.int64)
            count = np.bincount(bucket[inside], minlength=1 << bits)[bucket] * inside
            if n in allowed:
                said = np.zeros(len(self.ids), np.int64)
                said[: len(grams)] = count * (begins[n : n + len(grams)] - begins[: len(grams)] + n - 1)
                may[n] = self._largest(said) > allowed[n] * characters
        at, gram = np.flatnonzero(count > 1), grams[count > 1]
        for n, most in repeated:  # an n-gram can only stand there twice where its beginning does
            key = _mixed(gram ^ seed[at])
            order = np.argsort(key, kind="stable")
            same = np.diff(key[order]) == 0
            again, either = np.append(False, same), np.append(False, same) | np.append(same, False)
            covered = np.zeros(len(self.ids) + 1, np.int64)
            np.add.at(covered, at[order[again[: len(at)]]], 1)
            np.add.at(covered, at[order[again[: len(at)]]] + n, -1)
            may[n] = self.total(lengths * (np.cumsum(covered)[:-1] > 0)) > most * characters
            going_on = np.sort(order[either[: len(at)]])
            going_on = going_on[at[going_on] + n < len(text)]
            going_on = going_on[text[np.minimum(at[going_on] + n, len(text) - 1)] == text[at[going_on]]]
            at, gram = at[going_on], gram[going_on]
            gram = gram * powers[at + n] + hashes[at + n]
        return may

    def passages(self, size: int) -> tuple[Ints, npt.NDArray[np.uint64]]:
        """All runs of `size` words inside a text: where each begins, and a hash of its words. Two different runs have the same one in 2**64 times."""
        run, step, power = _mixed(self._hashes()[0]), 1, int(_BASE)
        whole, length = run[:0], 0
        while step <= size:  # runs of 1, 2, 4 … words; those that add up to `size` are put one after another
            factor = np.uint64(power)
            if size & step:
                whole = whole[: max(0, len(run) - length)] * factor + run[length:] if length else run
                length += step
            run = run[: max(0, len(run) - step)] * factor + run[step:]
            step, power = 2 * step, power * power % (1 << 64)
        text = np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))
        begins = np.flatnonzero(text[: len(whole)] == text[size - 1 :])
        return begins, whole[begins]

    def _hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Of each word a polynomial over its characters, and the power of the base by which what stands before it is multiplied: uint64[N]."""
        sizes = np.array([*map(len, self.known)], np.int64)
        codes = np.frombuffer("".join(self.known).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64) + np.uint64(1)
        powers = np.concatenate([np.ones(1, np.uint64), np.cumprod(np.full(int(sizes.max(initial=0)), _BASE))])
        ends = np.cumsum(sizes)
        place = np.repeat(ends, sizes) - 1 - np.arange(len(codes))
        known = np.add.reduceat(codes * powers[place], ends - sizes) if len(sizes) else np.zeros(0, np.uint64)
        return known[self.ids], powers[sizes][self.ids]


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Values whose high bits depend on all bits of the given ones; different values stay different."""
    values = values * _BASE
    values ^= values >> np.uint64(32)
    return values * _SPREAD
