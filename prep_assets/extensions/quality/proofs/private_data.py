"""Private data that is left in a text: a second search, which shares neither patterns nor code with the one that redacts.

It cuts texts into words and groups of digits, and judges each by itself: check digits by their definitions, addresses by the standard library or a parser.
"""

from __future__ import annotations

import html
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain, groupby
from typing import Any
from urllib.parse import unquote

_FEWEST = {
    20: "AKIA ASIA ABIA xoxb- xoxp- xoxa-", 26: "glpat-", 28: "sk_live_ rk_live_", 37: "hf_", 39: "AIza", 40: "ghp_ gho_ ghu_ ghs_ ghr_ sk- npm_",
    55: "pypi-", 71: "github_pat_",
}  # fmt: skip
KEYS = {prefix: fewest for fewest, prefixes in _FEWEST.items() for prefix in prefixes.split()}
"""First letters of a service's keys → the fewest characters of one."""
ADVERTISED = ("078-05-1120", "457-55-5462", "219-09-9999")
"""Social security numbers that advertisements printed."""
OWNED = "com|net|org|edu|gov|info"
"""Last labels of hosts that are spelt, beside those of countries."""
OWNERLESS, IMAGES = ("example", "test", "invalid", "localhost"), ("png", "jpg", "jpeg", "gif", "webp", "svg", "avif")


