"""Private data: addresses, phone numbers, numbers with a checksum, and secrets of services, found by libraries, and replaced by placeholders.

Libraries say what is a number or a key: `phonenumbers` (Google's matcher), `python-stdnum` (check digits and lengths of IBANs and national ids),
`email-validator` (internationalised addresses), the rules of detect-secrets. What is our own finds the places to ask about: no library finds cards, IBANs, ids
and addresses in text.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from operator import itemgetter
from typing import Any, get_args

import numpy as np
from msgspec import Struct

from prep_assets.config.family import PrivateKind as Kind
from prep_assets.config.loading import payload_digest
from prep_assets.errors import ConfigError
from prep_assets.extensions.quality.private_places import CARD, SHORTEST_SECRET, Places, Span, decoded, may_be_encoded, places, plain
from prep_assets.extensions.quality.steps import text_of

# What finds a kind yields values that may overlap: those yielded first count, see `_values`.

# Cards: digits of a brand's length, in groups, with their check digit.

_DIGITS = re.compile("[0-9]+")
_RUN = re.compile(r"(?:(?<![A-Za-z0-9])|(?<=%B))[0-9]+(?:[ -]\0*[0-9]+)*(?![A-Za-z0-9]|[.][0-9])")
_PATH = re.compile(r"[A-Za-z0-9]\.[a-z]{2,6}/(?:[^\s?=]{0,40}/)?$")
"""Of a URL, before a part of it."""
_BREAK = re.compile(r"(?<=[0-9)])[ -]?\r?\n[> ]{0,4}(?=[0-9(])")
"""The end of a line within a number."""
_BRANDS: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile("4"), (19, 16, 13)),  # Visa
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|220[0-4]"), (16,)),  # Mastercard, Mir
    (re.compile("3[47]"), (15,)),  # American Express
    (re.compile("3(?:0[0-5]|[689])"), (14, 16, 19)),  # Diners Club
    (re.compile("6(?:011|4[4-9]|5|2)|35(?:2[89]|[3-8])"), (16, 17, 18, 19)),  # Discover, UnionPay, JCB
    (re.compile("5[06-8]|6"), (16, 18, 19)),  # Maestro, RuPay, Troy
)
"""First digits (ISO/IEC 7812-1) and the lengths of a brand's numbers."""


_ALONE = re.compile(r"[^\w\s+*=<>^%&-]|[_\t]|  | [-/] ")
"""Signs between the groups of a card that need no word for cards before them; numbers of four digits in lists, columns and sums do."""
_NEAR = 48
"""Characters before a number where a word for cards, or the name of an id, may stand."""
_ONE_BY_ONE = re.compile(
    r"(?<![A-Za-z0-9])(?<![0-9][ -])[0-9](?P<sign>[ -])[0-9](?:(?P=sign)[0-9]){11,17}(?P<end>)(?P<more>)(?![A-Za-z0-9]|(?P=sign)[0-9])"
)
_OF_CARDS = re.compile(
    r"card|cart[ae\u00e3]|kart|kaart|kort|карт|tarjet|卡|カード|카드|بطاق|कार्ड|credit|kredit|cr\u00e9dit|debit|visa|amex|maestro|\bcc\b|\bpan\b",
    re.IGNORECASE,
)


def _cards(text: str) -> Places:
    whole = _BREAK.sub(lambda broken: " ".ljust(len(broken[0]), "\0"), text)
    for read, run in ((either, run) for either in dict.fromkeys((text, whole)) for run in _RUN.finditer(either)):
        groups = [*_DIGITS.finditer(read, *run.span())]
        is_row = len(groups) > 5 and len(groups) % 4 and {len(each[0]) for each in groups} == {4} and not _is_named(text, run.start())
        for number, first in enumerate(() if is_row else groups):  # a row of a table
            for until in reversed(groups[number : number + 5]):
                low, high = first.start(), until.end()
                breaks = text.count("\n", low, high)
                is_whole = breaks < 2 and (not breaks or re.search(r"[^\W\d_][^\w\n]{0,9}$", text[:low]))
                if is_whole and _is_card(read[low:high]) and _is_grouped(read, low, high):
                    yield low, high
    taken = 0
    for found in (*CARD.finditer(text), *_ONE_BY_ONE.finditer(text)):
        low, sign, last = found.start(), found["sign"], _end_with_signs(text, found)
        before = text[max(0, low - _NEAR) : low]
        if last and (low == taken + len(sign) or not re.search(rf"[0-9]{re.escape(sign)}$", before)):  # or the middle of a longer row
            yield low, last
            taken = last


def _is_named(text: str, low: int) -> bool:
    return _OF_CARDS.search(text, max(0, low - _NEAR), low) is not None


