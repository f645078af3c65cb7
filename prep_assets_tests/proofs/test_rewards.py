"""Rewards of groups: each way in which they are not those of their source."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prep_assets.proofs.groups import Scores, check_rewards
from prep_assets.proofs.verdict import Verdict, Worst


def scores(rewards: list[float], source: list[float], responses: int | None = None, name: str = "a") -> Scores:
    return Scores(name, np.array(rewards, np.float32), len(rewards) if responses is None else responses, source)


def test_rewards_of_their_sources() -> None:
    groups = [scores([1, 0.1], [1, 0.1]), scores([2, 2, 2], [2, 2, 2]), scores([3], [3])]
    numbers = {"groups_checked": 3, "groups_failed": 0, "rewards_checked": 6, "groups_of_equal_rewards": 1}
    assert check_rewards(groups) == Verdict(True, "6 rewards of 3 groups are those of their sources; in 1 all are equal", numbers)
    thousands = check_rewards([scores([1, 1], [1, 1])] * 1000)
    assert thousands.summary == "2,000 rewards of 1,000 groups are those of their sources; in 1,000 all are equal"


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (scores([1, 2], [1, 2], 3, "b"), "2 rewards for 3 responses"),
        (scores([], [], 0, "b"), "0 rewards for 0 responses"),
        (scores([1, math.nan], [1, 2], name="b"), "reward 1 is nan"),
        (scores([math.inf, 1], [1, 1], name="b"), "reward 0 is inf"),
        (scores([1, 2], [1], name="b"), "2 rewards, the source has 1"),
        (scores([1, 2.5], [1, 2], name="b"), "reward 1 is 2.5, the source says 2"),
        (scores([3, 2], [4, 2], name="b"), "reward 0 is 3, the source says 4"),
    ],
)
def test_rewards_that_are_not(group: Scores, says: str) -> None:
    verdict = check_rewards([scores([1], [1]), group, scores([1, 1], [1, 1]), group])
    assert (verdict.passed, verdict.worst) == (False, Worst("b", says))
    assert verdict.summary == f"2 of 4 groups fail; first b: {says}"
    assert verdict.numbers["groups_failed"] == 2 and verdict.numbers["groups_checked"] == 4
    assert check_rewards([group] * 1000).summary.startswith("1,000 of 1,000 groups fail")


def test_rewards_are_float32() -> None:
    """Off by half of the last bit of float32 they are those of the source; off by more they are not."""
    exact = [0.1, 1e-46, 123.456, 1 + 0.99 * 2.0**-24, 0.99 * 2.0**-150]
    stored = np.array(exact, np.float32)
    assert check_rewards([Scores("a", stored, 5, exact)]).passed
    for at in range(5):
        off = stored.copy()
        off[at] = np.nextafter(np.nextafter(off[at], np.float32(1000)), np.float32(1000))
        assert not check_rewards([Scores("a", off, 5, exact)]).passed, at
