"""Where private data may stand in a block of texts: conditions that every value fulfils and that are quick to look for. Libraries, which are slow, look
there alone."""

from __future__ import annotations

import re
import string
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Ints
from prep_assets.config.family import PrivateKind as Kind
from prep_assets.extensions.quality.characters import matching
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.extensions.quality.units import replaced

Span = tuple[int, int]
Places = Iterator[Span]
"""Start and end of each value, or of each place, in a text."""
_AROUND: Mapping[Kind, int] = {"email": 400, "phone": 24}
"""Characters around a condition that decide about a value: the longest address, an extension; 64 for other kinds."""
SHORTEST_SECRET = 20
"""The fewest characters of a secret in a row."""
_PHONE, _CARD, _ID, _FOURS, _BEHIND, _DOTTED = (1 << bit for bit in range(6))
"""Marks of digits, see `_chains`."""
_BETWEEN = np.zeros(256, np.bool_)
_BETWEEN[[*b"-x ()[]./~+X_\t"]] = True
"""ASCII → whether up to four of it may stand between digits: phonenumbers' punctuation in plain characters, the + of Swedish ids, signs of cards."""
_BEHIND_LETTERS = re.compile(r"[0-9](?:(?<=(?<![A-Za-z0-9])[A-Za-z]{2}.)|(?<=(?<![A-Za-z0-9])[A-Z]{2}\ .)|(?<=[A-Za-z]{6}.))")
"""A digit behind what an IBAN or a national id begins with: the country's two letters, or six letters of a name."""
_IP = re.compile(r"[0-9](?:(?:\.[0-9]{1,3}){2}\.[0-9]|[0-9A-Fa-f]{3}:[0-9A-Fa-f]{0,4}:)(?P<end>)")
"""The beginning of an address of IPv4, or of IPv6 with a group of four digits."""
CARD = re.compile(
    r"[0-9](?<=(?<![A-Za-z0-9])[0-9])(?=[0-9]{3}(?P<sign>[^A-Za-z0-9]{1,4})"
    r"(?:[0-9]{4}(?P=sign)[0-9]{4}(?P=sign)[0-9]{1,7}(?P<more>(?P=sign)[0-9]{3})?|[0-9]{6}(?P=sign)[0-9]{4,5}|(?:[0-9]{3}(?P=sign)){2}[0-9]{3})"
    r"(?P<end>)(?![A-Za-z0-9]))"
)
"""The groups of a card with the same signs between them; what is found may begin in another."""
_OF_KEYS = re.compile(b"A+")
_AS_KEYS = bytes(65 if chr(code) in f"{string.ascii_letters}{string.digits}_-/+.=\\" else 32 for code in range(256))
"""Byte → ``A`` where it may be part of a secret, else a space, so that long rows of them are found at once."""


@cache
def _plain_codes() -> npt.NDArray[np.uint32]:
    """Code point → that of its ASCII character, for spaces, hyphens and digits of every script, and letters of full width: uint32[0x110000]."""
    plain = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    digits = re.findall(r"[^\W0-9\D]", plain.tobytes().decode("utf-32-le", "surrogatepass"))
    plain[0xFF01:0xFF5F] -= 0xFEE0
    plain[[*map(ord, digits)]] = [ord(str(int(digit))) for digit in digits]
    # also those without width, and dashes between words
    plain[[0xA0, 0x1680, *range(0x2000, 0x200E), 0x2014, 0x2015, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]] = ord(" ")
    plain[[0xAD, 0xB7, *range(0x2010, 0x2014), 0x2022, 0x2027, 0x2043, 0x2212, 0x2219, 0x22C5, 0x30FB, 0xFE58, 0xFE63]] = ord("-")
    plain[[0xFE62, 0xFE6B]] = [ord("+"), ord("@")]
    return plain


def plain(text: str) -> str:
    """A text with ASCII's spaces, hyphens and digits, spaces for line feeds and tabs of strings (``\\n``), and as many characters."""
    for escape in ("\\n", "\\r", "\\t") if "\\" in text else ():
        text = text.replace(escape, "  ")
    if text.isascii():
        return text
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _plain_codes().take(codes).tobytes().decode("utf-32-le", "surrogatepass")


# Encoded texts. Places are those of the text as it is, so that no library can decode it first.

