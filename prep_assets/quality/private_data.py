"""Private data: addresses, phone numbers, numbers with a checksum, and secrets of services, found by libraries, and replaced by placeholders.

Libraries say what is a number or a key: `phonenumbers` (Google's matcher), `python-stdnum` (check digits and lengths of IBANs), `email-validator`
(internationalised addresses), the rules of detect-secrets. What is our own finds the places to ask about: no library finds cards, IBANs and addresses in text.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, get_args

import numpy as np
from msgspec import Struct

from prep_assets.config.family import PrivateKind as Kind
from prep_assets.config.loading import payload_digest
from prep_assets.errors import ConfigError
from prep_assets.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import document

_BETWEEN = "\n\x00\n"
"""Between texts that are searched as one: no value spans it."""
Places = Iterator[tuple[int, int]]
"""Start and end of each value of a kind in a text."""


@cache
def _plain_characters() -> dict[int, str]:
    """Spaces, hyphens and digits of every script → their ASCII character, one for one."""
    every = map(chr, range(128, sys.maxunicode + 1))
    digits = {ord(character): str(int(character)) for character in every if character.isdecimal()}
    spaces = dict.fromkeys((0xA0, 0x2007, 0x2009, 0x200A, 0x202F, 0x3000), " ")
    return digits | spaces | dict.fromkeys((*range(0x2010, 0x2016), 0x2212, 0xFF0D), "-")


# Cards: digits of a brand's length, in groups, with their check digit.

_DIGITS = re.compile(r"(?<![A-Za-z0-9])(?<![0-9][.,])[0-9]{4,19}(?:[ -][0-9]{2,19})*(?![A-Za-z0-9]|[.,][0-9])")
_BRANDS: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile("4"), (19, 16, 13)),  # Visa
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),  # Mastercard
    (re.compile("3[47]"), (15,)),  # American Express
    (re.compile("3(?:0[0-5]|[689])"), (14, 16, 19)),  # Diners Club
    (re.compile("6(?:011|4[4-9]|5|2)|35(?:2[89]|[3-8])"), (16, 17, 18, 19)),  # Discover, UnionPay, JCB
    (re.compile("5[06-8]|6"), (16, 18, 19)),  # Maestro, RuPay, Troy
)
"""First digits (ISO/IEC 7812-1) and the lengths of a brand's numbers."""


def luhn(text: str) -> bool:
    """Whether the digits of a text end with their check digit, as card numbers do (ISO/IEC 7812-1)."""
    from stdnum import luhn as library

    digits = re.sub("[^0-9]", "", text)
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and bool(library.is_valid(digits))


def _cards(text: str) -> Places:
    for run in _DIGITS.finditer(text):
        groups = [group.span() for group in re.finditer("[0-9]+", run[0])]
        first = 0
        while first < len(groups):
            low = run.start() + groups[first][0]
            last = next(
                (last for last in range(len(groups) - 1, first - 1, -1) if _is_card(text[low : run.start() + groups[last][1]])), None
            )
            if last is None:
                first += 1
            else:
                yield low, run.start() + groups[last][1]
                first = last + 1


def _is_card(text: str) -> bool:
    digits = re.sub("[ -]", "", text)
    lengths = next((lengths for prefix, lengths in _BRANDS if prefix.match(digits)), ())
    return len(digits) in lengths and luhn(digits)


# IBANs: each country's length and structure, and check digits.

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?=(?:[ -]?[A-Za-z0-9]){11})")


def mod_97(text: str) -> bool:
    """Whether a text is an IBAN: structure of its country, and check digits (ISO 13616)."""
    from stdnum import iban

    return bool(iban.is_valid(text, check_country=False))


def _ibans(text: str) -> Places:
    taken = 0
    for found in _IBAN.finditer(text):
        if found.start() < taken:
            continue
        following = re.compile("(?:[ -]?[A-Za-z0-9])+").match(text, found.end())
        ends = [found.end() + each.end() for each in re.finditer("[A-Za-z0-9](?![A-Za-z0-9])", following[0])] if following else []
        end = next((end for end in reversed(ends) if end - found.start() <= 48 and mod_97(text[found.start() : end])), None)
        if end is not None:
            yield found.start(), end
            taken = end


# Addresses.

