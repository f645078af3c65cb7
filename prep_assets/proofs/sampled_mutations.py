"""Mutations of groups with sampled ids: what goes wrong with rollouts, done on purpose to copies of them (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prep_assets.proofs.sampled import Rollout


@dataclass(frozen=True, slots=True)
class RolloutMutation:
    """One way to corrupt a group: what was done, and the change; `None` where a group does not lend itself to it."""

    name: str
    change: Callable[[Rollout], Rollout | None]


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


ROLLOUT_MUTATIONS: tuple[RolloutMutation, ...] = (
    RolloutMutation("a sampled id replaced", _first("tokens", lambda ids: [*ids[:-1], ids[-1] + 1])),
    RolloutMutation("a sampled id lost", _first("tokens", lambda ids: list(ids[1:]))),
    RolloutMutation("a sampled token not trained", _first("loss_mask", lambda mask: [0, *mask[1:]])),
    RolloutMutation("log-probabilities shifted by one token", _first("logprobs", lambda values: [*values[1:], values[0]])),
    RolloutMutation("log-probabilities as probabilities", _first("logprobs", lambda values: [2.0**value for value in values])),
    RolloutMutation("log-probabilities lost", _without_logprobs),
    RolloutMutation("a response lost", _lost_response),
    RolloutMutation("responses in another order", _turned_round),
    RolloutMutation("another prompt than was sampled from", _other_prompt),
)
"""Corruptions of sampled ids; the check `sampled_ids` must catch each."""
