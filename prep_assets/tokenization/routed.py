"""The fast engine, and one engine out of two: each text goes to the fast one or to the reference, as the text itself demands.

To the reference go texts with a suspect code point (see `suspects`), texts that are not composed where the tokenizer composes them, and texts
with a byte that the vocabulary does not have. Which of them it was never shows in the ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from prep_assets.tokenization.fast_form import BETWEEN, CUT, digit_cuts, fast_form
from prep_assets.tokenization.flat import NO_TEXTS, Flat, interleaved, offsets_of, some_of
from prep_assets.tokenization.reference_engine import ReferenceEngine
from prep_assets.tokenization.suspects import Table

_BETWEEN = BETWEEN.encode()


class GigatokenEngine:
    """`gigatoken`, made of the `FastForm` of a tokenizer.

    Its cache of words grows without bound, so the tokenizer is made anew after `RENEW_AFTER` bytes, or after `IDLE_AFTER` and a pause.

    Attributes:
        size: ids from here on are placeholders for bytes that the tokenizer does not have.
    """

    name = "gigatoken"
    RENEW_AFTER = 256 << 20
    IDLE_AFTER = 32 << 20

    def __init__(self, spec: dict[str, Any]) -> None:
        form = fast_form(spec)
        self.size, self.cuts_at_digits = form.size, form.cuts_at_digits
        self._between, self._unspaced = form.between, form.unspaced
        self._json = msgspec.json.encode(form.spec)
        self._since_new, self._tokenizer = 0, self._new()

    def _new(self) -> Any:
        from gigatoken import Tokenizer

        return Tokenizer.from_json(self._json)

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        if not texts:
            return NO_TEXTS
        if self._tokenizer is None or self._since_new > self.RENEW_AFTER:
            self._tokenizer = None  # before the next one takes memory
            self._since_new, self._tokenizer = 0, self._new()
        if self._unspaced is not None:
            begins = {text[0] for text in self._unspaced}
            texts = [text if not text or (text[0] in begins and text.startswith(self._unspaced)) else f" {text}" for text in texts]
        return self._one_by_one(texts) if self._between is None else self._as_one(texts)

    def pause(self) -> None:
        """Free a large cache: for some time no text will come."""
        if self._since_new > self.IDLE_AFTER:
            self._tokenizer = None

    def _as_one(self, texts: Sequence[str]) -> Flat:
        # one by one, because a long string that is not ASCII is slow to write as UTF-8
        text, cuts = _BETWEEN.join(map(str.encode, texts)), 0
        self._since_new += len(text)
        if self.cuts_at_digits:
            text, cuts = _cut_at_digits(text)
        ids = self._tokenizer.encode(text)
        marks = np.flatnonzero(ids >= self._between)
        ends = np.flatnonzero(ids[marks] == self._between)
        if (len(ends), len(marks) - len(ends)) != (len(texts) - 1, cuts):
            return self._around_marks(texts)
        offsets = np.concatenate([[0], marks[ends] - ends, [len(ids) - len(marks)]])
        return Flat(ids[ids < self._between] if len(marks) else ids, offsets)

    def _around_marks(self, texts: Sequence[str]) -> Flat:
        """Texts of which some hold a mark themselves. In the place of their ids is a placeholder, for which the reference takes them."""
        plain = np.array([BETWEEN not in text and CUT not in text for text in texts])
        held = len(texts) - int(plain.sum())
        some = Flat(np.full(held, self.size, np.uint32), np.arange(held + 1))
        return interleaved(self._as_one(list(compress(texts, plain))) if plain.any() else NO_TEXTS, some, plain)

    def _one_by_one(self, texts: Sequence[str]) -> Flat:
        self._since_new += sum(map(len, texts))
        found = [self._tokenizer.encode(text.encode()) for text in texts]
        return Flat(np.concatenate(found), offsets_of(np.fromiter(map(len, found), np.int64, len(found))))


def _cut_at_digits(text: bytes) -> tuple[bytes, int]:
    """A text with `CUT` where it must be cut, and how often that is."""
    codes = np.frombuffer(text, np.uint8)
    cuts, mark = digit_cuts(codes), np.frombuffer(CUT.encode(), np.uint8)
    return np.insert(codes, np.repeat(cuts, len(mark)), np.tile(mark, len(cuts))).tobytes(), len(cuts)


class RoutedEngine:
    """The fast engine, and the reference for the texts that need it.

    Attributes:
        composes: whether the tokenizer composes its text (NFC), which the fast engine does not do.
    """

    def __init__(self, fast: GigatokenEngine, reference: ReferenceEngine, suspects: Table, *, composes: bool) -> None:
        self.name, self.composes = fast.name, composes
        self._fast, self._reference, self._suspects = fast, reference, suspects
        self.pause = fast.pause
        self._ascii_suspects = bool(suspects[:128].any())
        self._numerals = _numerals() if fast.cuts_at_digits else None

    def encode(self, texts: Sequence[str]) -> Flat:
        """Ids of each text, in order."""
        plain = ~self.odd(texts)
        flat = self._fast.encode(texts if plain.all() else list(compress(texts, plain)))
        missing = np.flatnonzero(flat.ids >= self._fast.size)
        if len(missing):
            whole = np.ones(len(flat.offsets) - 1, bool)
            whole[np.searchsorted(flat.offsets, missing, "right") - 1] = False
            flat = some_of(flat, whole)
            plain[np.flatnonzero(plain)[~whole]] = False
        if plain.all():
            return flat
        return interleaved(flat, self._reference.encode(list(compress(texts, ~plain))), plain)

    def for_reference(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts the reference encodes, those included of which that shows only in their ids."""
        marked: Table = np.fromiter((BETWEEN in text or CUT in text for text in texts), bool, len(texts))
        return marked | self.odd(texts)

    def odd(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which texts are for the reference, by their characters."""
        odd = np.zeros(len(texts), bool)
        at = [number for number, text in enumerate(texts) if text and (self._ascii_suspects or not text.isascii())]
        if not at:
            return odd
        codes = np.frombuffer("".join([texts[number] for number in at]).encode("utf-32-le"), np.uint32)
        starts = np.zeros(len(at), np.int64)
        np.cumsum([len(texts[number]) for number in at[:-1]], out=starts[1:])
        hits = self._suspects[codes]
        if self._numerals is not None:
            hits |= _loose_numerals(codes, self._numerals[codes])
        odd[at] = np.logical_or.reduceat(hits, starts)
        if self.composes:
            marked = np.logical_or.reduceat(_marks()[codes], starts) & ~odd[at]
            odd[[number for number in compress(at, marked) if not unicodedata.is_normalized("NFC", texts[number])]] = True
        return odd


@cache
def _marks() -> Table:
    """Which code points a text must have for composing to change it: marks, what is decomposed alone, and what composes with what stands before."""
    table = np.zeros(0x110000, bool)
    table[0x1100:0x1200] = True  # parts of Korean syllables
    for point in range(128, 0x32000):
        char = chr(point)
        if unicodedata.combining(char):
            table[point] = True
        elif (parts := unicodedata.decomposition(char)) and not parts.startswith("<"):
            table[int(parts.split()[-1], 16)] = True
            table[point] |= not unicodedata.is_normalized("NFC", char)
    return table


@cache
def _numerals() -> Table:
    """Which code points beyond ASCII are numerals: a pre-tokenizer that sets digits apart sets each of them apart as well."""
    table = np.zeros(0x110000, bool)
    table[[point for point in range(128, 0x20000) if unicodedata.category(chr(point)).startswith("N")]] = True
    return table


def _loose_numerals(codes: npt.NDArray[np.uint32], numeral: Table) -> Table:
    """The numerals that may be joined with what stands before: those that follow no visible ASCII character."""
    loose = numeral.copy()
    loose[1:] &= (codes[:-1] <= 32) | (codes[:-1] >= 127)
    return loose