_ASCII_MAIL = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9][A-Za-z0-9._+%'-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
_OTHER_MAIL = re.compile(r"(?<![\w.+-])\w[\w.+-]{0,63}@(?:\w[\w-]{0,62}\.)+\w{2,24}(?![\w-])")
_NOBODY = re.compile(r"@(?:[\w-]+\.)*(?:example(?:\.[a-z]{2,3}){0,2}|test|invalid|localhost)$", re.IGNORECASE)
"""Domains that RFC 2606 keeps for examples, and their relatives of countries."""
_REPOSITORY = re.compile(r"(?:git|hg|svn)@")


def _emails(text: str) -> Places:
    taken = [found.span() for found in _ASCII_MAIL.finditer(text)]
    for start, end in taken:
        address = text[start:end]
        if not _NOBODY.search(address) and not (_REPOSITORY.match(address) and text[end : end + 1] in (":", "/")):
            yield start, end
    if not text.isascii():
        yield from (span for span in _international_mails(text) if not any(low < span[1] and span[0] < high for low, high in taken))


def _international_mails(text: str) -> Places:
    from email_validator import EmailNotValidError, validate_email

    for found in _OTHER_MAIL.finditer(text):
        try:
            validate_email(found[0], check_deliverability=False)
        except EmailNotValidError:
            continue
        yield found.span()


_IP = re.compile(
    r"(?<![A-Za-z0-9.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{1,4})(?![A-Za-z0-9:]|\.\d)"
)
_DOCUMENTATION = ipaddress.ip_network("3fff::/20")
"""RFC 9637; Python 3.11 does not know it."""


def _ips(text: str) -> Places:
    for found in _IP.finditer(text):
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            continue
        if address.is_global and not address.is_multicast and not (address.version == 6 and address in _DOCUMENTATION):
            yield found.span()


# Phone numbers.

_PHONE = re.compile(r"(?<![A-Za-z0-9+])(?:\+|00(?=[1-9]))[1-9][0-9 ().\-/]{5,24}[0-9]")
_PREFIX_00 = "DE"
"""A country that dials 00 before other countries' numbers."""


def _phones(text: str, regions: Sequence[str] = ()) -> Places:
    taken: list[tuple[int, int]] = []
    for region in (None, *regions):
        taken += [span for span in _matched(text, region) if not any(low < span[1] and span[0] < high for low, high in taken)]
    for found in _PHONE.finditer(text):  # 00 instead of +, and numbers that others follow, such as dates and ZIP codes
        if any(low < found.end() and found.start() < high for low, high in taken):
            continue
        ends = [found.end(), *(found.start() + space.start() for space in reversed([*re.finditer(" ", found[0])]))]
        region = _PREFIX_00 if found[0].startswith("00") else None
        for end in ends:
            if [*_matched(text[found.start() : end], region)] == [(0, end - found.start())]:
                taken.append((found.start(), end))
                break
    yield from sorted(taken)


def _matched(text: str, region: str | None) -> Places:
    from phonenumbers import Leniency, PhoneNumberMatcher

    for match in PhoneNumberMatcher(text, region, leniency=Leniency.VALID, max_tries=sys.maxsize):
        yield match.start, match.end


# Secrets: the rules of a maintained scanner; for services that it does not know, the forms that these publish.

_SCANNERS: tuple[str, ...] = (
    "aws.AWSKeyDetector",
    "discord.DiscordBotTokenDetector",
    "github_token.GitHubTokenDetector",
    "mailchimp.MailchimpDetector",
)
_SCANNERS += ("sendgrid.SendGridDetector", "slack.SlackDetector", "square_oauth.SquareOAuthDetector", "stripe.StripeDetector")
_OWN_SECRETS = (
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255}|glpat-[\w-]{20,}"
    r"|sk-(?:proj-|ant-[a-z0-9]+-|svcacct-)?[A-Za-z0-9_-]{32,}"  # OpenAI, Anthropic
    r"|hf_[A-Za-z]{34}|xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}|AIza[\w-]{35}|[sr]k_live_[A-Za-z0-9]{20,}"
    r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"  # JSON Web Token
    r")(?![A-Za-z0-9])",
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^\x00]{0,16384}?-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----|(?:\s*[A-Za-z0-9+/=]{40,})*)",
)


@cache
def _secret_forms() -> tuple[re.Pattern[str], ...]:
    scanner = [getattr(import_module(f"detect_secrets.plugins.{name.partition('.')[0]}"), name.partition(".")[2]) for name in _SCANNERS]
    forms = (form for plugin in scanner for form in plugin.denylist)
    # borders of ASCII words: languages without spaces write a key right beside words
    return (*(re.compile(form.pattern, form.flags & ~re.UNICODE | re.ASCII) for form in forms), *map(re.compile, _OWN_SECRETS))


