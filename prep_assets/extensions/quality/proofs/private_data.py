"""Private data that is left in a text: a second search, which shares neither patterns nor code with the one that redacts.

It cuts texts into words and groups of digits, and judges each by itself: check digits, addresses and phone numbers by libraries.
"""

from __future__ import annotations

import html
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate, chain, product
from typing import Any
from urllib.parse import unquote

_FEWEST = {
    20: "AKIA ASIA ABIA xoxb- xoxp- xoxa-", 26: "glpat-", 28: "sk_live_ rk_live_", 37: "hf_", 39: "AIza", 40: "ghp_ gho_ ghu_ ghs_ ghr_ sk- npm_",
    55: "pypi-", 71: "github_pat_",
}  # fmt: skip
KEYS = {prefix: fewest for fewest, prefixes in _FEWEST.items() for prefix in prefixes.split()}
"""First letters of a service's keys → the fewest characters of one."""
OWNED = "com net org edu gov info uk eu"
"""Last labels of hosts that are spelt, beside those of countries that have phone numbers."""
IMAGES = ("png", "jpg", "jpeg", "gif", "webp", "svg", "avif")
OWNERLESS = ("example", "test", "invalid", "localhost", "self", "this", "shape", "inverse", "transpose", "reshape", "view", "sum")
"""Last labels of hosts that have no mail, members of matrices (``W@x.shape``) among them."""