_AT, _DOT = "@|at|ät|arroba|ch[iıİ]occ[iıİ]ola|собака|アット", r"\.|dot|punkt|punto|ponto|po[iıİ]nt|punt|nokta|kropka|точка|ドット"
_INVISIBLE = "\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_ENCODED = re.compile(
    rf"[&%\\(\[{{<\x1b{_INVISIBLE}](?:"
    r"(?<=&)(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
    r"|(?<=%)(?:[2-7][0-9A-Fa-f]|[c-fC-F][0-9A-Fa-f](?:%[89abAB][0-9A-Fa-f]){1,3})"
    r"|(?<=\\)(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})"
    rf"|(?<=[(\[{{<]) ?(?i:(?P<at>{_AT})|(?P<dot>{_DOT})) ?[)\]}}>]"
    r"|(?P<cells>(?<=<)(?:/t[dh]>\s*<t[dh](?:\s[^<>@0-9]{0,80})?|br ?/?)>|(?<=\x1b)\[[0-9;]{0,16}[A-Za-z])"
    r"|(?<=<)(?P<tag>!--[^<>@0-9]{0,80}-->|/?(?:b|code|em|font|i|mark|span|strong|u|wbr)(?:\s[^<>@0-9]{0,80})?/?>)"
    rf"|(?<=[{_INVISIBLE}])[{_INVISIBLE}]*)"
)
"""Entities of HTML, bytes of URLs, escapes of JSON and of strings, ``(at)`` and ``[dot]``, spaces without width, colours of terminals, and tags inside a
value or between cells."""
_REST = re.compile(
    r"[\w.+%-]+ ?(?:\.\w|[\[({<])|(?P<country>[a-z]{2})(?![a-z0-9_-])|[^\W\d_]{2,6}(?<![A-Za-z])(?!\w)"
    r"|(?:com|net|org|edu|gov|int|mil|info|biz|name|dev|app|site|online|shop|store|tech|cloud|email|xyz|blog|live|news|world|agency)(?![a-z0-9_-])",
    re.IGNORECASE,
)
"""What stands behind a dot in brackets: a label before another sign in brackets or a dot, or the last one, a country's or one of the usual."""


def _goes_on(text: str, at: int) -> bool:
    from phonenumbers import SUPPORTED_REGIONS  # countries, which have domains

    rest = _REST.match(text, at)
    return rest is not None and (not (country := rest["country"]) or country.upper() in {*SUPPORTED_REGIONS, "UK", "EU"})


_SAID_DOT = "dot|DOT|punto|ponto|punkt|point|punt|nokta|kropka|точка"
_SPOKEN = re.compile(
    rf"(?<![\w.+-])(?P<name>[\w+-]+(?:(?:\.| (?:{_SAID_DOT}) )[\w+-]+)*) (?:(?P<said>at|AT|@)|arroba|chiocciola|собака|ät) "
    rf"(?P<host>(?:[\w-]+(?:\.| (?:{_SAID_DOT}) ))+)[A-Za-z]{{2,24}}(?!\w)",
    re.ASCII,
)
_SAID = re.compile(" (?:@|arroba|chiocciola|собака|ät|dot|DOT|punkt) ")
"""What an address that is spelt without brackets has one of."""
_MAY_BE_ENCODED = rf"&[#A-Za-z]|%[2-7c-fC-F]|\\[ux]|[(\[{{<] ?(?i:{_AT}|{_DOT}) ?[)\]}}>]|</?[A-Za-z!]|[\x1b{_INVISIBLE}]|{_SAID.pattern}"
"""A pattern of RE2 for what every text with escapes has: quicker for many texts, as RE2 compiles it each time."""


def may_be_encoded(texts: Sequence[str]) -> Iterable[int]:
    """The texts that `decoded` may change."""
    return np.flatnonzero(matching(texts, _MAY_BE_ENCODED)).tolist() if len(texts) > 64 else range(len(texts))


def decoded(text: str) -> tuple[str, Ints, Ints] | None:
    """A text with the characters that its escapes stand for, and where each of them starts and ends in `text`; `None` if it has no escapes."""
    if not (_ENCODED.search(text) or _SAID.search(text)):
        return None
    result = _decoded(text)
    while result and (again := _decoded(result[0])):  # such as %2540
        result = again[0], result[1][again[1]], result[2][again[2] - 1]
    return result