def _end_with_signs(text: str, found: re.Match[str]) -> int | None:
    """Where a card ends whose groups have the same signs between them; `None` if there is none, or numbers follow in the same row that are no card."""
    low, high, sign = found.start(), found.end("end"), found["sign"]
    named = _is_named(text, low)
    if not (named or _ALONE.fullmatch(sign)) or (sign == ":" and ":" in (text[low - 1 : low], text[high : high + 1])):  # or an address
        return None
    stops = (high, found.start("more")) if found["more"] else (high,)  # or a code behind the number
    end = next((end for end in stops if _is_card(text[low:end], _BRANDS if named else _BRANDS[:-1])), None)
    if end and re.match(rf"{re.escape(sign)}[0-9]{{4}}", text[end:]):
        more = CARD.match(text, end + len(sign))
        return end if more and _is_card(text[more.start() : more.end("end")]) else None
    return end


def _is_card(text: str, brands: Sequence[tuple[re.Pattern[str], tuple[int, ...]]] = _BRANDS) -> bool:
    from stdnum import luhn

    digits = re.sub("[^0-9]", "", text)
    lengths = next((lengths for prefix, lengths in brands if prefix.match(digits)), ())
    return len(digits) in lengths and len({*digits}) > 1 and bool(luhn.is_valid(digits))


def _is_grouped(text: str, low: int, high: int) -> bool:
    """Whether digits with spaces or hyphens may be a card, and not a decimal, a phone number, an IBAN or a number of a product."""
    from stdnum import ean

    sizes, before = tuple(map(len, re.findall("[0-9]+", text[low:high]))), text[max(0, low - 5) : low]
    is_decimal = re.search(r"(?:\d[.]|(?<!\d)0,|[\d)] ?= ?|[A-Za-z]{2}\d{2}[ -])$", before) or (before[-1:] == "+" and sum(sizes) < 16)
    is_alike = {*sizes} == {4} or len({*re.findall("[^0-9\\0]", text[low:high])}) < 2
    # tweets and their like have up to 19 digits, as only cards of China still do
    is_long = (high - low > 16 and text[low : low + 2] != "62") or (high - low == 13 and ean.is_valid(text[low:high]))
    is_key = (is_long or _PATH.search(text, 0, low)) and not _is_named(text, low)
    is_whole = (is_alike and sizes[0] in (4, 6) and min(sizes) > 1) or sizes == (4, 4, 4, 1)
    return not is_decimal and (is_whole if len(sizes) > 1 else not is_key)


# IBANs: each country's length and structure, and check digits.

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])(?:IBAN)?(?P<begin>(?:[A-Za-z]{2}|[A-Z]{2} )[0-9]{2})(?=(?P<rest>(?:(?:[ ./_-]{0,2}| ?\r?\n[> ]{0,4})[A-Za-z0-9]){11,30}))"
)
_LAST = re.compile("[A-Za-z0-9](?![A-Za-z0-9])|[0-9](?=[A-Za-z])")


def _ibans(text: str) -> Places:
    from stdnum import iban

    for found in _IBAN.finditer(text):
        for last in reversed([*_LAST.finditer(text, *found.span("rest"))]):
            start, end = found.start("begin"), last.end()
            if iban.is_valid(re.sub("[^A-Za-z0-9]", "", text[start:end]), check_country=False):
                yield start, end


# National ids: the forms in which countries write them; one that is digits alone counts behind its name.

