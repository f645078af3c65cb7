"""Private data: addresses, numbers with a checksum, and secrets of services, found by their form."""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Literal

from prep_assets.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import document

Kind = Literal["email", "phone", "ip", "card", "iban", "secret"]
_BETWEEN = "\n\x00\n"
"""Between the texts of a block, which are searched as one: no pattern spans it."""


def _digits(text: str) -> list[int]:
    return [int(character) for character in text if character.isdigit()]


def luhn(text: str) -> bool:
    """Whether the digits of a text end with their check digit, as card numbers do (ISO/IEC 7812-1)."""
    digits = _digits(text)[::-1]
    doubled = [digit if at % 2 == 0 else sum(divmod(2 * digit, 10)) for at, digit in enumerate(digits)]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and sum(doubled) % 10 == 0


def mod_97(text: str) -> bool:
    """Whether an IBAN has its check digits (ISO 13616)."""
    letters = text.replace(" ", "").upper()
    return 15 <= len(letters) <= 34 and int("".join(str(int(letter, 36)) for letter in letters[4:] + letters[:4])) % 97 == 1


def _is_public(text: str) -> bool:
    """Whether an IP address is one of the Internet."""
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def _is_phone(text: str) -> bool:
    return 8 <= len(_digits(text)) <= 15  # E.164


FORMS: Mapping[Kind, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    "email": (
        re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![\w-])"),
        # domains that RFC 2606 keeps for examples belong to nobody
        lambda found: not re.search(r"@(?:[\w-]+\.)*(?:example(?:\.(?:com|org|net))?|test|invalid|localhost)$", found, re.IGNORECASE),
    ),
    "phone": (re.compile(r"(?<![\w+])(?:\+|00(?=[1-9]\d{0,2}[ .\-/(]))[1-9](?:[ .\-/]?\(?\d{1,4}\)?){2,6}(?!\w)"), _is_phone),
    "ip": (
        re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{1,4})(?![\w:]|\.\d)"),
        _is_public,
    ),
    "card": (re.compile(r"(?<![\w.-])[3-6]\d{3}(?:[ -]?\d{2,6}){2,4}(?![\w-])"), luhn),
    "iban": (re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"), mod_97),
    "secret": (
        re.compile(
            r"(?<![A-Za-z0-9])(?:"
            r"(?:AKIA|ASIA)[A-Z2-7]{16}"  # AWS
            r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255}"
            r"|glpat-[\w-]{20,}"
            r"|sk-(?:proj-|ant-[a-z0-9]+-|svcacct-)?[A-Za-z0-9_-]{32,}"  # OpenAI, Anthropic
            r"|hf_[A-Za-z]{34}"
            r"|xox[abeprs]-[A-Za-z0-9-]{10,}"  # Slack
            r"|AIza[\w-]{35}"  # Google
            r"|[sr]k_live_[A-Za-z0-9]{20,}"  # Stripe
            r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}"
            r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"  # JSON Web Token
            r")(?![A-Za-z0-9])|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
        ),
        lambda found: True,
    ),
}
"""Kind → its form, and what must hold of a match besides."""


def private_values(text: str, kinds: tuple[Kind, ...] = tuple(FORMS)) -> Iterator[tuple[Kind, int, int]]:
    """Kind, start and end of each private value in a text, kind by kind."""
    for kind in kinds:
        form, holds = FORMS[kind]
        for found in form.finditer(text):
            if holds(found[0]):
                yield kind, found.start(), found.end()


@quality_step(
    "private_data",
    source="forms of RFC 5322, E.164, ISO/IEC 7812-1 and ISO 13616, and of the services that give the keys",
    corrupted=((document("Write to maria.lopez@correo.es or call +34 612 345 678."),), "private_email"),
)
def private_data(*, kinds: tuple[Kind, ...] | list[Kind] = tuple(FORMS)) -> Step:
    """Examples with e-mail addresses, international phone numbers, public IP addresses, card numbers, IBANs, or keys and tokens of services.

    Args:
        kinds: what is looked for. The reason is ``private_<kind>`` of the first kind found, in this order.
    """
    wanted = tuple(kinds)

    def judge(examples: Examples) -> Judged:
        texts = examples.texts
        ends = list(accumulate(len(text) + len(_BETWEEN) for text in texts))
        counts: dict[str, list[int]] = {kind: [0] * len(texts) for kind in wanted}
        first: dict[int, Kind] = {}
        for kind, start, _ in private_values(_BETWEEN.join(texts), wanted):
            number = bisect_right(ends, start)
            counts[kind][number] += 1
            first.setdefault(number, kind)
        # the value itself is left out: what is private must not stand in a report
        found = {
            number: (f"private_{kind}", ", ".join(f"{counts[each][number]} × {each}" for each in wanted if counts[each][number]))
            for number, kind in first.items()
        }
        return Judged(found, counts)

    return by_block(judge)