def _decoded(text: str) -> tuple[str, Ints, Ints] | None:
    parts, bounds, last = list[str](), list[Ints](), 0
    for low, high, meant in sorted([*_escapes(text), *(_spoken(text) if _SAID.search(text) else ())]):
        if low >= last:
            parts += [text[last:low], meant]
            whole = np.repeat(np.array([[low], [high]], np.int64), len(meant), axis=1)
            bounds += [np.arange(last, low) + np.array([[0], [1]]), whole]
            last = high
    if not parts:
        return None
    starts, ends = np.concatenate([*bounds, np.arange(last, len(text)) + np.array([[0], [1]])], axis=1)
    return "".join((*parts, text[last:])), starts, ends


def _escapes(text: str) -> Iterator[tuple[int, int, str]]:
    for found in _ENCODED.finditer(text):
        low, high = found.span()
        beside = text[low - 1 : low] + text[high : high + 1]
        if found["at"] or found["dot"]:
            low -= text[low - 1 : low] == " "
            high += text[high : high + 1] == " "
            is_host = found["at"] or found["dot"] == "." or _goes_on(text, high)
            if is_host and text[low - 1 : low].isalnum() and text[high : high + 1].isalnum():
                yield low, high, "@" if found["at"] else "."
        elif found["cells"]:
            yield low, high, "\n"
        elif found[0][0] in "&%\\":
            if (meant := chr(int(found[0][2:], 16)) if found[0][0] == "\\" else replaced(found)) != found[0]:
                yield low, high, meant
        elif re.search("[@.0-9]", beside) if found["tag"] else beside.isascii():
            # some write what has no width in place of every space
            is_space = " " not in text[max(0, low - 24) : high + 24] and re.fullmatch("[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z]", beside)
            yield low, high, " " if is_space else ""


def _spoken(text: str) -> Iterator[tuple[int, int, str]]:
    """``j.smith at host dot com``: a name with a dot or a digit, capitals, a host of mail, or a word for mail before; ``see us at host dot com`` is none, nor
    ``meet us @ host.com``. ``arroba`` and its like need no such sign; ``@`` needs a word, as it multiplies matrices."""
    for found in _SPOKEN.finditer(text):
        name, said = found["name"], found["said"]
        is_shouted = said == "AT" and name != name.upper()
        near = _WRITE.search(text[max(0, found.start() - 32) : found.start()]) and name.lower() not in _NO_NAMES
        is_mail = said is None or is_shouted or near or _MAIL.search(found[0])
        is_mail = is_mail or (said != "@" and re.search(f"[._0-9+]| (?:{_SAID_DOT}) ", name))
        if re.search("[A-Za-z]", name) and is_mail and (said in (None, "@") or found["host"].endswith(" ")):
            for word in re.finditer(rf" (?:(?P<dot>{_SAID_DOT})|\S+) ", found[0]):
                yield found.start() + word.start(), found.start() + word.end(), "." if word["dot"] else "@"


_MAIL = re.compile("mail|outlook|yahoo|proton|icloud", re.IGNORECASE)
_WRITE = re.compile(f"{_MAIL.pattern}|correo|courriel|почт|contact|kontakt|contatt", re.IGNORECASE)
_NO_NAMES = {"me", "us", "him", "her", "them", "you", "it", "team", "address", "one", "all", "only", "someone", "anyone", "or"}


def places(text: str, ends: Ints, kinds: Sequence[Kind]) -> dict[int, dict[Kind, list[tuple[int, int]]]]:
    """The number of each text that may hold a value → kind → where, with what is around, in order and apart.

    Args:
        text: plain texts, one after another.
        ends: where each ends; the next one begins behind the character there.
    """
    where: dict[int, dict[Kind, list[tuple[int, int]]]] = {}
    until = ends.tolist()
    for kind, first, last in sorted(place for place in _conditions(text) if place[0] in kinds):
        number = bisect_left(until, first)
        low, around = until[number - 1] + 1 if number else 0, _AROUND.get(kind, 64)
        begin, end = max(first - around, low) - low, min(last + around, until[number]) - low
        of = where.setdefault(number, {}).setdefault(kind, [])
        low, high = of.pop() if of and begin <= of[-1][1] else (begin, end)
        of.append((low, max(end, high)))
    return where


