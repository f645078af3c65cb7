"""Accounting: every record that was read is kept, or refused for a reason that is written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prep_assets.quality.verdict import Verdict, Worst
from prep_assets.records.quarantine import Refusal


def account(counts: Mapping[str, Any], refusals: Iterable[Refusal], *, stored: int, available: int | None) -> Verdict:
    """Balance a store's books against what is really there.

    Args:
        counts: what the manifest says: ``read``, ``kept`` and ``refused`` by ``stage/reason``.
        refusals: the quarantine file.
        stored: records found in the store.
        available: records that the stage before offers; `None` where a limit in the configuration leaves some unread.
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
    numbers = {"read": counts["read"], "kept": stored, "refused": refused}
    summary = f"{counts['read']:,} read = {stored:,} kept + {refused:,} refused"
    if not faults:
        return Verdict(True, summary, numbers)
    return Verdict(False, "; ".join(faults), numbers, Worst("manifest", "; ".join(faults)))
