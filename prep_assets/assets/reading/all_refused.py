"""A domain, or a store, of which nothing is kept: that is a mistake in the configuration, and it stops the build with an example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prep_assets.errors import PrepAssetsError
from prep_assets.records.quarantine import Quarantine, Refusal


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


def check_domain(name: str, read: int, quarantine: Quarantine, before: int) -> None:
    """Stop where nothing of one domain is kept in a store that several write to: the others would hide it.

    Args:
        read: how many of its records were read.
        before: how many refusals other domains had put into quarantine before its first.

    Raises:
        PrepAssetsError: all were refused; the message has the reasons and an example.
    """
    if read and sum(quarantine.counts.values()) - before == read:
        raise PrepAssetsError(f"domain {name}: {all_refused(read, quarantine.written(before))}")
