"""Accounting: every record that was read is kept, or refused for a reason that is written down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.records.quarantine import Refusal


def account(
    counts: Mapping[str, Any],
    refusals: Iterable[Refusal],
    *,
    stored: int,
    available: int | None,
    neutral: Collection[str] = (),
    ignored: Collection[str] = (),
) -> Verdict:
    """Balance a store's books against what is really there.

    Args:
        counts: what the manifest says: ``read``, ``kept`` and ``refused`` by ``stage/reason``; ``fields_passed_over`` by domain and field.
        refusals: the quarantine file.
        stored: records found in the store.
        available: records that the stage before offers; `None` where a limit in the configuration leaves some unread.
        neutral: names of fields that may be passed over everywhere.
        ignored: ``domain/field`` of those that the configuration lists under `ignore`.
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
