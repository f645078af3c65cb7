"""Each corruption of rewards does what its name says, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.proofs.reward_mutations import REWARD_MUTATIONS
from prep_assets.proofs.rewards import Scores, check_rewards

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
def test_each_corruption(name: str, rewards: list[float], found: list[float] | None) -> None:
    [mutation] = [each for each in REWARD_MUTATIONS if each.name == name]
    group = Scores("a", np.array(rewards, np.float32), len(rewards), rewards)
    changed: Any = mutation.change(group)
    assert (changed is None) is (found is None)
    if changed is not None:
        assert np.array_equal(changed.rewards, np.array(found, np.float32), equal_nan=True)
        assert changed.rewards.dtype == np.float32
        assert changed.responses == len(rewards) + (name == "a response of another group")
        assert (changed.id, changed.source) == ("a", rewards)
        assert not check_rewards([changed]).passed
    assert group.rewards.tolist() == np.array(rewards, np.float32).tolist()
