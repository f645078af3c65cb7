"""Rewards of scored groups: finite, one for each response, and those that the source has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.verdict import Verdict, Worst


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One group.

    Attributes:
        id: its record id.
        rewards: as they are stored, 1-D.
        responses: how many responses are stored.
        source: the rewards of its source, read again.
    """

    id: str
    rewards: npt.NDArray[Any]
    responses: int
    source: Sequence[float]


def check_rewards(groups: Iterable[Scores]) -> Verdict:
    """Check every group; the verdict shows the first that fails."""
    numbers = {"groups_checked": 0, "groups_failed": 0, "rewards_checked": 0, "groups_of_equal_rewards": 0}
    worst: Worst | None = None
    for group in groups:
        fault = _fault(group)
        numbers["groups_checked"] += 1
        numbers["rewards_checked"] += len(group.rewards)
        numbers["groups_of_equal_rewards"] += len(group.rewards) > 1 and len(set(group.rewards.tolist())) == 1
        if fault is not None:
            numbers["groups_failed"] += 1
            worst = worst or Worst(group.id, fault)
    if worst is not None:
        summary = f"{numbers['groups_failed']:,} of {numbers['groups_checked']:,} groups fail; first {worst.where}: {worst.note}"
        return Verdict(False, summary, numbers, worst)
    return Verdict(
        True,
        f"{numbers['rewards_checked']:,} rewards of {numbers['groups_checked']:,} groups are those of their sources; "
        f"in {numbers['groups_of_equal_rewards']:,} all are equal",
        numbers,
    )


def _fault(group: Scores) -> str | None:
    if len(group.rewards) != group.responses or not group.responses:
        return f"{len(group.rewards)} rewards for {group.responses} responses"
    wrong = np.flatnonzero(~np.isfinite(group.rewards))
    if len(wrong):
        return f"reward {wrong[0]} is {group.rewards[wrong[0]]}"
    if len(group.source) != len(group.rewards):
        return f"{len(group.rewards)} rewards, the source has {len(group.source)}"
    # float32 is off by half of its last bit at most, and of its smallest step near 0
    wrong = np.flatnonzero(~np.isclose(group.rewards, group.source, rtol=2.0**-24, atol=2.0**-150))
    return f"reward {wrong[0]} is {group.rewards[wrong[0]]:g}, the source says {group.source[wrong[0]]:g}" if len(wrong) else None
