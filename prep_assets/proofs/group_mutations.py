"""Mutations of scored groups: what goes wrong with rewards and with sampled ids, done on purpose to copies of them (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from prep_assets.proofs.mutations import Mutation
from prep_assets.proofs.rewards import Scores
from prep_assets.proofs.sampled import Rollout

NAN, INFINITY = np.float32("nan"), np.float32("inf")
T = TypeVar("T")


def _alone(change: Callable[[T], T | None]) -> Callable[[Sequence[T], int], list[T] | None]:
    """The corrupted group, alone."""

    def changed(groups: Sequence[T], at: int) -> list[T] | None:
        return None if (other := change(groups[at])) is None else [other]

    return changed


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


REWARD_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a reward that is no number", "rewards", _alone(_no_number)),
    Mutation("an infinite reward", "rewards", _alone(_infinite)),
    Mutation("a reward lost", "rewards", _alone(_lost)),
    Mutation("rewards of a group shifted", "rewards", _alone(_shifted)),
    Mutation("rewards cut to whole numbers", "rewards", _alone(_truncated)),
    Mutation("rewards negated", "rewards", _alone(_sign)),
    Mutation("a response of another group", "rewards", _alone(_other_response)),
)
"""Corruptions of rewards; the check `rewards` must catch each."""


def _first(key: str, value: Callable[[Sequence[Any]], list[Any]]) -> Callable[[Rollout], Rollout | None]:
    """One array of the first response becomes something else; only groups whose responses have it."""

    def change(group: Rollout) -> Rollout | None:
        stored = group.responses[0]
        if key not in stored or (other := value(stored[key])) == list(stored[key]):
            return None
        return replace(group, responses=({**stored, key: other}, *group.responses[1:]))

    return change


def _lost_response(group: Rollout) -> Rollout:
    return replace(group, responses=group.responses[:-1])


def _turned_round(group: Rollout) -> Rollout | None:
    turned = tuple(reversed(group.responses))
    return None if turned == tuple(group.responses) else replace(group, responses=turned)


def _without_logprobs(group: Rollout) -> Rollout | None:
    if group.source.logprobs is None:
        return None
    return replace(group, responses=tuple({key: each[key] for key in each if key != "logprobs"} for each in group.responses))


def _other_prompt(group: Rollout) -> Rollout | None:
    return None if group.source.prompt is None else replace(group, prompt=[*group.prompt, 0])


ROLLOUT_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a sampled id replaced", "sampled_ids", _alone(_first("tokens", lambda ids: [*ids[:-1], ids[-1] + 1]))),
    Mutation("a sampled id lost", "sampled_ids", _alone(_first("tokens", lambda ids: list(ids[1:])))),
    Mutation("a sampled token not trained", "sampled_ids", _alone(_first("loss_mask", lambda mask: [0, *mask[1:]]))),
    Mutation("log-probabilities shifted by one token", "sampled_ids", _alone(_first("logprobs", lambda values: [*values[1:], values[0]]))),
    Mutation(
        "log-probabilities as probabilities", "sampled_ids", _alone(_first("logprobs", lambda values: [2.0**value for value in values]))
    ),
    Mutation("log-probabilities lost", "sampled_ids", _alone(_without_logprobs)),
    Mutation("a response lost", "sampled_ids", _alone(_lost_response)),
    Mutation("responses in another order", "sampled_ids", _alone(_turned_round)),
    Mutation("another prompt than was sampled from", "sampled_ids", _alone(_other_prompt)),
)
"""Corruptions of sampled ids; the check `sampled_ids` must catch each."""