def _secrets(text: str) -> Places:
    taken: list[tuple[int, int]] = []
    for form in _secret_forms():
        for found in form.finditer(text):
            start, end = found.span(1) if form.groups and found[1] and len(found[1]) > 15 else found.span()
            taken.append((start, end))
    last = 0
    for start, end in sorted(taken, key=lambda span: (span[0], -span[1])):
        if start >= last:
            yield start, end
            last = end


FORMS: Mapping[Kind, Callable[[str], Places]] = {
    "secret": _secrets,
    "iban": _ibans,
    "card": _cards,
    "email": _emails,
    "ip": _ips,
    "phone": _phones,
}
"""Kind → what finds its values; a value inside one of an earlier kind is part of that one."""
KINDS: tuple[Kind, ...] = get_args(Kind)
LIBRARIES: Mapping[Kind, str] = {
    "secret": "bc-detect-secrets",
    "iban": "python-stdnum",
    "card": "python-stdnum",
    "email": "email-validator",
    "ip": "",
    "phone": "phonenumbers",
}
"""Kind → the library that decides."""
FORMS_VERSION = 2
"""Raised when other values are found by the same libraries."""


_GAP = "[ \u00a0\u2007\u2009\u200a\u202f\u3000\u2010-\u2015\u2212\uff0d-]"


