"""Where private data may stand in a block of texts: conditions that every value fulfils, by array operations. Libraries, which are slow, look there alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.config.family import PrivateKind as Kind

Places = Iterator[tuple[int, int]]
"""Start and end of each value, or of each place, in a text."""
_AROUND, _LONGEST_MAIL, _EDGE = 64, 400, 32
"""Characters around a condition that decide about a value; those of an address; and zeros around a text, to look beside each character."""
SHORTEST_SECRET, _STEP = 20, 10
"""The fewest characters of a secret in a row; and the distance of those that are looked at first, between two of which each such row has all."""
_LETTERS, _DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"
_BETWEEN = "-x ()[]./~+X_\t\u2053\u223c\u30fc"
"""What may stand between the digits of a number, up to four characters: phonenumbers' punctuation in plain characters, the + of Swedish ids, signs of cards."""


@cache
def _plain_codes() -> npt.NDArray[np.uint32]:
    """Code point → that of its ASCII character, for spaces, hyphens and digits of every script, and letters of full width: uint32[0x110000]."""
    plain = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    digits = re.findall(r"[^\W0-9\D]", plain.tobytes().decode("utf-32-le", "surrogatepass"))
    plain[0xFF01:0xFF5F] -= 0xFEE0
    plain[[*map(ord, digits)]] = [ord(str(int(digit))) for digit in digits]
    plain[[0xA0, 0x1680, *range(0x2000, 0x200E), 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]] = ord(" ")  # also those without width
    plain[[0xAD, 0xB7, *range(0x2010, 0x2016), 0x2022, 0x2027, 0x2043, 0x2212, 0x2219, 0x22C5, 0x30FB, 0xFE58, 0xFE63]] = ord("-")
    plain[0xFE62] = ord("+")
    return plain


def _codes(text: str) -> npt.NDArray[Any]:
    return np.frombuffer(text.encode(), np.uint8) if text.isascii() else np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def plain(text: str) -> str:
    """A text with ASCII's spaces, hyphens and digits, and as many characters."""
    return text if text.isascii() else _plain_codes()[_codes(text)].tobytes().decode("utf-32-le", "surrogatepass")


@lru_cache(8)
def _among(characters: str) -> npt.NDArray[np.bool_]:
    """Which code points are those of characters: bool[0x110000]."""
    among = np.zeros(sys.maxunicode + 1, np.bool_)
    among[[*map(ord, characters)]] = True
    return among


def places(text: str, ends: Ints, kinds: Sequence[Kind]) -> dict[int, dict[Kind, list[tuple[int, int]]]]:
    """The number of each text that may hold a value → kind → where, with what is around, in order and apart.

    Args:
        text: plain texts, one after another.
        ends: where each ends; the next one begins behind the character there.
    """
    where: dict[int, dict[Kind, list[tuple[int, int]]]] = {}
    begins = np.append(0, ends[:-1] + 1)
    for kind, (firsts, lasts) in _conditions(text, kinds).items():
        numbers = np.searchsorted(ends, firsts)
        low, high = begins[numbers], ends[numbers]
        around = _LONGEST_MAIL if kind == "email" else _AROUND
        spans = np.stack([numbers, np.maximum(firsts - around, low) - low, np.minimum(lasts + around, high) - low], axis=1)
        for number, begin, end in spans[np.argsort(firsts, kind="stable")].tolist():
            of = where.setdefault(number, {}).setdefault(kind, [])
            if of and begin <= of[-1][1]:
                of[-1] = (of[-1][0], max(end, of[-1][1]))
            else:
                of.append((begin, end))
    return where


def _conditions(text: str, kinds: Sequence[Kind]) -> dict[Kind, tuple[Ints, Ints]]:
    """Kind → the first and the last character of what a value of it must have."""
    codes = _codes(f"{chr(0) * _EDGE}{text}{chr(0) * _EDGE}")
    found: dict[Kind, tuple[Ints, Ints]] = {}
    if "email" in kinds:
        found["email"] = (at := np.flatnonzero(codes == ord("@")), at)
    if "secret" in kinds:
        found["secret"] = _secrets(codes, text)
    if {*kinds} - {"email", "secret"}:
        digits = np.flatnonzero(codes - codes.dtype.type(ord("0")) < 10)
        found |= _numbers(codes, digits, kinds)
    return {kind: (firsts - _EDGE, lasts - _EDGE) for kind, (firsts, lasts) in found.items() if len(firsts)}