def private_data_left(text: str, kinds: Sequence[str], countries: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the kind of each private value that is found in a text.

    Args:
        countries: those whose phone numbers are looked for without a prefix too; null: that of the text's language.
    """
    found = [*_left(text := re.sub(r"\\[nrt]", " ", unicodedata.normalize("NFKC", text)), kinds, countries)]
    meant = _decoded(text)
    yield from found
    yield from (kind for kind in (_left(meant, kinds, countries) if meant != text else ()) if kind not in found)


def _decoded(text: str) -> str:
    """A text with the characters that entities, bytes of URLs and escapes stand for, without invisible ones, and with signs that are spelt in brackets."""
    text = re.sub(r"\\u00([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), html.unescape(unquote(text)))
    text = text if text.isascii() else re.sub("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", "", text)
    for sign, word in (("@", "at|@"), (".", f"dot(?= ?. ?(?:{_last_labels()})\\b)|[.]")):
        for pair in ("[]", "()", "{}", "<>") if {*"[({<"} & {*text} else ():
            opened, closed = map(re.escape, pair)
            text = re.sub(f" ?{opened}(?i:{word}){closed} ?", sign, text)
    return text


@cache
def _last_labels() -> str:
    from phonenumbers import SUPPORTED_REGIONS

    return "|".join([*OWNED.split(), *sorted(map(str.lower, SUPPORTED_REGIONS))])


def _left(text: str, kinds: Sequence[str], countries: Sequence[str] | None) -> Iterator[str]:
    for kind, search in SEARCHES.items():
        if kind in kinds and (kind not in _WORTH or _WORTH[kind].search(text)):
            yield from (kind for value in search(text) if value)
    yield from ("phone" for value in (_national_phones(text, countries) if "phone" in kinds else ()) if value)


_WORTH = {
    "card": re.compile(r"(?:[0-9][^0-9A-Za-z]?){13}"),
    "iban": re.compile(r"[A-Za-z]{2}[0-9]{2}(?:[^0-9A-Za-z]?[0-9A-Za-z]){11}"),
    "ip": re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]*:"),
}
"""What a text has to hold for a search of each of its characters to be worth while."""


_NO_CARDS = re.compile(r"[/=] ?\d{13,}|(?<![0-9A-Za-z])(?<!\d[ -])(?:(?:\d{4}[ -]){4})+(?:\d{4}[ -]){0,2}\d{4}(?![ -]?\d)", re.ASCII)
"""A part of a URL, a result, and a row of a table."""


def _cards(text: str) -> Iterator[bool]:
    import regex

    decimal = re.sub(r"(?<![0-9])0,(?=[0-9])", "0.", _NO_CARDS.sub("", text))
    for run in regex.findall(r"[A-Za-z0-9.]+(?:[\p{Zs}\p{Pd}][A-Za-z0-9.]+)*", decimal):
        groups = re.findall("[A-Za-z0-9.]+", run)
        for first in range(len(groups)):
            for last in range(first, min(len(groups), first + 6)):
                chosen = [group.strip(".") for group in groups[first : last + 1]]
                whole = "".join(chosen)
                if len(whole) > 19 or not whole.isdigit() or re.fullmatch("[A-Za-z]{2}[0-9]{2}", "".join(groups[first - 1 : first])):
                    break
                is_split = len(chosen[0]) in (4, 6, len(whole)) and min(map(len, chosen)) > 1
                yield is_split and len(whole) - len(chosen) < 16 and _is_card(whole)
    for parts in re.findall(
        r"(?<![0-9A-Za-z])(?<![0-9][^0-9A-Za-z])([0-9]{4})([^0-9A-Za-z+*=<>^%&\s])([0-9]{4})\2([0-9]{4})\2([0-9]{4}|[0-9])(?![0-9A-Za-z])(?!\2[0-9:])",
        text,
    ):
        yield parts[1] != ":" and _is_card("".join(parts).replace(parts[1], ""))


def _is_card(digits: str) -> bool:
    """Whether digits have a brand's first digits and length, and the check digit."""
    from stdnum import ean, luhn

    two, four, size = int(digits[:2]), int(digits[:4]), len(digits)
    known = (
        (digits[0] == "4" and size in (13, 16, 19))
        or ((51 <= two <= 55 or 2221 <= four <= 2720) and size == 16)
        or (two in (34, 37) and size == 15)
        or (two in (36, 38) and size in (14, 16))
        or ((3528 <= four <= 3589 or four == 6011 or two in (62, 65)) and size == 16)
    )
    return known and len({*digits}) > 1 and bool(luhn.is_valid(digits)) and not (size == 13 and ean.is_valid(digits))


def _ibans(text: str) -> Iterator[bool]:
    import regex
    from stdnum import iban

    for run in regex.findall(r"[A-Z0-9]+(?:[\p{Zs}\p{Pd}./_\n][A-Z0-9]+)*", text.upper()):
        groups = [group.removeprefix("IBAN") for group in re.findall("[A-Z0-9]+", run)]
        for first, group in enumerate(groups):
            if re.match("[A-Z]{2}[0-9]{2}.{0,30}$", group):
                yield from (bool(iban.is_valid(whole, check_country=False)) for whole in accumulate(groups[first : first + 9]))


def _emails(text: str) -> Iterator[bool]:
    from email_validator import EmailNotValidError, validate_email

    for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._%+~-]*@[A-Za-z0-9.-]+[:/]?", text) if "@" in text else ():
        is_place = word.endswith((":", "/")) and word.strip("._-~").startswith(("git@", "hg@", "svn@"))
        name, _, domain = word.rstrip(":/").strip("._-~").rpartition("@")
        labels = domain.lower().split(".")
        is_image = labels[0][1:] == "x" and labels[-1] in IMAGES
        if is_place or is_image or not {*labels[-3:]}.isdisjoint(OWNERLESS):
            continue
        with suppress(EmailNotValidError):
            is_domain = len(labels[-1]) > 1 and (labels[-1].isalpha() or labels[-1].startswith("xn--"))
            yield bool(validate_email(f"{name}@{domain}", check_deliverability=False)) and is_domain


def _addresses(text: str) -> Iterator[bool]:
    for found in chain(re.finditer(r"[0-9A-Za-z.]+", text), re.finditer(r"[0-9A-Za-z:]+", text)):
        word, before, after = found[0].strip("."), text[max(0, found.start() - 20) : found.start()].lower(), text[found.end() :]
        is_version = re.search(
            r"(?:version|release|firmware|build|section|chapter|clause|(?<![a-z])(?:ec|rfc ?\d+))[\W_]*$|[a-z]/$|[=<>~!]= ?$", before
        )
        if is_version or (len(word) == 7 and after[:1] == " " and after[1:2].isupper()):  # or a heading
            continue
        if re.match(r"[1-9][0-9]{0,2}(?:\.[0-9]+){3}$|(?!3fff)[23][0-9a-f]{3}:", word.lower()):  # no slice such as 1::2
            with suppress(ValueError):
                address = ipaddress.ip_address(word.strip(":"))
                yield address.is_global and not address.is_multicast


