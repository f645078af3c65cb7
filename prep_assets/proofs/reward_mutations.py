"""Mutations of scored groups: what goes wrong with rewards, done on purpose to copies of them (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from prep_assets.proofs.rewards import Scores

NAN, INFINITY = np.float32("nan"), np.float32("inf")


@dataclass(frozen=True, slots=True)
class RewardMutation:
    """One way to corrupt a group: what was done, and the change; `None` where a group does not lend itself to it."""

    name: str
    change: Callable[[Scores], Scores | None]


def _no_number(group: Scores) -> Scores:
    return replace(group, rewards=np.append(group.rewards[:-1], NAN))


def _infinite(group: Scores) -> Scores:
    return replace(group, rewards=np.append(INFINITY, group.rewards[1:]))


def _lost(group: Scores) -> Scores:
    return replace(group, rewards=group.rewards[:-1])


def _shifted(group: Scores) -> Scores | None:
    """As where an empty response was dropped, and its reward was not."""
    rewards = np.roll(group.rewards, 1)
    return None if np.array_equal(rewards, group.rewards) else replace(group, rewards=rewards)


def _truncated(group: Scores) -> Scores | None:
    """As in a store of int32."""
    rewards = np.trunc(group.rewards)
    return None if np.array_equal(rewards, group.rewards) else replace(group, rewards=rewards)


def _sign(group: Scores) -> Scores | None:
    return replace(group, rewards=-group.rewards) if group.rewards.any() else None


def _other_response(group: Scores) -> Scores:
    """A response of the next group counts as this one's, with its reward."""
    return replace(group, rewards=np.append(group.rewards, group.rewards[-1]), responses=group.responses + 1)


REWARD_MUTATIONS: tuple[RewardMutation, ...] = (
    RewardMutation("a reward that is no number", _no_number),
    RewardMutation("an infinite reward", _infinite),
    RewardMutation("a reward lost", _lost),
    RewardMutation("rewards of a group shifted", _shifted),
    RewardMutation("rewards cut to whole numbers", _truncated),
    RewardMutation("rewards negated", _sign),
    RewardMutation("a response of another group", _other_response),
)
"""Corruptions of rewards; the check `rewards` must catch each."""