def _numbers(codes: npt.NDArray[Any], digits: Ints, kinds: Sequence[Kind]) -> dict[Kind, tuple[Ints, Ints]]:
    """For each kind, chains of digits that are as long as a value's shortest, dots as of addresses, or letters before digits."""
    between, letters, alnum = _among(_BETWEEN), _among(_LETTERS), _among(_LETTERS + _DIGITS)
    gaps = np.diff(digits, append=len(codes)) - 1
    linked = gaps <= 4
    for at in range(1, 5):
        linked &= (gaps < at) | between[codes[digits + at]]
    last = np.flatnonzero(~linked)
    counts = np.diff(last, prepend=-1)
    firsts, lasts = digits[last - counts + 1], digits[last]

    def chained(is_wanted: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
        return firsts[is_wanted], lasts[is_wanted]

    after_plus = np.any([codes[firsts - at] == ord("+") for at in (1, 2, 3)], axis=0)
    found: dict[Kind, tuple[Ints, Ints]] = {"phone": chained((counts >= 7) | (counts >= 5) & after_plus), "card": chained(counts >= 13)}
    first_digits = digits[letters[codes[digits - 1]] & letters[codes[digits - 2]]]
    after_two = first_digits[~alnum[codes[first_digits - 3]]]
    after_six = first_digits[np.all([letters[codes[first_digits - at]] for at in range(3, 7)], axis=0)]
    capitals = _among(_LETTERS[:26])
    spaced = digits[(codes[digits - 1] == ord(" ")) & capitals[codes[digits - 2]] & capitals[codes[digits - 3]] & ~alnum[codes[digits - 4]]]
    starts = np.concatenate([after_two, after_six, spaced])
    found["iban"] = (starts, starts)
    found["national_id"] = _both(chained(counts >= 6), (after_six, after_six))
    dots = digits[(codes[digits + 1] == ord(".")) & alnum[codes[digits + 2]]]
    is_fourth = dots[2:] - dots[:-2] <= 8
    groups = digits[(codes[digits + 4] == ord(":")) & np.any([codes[digits + at] == ord(":") for at in range(5, 10)], axis=0)]
    found["ip"] = _both((dots[:-2][is_fourth], dots[2:][is_fourth]), (groups, groups))
    return {kind: spans for kind, spans in found.items() if kind in kinds}


def _both(some: tuple[Ints, Ints], others: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    return np.concatenate([some[0], others[0]]), np.concatenate([some[1], others[1]])


def _secrets(codes: npt.NDArray[Any], text: str) -> tuple[Ints, Ints]:
    """Rows of `SHORTEST_SECRET` characters as keys have them, by the parts of `_STEP` in them; and from where private keys begin to the end."""
    of_keys = _among(f"{_LETTERS}{_DIGITS}_-/+.=\\")
    sampled = of_keys[codes[::_STEP]]
    starts = np.flatnonzero(sampled[:-1] & sampled[1:]) * _STEP
    for at in range(1, _STEP):
        starts = starts[of_keys[codes[starts + at]]]
    row = of_keys[codes[starts[:, None] + np.arange(-_STEP, 2 * _STEP + 1)]]
    length = np.cumprod(row[:, :_STEP][:, ::-1], axis=1).sum(axis=1) + np.cumprod(row[:, _STEP:], axis=1).sum(axis=1)
    parts = starts[length >= SHORTEST_SECRET]
    keys = np.array([found.start() + _EDGE for found in re.finditer("-----BEGIN ", text)], np.int64)
    return _both((parts, parts + _STEP), (keys, np.full(len(keys), len(text) + _EDGE)))