_IDS: Mapping[str, str] = {
    "us.ssn": "[0-9]{3}-[0-9]{2}-[0-9]{4}",
    "es.dni": "[0-9]{8}-?[A-Z]|[0-9]{2}[.][0-9]{3}[.][0-9]{3}-?[A-Z]",
    "es.nie": "[XYZ]-?[0-9]{7}-?[A-Z]",
    "fr.nir": "[12](?: ?[0-9]{2}){2} ?(?:[0-9]{2}|2[AB])(?: ?[0-9]{3}){2} ?[0-9]{2}",
    "it.codicefiscale": "[A-Z]{6}[0-9][0-9L-V][A-T][0-9L-V]{2}[A-Z][0-9L-V]{3}[A-Z]",
    "br.cpf": "(?:[0-9]{3}[.]){2}[0-9]{3}-[0-9]{2}",
    "iso7064.mod_11_2": "[1-8][0-9]{5} ?(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])[0-3][0-9] ?[0-9]{3}[0-9X]",  # China; cn.ric misses districts
    "luhn": "[0-9]{2}(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])[-+][0-9]{4}",  # Sweden; the library's own module asks the clock
    "fi.hetu": "[0-9]{6}[-+A-FU-Y][0-9]{3}[0-9A-Y]",
    "kr.rrn": "[0-9]{6}-[1-8][0-9]{6}",
    "be": "[0-9]{2}[.](?:0[1-9]|1[0-2])[.][0-3][0-9]-[0-9]{3}[.][0-9]{2}",  # Belgium; its form is nobody else's
    "mx.curp": "[A-Z]{4}[0-9]{6}[HM][A-Z]{5}[0-9A-Z][0-9]",
    "cl.rut": "[0-9]{1,2}(?:[.][0-9]{3}){2}-[0-9K]",
    "cz.rc": "[0-9]{6}/[0-9]{3,4}",
    "ch.ssn": "756[.][0-9]{4}[.][0-9]{4}[.][0-9]{2}",
}
"""Module of python-stdnum → the form."""
_NAMED_IDS: Mapping[str, str] = {
    "us.ssn": "SSN|social security", "us.itin": "ITIN", "br.cpf": "CPF", "pl.pesel": "PESEL", "nl.bsn": "BSN|burgerservicenummer", "tr.tckimlik": "kimlik|TCKN",
    "de.idnr": "Steuer-?ID|IdNr|Steueridentifikationsnummer", "in_.aadhaar": "aadhaar|आधार", "ro.cnp": "CNP", "hr.oib": "OIB", "gb.nhs": "NHS",
    "ca.sin": "SIN|social insurance", "au.tfn": "TFN|tax file", "bg.egn": "EGN|ЕГН", "jp.in_": "マイナンバー|個人番号", "cl.rut": "RUT", "ar.dni": "DNI",
    "ar.cuit": "CUI[TL]", "at.vnr": "SVNR|Sozialversicherungsnummer", "ch.ssn": "AHV|AVS", "cz.rc": "rodné číslo|RČ", "dk.cpr": "CPR|personnummer",
    "ee.ik": "isikukood", "gr.amka": "AMKA|ΑΜΚΑ", "id.nik": "NIK", "ie.pps": "PPSN?", "il.idnr": "ת[.\"״]?ז|תעודת זהות|מספר זהות", "is_.kennitala": "kennitala",
    "lt.asmens": "asmens kodas", "my.nric": "NRIC|MyKad", "no.fodselsnummer": "fødselsnummer|personnummer", "pk.cnic": "CNIC", "pt.nif": "NIF|contribuinte",
    "ru.inn": "ИНН", "se.personnummer": "personnummer", "si.emso": "EMŠO|JMBG", "th.pin": "ประชาชน", "za.idnr": "ID",
    "nino": "NINO|NI|National Insurance",
}  # fmt: skip
"""Module → how the id is called."""
_NINO = r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?(?:[0-9]{2} ?){3}[A-D]"
_FORM_ALONE = {"be": _IDS["be"], "nino": _NINO}
"""Belgium's form is nobody else's; the United Kingdom's national insurance has no check digit."""
_ID = re.compile(rf"(?<![A-Za-z0-9+])(?<![0-9][./-])(?:{'|'.join(_IDS.values())})(?![A-Za-z0-9]|[./-][0-9])", re.IGNORECASE)
_NUMBER = re.compile(rf"(?<![A-Za-z+])(?:[0-9](?:[ ./-]?[0-9]){{6,12}}-?[A-Z]{{0,2}}|{_NINO})(?![A-Za-z0-9]|[.,-][0-9])", re.IGNORECASE)
"""What may be an id behind its name."""
_BEHIND = r"(?<![A-Za-z])(?:{})[^0-9\n]{{0,12}}$"
_ANY_NAME = re.compile(_BEHIND.format("|".join(_NAMED_IDS.values())), re.IGNORECASE)


def _ids(text: str) -> Places:
    for found in _ID.finditer(text):
        if any(_is_id(module, found[0]) for module, form in _IDS.items() if re.fullmatch(form, found[0], re.IGNORECASE)):
            yield found.span()
    for found in _NUMBER.finditer(text):
        before = _DIGITS.split(text[max(0, found.start() - _NEAR) : found.start()])[-1]  # no name has digits
        names = _NAMED_IDS.items() if _ANY_NAME.search(before) else ()
        if any(_is_id(module, found[0]) for module, name in names if re.search(_BEHIND.format(name), before, re.IGNORECASE)):
            yield found.span()


def _is_id(module: str, value: str) -> bool:
    value = value.upper()
    if module in _FORM_ALONE:
        return re.fullmatch(_FORM_ALONE[module], value) is not None
    is_valid = import_module(f"stdnum.{module}").is_valid
    return bool(is_valid(value) or is_valid(re.sub("[ ./+-]", "", value)))


# Addresses.

