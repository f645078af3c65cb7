"""Each corruption of scored groups does what its name says, or nothing, and the check that is there for it catches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.groups import Rollout, Scores, check_rewards, check_sampled
from prep_assets.proofs.mutations import REWARD_MUTATIONS, ROLLOUT_MUTATIONS
from prep_assets.samples import Sampled

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "rewards", "found"),
    [
        ("a reward that is no number", [1.5, 2], [1.5, NAN]),
        ("a reward that is no number", [1.5, 2, 3], [1.5, 2, NAN]),
        ("an infinite reward", [1.5, 2], [INF, 2]),
        ("a reward lost", [1.5, 2, 3], [1.5, 2]),
        ("rewards of a group shifted", [1.5, 2, 3], [3, 1.5, 2]),
        ("rewards of a group shifted", [2, 2], None),
        ("rewards cut to whole numbers", [1.5, -2.5, 3], [1, -2, 3]),
        ("rewards cut to whole numbers", [1, 2], None),
        ("rewards negated", [0, 2], [0, -2]),
        ("rewards negated", [0, 0], None),
        ("a response of another group", [1.5, 2], [1.5, 2, 2]),
        ("a response of another group", [1.5, 2, 3], [1.5, 2, 3, 3]),
    ],
)
def test_each_corruption_of_rewards(name: str, rewards: list[float], found: list[float] | None) -> None:
    [mutation] = [each for each in REWARD_MUTATIONS if each.name == name]
    group = Scores("a", np.array(rewards, np.float32), len(rewards), rewards)
    assert mutation.caught_by == "rewards"
    [changed] = mutation.change([group], 0) or [None]
    assert (changed is None) is (found is None)
    if changed is not None:
        assert np.array_equal(changed.rewards, np.array(found, np.float32), equal_nan=True)
        assert changed.rewards.dtype == np.float32
        assert changed.responses == len(rewards) + (name == "a response of another group")
        assert (changed.id, changed.source) == ("a", rewards)
        assert not check_rewards([changed]).passed
    assert group.rewards.tolist() == np.array(rewards, np.float32).tolist()


ONE: dict[str, Any] = {"tokens": [5, 6], "loss_mask": [1, 1], "logprobs": [-1.0, -2.0]}
TWO: dict[str, Any] = {"tokens": [7], "loss_mask": [1], "logprobs": [-3.0]}
FULL = Rollout("a", [1, 2], (ONE, TWO), Sampled(((5, 6), (7,)), (1, 2), ((-1.0, -2.0), (-3.0,))))
BARE_ONE = {"tokens": [5, 5], "loss_mask": [1, 1]}
BARE = Rollout("b", [9], (BARE_ONE, BARE_ONE), Sampled(((5, 5), (5, 5))))


@pytest.mark.parametrize(
    ("name", "full", "bare"),
    [
        (
            "a sampled id replaced",
            {"responses": ({**ONE, "tokens": [5, 7]}, TWO)},
            {"responses": ({**BARE_ONE, "tokens": [5, 6]}, BARE_ONE)},
        ),
        ("a sampled id lost", {"responses": ({**ONE, "tokens": [6]}, TWO)}, {"responses": ({**BARE_ONE, "tokens": [5]}, BARE_ONE)}),
        (
            "a sampled token not trained",
            {"responses": ({**ONE, "loss_mask": [0, 1]}, TWO)},
            {"responses": ({**BARE_ONE, "loss_mask": [0, 1]}, BARE_ONE)},
        ),
        ("log-probabilities shifted by one token", {"responses": ({**ONE, "logprobs": [-2.0, -1.0]}, TWO)}, None),
        ("log-probabilities as probabilities", {"responses": ({**ONE, "logprobs": [0.5, 0.25]}, TWO)}, None),
        (
            "log-probabilities lost",
            {"responses": ({"tokens": [5, 6], "loss_mask": [1, 1]}, {"tokens": [7], "loss_mask": [1]})},
            None,
        ),
        ("a response lost", {"responses": (ONE,)}, {"responses": (BARE_ONE,)}),
        ("responses in another order", {"responses": (TWO, ONE)}, None),
        ("another prompt than was sampled from", {"prompt": [1, 2, 0]}, None),
    ],
)
def test_each_corruption_of_a_rollout(name: str, full: dict[str, Any], bare: dict[str, Any] | None) -> None:
    [mutation] = [each for each in ROLLOUT_MUTATIONS if each.name == name]
    assert mutation.caught_by == "sampled_ids" and check_sampled([FULL, BARE]).passed
    for group, changes in ((FULL, full), (BARE, bare)):
        [found] = mutation.change([group, group], 1) or [None]
        assert found == (None if changes is None else replace(group, **changes))
        assert found is None or not check_sampled([found]).passed


def test_the_last_response_is_lost() -> None:
    assert kit._lost_response(replace(FULL, responses=(ONE, TWO, ONE))).responses == (ONE, TWO)


def test_the_factories() -> None:
    """They are called when the module is read, so they are called here again."""
    assert len(ROLLOUT_MUTATIONS) == 9
    assert kit._first("tokens", lambda ids: [*ids, 0])(FULL) == replace(FULL, responses=({**ONE, "tokens": [5, 6, 0]}, TWO))
    assert kit._first("tokens", list)(FULL) is None and kit._first("other", list)(FULL) is None
    alone = kit._alone(lambda group: f"{group}!" if group else None)
    assert alone(["", "b"], 1) == ["b!"] and alone(["", "b"], 0) is None