def _phones(text: str) -> Iterator[bool]:
    import phonenumbers

    for found in re.finditer(r"(?<![0-9])\+(?=[1-9])(?![0-9]{1,3}\.[0-9]{4,})", text):  # no decimal number, such as a coordinate
        words = text[found.start() : found.start() + 40].split(" ")[:6]
        for count in range(1, len(words) + 1):
            with suppress(phonenumbers.NumberParseException):
                number = phonenumbers.parse(re.match(r"\+[0-9 ().\-/]*", " ".join(words[:count]))[0])  # type: ignore[index]
                if phonenumbers.is_valid_number(number):
                    yield True
                    break


_SPOKEN = "de:DE fr:FR es:ES it:IT pl:PL nl:NL sv:SE tr:TR ru:RU pt:BR en:US ja:JP ko:KR zh:CN cs:CZ da:DK fi:FI hu:HU ro:RO el:GR uk:UA he:IL id:ID vi:VN"
"""Language → a country whose texts are in it."""
_SURE = 0.98


@cache
def identifier() -> Any:
    """The library's own, of all languages that it knows."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _national_phones(text: str, countries: Sequence[str] | None) -> Iterator[bool]:
    """Numbers that stand between words in the groups in which a country writes its own: one of `countries`, or that of the text's language, if that is sure
    among all that the library knows."""
    import phonenumbers

    between = r"(?<![^\s:：(])(\(?[0-9][0-9 ()/.-]{5,18}[0-9])(?=\s|[.,;!?)]\s|$)(?!\s?(?:[$€£¥₹₽₩₫]|[A-Z]{3}\b|руб|zł|kr\b|TL\b))"
    written = [found.strip() for found in re.findall(between, text)]  # no prices
    written += re.findall(r"(?<=[\u3040-\u9fff\uac00-\ud7a3])[0-9][0-9 ()-]{5,18}[0-9](?=[\u3001-\u9fff\uac00-\ud7a3])", text)
    none = r"\d+|[12]\d{3}-[12]\d{3}|.*(?:/|[.] ).*"
    written = [said for said in written if not re.fullmatch(none, said) and sum(map(str.isdigit, said)) > 7]
    if written and countries is None:
        language, probability = identifier().classify(text[:2000])
        countries = [pair[3:] for pair in _SPOKEN.split() if pair.startswith(f"{language}:") and probability >= _SURE]
    for said, country in product(written, countries or ()):
        with suppress(phonenumbers.NumberParseException):
            number = phonenumbers.parse(said, country)
            written_there = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
            is_grouped = re.findall("[0-9]+", said) == re.findall("[0-9]+", written_there)
            yield phonenumbers.is_valid_number(number) and is_grouped


def _ids(text: str) -> Iterator[bool]:
    """Of China and Spain, and of Brazil and the United States as these write them."""
    from stdnum.br import cpf
    from stdnum.es import dni, nie
    from stdnum.iso7064 import mod_11_2
    from stdnum.us import ssn

    for word in (part.strip("./-") for part in re.findall(r"(?<![0-9A-Z./+-])[0-9A-Z./+-]{8,40}(?![0-9A-Z./+-])", text.upper())):
        is_chinese = (
            len(word) == 18 and word[6:8] in ("19", "20") and word[:17].isdigit() and 0 < int(word[10:12]) < 13 and int(word[12:14]) < 32
        )
        yield mod_11_2.is_valid(word) if is_chinese else dni.is_valid(word) or nie.is_valid(word)
        yield (cpf.is_valid(word) and word == cpf.format(word)) or (ssn.is_valid(word) and word[3:4] == word[6:7] == "-")


def _secrets(text: str) -> Iterator[bool]:
    yield from ("PRIVATE KEY" in line for line in text.split("-----BEGIN ")[1:] for line in line.splitlines()[:1])
    yield re.search(r"hooks\.slack\.com/services/T(?!\S*x{8})", text, re.IGNORECASE) is not None
    for line in text.splitlines() if "aws" in text.lower() else ():
        named = "aws" in line.lower() and ("secret" in line.lower() or "key" in line.lower())
        yield named and any(len(word) == 40 and word.lower() != word != word.upper() for word in re.split(r"[^A-Za-z0-9/+]+", line))
    for word in (part.strip("_") for part in re.split(r"[^A-Za-z0-9_-]+", text)):
        fewest = max((fewest for prefix, fewest in KEYS.items() if word.startswith(prefix)), default=len(word) + 1)
        yield len(word) >= fewest and "x" * 8 not in word.lower() and (word.startswith("hf_") or any(map(str.isdigit, word)))


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