_ASCII_MAIL = re.compile(
    r"(?:(?<![A-Za-z0-9_\u00c0-\u024f])_*(?![bfruBFRU]{1,2}')[A-Za-z0-9](?:[A-Za-z0-9_+%'-]|\.(?!\.)){0,63}|\\?\{[\w.+-]+(?: ?[,;|] ?[\w.+-]+)+\\?\})"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,59})(?![A-Za-z0-9]|-+[A-Za-z0-9])"
)
_WITHOUT_SPACES = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
"""Letters of scripts that write an address right beside words."""
_MARKS = "\u0900-\u0dff\u0e31-\u0e4e"
"""Vowels and tones of India and Thailand, which are no letters, and the letters among them."""
_OTHER_MAIL = re.compile(
    rf"(?:(?<![^\W_{_WITHOUT_SPACES}{_MARKS}])[^\W_{_WITHOUT_SPACES}](?:[^\W{_WITHOUT_SPACES}]|[{_MARKS}+'-]|\.(?!\.)){{0,63}}"
    rf"|(?<![\w+-])[\w+-](?:[\w+-]|\.(?!\.)){{0,63}}(?<=[{_WITHOUT_SPACES}]))@"
    rf"(?:\w[\w{_MARKS}-]{{0,62}}\.)+(?:[A-Za-z]{{2,24}}(?![A-Za-z0-9-])|(?:[^\W\d_a-zA-Z{_WITHOUT_SPACES}]|[{_MARKS}]){{2,24}}(?![^\W_{_WITHOUT_SPACES}]|-)|[{_WITHOUT_SPACES}]{{2,24}}(?![\w-]))"
)
_NOBODY = re.compile(
    r"(?i)@(?:self|this)\.(?!com$)|@(?:[\w-]+\.)*(?:example(?:\.[a-z]{2,3}){0,2}|test|invalid|localhost|shape|inverse|transpose|reshape|view|sum)$"
    r"|@[0-9]x\.(?:png|jpe?g|gif|webp|svg|avif)$"
)
"""Domains that RFC 2606 keeps for examples, and their relatives of countries; products of matrices (`W@x.shape`); and names of images (`icon@2x.png`)."""
_REPOSITORY = re.compile(r"(?<![A-Za-z0-9.+%'-])(?:git|hg|svn)@")


def _emails(text: str) -> Places:
    for found in chain(_ASCII_MAIL.finditer(text), () if text.isascii() else filter(_is_mail, _OTHER_MAIL.finditer(text))):
        start, end = found.span()
        if text[end : end + 1] == "_":  # Markdown's emphasis
            start = end - len(found[0].lstrip("_"))
        if not _NOBODY.search(found[0]) and not (_REPOSITORY.search(found[0]) and text[end : end + 1] in (":", "/")):
            yield start, end


def _is_mail(found: re.Match[str]) -> bool:
    from email_validator import EmailNotValidError, validate_email

    name, _, domain = found[0].partition("@")
    if domain.isascii() and re.search(f"[{_WITHOUT_SPACES}]", name):  # words before a decorator, a package or a name
        return False
    with suppress(EmailNotValidError):
        return bool(validate_email(found[0], check_deliverability=False))
    return False


