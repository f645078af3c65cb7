"""Find held-out texts in training texts, by the rules of published decontaminations.

A rule cuts texts into units, words or paragraphs; so many neighbouring ones are a passage. Two texts share it if both have its units, one after the other. The
rule says how much of a held-out text must be shared to be a leak.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from textwrap import wrap

import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from prep_assets.array_types import Bools, Hashes, Ints
from prep_assets.extensions.quality.steps import ANSWER, CHOSEN, CONTEXT, Examples
from prep_assets.extensions.quality.units import UNSPACED, WORD, fold, normalized, script, undisguised
from prep_assets.samples import Sample, document, turn

_NO_SPACE = re.compile(rf"(?=\w)[{UNSPACED}]|[^\s{UNSPACED}\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+")


# The rules.


class Rule(Struct, frozen=True):
    """A rule of a published decontamination.

    Attributes:
        source: whose rule it is.
        unit: what is compared.
        fold: two units are equal if this gives the same of both.
        least_words: words of a unit; one that has fewer is passed over.
        size: number of units of each text of a held-out data set → units of a passage of it; see `sizes`.
        enough: shared units and all units of held-out texts → whether that is a leak.
        answers: whether the answers of held-out examples are searched for, or their questions; `None`: both.
    """

    source: str
    unit: re.Pattern[str] = WORD
    fold: Callable[[str], str] = fold
    least_words: int = 0
    size: Callable[[Ints], int] = lambda lengths: 8
    enough: Callable[[Ints, Ints], Bools] = lambda shared, units: shared > 0
    answers: bool | None = None

    def sizes(self, texts: Sequence[str], lengths: Ints) -> Ints:
        """Units of the passages of each text of a data set. Where scripts have no spaces, a passage has as many characters as eight words have at least."""
        scripts, sizes = np.fromiter(map(script, texts), np.int64, len(texts)), np.zeros(len(texts), np.int64)
        for number in np.unique(scripts).tolist():
            own = scripts == number
            short = int(np.percentile(lengths[own], 5))
            sizes[own] = self.size(lengths[own]) if number == 0 or self.least_words else np.clip(short, *_CHARACTERS[number])
        return sizes

    def text(self, parts: Sequence[tuple[str, str]]) -> str:
        """What is searched for of a held-out example, given its texts with their roles: its turns, since other data have the same tools and documents."""
        said = (part for part in parts if part[0] not in CONTEXT)
        wanted = (text for role, text in said if self.answers is None or self.answers == (role in _ANSWERS))
        return "\n\n".join(wanted)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the units of a text that is `normalized` stand."""
        return [
            found.span() for found in self.unit.finditer(text) if not self.least_words or len(WORD.findall(found[0])) >= self.least_words
        ]

    def units(self, text: str) -> list[str]:
        """The units of a text, as they are compared."""
        text = normalized(text)
        if not self.least_words and text.isascii():
            return self.unit.findall(self.fold(text))
        return [self.fold(text[start:end]) for start, end in self.spans(text)]


_CHARACTERS = {1: (10, 13), 2: (30, 40)}
"""Script → characters of a passage, at least and at most; as many as the 5th percentile of a data set's texts has, if that is between them."""
_ANSWERS = ("assistant", "completion", ANSWER, CHOSEN)
RULES: Mapping[str, Rule] = {
    "gpt3": Rule("Brown et al., 2020, appendix C", size=lambda lengths: int(np.clip(np.percentile(lengths, 5), 8, 13))),
    "open_r1": Rule("open-r1, scripts/decontaminate.py", unit=_NO_SPACE, fold=str.lower, answers=False),
    "open_instruct": Rule(
        "Tülu 3: open-instruct, decontamination/search.py", enough=lambda shared, units: 2 * shared > units, answers=False
    ),
    "dolma": Rule("OLMo: Dolma 1.5", unit=re.compile(r"[^\n]+"), fold=str, least_words=13, size=lambda lengths: 1),
    "answers": Rule("our own", enough=lambda shared, units: shared + 2 >= units, answers=True),
}
"""Name → rule."""


# Units as numbers, and passages as hashes of them.

