"""Private data: addresses, numbers with a checksum, and secrets of services, found by their form, and replaced by placeholders."""

from __future__ import annotations

import ipaddress
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from msgspec import Struct

from prep_assets.config.family import PrivateKind as Kind
from prep_assets.config.loading import payload_digest
from prep_assets.quality.steps import Examples, Judged, Step, by_block, quality_step
from prep_assets.samples import document

_BETWEEN = "\n\x00\n"
"""Between texts that are searched as one: no pattern spans it."""


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
        re.compile(
            r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![A-Za-z0-9_-])"
        ),
        # domains that RFC 2606 keeps for examples belong to nobody
        lambda found: not re.search(r"@(?:[\w-]+\.)*(?:example(?:\.(?:com|org|net))?|test|invalid|localhost)$", found, re.IGNORECASE),
    ),
    "phone": (
        re.compile(r"(?<![A-Za-z0-9_+])(?:\+|00(?=[1-9]\d{0,2}[ .\-/(]))[1-9](?:[ .\-/]?\(?\d{1,4}\)?){2,6}(?![A-Za-z0-9_])"),
        _is_phone,
    ),
    "ip": (
        re.compile(
            r"(?<![A-Za-z0-9_.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{1,4})(?![A-Za-z0-9_:]|\.\d)"
        ),
        _is_public,
    ),
    "card": (re.compile(r"(?<![A-Za-z0-9_.-])[3-6]\d{3}(?:[ -]?\d{2,6}){2,4}(?![A-Za-z0-9_-])"), luhn),
    "iban": (re.compile(r"(?<![A-Za-z0-9_])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9_])"), mod_97),
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
            r")(?![A-Za-z0-9])"
            r"|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----(?:[^\x00]{0,16384}?-----END (?:[A-Z]+ )?PRIVATE KEY-----|(?:\s*[A-Za-z0-9+/=]{40,})*)"
        ),
        lambda found: True,
    ),
}
"""Kind → its form, and what must hold of a match besides. Its neighbours are no ASCII letters: languages without spaces write a value right beside words."""


@lru_cache(64)
def _hint(kinds: tuple[Kind, ...]) -> str:
    """A pattern of RE2 for texts that may hold a value: the forms, less what is around a value and with the fewest digits that it can have, or any digit
    that is not ASCII."""
    every = np.arange(sys.maxunicode + 1, dtype=np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
    others = "".join(re.findall(r"[^\W0-9\D]", every))  # digits as Python knows them; RE2 may be of another version of Unicode
    grouped = r"[ .\-/]?\(?[0-9]\)?"
    hints: Mapping[Kind, str] = {
        "email": r"@[A-Za-z0-9][A-Za-z0-9-]*\.",
        "phone": rf"(?:^|[^A-Za-z0-9_+])(?:\+[1-9](?:{grouped}){{7}}|00[1-9](?:{grouped}){{5}})",
        "ip": r"[0-9](?:\.[0-9]{1,3}){3}|[23][0-9A-Fa-f]{3}:[0-9A-Fa-f]{0,4}:",
        "card": r"[3-6][0-9]{3}(?:[ -]?[0-9]){9}",
        "iban": r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){8}",
        "secret": r"(?:^|[^A-Za-z0-9])(?:A[KS]IA[A-Z2-7]{16}|gh[pousr]_|github_pat_|glpat-|sk-[A-Za-z0-9_-]{32}|hf_|xox[abeprs]-|AIza|[sr]k_live_"
        r"|npm_|pypi-|eyJ)|-----BEGIN ",
    }
    return "|".join([f"[{others}]", *(hints[kind] for kind in kinds)])  # quicker than with all digits in each form


def private_values(text: str, kinds: tuple[Kind, ...] = tuple(FORMS)) -> Iterator[tuple[Kind, int, int]]:
    """Kind, start and end of each private value in a text, kind by kind."""
    for kind in kinds:
        form, holds = FORMS[kind]
        for found in form.finditer(text):
            if holds(found[0]):
                yield kind, found.start(), found.end()


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
    before = None
    while before != text:
        before = text
        for kind in kinds:
            form, holds = FORMS[kind]
            text = form.sub(lambda found, kind=kind, holds=holds: PLACEHOLDERS[kind] if holds(found[0]) else found[0], text)  # type: ignore[misc]
    return text


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
    """What decides what is taken out: each kind and its form."""
    return {kind: FORMS[kind][0].pattern for kind in FORMS if kind in kinds}


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
        probable = np.flatnonzero(examples.may_hold(_hint(wanted))).tolist()
        texts = [examples.texts[number] for number in probable]
        ends = list(accumulate(len(text) + len(_BETWEEN) for text in texts))
        counts: dict[str, list[int]] = {kind: [0] * len(examples) for kind in wanted}
        first: dict[int, Kind] = {}
        for kind, start, _ in private_values(_BETWEEN.join(texts), wanted):
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
