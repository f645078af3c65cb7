"""Accounting: every record that was read is kept, or refused for a reason that is written down; what a manifest counts is counted again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import Refusal

SAMPLED = 64


def account(
    counts: Mapping[str, Any],
    refusals: Iterable[Refusal],
    *,
    stored: int,
    available: int | None,
    neutral: Collection[str] = (),
    ignored: Collection[str] = (),
    recounted: Mapping[str, int] | None = None,
) -> Verdict:
    """Balance a store's books against what is really there.

    Args:
        counts: what the manifest says: ``read``, ``kept`` and ``refused`` by ``stage/reason``; ``fields_passed_over`` by domain and field.
        refusals: the quarantine file.
        stored: records found in the store.
        available: records that the stage before offers; `None` where a limit in the configuration leaves some unread.
        neutral: names of fields that may be passed over everywhere.
        ignored: ``domain/field`` of those that the configuration lists under `ignore`.
        recounted: further counts, made again from what is stored.
    """
    listed = Counter(f"{refusal.stage}/{refusal.reason}" for refusal in refusals)
    claimed, refused = dict(counts.get("refused", {})), sum(listed.values())
    faults = []
    if dict(listed) != claimed:
        faults.append(f"the quarantine file lists {dict(sorted(listed.items()))}, the manifest says {claimed}")
    if stored != counts["kept"]:
        faults.append(f"{stored:,} records are stored, the manifest says {counts['kept']:,}")
    if counts["read"] != stored + refused:
        faults.append(f"{counts['read']:,} read, but {stored:,} kept + {refused:,} refused = {stored + refused:,}")
    if available is not None and counts["read"] != available:
        faults.append(f"{counts['read']:,} read, the stage before offers {available:,}")
    for name, number in (recounted or {}).items():
        if counts.get(name, number) != number:
            faults.append(f"{name}: {number:,} in the store, the manifest says {counts[name]:,}")
    fields = {f"{domain}/{field}": rows for domain, found in counts.get("fields_passed_over", {}).items() for field, rows in found.items()}
    unlisted = [field for field in fields if field not in ignored and re.split(r"[./]", field)[-1].lower() not in neutral]
    if unlisted:
        faults.append(f"fields that nobody listed were passed over: {', '.join(unlisted)}")
    if wrong := [f"{field} in {rows:,}" for field, rows in fields.items() if not 0 < rows <= counts["read"]]:
        faults.append(f"fields were passed over in more rows than were read: {', '.join(wrong)}")
    numbers = {
        "read": counts["read"],
        "kept": stored,
        "refused": refused,
        **{f"passed over: {field}": rows for field, rows in fields.items()},
    }
    summary = f"{counts['read']:,} read = {stored:,} kept + {refused:,} refused"
    if fields:
        summary += f"; fields left unread: {', '.join(f'{field} in {rows:,}' for field, rows in fields.items())}"
    if not faults:
        return Verdict(True, summary, numbers)
    return Verdict(False, "; ".join(faults), numbers, Worst("manifest", "; ".join(faults)))


@dataclass
class Fields:
    """In how many rows of a domain fields were passed over.

    Rows that hold something there are counted without any schema. Where fewer were passed over, as of a field that is read in some rows, all rows are
    converted once more, each alone, and so is one row in `SAMPLED` in any case, by its number, so that parts of a domain look at those that the whole does:
    to find a field that the manifest does not name.

    Attributes:
        domain: its name.
        claimed: rows by path, as the manifest says that they were passed over.
        ignored: what the configuration lists under `ignore`.
        passed_over: paths of the fields that the schema passes over in a row.
        found: rows that hold something, by path.
        unnamed: paths that are passed over in sampled rows, and not in `claimed`.
    """

    domain: str
    claimed: Mapping[str, int]
    ignored: Collection[str]
    passed_over: Callable[[Mapping[str, Any]], Set[str]]
    found: Counter[str] = field(default_factory=Counter)
    unnamed: set[str] = field(default_factory=set)

    def add_rows(self, numbers: Sequence[int], rows: Sequence[Mapping[str, Any] | None], read: Sequence[int]) -> None:
        """Count those of some rows that a schema has read; `numbers` are theirs in their file, `read` the places of those that were."""
        every = self.claimed or self.ignored
        for at in read if every else [at for at in read if numbers[at] % SAMPLED == 0]:
            row = rows[at]
            assert row is not None
            self.add(numbers[at], row)

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Count a row of this number that a schema has read."""
        if self.claimed or self.ignored:
            self.found.update(path for path in {*self.claimed, *self.ignored} if _holds(row, path.split(".")))
        if number % SAMPLED == 0:
            self.unnamed |= self.passed_over(row) - self.claimed.keys()

    def faults(self, rows: Callable[[], Iterable[Mapping[str, Any]]]) -> list[str]:
        """What is wrong with what the manifest says.

        Args:
            rows: gives all rows of the domain that a schema was given, for a second time.
        """
        numbers = self.found
        if any(self.found[path] > self.claimed.get(path, 0) for path in {*self.claimed, *self.ignored}):
            numbers = Counter(path for row in rows() for path in self.passed_over(row))
        says = "of domain {} {!r} is passed over in {:,} rows by a second reading, in {:,} as the manifest says"
        wrong = [path for path in {*self.claimed, *numbers} if numbers[path] != self.claimed.get(path, 0)]
        unnamed = [f"of domain {self.domain} {path!r} is passed over, which the manifest does not name" for path in sorted(self.unnamed)]
        return unnamed or [says.format(self.domain, path, numbers[path], self.claimed.get(path, 0)) for path in sorted(wrong)]


def _holds(value: Any, parts: Sequence[str]) -> bool:
    """Whether a path leads to something; positions in arrays are not part of it, and ``*`` is any name."""
    if isinstance(value, list | tuple):
        return any(_holds(each, parts) for each in value) if value and parts else bool(value)
    if not parts:
        return value is not None and value != "" and value != {}
    if not isinstance(value, Mapping):
        return False
    if parts[0] == "*":
        return any(_holds(each, parts[1:]) for each in value.values())
    heads = accumulate(parts, "{}.{}".format)
    return any(_holds(value[head], parts[count:]) for count, head in enumerate(heads, 1) if head in value)


def books(counts: Mapping[str, Any], numbers: Mapping[str, float]) -> list[str]:
    """Where the counts of a manifest differ from those of a second reading; `numbers` as `Ledger` has them."""
    refused = counts.get("refused", {})
    pairs = {
        "read": (counts["read"], numbers["rows_read_again"]),
        "kept": (counts["kept"], numbers["rows_stored"]),
        "refused": (sum(refused.values()), numbers["rows_refused"]),
        "refused as duplicates": (refused.get("deduplicate/duplicate", 0), numbers["duplicates"]),
    }
    return [
        f"the manifest says {claimed:,} {name}, a second reading {found:,}" for name, (claimed, found) in pairs.items() if claimed != found
    ]