_BREAK = "\u200b"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that no bit is lost: the units a, b, c have the hash a * F² + b * F + c modulo 2^64."""


@lru_cache(1 << 19)
def _number(unit: str) -> int:
    """The hash of a unit."""
    return xxhash.xxh3_64_intdigest(unit.encode("utf-8", "surrogatepass"))


def _numbered(rule: Rule, texts: Sequence[str]) -> tuple[Hashes, Ints]:
    """The units of texts end to end, and how many each text has."""
    units = list(map(rule.units, texts))
    lengths = np.fromiter(map(len, units), np.int64, len(units))
    return np.fromiter(map(_number, chain.from_iterable(units)), np.uint64, int(lengths.sum())), lengths


def _passages(numbers: Hashes, lengths: Ints, size: int) -> tuple[Hashes, Ints, Ints]:
    """The hash of every passage of `size` units, the text that it stands in, and its first unit there."""
    count = max(0, len(numbers) - size + 1)
    hashes = np.zeros(count, np.uint64)
    for at in range(size):
        hashes = hashes * _FACTOR + numbers[at : at + count]
    texts = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    whole = np.flatnonzero(starts[:count] + size <= lengths[texts[:count]])
    return hashes[whole], texts[whole], starts[whole]


# Passages of held-out texts, and the search for them.


class Leak(Struct, frozen=True):
    """A held-out text that a training example holds.

    Attributes:
        text: its number.
        shared: how many of its units stand in shared passages.
    """

    text: int
    shared: int


class Passages(Struct, frozen=True, dict=True):
    """The passages of held-out texts, sixteen bytes each.

    Attributes:
        rule: what they were cut by.
        units: int64[t], units of each text.
        sizes: int64[t], units of its passages. A text that has fewer has no passage.
        hashes: uint64[p], of all passages, ascending.
        texts, starts: int32[p], where each passage stands: number of the text, and of its first unit there.
    """

    rule: Rule
    units: Ints
    sizes: Ints
    hashes: Hashes
    texts: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, rule: Rule, data_sets: Sequence[Sequence[str]]) -> Passages:
        """The passages of the texts of some held-out data sets. Texts are numbered from the first of the first set on."""
        numbers, units = _numbered(rule, list(chain.from_iterable(data_sets)))
        bounds = np.cumsum([0, *map(len, data_sets)])
        lengths = [units[start:end] for start, end in pairwise(bounds.tolist())]
        sizes = np.concatenate([np.zeros(0, np.int64), *map(rule.sizes, data_sets, lengths)])
        hashes, texts, starts = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        for size in np.unique(sizes).tolist():
            found = _passages(numbers, units, size)
            own = sizes[found[1]] == size
            hashes, texts, starts = (np.concatenate([all_, new[own]]) for all_, new in zip((hashes, texts, starts), found, strict=True))
        order = np.lexsort((starts, texts, hashes))
        return cls(rule, units, sizes, hashes[order], texts[order].astype(np.int32), starts[order].astype(np.int32))

    @property
    def too_short(self) -> Bools:
        """bool[t], which texts have no passage, so that nothing can share one."""
        return self.units < self.sizes

    @cached_property
    def _filter(self) -> tuple[Bools, np.uint64]:
        """Whether a passage may begin with these bits, of a hash that is shifted to the right by so many."""
        bits = max(10, len(self.hashes).bit_length() + 3)
        shift = np.uint64(64 - bits)
        table = np.zeros(1 << bits, np.bool_)
        table[self.hashes >> shift] = True
        return table, shift

    def leaks(self, examples: Examples, among: Bools | None = None) -> dict[int, list[Leak]]:
        """Number of an example → the held-out texts that leak into it, those with most shared units first.

        Args:
            among: bool[t], the texts that count; `None`: all.
        """
        # a zero-width space stands inside a word, or between two; a line begins with a sign or ends with a hyphen, or with words of the text
        texts = ["\n\n".join(dict.fromkeys((text, undisguised(text.replace(_BREAK, " "))))) for text in examples.texts]
        numbers, lengths = _numbered(self.rule, texts)
        table, shift = self._filter
        covered = [np.zeros((0, 3), np.int64)]
        for size in np.unique(self.sizes).tolist():
            hashes, inside, _ = _passages(numbers, lengths, size)
            probable = np.flatnonzero(table[hashes >> shift])
            first = np.searchsorted(self.hashes, hashes[probable], "left")
            counts = np.searchsorted(self.hashes, hashes[probable], "right") - first
            at = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            found = np.stack([np.repeat(inside[probable], counts), self.texts[at], self.starts[at]], axis=1)
            counted = self.sizes[self.texts[at]] == size
            found = np.unique(found[counted if among is None else counted & among[self.texts[at]]], axis=0)
            offsets = np.array([[0, 0, offset] for offset in range(size)])
            covered.append((found[:, None] + offsets).reshape(-1, 3))
        pairs, shared = np.unique(np.unique(np.concatenate(covered), axis=0)[:, :2], axis=0, return_counts=True)
        enough = self.rule.enough(shared, self.units[pairs[:, 1]])
        leaks: dict[int, list[Leak]] = {}
        for (example, text), count in zip(pairs[enough].tolist(), shared[enough].tolist(), strict=True):
            leaks.setdefault(example, []).append(Leak(text, count))
        return {example: sorted(found, key=lambda leak: (-leak.shared, leak.text)) for example, found in leaks.items()}


# Probes: held-out texts in disguise, inside other texts, which show how many of them a search finds.

_BEFORE, _AFTER = (
    "Somebody wrote about something else first, and then went on:",
    "Here the same person ends with a few words about the weather.",
)


def _halves(text: str) -> tuple[str, str]:
    middle = text.find(" ", len(text) // 2)
    middle = middle if middle >= 0 else len(text) // 2
    return text[:middle], text[middle:]


PROBES: Mapping[str, Callable[[str], Sequence[str]]] = {
    "verbatim": lambda text: [f"{_BEFORE}\n{text}\n{_AFTER}"],
    "other case": lambda text: [f"{_BEFORE}\n{text.swapcase()}\n{_AFTER}"],
    "wrapped": lambda text: ["\n".join(f"> {line}" for line in wrap(f"{_BEFORE} {text} {_AFTER}", 60))],
    "split over turns": lambda text: [f"{_BEFORE}\n{_halves(text)[0]}", f"{_halves(text)[1]}\n{_AFTER}"],
}
"""Disguise → the turns of a chat that holds a text."""
LENGTHS = (13, 50)
"""Where the classes of probes by words begin and end."""
CLASSES = (f"under {LENGTHS[0]} words", f"{LENGTHS[0]} to {LENGTHS[1]}", f"over {LENGTHS[1]}")


def recall(passages: Mapping[str, Passages], texts: Mapping[int, str]) -> dict[str, list[int]]:
    """How many probes the rules find together, and how many there are, by disguise, and by length of a text.

    Args:
        texts: number of a held-out text → the text.
    """
    found: dict[str, list[int]] = {}
    for disguise, turns in PROBES.items():
        samples = [Sample(tuple(turn("user", part) for part in turns(text))) for text in texts.values()]
        examples = Examples([str(number) for number in texts], samples)
        leaks = [each.leaks(examples) for each in passages.values()]
        for at, (number, text) in enumerate(texts.items()):
            hit = any(leak.text == number for each in leaks for leak in each.get(at, ()))
            words = len(WORD.findall(text))
            size = CLASSES[bisect_right((LENGTHS[0], LENGTHS[1] + 1), words)]
            for name in (disguise, size):
                counts = found.setdefault(name, [0, 0])
                counts[0] += hit
                counts[1] += 1
    return found


def finds_planted(name: str) -> bool:
    """Whether a rule finds an invented text inside another, and nothing in what surrounds it."""
    rule, words = RULES[name], [f"word{number}" for number in range(40)]
    before, planted, after = (" ".join(words[start::3]) for start in range(3))
    passages = Passages.of(rule, [[planted]])
    texts = [document(text) for text in (f"{before}\n{planted}\n{after}", f"{before}\n{after}")]
    return list(passages.leaks(Examples(["planted", "clean"], texts))) == [0]
