"""Examples with private data, which the patterns and libraries of `redact` find."""

from __future__ import annotations

from collections import Counter

from prep_assets.config.family import PrivateKind as Kind
from prep_assets.extensions.quality.redaction import KINDS, values_of
from prep_assets.extensions.quality.steps import Examples, Finding, Judged, Step, by_block, quality_step
from prep_assets.samples import document


@quality_step(
    "private_data",
    source="phonenumbers, python-stdnum, email-validator, rules of detect-secrets, and forms that services publish",
    corrupted=((document("Write to maria.lopez@correo.es or call +34 612 345 678."),), "private_email"),
    libraries=("phonenumbers", "py3langid", "python-stdnum", "email-validator", "bc-detect-secrets"),
    version=12,
)
def private_data(*, kinds: tuple[Kind, ...] | list[Kind] = KINDS, countries: list[str] | None = None) -> Step:
    """Examples with e-mail addresses, phone numbers, public IP addresses, card numbers, IBANs, national ids, or keys and tokens of services.

    Args:
        kinds: what is looked for. The reason is ``private_<kind>`` of the first kind found, in this order.
        countries: countries whose phone numbers are found without +, such as ``[DE, US]``; null: those of the language of each example.
    """
    wanted = tuple(kinds)

    def judge(examples: Examples) -> Judged:
        counts: dict[str, list[int]] = {kind: [0] * len(examples) for kind in wanted}
        found: dict[int, Finding] = {}
        for number, spans in values_of(examples.texts, wanted, countries):
            values = Counter(kind for kind, _, _ in spans)
            for kind, count in values.items():
                counts[kind][number] = count
            # the value itself is left out: what is private must not stand in a report
            there = [kind for kind in wanted if kind in values]
            found[number] = (f"private_{there[0]}", ", ".join(f"{values[kind]} × {kind}" for kind in there))
        return Judged(found, counts)

    return by_block(judge)