def private_data_left(text: str, kinds: Sequence[str], countries: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the kind of each private value that is found in a text.

    Args:
        countries: those whose phone numbers are looked for without a prefix too; null: that of the text's language.
    """
    found = [*_left(text := unicodedata.normalize("NFKC", text), kinds, countries)]
    meant = _decoded(text)
    yield from found
    yield from (kind for kind in (_left(meant, kinds, countries) if meant != text else ()) if kind not in found)


def _decoded(text: str) -> str:
    """A text with the characters that entities, bytes of URLs and escapes stand for, without invisible ones, and with signs that are spelt in brackets."""
    text = re.sub(r"\\u00([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), html.unescape(unquote(text)))
    text = text if text.isascii() else re.sub("[\u200b-\u200d\u2060\ufeff]", "", text)
    for sign, word in (("@", "at|@"), (".", f"dot(?= ?. ?(?:[a-z]{{2}}|{OWNED})\\b)|[.]")):
        for pair in ("[]", "()", "{}", "<>") if {*"[({<"} & {*text} else ():
            opened, closed = map(re.escape, pair)
            text = re.sub(f" ?{opened}(?i:{word}){closed} ?", sign, text)
    return text


def _left(text: str, kinds: Sequence[str], countries: Sequence[str] | None) -> Iterator[str]:
    for kind, search in SEARCHES.items():
        if kind in kinds and (kind not in _WORTH or _WORTH[kind].search(text)):
            yield from (kind for value in search(text) if value)
    if "phone" in kinds and countries is None:
        yield from ("phone" for value in _phones_of_language(text) if value)
    elif "phone" in kinds:
        yield from ("phone" for country in countries or () for value in _national_phones(text, country) if value)


_WORTH = {
    "card": re.compile(r"(?:[0-9][^0-9A-Za-z]?){13}"),
    "iban": re.compile(r"[A-Za-z]{2}[0-9]{2}(?:[^0-9A-Za-z]?[0-9A-Za-z]){11}"),
    "ip": re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]*:"),
}
"""What a text has to hold for a search of each of its characters to be worth while."""


def _grouped(text: str, is_member: Callable[[str], bool], between: str = "") -> Iterator[list[str]]:
    """Yield runs of groups of characters, with one space, hyphen or character of `between` between two groups."""
    groups: list[str] = []
    for member, characters in groupby(text, is_member):
        part = "".join(characters)
        if member:
            groups.append(part)
        elif len(part) > 1 or (part not in between and unicodedata.category(part) not in ("Zs", "Pd")):
            yield groups
            groups = []
    yield groups


def _is_ascii_letter_or_digit(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _cards(text: str) -> Iterator[bool]:
    decimal = re.sub(r"(?<![0-9])0,(?=[0-9])", "0.", text)
    for groups in _grouped(decimal, lambda character: character == "." or _is_ascii_letter_or_digit(character)):
        for first in range(len(groups)):
            for last in range(first, min(len(groups), first + 6)):
                chosen = [group.strip(".") for group in groups[first : last + 1]]
                whole = "".join(chosen)
                if len(whole) > 19 or not whole.isdigit():
                    break
                yield len(chosen[0]) > 3 and all(len(group) > 1 for group in chosen) and _is_card(whole)
    for parts in re.findall(
        r"(?<![0-9A-Za-z])(?<![0-9][^0-9A-Za-z])([0-9]{4})([^0-9A-Za-z+*=<>^%&\s])([0-9]{4})\2([0-9]{4})\2([0-9]{4}|[0-9])(?![0-9A-Za-z])(?!\2[0-9:])",
        text,
    ):
        yield parts[1] != ":" and _is_card("".join(parts).replace(parts[1], ""))


def _is_card(digits: str) -> bool:
    """Whether digits have a brand's first digits and length, and the check digit: doubled, every second one from the right (ISO/IEC 7812-1)."""
    if len(digits) < 13 or len(set(digits)) == 1:
        return False
    total = sum(int(digit) if at % 2 == 0 else 2 * int(digit) - 9 * (int(digit) > 4) for at, digit in enumerate(reversed(digits)))
    two, four, size = int(digits[:2]), int(digits[:4]), len(digits)
    known = (
        (digits[0] == "4" and size in (13, 16, 19))
        or ((51 <= two <= 55 or 2221 <= four <= 2720) and size == 16)
        or (two in (34, 37) and size == 15)
        or (two in (36, 38) and size in (14, 16))
        or ((3528 <= four <= 3589 or four == 6011 or two in (62, 65)) and size == 16)
    )
    return known and total % 10 == 0


@lru_cache(256)
def _length_of_iban(country: str) -> int | None:
    """The length of a country's IBANs, as the registry of SWIFT says."""
    from stdnum import numdb

    entries = numdb.get("iban").info(f"{country}00")[0][1]
    return 4 + sum(map(int, re.findall("[0-9]+", entries["bban"]))) if "bban" in entries else None


def _ibans(text: str) -> Iterator[bool]:
    for groups in _grouped(text.upper(), _is_ascii_letter_or_digit, "./_\n"):
        groups = [group.removeprefix("IBAN") for group in groups]
        for first, group in enumerate(groups):
            size = _length_of_iban(group[:2]) if re.match("[A-Z]{2}[0-9]{2}", group) else None
            whole = ""
            for group in groups[first:] if size else ():
                whole += group
                if len(whole) == size:
                    # letters as numbers from 10, country and check digits last; 1 remains (ISO 13616)
                    yield int("".join(str(int(letter, 36)) for letter in whole[4:] + whole[:4])) % 97 == 1


def _emails(text: str) -> Iterator[bool]:
    from email_validator import EmailNotValidError, validate_email

    for word in re.findall(r"[A-Za-z0-9._%+~-]+@[A-Za-z0-9.-]+[:/]?", text) if "@" in text else ():
        is_place = word.endswith((":", "/")) and word.strip("._-~").startswith(("git@", "hg@", "svn@"))
        name, _, domain = word.rstrip(":/").strip("._-~").rpartition("@")
        labels = domain.lower().split(".")
        is_image = labels[0][1:] == "x" and labels[-1] in IMAGES
        if is_place or is_image or not {*labels[-3:]}.isdisjoint(OWNERLESS):
            continue
        try:
            is_domain = len(labels[-1]) > 1 and (labels[-1].isalpha() or labels[-1].startswith("xn--"))
            yield bool(validate_email(f"{name}@{domain}", check_deliverability=False)) and is_domain
        except EmailNotValidError:
            continue


def _addresses(text: str) -> Iterator[bool]:
    for found in chain(re.finditer(r"[0-9A-Za-z.]+", text), re.finditer(r"[0-9A-Za-z:]+", text)):
        word, before = found[0].strip("."), text[max(0, found.start() - 12) : found.start()]
        is_version = before.lower().rstrip(" :'\"").endswith(("version", "build", "section", "chapter")) or (
            before.endswith("/") and before[-2:-1].isalpha()
        )
        if is_version:
            continue
        if word.count(".") == 3 or word.count(":") > 1:
            try:
                address = ipaddress.ip_address(word.strip(":"))
            except ValueError:
                continue
            yield address.is_global and not address.is_multicast and word[0] in "123456789" and not word.startswith("3fff:")


def _phones(text: str) -> Iterator[bool]:
    import phonenumbers

    for found in re.finditer(r"(?<![0-9])\+(?=[1-9])(?![0-9]{1,3}\.[0-9]{4,})", text):  # no decimal number, such as a coordinate
        words = text[found.start() : found.start() + 40].split(" ")[:6]
        for count in range(1, len(words) + 1):
            try:
                number = phonenumbers.parse(re.match(r"\+[0-9 ().\-/]*", " ".join(words[:count]))[0])  # type: ignore[index]
            except phonenumbers.NumberParseException:
                continue
            if phonenumbers.is_valid_number(number):
                yield True
                break


def _national_phones(text: str, country: str) -> Iterator[bool]:
    import phonenumbers

    for run in re.findall(
        r"(?<![^ \n:])[0-9(][0-9 ()-]{5,}[0-9](?=[ \n]?[^\W0-9_]|[.!?]?(?:\n|$))", text
    ):  # all that stands between two words
        with suppress(phonenumbers.NumberParseException):
            yield run[:2] != "00" and phonenumbers.is_valid_number(phonenumbers.parse(run, country))


_SPOKEN = "de:DE fr:FR es:ES it:IT pl:PL nl:NL sv:SE tr:TR ru:RU pt:BR en:US ja:JP ko:KR zh:CN cs:CZ da:DK fi:FI hu:HU ro:RO el:GR uk:UA he:IL id:ID vi:VN"
"""Language → a country whose texts are in it."""
_SURE = 0.98


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _phones_of_language(text: str) -> Iterator[bool]:
    """Numbers that stand between words in the groups in which a country writes its own, in texts whose language is sure among all that the library knows."""
    import phonenumbers

    written = [found[0].strip() for found in re.finditer(r"(?<![^\s:：(])\(?[0-9][0-9 ()/.-]{5,18}[0-9](?=\s|[.,;!?)]\s|$)", text)]
    written += re.findall(r"(?<=[\u3040-\u9fff\uac00-\ud7a3])[0-9][0-9 ()-]{5,18}[0-9](?=[\u3001-\u9fff\uac00-\ud7a3])", text)
    written = [said for said in written if "/" not in said and not said.isdigit() and sum(map(str.isdigit, said)) > 7]
    if not written:
        return
    language, probability = _identifier().classify(text[:2000])
    country = dict(pair.split(":") for pair in _SPOKEN.split()).get(language)
    for said in written if country and probability >= _SURE else ():
        with suppress(phonenumbers.NumberParseException):
            number = phonenumbers.parse(said, country)
            written_there = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
            is_grouped = re.findall("[0-9]+", said) == re.findall("[0-9]+", written_there)
            yield phonenumbers.is_valid_number(number) and is_grouped


def _ids(text: str) -> Iterator[bool]:
    for word in re.split(r"[^0-9A-Za-z./+-]+", text.upper()):
        yield _is_id(word.strip("./-"))


def _is_id(word: str) -> bool:
    """Whether a word is an id: of Spain (23 letters), China (ISO 7064, modulo 11), Brazil (two digits modulo 11) or the United States (groups alone)."""
    if re.fullmatch("[0-9XYZ][0-9]{7}[A-Z]", word):
        return "TRWAGMYFPDXBNJZSQVHLCKE"[int(word[:8].translate(str.maketrans("XYZ", "012"))) % 23] == word[8]
    if re.fullmatch("[1-8][0-9]{5}(19|20)[0-9]{11}|[1-8][0-9]{5}(19|20)[0-9]{9}X", word):
        month, day = int(word[10:12]), int(word[12:14])
        total = sum((10 if digit == "X" else int(digit)) << at for at, digit in enumerate(reversed(word)))
        return 1 <= month <= 12 and 1 <= day <= 31 and total % 11 == 1
    if re.fullmatch(r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}", word):
        digits = [int(digit) for digit in word if digit.isdigit()]
        return len({*digits}) > 1 and all(
            sum(digit * (size + 1 - at) for at, digit in enumerate(digits[:size])) * 10 % 11 % 10 == digits[size] for size in (9, 10)
        )
    area, _, rest = word.partition("-")
    is_social = bool(re.fullmatch("[0-9]{3}-[0-9]{2}-[0-9]{4}", word)) and word not in ADVERTISED
    return is_social and area not in ("000", "666") and area < "900" and rest[:2] != "00" and rest[3:] != "0000"


def _secrets(text: str) -> Iterator[bool]:
    yield from ("PRIVATE KEY" in line for line in text.split("-----BEGIN ")[1:] for line in line.splitlines()[:1])
    yield "hooks.slack.com/services/T" in text
    for line in text.splitlines() if "aws" in text.lower() else ():
        named = "aws" in line.lower() and ("secret" in line.lower() or "key" in line.lower())
        yield named and any(len(word) == 40 and word.lower() != word != word.upper() for word in re.split(r"[^A-Za-z0-9/+]+", line))
    for word in re.split(r"[^A-Za-z0-9_-]+", text):
        yield any(
            word.startswith(prefix) and len(word) >= fewest and (prefix == "hf_" or any(map(str.isdigit, word)))
            for prefix, fewest in KEYS.items()
        )


SEARCHES: Mapping[str, Callable[[str], Iterator[bool]]] = {
    "email": _emails,
    "phone": _phones,
    "ip": _addresses,
    "card": _cards,
    "iban": _ibans,
    "national_id": _ids,
    "secret": _secrets,
}
"""Kind → whether each word or group of a text is a value of it."""
