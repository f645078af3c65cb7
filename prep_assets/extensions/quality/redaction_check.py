"""The check that no private data is left in a store whose domain redacts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from prep_assets.config.family import PrivateKind
from prep_assets.extensions.quality.proofs.private_data import private_data_left
from prep_assets.extensions.quality.redaction import FORMS, PLACEHOLDERS
from prep_assets.proofs.verdict import Verdict, Worst


def redaction_holds(texts: Iterable[tuple[str, str]], kinds: Collection[PrivateKind], countries: Sequence[str] | None = None) -> Verdict:
    """Search decoded texts for private data that was to be replaced, whatever replaced it, and count the placeholders.

    Args:
        texts: the name and the text of each record.
        countries: see `private_data_left`.
    """
    searched, left, worst = 0, Counter[str](), ""
    placeholders = {kind: 0 for kind in FORMS if kind in kinds}
    for name, text in texts:
        searched += 1
        for kind in placeholders:
            placeholders[kind] += text.count(PLACEHOLDERS[kind])
        values = Counter(private_data_left(text, tuple(placeholders), countries))
        left += values
        worst = worst or (name if values else "")
    numbers = {"texts_searched": searched, **{f"redacted_{kind}": count for kind, count in placeholders.items()}}
    if left:
        found = ", ".join(f"{count:,} × {kind}" for kind, count in left.items())
        fault = (
            f"private data of {searched:,} texts are left: {found}, the first in {worst}. The value comes together from several fields, "
            "or from token ids, which redact cannot see: leave the row out by `where`, or the field by `ignore`. If it is a phone number without a prefix in a "
            "row of two languages, name its `countries`"
        )
        return Verdict(False, fault, numbers, Worst(worst, found))
    counts = ", ".join(f"{count:,} × {PLACEHOLDERS[kind]}" for kind, count in placeholders.items())
    return Verdict(True, f"no private data in {searched:,} texts, but {counts}", numbers)
