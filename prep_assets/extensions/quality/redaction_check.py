"""The checks of redaction: texts with marked values are redacted as they must be, no private data is left in a store, and of a row nothing but values is
replaced."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from prep_assets.config.family import PrivateKind
from prep_assets.extensions.quality.proofs.known_verdicts import redactions
from prep_assets.extensions.quality.proofs.private_data import private_data_left
from prep_assets.extensions.quality.redaction import FORMS, KINDS, PLACEHOLDERS, Redactor
from prep_assets.proofs.verdict import Verdict, Worst


def redaction_holds(texts: Iterable[tuple[str, str]], kinds: Collection[PrivateKind], countries: Sequence[str] | None = None) -> Verdict:
    """Search decoded texts for private data that was to be replaced, whatever replaced it, and count the placeholders.

    Args:
        texts: the name and the text of each record.
        countries: see `private_data_left`.
    """
    if fault := redaction_fault():
        return Verdict(False, fault, {}, Worst("known texts", fault))
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


@cache
def redaction_fault() -> str:
    """Return a text whose values are known that is redacted wrongly, alone or in a row of many; ``""`` where none is."""
    texts, must = map(list, zip(*redactions(PLACEHOLDERS), strict=True))
    alone = [Redactor(KINDS)(text) for text in texts]
    together = Redactor(KINDS, countries=("DE",))(texts * 4)
    wrong = ((text, other, right) for text, other, right in zip(texts * 5, [*alone, *together], must * 5, strict=True) if other != right)
    return next((f"redact makes {other!r} of {text!r}, and must make {right!r}" for text, other, right in wrong), "")


def changed_beside(row: Any, redacted: Any, path: str = "") -> str:
    """Return where a row differs from what redaction made of it by more than placeholders; ``""`` where it does not."""
    if isinstance(row, str) and isinstance(redacted, str):
        return "" if _replaces(row, redacted) else path or "its text"
    if isinstance(row, Mapping) and isinstance(redacted, Mapping) and len(row) == len(redacted):
        for (key, inner), (its_key, its_inner) in zip(row.items(), redacted.items(), strict=True):
            # a key that another one became as well has `_` at its end
            if changed_beside(key, its_key) and changed_beside(key, str(its_key).rstrip("_")):
                return f"{path}.{key}".lstrip(".")
            if fault := changed_beside(inner, its_inner, f"{path}.{key}".lstrip(".")):
                return fault
        return ""
    if isinstance(row, list | tuple) and isinstance(redacted, list) and len(row) == len(redacted):
        pairs = enumerate(zip(row, redacted, strict=True))
        return next((fault for at, (one, other) in pairs if (fault := changed_beside(one, other, f"{path}[{at}]"))), "")
    is_number = isinstance(row, int) and redacted in PLACEHOLDERS.values()
    return "" if is_number or redacted is row or (redacted == row and type(redacted) is type(row)) else path or "all of it"


_PLACEHOLDER = re.compile("|".join(map(re.escape, PLACEHOLDERS.values())))


def _replaces(text: str, redacted: str) -> bool:
    """Whether what stands between placeholders stands in the text, in this order, with a value in each place of one."""
    first, *others = _PLACEHOLDER.split(redacted)
    if not others or not text.startswith(first):
        return text == redacted
    *between, last = others
    at = len(first)
    for part in between:
        if (found := text.find(part, at + 1)) < 0:
            return False
        at = found + len(part)
    return len(text) - len(last) > at and text.endswith(last)