@lru_cache(64)
def _hint(kinds: tuple[Kind, ...]) -> str:
    """A pattern of RE2 for texts that may hold a value: the forms, less what is around a value and with the fewest digits that it can have, or any digit
    that is not ASCII."""
    every = np.arange(sys.maxunicode + 1, dtype=np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
    others = "".join(re.findall(r"[^\W0-9\D]", every))  # digits as Python knows them; RE2 may be of another version of Unicode
    grouped = rf"(?:{_GAP}|[./])?\(?[0-9]\)?"
    hints: Mapping[Kind, str] = {
        "email": r"@[A-Za-z0-9][A-Za-z0-9-]*\.|@[^\x00-\x7f]",
        "phone": rf"\+[1-9](?:{grouped}){{6}}|(?:^|[^A-Za-z0-9+])00[1-9](?:{grouped}){{5}}",
        "ip": r"[0-9](?:\.[0-9]{1,3}){3}|[23][0-9A-Fa-f]{3}:[0-9A-Fa-f]{0,4}:",
        "card": rf"[2-6][0-9]{{3}}(?:{_GAP}?[0-9]){{9}}",
        "iban": rf"[A-Za-z]{{2}}[0-9]{{2}}(?:{_GAP}?[A-Za-z0-9]){{11}}",
        "secret": r"A[KSB]IA[A-Z0-9]{16}|A3T[A-Z0-9]{17}|ACCA[A-Z0-9]{16}|(?i:aws.{0,60}[0-9a-z/+]{40})|gh[pousr]_|github_pat_|glpat-|sk-[A-Za-z0-9_-]{32}"
        r"|hf_|xox[abeprs]-|xapp-|AIza|[sr]k_live_|npm_|pypi-|eyJ|-----BEGIN |hooks\.slack|SG\.|sq0csp-|-us[0-9]|[MNO][a-zA-Z0-9_-]{23,25}\.",
    }
    return "|".join([f"[{others}]", *(hints[kind] for kind in kinds)])  # quicker than with all digits in each form


def private_values(text: str, kinds: Sequence[Kind] = tuple(FORMS), regions: Sequence[str] = ()) -> Iterator[tuple[Kind, int, int]]:
    """Kind, start and end of each private value in a text, in order.

    Args:
        regions: countries whose phone numbers are found without a prefix too, such as ``DE``.
    """
    plain = text if text.isascii() else text.translate(_plain_characters())
    found: list[tuple[int, int, Kind]] = []
    for kind, places in FORMS.items():
        if kind in kinds:
            values = _phones(plain, regions) if kind == "phone" else places(plain)
            found += [(*span, kind) for span in values if not any(low < span[1] and span[0] < high for low, high, _ in found)]
    yield from ((kind, start, end) for start, end, kind in sorted(found))


# Redaction: each value becomes a placeholder, named after the entities of Presidio, as in NeMo Curator. A placeholder is no value of any kind.

PLACEHOLDERS: Mapping[Kind, str] = {
    "email": "<EMAIL_ADDRESS>",
    "phone": "<PHONE_NUMBER>",
    "ip": "<IP_ADDRESS>",
    "card": "<CREDIT_CARD>",
    "iban": "<IBAN_CODE>",
    "secret": "<SECRET>",
}
INVENTED: Mapping[Kind, str] = {
    "email": "maria.lopez@correo.es",
    "phone": "+34 612 345 678",
    "ip": "8.8.8.8",
    "card": "4111 1111 1111 1111",
    "iban": "DE89 3704 0044 0532 0130 00",
    "secret": "AKIA" + "Q7" * 8,
}
"""A value of each kind that belongs to nobody or to everybody, for trials."""
_FEWEST_DIGITS = 10**12
"""The smallest card number; smaller integers are left alone."""


def redacted(text: str, kinds: Sequence[Kind]) -> str:
    """`text` with a placeholder for each private value. Again and again, as a value may show only when its neighbour is gone: none is left."""
    if not _may_hold(tuple(kinds)).search(text):
        return text
    while values := [*private_values(text, kinds)]:
        for kind, start, end in reversed(values):
            text = text[:start] + PLACEHOLDERS[kind] + text[end:]
    return text


@lru_cache(64)
def _may_hold(kinds: tuple[Kind, ...]) -> re.Pattern[str]:
    return re.compile(_hint(kinds))


class Redactor(Struct, frozen=True):
    """Takes private data out of rows.

    Attributes:
        kinds: what is taken out.
        forgotten: digests of rows that are removed for good. They stay as they are, for whoever removes them to know them.
    """

    kinds: tuple[Kind, ...]
    forgotten: frozenset[str] = frozenset()

    def __call__(self, value: Any) -> Any:
        """A row, or a text, without private data; keys stay."""
        return value if self.forgotten and payload_digest(value) in self.forgotten else self._of(value)

    def _of(self, value: Any) -> Any:
        if isinstance(value, str):
            return redacted(value, self.kinds)
        if isinstance(value, Mapping):
            return {key: self._of(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._of(inner) for inner in value]
        if isinstance(value, int) and value >= _FEWEST_DIGITS and (text := redacted(str(value), self.kinds)) in PLACEHOLDERS.values():
            return text
        return value


def redaction_recipe(kinds: Sequence[Kind]) -> dict[str, str]:
    """What decides what is taken out: for each kind the version of its form and of its library."""
    libraries = {kind: LIBRARIES[kind] for kind in FORMS if kind in kinds}
    try:
        return {kind: " ".join(filter(None, (str(FORMS_VERSION), name, name and version(name)))) for kind, name in libraries.items()}
    except PackageNotFoundError as error:
        raise ConfigError(f"redact needs the package {error.name}: pip install 'prep-assets[quality]'") from error


@quality_step(
    "private_data",
    source="phonenumbers, python-stdnum, email-validator, rules of detect-secrets, and forms that services publish",
    corrupted=((document("Write to maria.lopez@correo.es or call +34 612 345 678."),), "private_email"),
)
def private_data(*, kinds: tuple[Kind, ...] | list[Kind] = KINDS, countries: list[str] | None = None) -> Step:
    """Examples with e-mail addresses, phone numbers, public IP addresses, card numbers, IBANs, or keys and tokens of services.

    Args:
        kinds: what is looked for. The reason is ``private_<kind>`` of the first kind found, in this order.
        countries: countries whose phone numbers are found without +, such as ``[DE, US]``; every other needs its prefix.
    """
    wanted, regions = tuple(kinds), tuple(countries or ())

    def judge(examples: Examples) -> Judged:
        national = "[0-9]" if regions and "phone" in wanted else ""
        probable = np.flatnonzero(examples.may_hold("|".join(filter(None, (_hint(wanted), national))))).tolist()
        texts = [examples.texts[number] for number in probable]
        ends = list(accumulate(len(text) + len(_BETWEEN) for text in texts))
        counts: dict[str, list[int]] = {kind: [0] * len(examples) for kind in wanted}
        first: dict[int, Kind] = {}
        values = [*private_values(_BETWEEN.join(texts), wanted, regions)]
        for kind, start, _ in sorted(values, key=lambda value: wanted.index(value[0])):
            number = probable[bisect_right(ends, start)]
            counts[kind][number] += 1
            first.setdefault(number, kind)
        # the value itself is left out: what is private must not stand in a report
        found = {
            number: (f"private_{kind}", ", ".join(f"{counts[each][number]} × {each}" for each in wanted if counts[each][number]))
            for number, kind in first.items()
        }
        return Judged(found, counts)

    return by_block(judge)