def _conditions(text: str) -> Iterator[tuple[Kind, int, int]]:
    """Yield the first and the last character of what a value of a kind must have."""
    for found in re.finditer("@", text) if "@" in text else ():
        yield "email", found.start(), found.start()
    # punctuation of phonenumbers that is not in ASCII when plain
    raw = text.replace("\u2053", "~").replace("\u223c", "~").replace("\u30fc", "~").encode("ascii", "replace")
    codes = np.frombuffer(bytes(8) + raw + bytes(8), np.uint8)
    digits = np.flatnonzero(codes - ord("0") < 10)
    firsts, marks = _chains(codes, np.append(digits, len(codes)))
    there = np.flatnonzero(marks)
    firsts, marks, digits = firsts[there] - 8, marks[there], digits[there] - 8
    chains: dict[Kind, int] = {"phone": _PHONE, "card": _CARD, "national_id": _ID}
    for kind, mark in chains.items():
        yield from zip(repeat(kind), firsts[marks & mark > 0].tolist(), digits[marks & mark > 0].tolist())
    begun: tuple[tuple[Kind, int, re.Pattern[str]], ...] = (("card", _FOURS, CARD), ("ip", _DOTTED, _IP))
    for kind, mark, form in begun:
        yield from ((kind, at, value.end("end") - 1) for at in digits[marks & mark > 0].tolist() if (value := form.match(text, at)))
    for at in digits[marks & _BEHIND > 0].tolist():
        if _BEHIND_LETTERS.match(text, at):
            yield "iban", at, at
            yield "national_id", at, at
    keys, at = raw.translate(_AS_KEYS), 0
    while (at := keys.find(b"A" * SHORTEST_SECRET, at)) >= 0 and (row := _OF_KEYS.match(keys, at)):
        yield "secret", at, row.end() - 1
        at = row.end()
    for found in re.finditer("-----BEGIN ", text) if "-----BEGIN " in text else ():
        yield "secret", found.start(), len(text)


@compiled
def _chains(codes: npt.NDArray[np.uint8], digits: Ints) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """The chains of digits that have at most four signs between any two: int64[d], where the chain begins that ends with a digit; uint8[d], the marks of
    digits, those of a chain at its last one.

    Args:
        codes: ASCII, with eight zeros on both sides.
        digits: where it has digits, and where it ends: int64[d + 1].
    """
    firsts, marks = np.zeros(len(digits) - 1, np.int64), np.zeros(len(digits) - 1, np.uint8)
    size, close, above, group, mark, plus = 0, 0, 0, 0, 0, True
    for number in range(len(firsts)):
        at, gap = digits[number], digits[number + 1] - digits[number]
        before, after, more = codes[at - 1], codes[at + 1], codes[at + 2]
        size, close, group = size + 1, close + 1, group + 1
        if before >= ord("A") or (before == ord(" ") and ord("A") <= codes[at - 2] <= ord("Z")):
            marks[number] |= _BEHIND
        if (after == ord(".") and ord(".") in (codes[at + 3], codes[at + 4], codes[at + 5])) or codes[at + 4] == ord(":"):
            marks[number] |= _DOTTED
        if gap == 1:
            continue
        if group == 4 and number + 9 < len(firsts) and digits[number + 9] - digits[number - 3] <= 24:
            marks[number - 3] |= _FOURS
        is_broken = gap < 8 and ord("\n") in (after, more, codes[at + 3])  # a line may end within a card or a phone number
        apart, behind_plus, group = gap > 5, is_broken and plus, 0
        for place in range(max(at + 1, at + gap - 5), at + gap):
            apart |= not _BETWEEN[codes[place]]
            behind_plus |= codes[place] == ord("+")
        # digits of a card or an id have at most one sign between any two; six of an id have a letter or another sign behind
        if apart or gap > 2 or not (after == ord(" ") or ord("-") <= after <= ord("/")):
            is_more = after >= ord("A") or after == ord("+") or (after == ord(" ") and more >= ord("A"))
            mark, above, close = mark | _CARD * (above + close > 12) | _ID * (close + is_more > 6), close * is_broken, 0
        if apart:
            firsts[number], marks[number] = digits[number + 1 - size], marks[number] | mark | _PHONE * (size > (5 if plus else 6))
            size, mark, plus = 0, 0, behind_plus
    return firsts, marks
