"""The words of a block of texts, in columns: split once for all steps that look at words, and compared by numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Bools, Floats, Hashes, Ints
from prep_assets.extensions.quality.characters import ALONE, BASE, SPACE, SPREAD, WORD, Characters, Parts
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.extensions.quality.steps import Examples, Finding, Judged, Step, by_block

T = TypeVar("T")
_MIX = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: Hashes) -> Hashes:
    """Values whose high bits depend on all bits of the given ones; different values stay different."""
    values = values * _MIX
    values ^= values >> np.uint64(32)
    values *= SPREAD
    return values


class Words(Struct, frozen=True, eq=False, dict=True):
    """The words of n texts.

    Attributes:
        parts: where they stand.
        letters, powers: the hash of the characters of each, and what that of the characters before is multiplied by to have them in front: uint64[N].
        kinds: all bits of the kinds of the characters of each: uint16[N].
    """

    parts: Parts
    letters: Hashes
    powers: Hashes
    kinds: npt.NDArray[np.uint16]

    @classmethod
    def of(cls, characters: Characters, alone: int = 0) -> Words:
        r"""Words, with apostrophes inside, and runs of punctuation: `\w+(?:['’]\w+)*|[^\w\s]+`; with `ALONE`, each character of scripts without spaces."""
        return cls(*characters.cut(WORD | SPACE | alone, SPACE, True))

    @classmethod
    def alphanumeric(cls, characters: Characters) -> Words:
        r"""Runs of letters, digits and underscores, `\w+`, and each character of scripts without spaces."""
        return cls(*characters.cut(WORD | ALONE, 0))

    @cached_property
    def hashes(self) -> Hashes:
        """A mixed hash of each word: uint64[N]."""
        return mixed(self.letters)

    def n_grams(self, n: int, short: bool = False) -> tuple[Hashes, Ints]:
        """Runs of n words inside each text.

        Args:
            short: whether a text of fewer words, but for none, is one run.

        Returns:
            A mixed hash of each, uint64[k]: two different runs have the same one in 2**64 times; and how many the texts up to each one have: int64[n].
        """
        values, until = _n_grams(self.hashes, self.parts.until, n, short)
        return mixed(values), until

    def different(self, words: Sequence[str]) -> Ints:
        """How many different ones of some words each text has: int64[n]."""
        known = np.sort(Words.of(Characters.of(words)).hashes)
        at = np.flatnonzero(np.isin(self.hashes, known))
        which = self.parts.texts[at] * len(known) + np.searchsorted(known, self.hashes[at])
        counts = np.bincount(which, minlength=len(self.parts.until) * len(known)).reshape(-1, len(known))
        return np.asarray(np.count_nonzero(counts, axis=1), np.int64)

    def repetitions(self, most_frequent: int, repeated: int) -> Ints:
        """The characters of each text in repeated n-grams: int64[n, repeated - 1], for n from 2.

        For n up to `most_frequent`, those of the most frequent n-gram there in all, its words joined by spaces; of equally frequent ones the first. For
        larger n up to `repeated`, those of n-grams that stood before, which are compared by their characters alone and do not overlap.
        """
        return _repetitions(self.hashes, self.letters, self.powers, self.parts.lengths, self.parts.until, most_frequent, repeated)


@compiled
def _n_grams(words: Hashes, word_until: Ints, n: int, short: bool) -> tuple[Hashes, Ints]:
    """See `Words.n_grams`; not mixed."""
    values, until = np.empty(len(words), np.uint64), np.empty(len(word_until), np.int64)
    oldest = np.uint64(1)
    for _ in range(n):
        oldest *= BASE
    begin, count = 0, 0
    for text in range(len(word_until)):
        value = np.uint64(0)
        for at in range(begin, word_until[text]):
            value += words[at] + np.uint64(1)
            if at - begin >= n:
                value -= (words[at - n] + np.uint64(1)) * oldest
            value *= BASE
            if at - begin >= n - 1 or (short and at == word_until[text] - 1):
                values[count] = value
                count += 1
        begin, until[text] = word_until[text], count
    return values[:count], until


@compiled
def _repetitions(words: Hashes, letters: Hashes, powers: Hashes, lengths: Ints, until: Ints, most_frequent: int, repeated: int) -> Ints:
    """See `Words.repetitions`. Each text and n has a table with open addressing in `slots`: the number of an n-gram, counted on from those of the tables
    before, so that none is cleared."""
    longest, begin = 1, 0
    for end in until:
        longest, begin = max(longest, end - begin), end
    slots, characters = np.zeros(8 * longest + 2, np.int64), np.zeros((len(until), repeated - 1), np.int64)
    in_words, in_letters, keys = np.empty(longest, np.uint64), np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    sizes, counts, firsts = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    begin, before = 0, 1
    for text in range(len(until)):
        count, bits = until[text] - begin, 1
        while 1 << bits < 4 * count:
            bits += 1
        for at in range(count):
            in_words[at], in_letters[at], sizes[at] = (words[begin + at] + np.uint64(1)) * BASE, letters[begin + at], lengths[begin + at]
        for n in range(2, min(repeated, count) + 1):
            counted, found = n <= most_frequent, 0
            for at in range(count - n + 1):
                last = begin + at + n - 1
                if counted:
                    in_words[at] = (in_words[at] + words[last] + np.uint64(1)) * BASE
                in_letters[at] = in_letters[at] * powers[last] + letters[last]
                sizes[at] += lengths[last]
            at = 0
            while at <= count - n:
                key = in_words[at] if counted else in_letters[at]
                slot = np.int64((key * SPREAD) >> np.uint64(64 - bits))
                while slots[slot] >= before and keys[slots[slot] - before] != key:
                    slot = (slot + 1) & ((1 << bits) - 1)
                number = slots[slot] - before
                if number < 0:
                    slots[slot], keys[found], counts[found], firsts[found] = before + found, key, 1, at
                    found += 1
                elif counted:
                    counts[number] += 1
                else:
                    characters[text, n - 2] += sizes[at]
                    at += n - 1
                at += 1
            if counted:
                best = 0
                for number in range(1, found):
                    best = number if counts[number] > counts[best] else best
                characters[text, n - 2] = counts[best] * (sizes[firsts[best]] + n - 1)
            before += found
        begin = until[text]
    return characters


def once(make: Callable[[Examples], T]) -> Callable[[Examples], T]:
    """Columns of a block of examples, made once for all steps."""

    @wraps(make)
    def of(examples: Examples) -> T:
        made: dict[Any, T] = examples.__dict__
        return made[make] if make in made else made.setdefault(make, make(examples))

    return of


@once
def characters_of(examples: Examples) -> Characters:
    """The characters of what examples say."""
    return Characters.of(examples.said)


@once
def words_of(examples: Examples) -> Words:
    """The words of what examples say, and runs of punctuation."""
    return Words.of(characters_of(examples))


@once
def lines_of(examples: Examples) -> Parts:
    """The lines of what examples say, cut at line feeds alone, that are not white space."""
    characters, lines = characters_of(examples), characters_of(examples).fed
    written = np.logical_or.reduceat(characters.kinds & SPACE == 0, lines.begins)
    return Parts(lines.begins[written], lines.ends[written], np.append(0, np.cumsum(written))[lines.until])


@once
def may_repeat(examples: Examples) -> Bools:
    """Which examples say a line twice that is not empty: bool[n]."""
    lines = ([*filter(None, text.split("\n"))] for text in examples.said)
    return np.array([len({*each}) < len(each) for each in lines], np.bool_)


Rules = Iterator[tuple[Bools, Callable[[int], Finding | None]]]
"""For each rule which texts may break it, bool[n], and what it says of one of them, by its number, asked before the next rule; the first broken counts."""


def above(reason: str, values: Ints | Floats, most: float, said: str) -> tuple[Bools, Callable[[int], Finding]]:
    """The rule that none of these numbers, one a text, may be larger; `said` has places for that number and for the largest one allowed."""
    return values > most, lambda at: (reason, said.format(values[at], most))


def below(reason: str, values: Ints | Floats, least: float, said: str) -> tuple[Bools, Callable[[int], Finding]]:
    """The rule that none of these numbers may be smaller, see `above`."""
    return values < least, lambda at: (reason, said.format(values[at], least))


def by_rules(rules: Callable[[Examples], Rules]) -> Step:
    """The step that applies rules to the texts of a block."""

    def judge(examples: Examples) -> Judged:
        found: dict[int, Finding] = {}
        for may_break, finding in rules(examples):
            found |= {at: of for at in np.flatnonzero(may_break).tolist() if at not in found and (of := finding(at))}
        return Judged(dict(sorted(found.items())))

    return by_block(judge)
