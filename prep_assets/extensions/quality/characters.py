"""The characters of a block of texts in one array, of what kind each is, and where words and lines begin and end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Bools, Hashes, Ints
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.extensions.quality.units import UNSPACED

WORD, SPACE, LETTER, MARK, BREAK, STOP, TERMINAL, ALONE, _KNOWN = 1, 2, 4, 8, 16, 32, 64, 128, 256
r"""Bits of the kind of a character: `\w` and `\s` of regular expressions, a letter, punctuation, what ends a line, what ends a sentence, what does so
in any script (Sentence_Terminal of Unicode), and what is a word alone, as its script has no spaces."""
_KINDS = np.zeros(0x110000, np.uint16)
"""Code point → its kind; 0 for those that no text had so far."""


def _kind(character: str) -> int:
    import regex

    return (
        _KNOWN
        | WORD * (character.isalnum() or character == "_")
        | SPACE * character.isspace()
        | LETTER * character.isalpha()
        | MARK * (unicodedata.category(character)[0] == "P")
        | BREAK * (len(f"{character}.".splitlines()) > 1)
        | STOP * (character in ".?!。？！")
        | TERMINAL * (regex.match(r"[\p{STerm}\u17d6\u17d9\u17da]", character) is not None)
        | ALONE * (character.isalnum() and re.match(f"[{UNSPACED}]", character) is not None)
    )


class Parts(Struct, frozen=True, eq=False, dict=True):
    """Parts of n texts, such as words or lines, one after another.

    Attributes:
        begins, ends: int64[N], where each stands among the characters of the block.
        until: int64[n], how many parts the texts up to each one have.
    """

    begins: Ints
    ends: Ints
    until: Ints

    @cached_property
    def lengths(self) -> Ints:
        """Characters of each part: int64[N]."""
        return self.ends - self.begins

    @cached_property
    def counts(self) -> Ints:
        """Parts of each text: int64[n]."""
        return np.diff(self.until, prepend=0)

    @cached_property
    def texts(self) -> Ints:
        """The number of the text of each part: int64[N]."""
        return np.repeat(np.arange(len(self.until)), self.counts)

    def total(self, values: npt.NDArray[Any]) -> Ints:
        """The sum over the parts of each text: int64[n]."""
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
        return np.diff(sums[self.until], prepend=0)


class Lines(Parts, frozen=True, eq=False, dict=True):
    """Lines, as `str.splitlines` cuts them, without white space at both ends.

    Attributes:
        words: what `str.split` cuts each into: int64[N].
        longest: characters of its longest word, 0 without one: int64[N].
        sentences: of each: int64[N]. A word that is not punctuation alone begins another one after an end mark and white space. Dots of abbreviations
            and of ellipses end none.
        ellipses: whether it ends with one: bool[N].
    """

    words: Ints
    longest: Ints
    sentences: Ints
    ellipses: Bools


class Characters(Struct, frozen=True, eq=False, dict=True):
    """The characters of n > 0 texts, one after another, with a line feed after each text.

    Attributes:
        text: all of them.
        ends: int64[n], where each text ends.
    """

    text: str
    ends: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Characters:
        """Put texts one after another."""
        return cls("\n".join([*texts, ""]), np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1)

    @cached_property
    def lengths(self) -> Ints:
        """Characters of each text: int64[n]."""
        return np.diff(self.ends, prepend=-1) - 1

    @cached_property
    def codes(self) -> npt.NDArray[np.uint32]:
        """Code points: uint32[C]."""
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), np.uint32)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint16]:
        """The kind of each character: uint16[C]."""
        kinds = _KINDS.take(self.codes)
        if not kinds.all():
            for code in np.unique(self.codes[kinds == 0]).tolist():
                _KINDS[code] = _kind(chr(code))
            kinds = _KINDS.take(self.codes)
        return kinds

    def cut(self, shapes: int, apart: int, joined: bool = False) -> tuple[Parts, Hashes, Hashes, npt.NDArray[np.uint16]]:
        """Runs of characters of the same shape, but for those that stand apart; of characters that are `ALONE`, if that is of the shape, one each.

        Args:
            shapes: the bits of kinds that are a shape.
            apart: the shape between runs.
            joined: whether an apostrophe between two characters of words is one of them.

        Returns:
            The runs; the hash of each, a polynomial of its characters modulo 2**64, and the base to the power of its length: uint64[N]; and all bits of
            the kinds of its characters: uint16[N].
        """
        begins, ends, until, hashes, powers, bits = _cut(self.codes, self.kinds, self.ends, shapes, apart, joined)
        return Parts(begins, ends, until), hashes, powers, bits

    @cached_property
    def lines(self) -> Lines:
        """See `Lines`."""
        return Lines(*_lines(self.codes, self.kinds, self.ends, _ABBREVIATIONS))

    @cached_property
    def fed(self) -> Parts:
        """Lines, cut at line feeds alone."""
        ends = np.flatnonzero(self.codes == ord("\n"))
        return Parts(np.append(0, ends[:-1] + 1), ends, np.searchsorted(ends, self.ends, "right"))


def matching(texts: Sequence[str], pattern: str) -> Bools:
    """The texts in which a pattern of RE2 is found: bool[n]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        said = pa.array(texts, pa.string())
    except UnicodeEncodeError:  # one half of a surrogate pair
        said = pa.array([text.encode("utf-8", "replace") for text in texts], pa.string())
    found: Bools = np.array(pc.match_substring_regex(said, pattern).to_numpy(zero_copy_only=False))
    return found