# without 3fff, of RFC 9637, which Python 3.11 does not know
_IP = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]\.)(?!(?:(?m:^)|(?<=# ))\d(?:\.\d){3} [A-Z][a-z])(?:\d{1,3}(?:\.\d{1,3}){3}(?!:[0-9A-Fa-f]*:)"
    r"|(?<!::)(?!3[Ff]{3})[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{1,4}(?!:[0-9A-Fa-f:]))(?![A-Za-z0-9]|\.\d)"
)
_GROUP = re.compile(r"(?<![A-Za-z0-9])[0-9A-Fa-f]{1,4}:$")
"""A group of an address of IPv6, before another one."""
_BEFORE_VERSION = re.compile(
    r"(?i)(?:version|release|firmware|build|section|chapter|clause|(?<![A-Z])(?:EC|RFC ?\d+))[-_ :=(\"']{0,6}$|[A-Z]/$|[A-Z](?<!\Wip|ddr|src|dst) ?[=<>~!]= ?$"
)


def _ips(text: str) -> Places:
    for found in _IP.finditer(text):
        before = text[max(0, found.start() - 20) : found.start()]
        if _BEFORE_VERSION.search(before) or (":" in found[0] and _GROUP.search(before)):
            continue
        with suppress(ValueError):
            address = ipaddress.ip_address(found[0])
            if address.is_global and not address.is_multicast:
                yield found.span()


# Phone numbers.

_PHONE = re.compile(r"(?<![A-Za-z0-9+])(?<!10\.[0-9]{4}/)(?:\+|00 ?(?=[1-9]))[1-9][0-9 ().\-/]{5,24}[0-9](?![0-9])")
_SIGN = r"[-x() .\[\]/~\u2053\u223c\u30fc]"
"""What phonenumbers takes between digits, up to four of them."""
_PREFIX = re.compile(rf"\+{_SIGN}{{0,4}}[0-9](?:{_SIGN}{{0,4}}[0-9]){{5}}|(?<![0-9])00 ?[1-9]")
"""What a number with + or 00 has, and a sum has not."""
_MAY_BE_NATIONAL = re.compile(r"(?:^|[^0-9A-Za-z+])\(?[0-9](?:[ ./()-]{0,2}[0-9]){6,}(?![0-9./() -]*=)")
"""A number without a prefix, and no sum."""
_IN_GROUPS = re.compile(
    rf"(?:[(\[]{_SIGN}{{0,4}}|(?<![0-9])(?=[0-9]+{_SIGN}{{1,4}}[0-9]))[0-9](?:{_SIGN}{{0,4}}[0-9]){{6}}|(?<![0-9])(?:0[0-9]{{6}}|[0-9]{{11}}(?![0-9]))"
    r"|[0-9][ \t,]*(?:e?xt|[#~]|int|доб|anexo)|;ext",
    re.IGNORECASE,
)
"""What a number has for which `_is_written_as_phone` holds, or an extension."""
_DECIMAL = re.compile(r"\+?[0-9]{1,3}\.[0-9]{4,}|[1-9][0-9]{2}(?:\.[0-9]{1,3}){3}")
_SUM = re.compile(r"(?<=[0-9])\+|(?:(?<=[0-9)}\]] )|(?<=(?<![A-Za-z])[a-z] ))\+ |(?<=[0-9][.,])[^+]")
"""A sign in a sum, or the rest of a number with a comma."""
_BESIDE_PRICE = re.compile("(?:,[0-9]{2})? ?(?:[$€£¥￥₹₽₩₫元円원]|(?:EUR|USD|GBP|PLN|zł|kr|TL|руб)(?![A-Za-zа-я]))")
_BESIDE_ID = re.compile(r"[$€£¥￥₹₽₩₫] ?$|ISBN[-: 0-9]{0,6}$|10\.[0-9]{4,9}/$", re.IGNORECASE)
_DATE = re.compile(
    r"(?:(?<![0-9./:-])|(?<=[0-9]{5}/))(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}:[0-9]{2}|(?:0?[1-9]|1[0-2]) ?/ ?[0-9]{2}(?:/?[0-9]{2,4})?"
    r"|(?:0?[1-9]|[12][0-9]|3[01])(?: ?/ ?(?:0?[1-9]|1[0-2])(?:/[0-9]{2,4})?|\.(?:0?[1-9]|1[0-2])\.(?:[0-9]{2,4})?|-(?:0?[1-9]|1[0-2])-[0-9]{4})"
    r")(?![0-9]|[./:-][0-9])"
)
"""A date, a month or a time."""
_SURE = 0.6
"""The least probability of a guessed language whose countries' numbers are looked for."""
COUNTRIES: Mapping[str, tuple[str, ...]] = {
    "ar": ("EG", "SA", "AE"), "cs": ("CZ",), "da": ("DK",), "de": ("DE", "AT", "CH"), "el": ("GR",), "en": ("US", "GB"), "es": ("ES", "MX"), "fi": ("FI",),
    "fr": ("FR",), "he": ("IL",), "hi": ("IN",), "hu": ("HU",), "id": ("ID",), "it": ("IT",), "ja": ("JP",), "ko": ("KR",), "nl": ("NL",), "no": ("NO",),
    "pl": ("PL",), "pt": ("BR", "PT"), "ro": ("RO",), "ru": ("RU",), "sv": ("SE",), "th": ("TH",), "tr": ("TR",), "uk": ("UA",), "vi": ("VN",), "zh": ("CN",),
}  # fmt: skip
"""Language → countries where most of its texts come from."""


def countries_of(texts: Mapping[int, str]) -> dict[int, tuple[str, ...]]:
    """Number of a text → the countries whose national phone numbers are looked for in it: those of its language, if that is sure."""
    from prep_assets.extensions.quality.language import LONGEST, identifier

    guesses = identifier(tuple(COUNTRIES)).classify([text[:LONGEST] for text in texts.values()]) if texts else []
    return {at: COUNTRIES[language] for at, (language, probability) in zip(texts, guesses, strict=True) if probability >= _SURE}


def _phones(text: str, countries: Sequence[str] = (), spoken: Sequence[str] = ()) -> Places:
    """Numbers with + or 00; national ones of `countries`; those of countries whose language the text is `spoken` in, if they are written as phone numbers.
    They are looked for without dates and times first, which the library would take for the ends of some."""
    whole = _BREAK.sub(lambda broken: " " * len(broken[0]), text)
    if not ((has_prefix := _PREFIX.search(whole)) or countries or spoken):
        return
    without_dates = _DATE.sub(lambda date: "|" * len(date[0]), text)
    for read in dict.fromkeys((without_dates, text)):
        national = countries if countries and _MAY_BE_NATIONAL.search(read) else ()
        asked = [_matched(read, country) for country in ((None, *national) if has_prefix else national)]
        guessed = (_matched(read, country, strictly=True) for country in (spoken if spoken and _may_be_national(read) else ()))
        alike = (span for span in chain.from_iterable(guessed) if _is_written_as_phone(read[slice(*span)]))
        # a date alone is none
        yield from (span for span in chain(*asked, _with_prefix(read), alike) if _DIGITS.search(without_dates, *span))
    yield from chain(_matched(whole, None), _with_prefix(whole)) if has_prefix and whole != text else ()


def _is_written_as_phone(number: str) -> bool:
    """Whether a national number looks like one, in a country that is only guessed: in groups, with a prefix, or as long as mobile numbers of China. ZIP codes
    of the United States, years and binary digits do not."""
    digits = 0 if re.fullmatch("[0-9]{5}-[0-9]{4}|[12][0-9]{3}-[12][0-9]{3}|[01 -]+", number) else sum(map(str.isdigit, number))
    return number[0] != "+" and digits > 6 and (digits < len(number) or number[0] == "0" or digits == 11)


def _may_be_national(text: str) -> bool:
    runs = _MAY_BE_NATIONAL.finditer(text)
    return any(_is_written_as_phone(run[0].strip(" \n\t,;:\"'(")) for run in runs) and _IN_GROUPS.search(text) is not None


def _with_prefix(text: str) -> Places:
    """Numbers with 00 instead of +, and those that other numbers follow, such as dates and ZIP codes."""
    for found in _PHONE.finditer(text):
        country = "DE" if found[0].startswith("00") else None  # which dials 00 before other countries' numbers
        for end in (found.end(), *(found.start() + space.start() for space in reversed([*re.finditer(" ", found[0])]))):
            whole = (0, end - found.start())
            if not re.match("[:/-][0-9]", text[end : end + 2]) and [*_matched(text[found.start() : end], country)] == [whole]:
                yield found.start(), end


@lru_cache(256)
def _of_length(country: str) -> re.Pattern[str]:
    """As many digits as the shortest number of a country has; of no country, one."""
    from phonenumbers import PhoneMetadata

    numbers = getattr(PhoneMetadata.metadata_for_region(country), "general_desc", None)
    return re.compile(rf"[0-9](?:{_SIGN}{{0,4}}[0-9]){{{min(numbers.possible_length) - 1 if numbers else 0}}}")


def _matched(text: str, country: str | None, *, strictly: bool = False) -> Places:
    from phonenumbers import Leniency, PhoneNumberMatcher

    if country and not _of_length(country).search(text):
        return
    leniency = Leniency.STRICT_GROUPING if strictly else Leniency.VALID
    for match in PhoneNumberMatcher(text, country, leniency, sys.maxsize):
        number = match.raw_string
        is_price = number[0] != "+" and (_BESIDE_PRICE.match(text, match.end) or _BESIDE_ID.search(text, 0, match.start))
        if is_price or _DECIMAL.fullmatch(number) or _SUM.match(text, match.start):
            continue
        is_open = number.count(number[0]) > number.count({"(": ")", "[": "]"}.get(number[0], number[0]))
        lone = len(number) - len(number[1:].lstrip(" -")) if is_open else 0  # a bracket that closes behind the number
        before, _, _ = number.rpartition(" ")  # the last group is another number
        is_more = len(f"{match.number.country_code}{match.number.national_number}") > 15  # E.164; phonenumbers takes longer ones of Germany
        is_more = is_more and [*_matched(before, country)] == [(lone, len(before))]
        yield match.start + lone, match.start + len(before) if is_more else match.end


# Secrets: the rules of a maintained scanner; for services that it does not know, the forms that these publish.

_SCANNERS = (
    "aws.AWSKeyDetector discord.DiscordBotTokenDetector github_token.GitHubTokenDetector "
    "mailchimp.MailchimpDetector sendgrid.SendGridDetector slack.SlackDetector square_oauth.SquareOAuthDetector stripe.StripeDetector"
)
_OWN_SECRETS = (
    r"(?<![A-Za-z0-9])(?:"
    r"A(?:BIA|CCA|KIA|SIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255}|gl(?:pat|ptt|dt|rt|oas|soat|ft|agent|cbt)-[\w-]{20,}"
    r"|(?:sk|pplx|xai|lsv2_[ps]t|tskey-[a-z]+|AGE-SECRET-KEY)[-_](?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{32,}"  # OpenAI, Anthropic
    r"|hf_[A-Za-z]{34}|xox[abeprs](?:\.xox[bp])?-(?=[A-Za-z-]*[0-9])[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}|AIza[\w-]{35}|GOCSPX-[\w-]{28}|[sr]k_live_[A-Za-z0-9]{20,}"
    r"|pypi-[\w-]{50,}|dckr_[op]at_[\w-]{27,}|ya29\.[\w-]{30,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|do[opr]_v1_[a-f0-9]{64}|(?:dapi|AC|SK)[a-f0-9]{32}|hv[sb]\.[\w-]{24,}"
    r"|glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}|sbp_[a-f0-9]{40}|(?:npm|gsk|rpa|lin_api|ntn|glsa|rubygems)_[A-Za-z0-9]{32,}|(?:figd|sntrys)_[\w-]{36,}|r8_[A-Za-z0-9]{37}|whsec_[A-Za-z0-9]{24,}|sk_test_[A-Za-z0-9]{24,}"
    r"|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|CFPAT-[\w-]{43}|NRAK-[A-Z0-9]{27}|ATATT3[\w=-]{100,}|sq0(?:atp|csp)-[\w-]{22,43}|ops_eyJ[\w-]{100,}"
    r"|[0-9]{8,10}:AA[\w-]{33}|AccountKey=[\w+/]{86}=="  # Telegram, Azure
    r"|https://(?:discord(?:app)?\.com/api/webhooks|[\w-]+\.webhook\.office\.com/webhookb2|hooks\.slack\.com/(?:services|workflows|triggers))/[\w/@-]{20,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"  # JSON Web Token
    r")(?![A-Za-z0-9])",
    r"(?i:aws[^\n]{0,20}(?:secret|key)[^\n]{0,20}?|secret_?access_?key[^\n]{0,20}?|A[KS]IA[0-9A-Z]{16}[^\nA-Za-z0-9/+]{1,8})(?<![A-Za-z0-9/+])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^\x00]{0,16384}?-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----|(?:\s*[A-Za-z0-9+/=]{40,})*)",
)


@cache
def _secret_forms() -> tuple[re.Pattern[str], ...]:
    names = (name.split(".") for name in _SCANNERS.split())
    scanner = [getattr(import_module(f"detect_secrets.plugins.{module}"), name) for module, name in names]
    forms = (form for plugin in scanner for form in plugin.denylist)
    # borders of ASCII words: languages without spaces write a key right beside words
    return (
        *(re.compile(form.pattern, form.flags & ~re.UNICODE | re.ASCII) for form in forms),
        *(re.compile(form, re.ASCII) for form in _OWN_SECRETS),
    )


def _secrets(text: str) -> Places:
    found = ((form, match) for form in _secret_forms() for match in form.finditer(text))
    spans = (match.span(1) if form.groups and match[1] and len(match[1]) > 15 else match.span() for form, match in found)
    # xxxxxxxx stands for a key, but not within the lines of PEM
    real = (span for span in spans if span[1] - span[0] >= SHORTEST_SECRET and not re.match("(?i)[^ ]*x{8}", text[slice(*span)]))
    yield from sorted(real, key=lambda span: (span[0], -span[1]))


_KINDS: tuple[tuple[Kind, Callable[[str], Places], str, str, str], ...] = (
    ("secret", _secrets, "<SECRET>", "AKIA" + "Q7" * 8, "bc-detect-secrets"),
    ("iban", _ibans, "<IBAN_CODE>", "DE89 3704 0044 0532 0130 00", "python-stdnum"),
    ("card", _cards, "<CREDIT_CARD>", "4111 1111 1111 1111", "python-stdnum"),
    ("national_id", _ids, "<NATIONAL_ID>", "12345678Z", "python-stdnum"),
    ("email", _emails, "<EMAIL_ADDRESS>", "maria.lopez@correo.es", "email-validator"),
    ("ip", _ips, "<IP_ADDRESS>", "8.8.8.8", ""),
    ("phone", _phones, "<PHONE_NUMBER>", "+34 612 345 678", "phonenumbers py3langid"),
)
FORMS: Mapping[Kind, Callable[[str], Places]] = {kind: find for kind, find, *_ in _KINDS}
"""Kind → what finds its values; a value inside one of an earlier kind is part of that one."""
PLACEHOLDERS: Mapping[Kind, str] = {kind: placeholder for kind, _, placeholder, _, _ in _KINDS}
"""Kind → what redaction puts in place of a value, named after the entities of Presidio, as in NeMo Curator. It is no value of any kind."""
INVENTED: Mapping[Kind, str] = {kind: value for kind, _, _, value, _ in _KINDS}
"""A value of each kind that belongs to nobody or to everybody, for trials."""
LIBRARIES: Mapping[Kind, Sequence[str]] = {kind: libraries.split() for kind, *_, libraries in _KINDS}
"""Kind → the libraries that decide."""
KINDS: tuple[Kind, ...] = get_args(Kind)
FORMS_VERSION = 16
"""Raised when other values are found by the same libraries."""


def values_of(
    texts: Sequence[str], kinds: Sequence[Kind], countries: Sequence[str] | None = None, beside: str = ""
) -> Iterator[tuple[int, list[tuple[Kind, int, int]]]]:
    """The number of each text that holds private values; kind, start and end of each of these, in order.

    Args:
        countries: those whose phone numbers are found without a prefix too, such as ``DE``; null: those of the text's language.
        beside: the texts of a row, which tell its language better than each alone.
    """
    read = {number: of for number in may_be_encoded(texts) if (of := decoded(texts[number]))}
    said = [read[number][0] if number in read else text for number, text in enumerate(texts)]
    written, ends = plain("\n".join(said)), np.cumsum([len(text) + 1 for text in said], dtype=np.int64) - 1
    found = [(at, written[ends[at] - len(said[at]) : ends[at]], where) for at, where in places(written, ends, kinds).items()]
    asked = found if countries is None else ()
    unsure = {
        at: beside or said[at] for at, text, where in asked if any(_may_be_national(text[slice(*part)]) for part in where.get("phone", ()))
    }
    spoken = countries_of(unsure)
    for at, text, where in found:
        if values := _values(text, where, countries or (), spoken.get(at, ())):
            if of := read.get(at):
                values = [(kind, int(of[1][start]), int(of[2][stop - 1])) for kind, start, stop in values]
            yield at, values


def _values(
    text: str, where: Mapping[Kind, list[Span]], countries: Sequence[str] = (), spoken: Sequence[str] = ()
) -> list[tuple[Kind, int, int]]:
    """The values of a plain text at places of each kind, in order and apart."""
    found, taken = list[tuple[Kind, int, int]](), bytearray(len(text))
    for kind, form in FORMS.items():
        search = partial(_phones, countries=countries, spoken=spoken) if kind == "phone" else form
        for begin, end in where.get(kind, ()):
            for start, stop in search(text[begin:end]):
                value = slice(begin + start, begin + stop)
                if not any(taken[value]):
                    found.append((kind, value.start, value.stop))
                    taken[value] = b"\1" * (stop - start)
    return sorted(found, key=itemgetter(1))


# Redaction.

_FEWEST_DIGITS = 10**12
"""The smallest card number; smaller integers are left alone."""


def redacted(text: str, kinds: Sequence[Kind], countries: Sequence[str] | None = None) -> str:
    """A text with a placeholder for each private value."""
    return _redacted([text], kinds, countries, text)[0]


def _redacted(texts: Sequence[str], kinds: Sequence[Kind], countries: Sequence[str] | None, beside: str) -> list[str]:
    """Again and again, as a value may show only when its neighbour is gone: none is left."""
    texts, left = [*texts], [*range(len(texts))]
    while left:
        found = [*values_of([texts[number] for number in left], kinds, countries, beside)]
        for at, values in found:
            for kind, start, end in reversed(values):
                texts[left[at]] = texts[left[at]][:start] + PLACEHOLDERS[kind] + texts[left[at]][end:]
        left = [left[at] for at, _ in found]
    return texts


class Redactor(Struct, frozen=True):
    """Takes private data out of rows.

    Attributes:
        kinds: what is taken out.
        forgotten: digests of rows that are removed for good. They stay as they are, for whoever removes them to know them.
        countries: see `values_of`.
    """

    kinds: tuple[Kind, ...]
    forgotten: frozenset[str] = frozenset()
    countries: tuple[str, ...] | None = None

    def __call__(self, value: Any) -> Any:
        """A row, or a text, without private data."""
        if self.forgotten and payload_digest(value) in self.forgotten:
            return value
        texts = list[str]()

        def noted(text: str) -> str:
            texts.append(text)
            return text

        self._of(value, noted)
        beside = text_of(value) if self.countries is None and "phone" in self.kinds else ""
        found = iter(_redacted(texts, self.kinds, self.countries, beside))
        return self._of(value, lambda _: next(found))

    def _of(self, value: Any, text_for: Callable[[str], str]) -> Any:
        """A copy with another text for each."""
        if isinstance(value, str):
            return text_for(value)
        if isinstance(value, Mapping):
            entries: dict[Any, Any] = {}
            for key, inner in value.items():
                key = self._of(key, text_for)
                while key in entries:  # two values were replaced
                    key = f"{key}_"
                entries[key] = self._of(inner, text_for)
            return entries
        if isinstance(value, list | tuple):
            return [self._of(inner, text_for) for inner in value]
        if isinstance(value, int) and value >= _FEWEST_DIGITS and (text := redacted(str(value), self.kinds, ())) in PLACEHOLDERS.values():
            return text
        return value


def redaction_recipe(kinds: Sequence[Kind], countries: Sequence[str] | None) -> dict[str, str]:
    """What decides what is taken out: for each kind the version of its form and of its libraries."""
    try:
        libraries = {kind: [f"{name} {version(name)}" for name in LIBRARIES[kind]] for kind in FORMS if kind in kinds}
    except PackageNotFoundError as error:
        raise ConfigError(f"redact needs the package {error.name}: pip install 'prep-assets[quality]'") from error
    recipe: dict[str, str] = {kind: " ".join([str(FORMS_VERSION), *names]) for kind, names in libraries.items()}
    return recipe if countries is None else {**recipe, "countries": " ".join(countries)}
