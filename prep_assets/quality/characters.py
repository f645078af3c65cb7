"""The characters of a block of texts in one array, of what kind each is, and where words and lines begin and end."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
WORD, SPACE, LETTER, MARK, BREAK, STOP, _KNOWN = 1, 2, 4, 8, 16, 32, 128
r"""Bits of the kind of a character: `\w` and `\s` of regular expressions, a letter, punctuation, what ends a line, what ends a sentence."""
_KINDS = np.zeros(0x110000, np.uint8)
"""Code point → its kind; 0 for those that no text had so far."""


def _kind(character: str) -> int:
    return (
        _KNOWN
        | WORD * (character.isalnum() or character == "_")
        | SPACE * character.isspace()
        | LETTER * character.isalpha()
        | MARK * (unicodedata.category(character)[0] == "P")
        | BREAK * (len(f"{character}.".splitlines()) > 1)
        | STOP * (character in ".?!…。？！")
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
    def kinds(self) -> npt.NDArray[np.uint8]:
        """The kind of each character: uint8[C]."""
        kinds = _KINDS[self.codes]
        if not kinds.all():
            for code in np.unique(self.codes[kinds == 0]).tolist():
                _KINDS[code] = _kind(chr(code))
            kinds = _KINDS[self.codes]
        return kinds

    @cached_property
    def words(self) -> Parts:
        r"""Words, with apostrophes inside, and runs of punctuation: `\w+(?:['’]\w+)*|[^\w\s]+`."""
        shapes = self.kinds & (WORD | SPACE)
        apostrophes = np.flatnonzero((self.codes == ord("'")) | (self.codes == ord("’")))
        inside = shapes[apostrophes - 1] & shapes[apostrophes + 1] & WORD > 0
        shapes[apostrophes[inside]] = WORD
        return self._runs(shapes, SPACE)

    @cached_property
    def alphanumeric(self) -> Parts:
        r"""Runs of letters, digits and underscores: `\w+`."""
        return self._runs(self.kinds & WORD, 0)

    @cached_property
    def unspaced(self) -> Parts:
        """What stands between white space, as `str.split` cuts it."""
        return self._runs(self.kinds & SPACE, SPACE)

    def _runs(self, shapes: npt.NDArray[Any], apart: int) -> Parts:
        """The runs of characters of one shape, but for those that stand apart."""
        inside, edges = shapes != apart, shapes[1:] != shapes[:-1]
        begins = np.flatnonzero(inside & np.append(True, edges))
        return Parts(begins, np.flatnonzero(inside & np.append(edges, True)) + 1, np.searchsorted(begins, self.ends))

    @cached_property
    def lines(self) -> Parts:
        """Lines, as `str.splitlines` cuts them."""
        ends = np.flatnonzero(self.kinds & BREAK > 0)
        begins = np.append(0, ends[:-1] + 1)
        none = (self.codes[ends] == ord("\n")) & (self.codes[ends - 1] == ord("\r"))
        last = np.searchsorted(ends, self.ends)
        none[last[begins[last] == ends[last]]] = True
        ends = ends[~none]
        return Parts(begins[~none], ends, np.searchsorted(ends, self.ends, "right"))

    def stripped(self, parts: Parts) -> tuple[Parts, Ints]:
        """Parts without the white space at both ends, and how often `str.split` cuts each of them: int64[N]."""
        first, last = (np.searchsorted(self.unspaced.begins, places) for places in (parts.begins, parts.ends))
        begins, ends = np.append(self.unspaced.begins, 0)[first], np.append(0, self.unspaced.ends)[last]
        return Parts(begins, np.where(first < last, ends, begins), parts.until), last - first

    def end_with(self, parts: Parts, ending: str) -> Bools:
        """Which parts end with a text: bool[N]."""
        found = parts.lengths >= len(ending)
        for before, character in enumerate(reversed(ending), 1):
            found &= self.codes[np.maximum(parts.ends - before, 0)] == ord(character)
        return found
