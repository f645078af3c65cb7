"""The words of a block of texts, in columns: split once for all steps that look at words, and compared by numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.quality.characters import SPACE, WORD, Bools, Characters, Ints, Parts

Hashes = npt.NDArray[np.uint64]
_BASE, _SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_BITS = 14
"""So many numbers are summed up at a time, as a power of two."""
_SHORT = 12
"""Characters of n-grams that are compared with all others."""
_COUNTERS = 4
"""Counters for each thing that is counted by its hash."""


class Sums(Struct, frozen=True, eq=False):
    """Hashes of all stretches of a sequence of numbers: polynomials, by the difference of two sums.

    Attributes:
        sums: uint64[C + 1], of the numbers before each place, each times a power of the base by its place.
    """

    sums: Hashes

    @classmethod
    def of(cls, numbers: npt.NDArray[Any]) -> Sums:
        """Sum up unsigned numbers."""
        sums, scale, powers = np.zeros(len(numbers) + 1, np.uint64), np.ones(1, np.uint64), _powers(int(_BASE), 1 << _BITS)
        for first in range(0, len(numbers), 1 << _BITS):
            terms = numbers[first : first + (1 << _BITS)] + np.uint64(1)
            terms *= powers[: len(terms)]
            terms *= scale
            np.cumsum(terms, out=terms)
            np.add(terms, sums[first], out=sums[first + 1 : first + 1 + len(terms)])
            scale = scale * powers[-1:] * _BASE
        return cls(sums)

    def hashes(self, begins: Ints, ends: Ints) -> Hashes:
        """Of the numbers from each beginning to its end: uint64[N]. Their low bits depend on few of them."""
        inverse = pow(int(_BASE), -1, 1 << 64)
        factors: Hashes = _powers(inverse, 1 << _BITS)[ends & ((1 << _BITS) - 1)]
        factors *= _powers(pow(inverse, 1 << _BITS, 1 << 64), 1 + (len(self.sums) >> _BITS))[ends >> _BITS]
        factors *= self.sums[ends] - self.sums[begins]
        return factors


@lru_cache(16)
def _powers(base: int, count: int) -> Hashes:
    return np.cumprod(np.append(np.ones(1, np.uint64), np.full(count - 1, base, np.uint64)), dtype=np.uint64)


def mixed(values: Hashes) -> Hashes:
    """Values whose high bits depend on all bits of the given ones; different values stay different."""
    values = values * _BASE
    values ^= values >> np.uint64(32)
    values *= _SPREAD
    return values


def _may_be_again(keys: Hashes) -> Bools:
    """Which of these mixed keys there may be more than once; all others are there once."""
    counters = (keys >> np.uint64(64 - max(1, (_COUNTERS * len(keys)).bit_length()))).astype(np.int64)
    return np.bincount(counters)[counters] > 1


def _groups(at: Ints, keys: Hashes) -> tuple[Ints, Bools]:
    """The places of what is there more than once, equal ones beside each other and ascending; and which are the first of theirs.

    Args:
        at: int64[k], ascending.
        keys: uint64[k], a mixed hash of what stands at each place.
    """
    probable = _may_be_again(keys)
    at, keys = at[probable], keys[probable]
    order = np.argsort(keys, kind="stable")
    at, keys = at[order], keys[order]
    first = np.append(True, keys[1:] != keys[:-1])[: len(at)]
    alone = first & np.append(first[1:], True)[: len(at)]
    return at[~alone], first[~alone]


class Words(Struct, frozen=True, eq=False, dict=True):
    """The words of n texts.

    Attributes:
        parts: where they stand.
        letters: their characters, word after word.
    """

    parts: Parts
    letters: Sums

    @classmethod
    def of(cls, characters: Characters) -> Words:
        """Words and runs of punctuation."""
        return cls(characters.words, Sums.of(characters.codes[characters.kinds & SPACE == 0]))

    @classmethod
    def alphanumeric(cls, characters: Characters) -> Words:
        """Words of letters, digits and underscores."""
        return cls(characters.alphanumeric, Sums.of(characters.codes[characters.kinds & WORD > 0]))

    @cached_property
    def _places(self) -> Ints:
        """Where each word begins in `letters`, and where the last one ends: int64[N + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.parts.lengths)])

    @cached_property
    def hashes(self) -> Hashes:
        """A mixed hash of each word: uint64[N]."""
        return mixed(self.letters.hashes(self._places[:-1], self._places[1:]))

    @cached_property
    def _sequence(self) -> Sums:
        return Sums.of(self.hashes)

    @cached_property
    def _seeds(self) -> Hashes:
        """A number of the text of each word, by which equal things of two texts differ: uint64[N]."""
        return self.parts.texts.astype(np.uint64) * _SPREAD

    def runs(self, begins: Ints, ends: Ints) -> Hashes:
        """A mixed hash of the words from each beginning to its end: uint64[k]. Two different runs have the same one in 2**64 times."""
        return mixed(self._sequence.hashes(begins, ends))

    def n_grams(self, n: int) -> Ints:
        """Where each run of n words inside a text begins: int64[k]."""
        texts = self.parts.texts
        return np.flatnonzero(texts[: max(0, len(texts) - n + 1)] == texts[n - 1 :])

    def different(self, words: Sequence[str]) -> Ints:
        """How many different ones of some words each text has: int64[n]."""
        known = np.sort(Words.of(Characters.of(words)).hashes)
        at = np.flatnonzero(np.isin(self.hashes, known))
        which = self.parts.texts[at] * len(known) + np.searchsorted(known, self.hashes[at])
        counts = np.bincount(which, minlength=len(self.parts.until) * len(known)).reshape(-1, len(known))
        return np.asarray(np.count_nonzero(counts, axis=1), np.int64)

    def most_frequent(self, sizes: Sequence[int]) -> Iterator[Ints]:
        """For n = 2, 3 …: the characters that the most frequent n-gram of each text has there in all, its words joined by spaces; of equally frequent
        ones the first: int64[n]."""
        parts, texts, places = self.parts, self.parts.texts, self._places
        at = np.flatnonzero(_may_be_again(self.hashes ^ self._seeds))
        for n in sizes:
            at = at[:-1][(np.diff(at) == 1) & (texts[at[:-1]] == texts[at[1:]])]  # both (n - 1)-grams in it are there again
            at, first = _groups(at, self.runs(at, at + n) ^ self._seeds[at])
            counts = np.diff(np.flatnonzero(first), append=len(at))
            ranks = (counts << 32 | ~at[first] & 0xFFFFFFFF)[np.argsort(at[first])]  # the largest are the most frequent, then the first
            in_text = texts[~ranks & 0xFFFFFFFF]
            best = np.flatnonzero(np.diff(in_text, prepend=-1))
            ranks, found = np.maximum.reduceat(ranks, best) if len(best) else ranks, in_text[best]
            begins, times = parts.until - parts.counts, (parts.counts >= n).astype(np.int64)
            begins[found], times[found] = ~ranks & 0xFFFFFFFF, ranks >> 32
            yield times * (places[np.minimum(begins + n, len(texts))] - places[begins] + n - 1)
            at = np.sort(at)

    def repeated(self, characters: Ints, sizes: Sequence[tuple[int, float]]) -> Iterator[Ints]:
        """For each n: the characters of each text in n-grams that stood before, which are compared by their characters alone and do not overlap:
        int64[n].

        Args:
            characters: int64[n], of each text.
            sizes: each n, the smallest first, with a share of the characters. Where no more of them can stand in such n-grams, so many that can are given.
        """
        texts, places = self.parts.texts, self._places
        n_grams = self.n_grams(sizes[0][0])
        # a long n-gram can only be there again where its first characters are, wherever words end; short ones are few
        begun = mixed(self.letters.hashes(places[n_grams], np.minimum(places[n_grams] + _SHORT, places[-1])) ^ self._seeds[n_grams])
        again = _may_be_again(begun)
        again[again] = _may_be_again(mixed(begun[again]))
        probable = again | (places[n_grams + sizes[0][0]] - places[n_grams] < _SHORT)
        n_grams, again = n_grams[probable], again[probable]
        for n, share in sizes:
            inside = n_grams + n <= self.parts.until[texts[n_grams]]
            n_grams, again = n_grams[inside], again[inside]
            at = n_grams[again | (places[n_grams + n] - places[n_grams] < _SHORT)]
            at, first = _groups(at, mixed(self.letters.hashes(places[at], places[at + n]) ^ self._seeds[at]))
            order = np.argsort(at)
            at, first, group = at[order], first[order], np.cumsum(first)[order]
            later = at[~first]
            begins = np.maximum(later, np.append(0, later[:-1] + n)[: len(later)])
            said = np.bincount(texts[later], places[later + n] - places[begins], len(characters)).astype(np.int64)
            unsure = said > share * characters
            chosen, seen, free = list[int](), set[int](), 0
            asked = unsure[texts[at]]
            for place, number in zip(at[asked].tolist(), group[asked].tolist(), strict=True):
                if place >= free and number in seen:
                    chosen.append(place)
                    free = place + n
                elif place >= free:
                    seen.add(number)
            exact = np.array(chosen, np.int64)
            said[unsure] = np.bincount(texts[exact], places[exact + n] - places[exact], len(characters))[unsure]
            yield said
