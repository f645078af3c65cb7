"""A store of which nothing is kept: that is a mistake in the configuration, and it stops the build with an example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prep_assets.records.quarantine import Refusal


def all_refused(read: int, refusals: Iterable[Refusal]) -> str:
    """What is said where all records were refused: how many for which reason, and the first refusal of the most frequent one."""
    counts, first = Counter[str](), dict[str, Refusal]()
    for each in refusals:
        reason = f"{each.stage}/{each.reason}"
        counts[reason] += 1
        first.setdefault(reason, each)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))
    said = f"all {read:,} records were refused ({reasons})."
    if not counts:
        return said
    example = first[(most := counts.most_common(1)[0][0])]
    which = f"The first one of {most}" if len(counts) > 1 else "The first one"
    return f"{said} {which}, {example.id}: {example.detail}"