BASE, SPREAD = np.uint64(0xF1DE83E19937733D), np.uint64(0xD6E8FEB86659FD93)
"""Of polynomials that are hashes of characters, and of words; and what makes the high bits of a product depend on all bits of a hash."""


@compiled
def _cut(
    codes: npt.NDArray[np.uint32], kinds: npt.NDArray[np.uint16], text_ends: Ints, shapes: int, apart: int, joined: bool
) -> tuple[Ints, Ints, Ints, Hashes, Hashes, npt.NDArray[np.uint16]]:
    """See `Characters.cut`: begins, ends, until, hashes, powers, bits."""
    begins, ends, until = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64), np.empty(len(text_ends), np.int64)
    hashes, powers, bits = np.empty(len(codes), np.uint64), np.empty(len(codes), np.uint64), np.empty(len(codes), np.uint16)
    at, count = 0, 0
    for text in range(len(text_ends)):
        end = text_ends[text]
        while at < end:
            shape = kinds[at] & shapes
            begin, value, power, kind = at, np.uint64(0), np.uint64(1), np.uint16(0)
            while at < end:
                inside = joined and shape == WORD and (codes[at] == 0x27 or codes[at] == 0x2019) and kinds[at + 1] & WORD
                if kinds[at] & shapes != shape and not inside:
                    break
                value = (value + np.uint64(codes[at]) + np.uint64(1)) * BASE
                power *= BASE
                kind |= kinds[at]
                at += 1
                if shape & ALONE:
                    break
            if shape != apart:
                begins[count], ends[count], hashes[count], powers[count], bits[count] = begin, at, value, power, kind
                count += 1
        until[text] = count
        at = end + 1
    return begins[:count], ends[:count], until, hashes[:count], powers[:count], bits[:count]


_ABBREVIATED = "Mr Mrs Ms Dr Drs Prof St Jr Sr Inc Ltd Co Corp Bros Gen Gov Rep Sen Rev vs Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
_ABBREVIATIONS = np.array([int.from_bytes(word.encode()) for word in _ABBREVIATED.split()])
"""What stands before a dot that ends no sentence, a byte for each letter. Single letters do so, too."""


@compiled
def _lines(
    codes: npt.NDArray[np.uint32], kinds: npt.NDArray[np.uint16], text_ends: Ints, abbreviations: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Bools]:
    """See `Lines`."""
    size = np.count_nonzero(kinds & BREAK)
    begins, ends, until = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(len(text_ends), np.int64)
    words, longest, sentences = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    ellipses = np.zeros(size, np.bool_)
    at, line = 0, 0
    for text in range(len(text_ends)):
        while at < text_ends[text]:
            begins[line], ends[line], may_begin = at, at, True
            while not kinds[at] & BREAK:
                if kinds[at] & SPACE:
                    at += 1
                    continue
                begin = at
                while not kinds[at] & SPACE:
                    at += 1
                tail = at
                while tail > begin and kinds[tail - 1] & MARK:
                    tail -= 1
                if tail > begin:
                    sentences[line], may_begin = sentences[line] + may_begin, False
                dots, is_end = 0, False
                for place in range(tail, at):
                    dots = dots + 1 if codes[place] == ord(".") else 0
                    # three dots are an ellipsis
                    is_end |= dots % 3 == 1 and codes[place + 1] != ord(".") if dots else kinds[place] & STOP > 0
                if is_end and tail > begin and codes[tail] == ord(".") and kinds[tail - 1] & LETTER:
                    first, said = tail, 0
                    while first > begin and kinds[first - 1] & WORD and tail - first < 5:
                        first -= 1
                        said |= min(codes[first], 255) << 8 * (tail - 1 - first)
                    is_end = first < tail - 1 or (first > begin and (codes[first - 1] == 0x27 or codes[first - 1] == 0x2019))
                    for known in abbreviations:
                        is_end &= said != known
                may_begin |= is_end
                if words[line] == 0:
                    begins[line] = begin
                ellipses[line] = dots > 2 or codes[at - 1] == 0x2026
                ends[line], words[line], longest[line] = at, words[line] + 1, max(longest[line], at - begin)
            sentences[line] = max(sentences[line], words[line] > 0)
            line += 1
            at += 2 if codes[at] == ord("\r") and codes[at + 1] == ord("\n") and at + 1 < text_ends[text] else 1
        until[text] = line
        at = text_ends[text] + 1
    return begins[:line], ends[:line], until, words[:line], longest[:line], sentences[:line], ellipses[:line]
