"""Each corruption of a rollout does what its name says, or nothing, and `sampled_ids` catches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prep_assets.proofs import sampled_mutations as kit
from prep_assets.proofs.sampled import Rollout, check_sampled
from prep_assets.proofs.sampled_mutations import ROLLOUT_MUTATIONS
from prep_assets.samples import Sampled

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
def test_each_corruption(name: str, full: dict[str, Any], bare: dict[str, Any] | None) -> None:
    [mutation] = [each for each in ROLLOUT_MUTATIONS if each.name == name]
    assert check_sampled([FULL, BARE]).passed
    for group, changes in ((FULL, full), (BARE, bare)):
        found = mutation.change(group)
        assert found == (None if changes is None else replace(group, **changes))
        assert found is None or not check_sampled([found]).passed


def test_the_last_response_is_lost() -> None:
    assert kit._lost_response(replace(FULL, responses=(ONE, TWO, ONE))).responses == (ONE, TWO)


def test_the_factory() -> None:
    """It is called when the module is read, so it is called here again."""
    assert len(ROLLOUT_MUTATIONS) == 9
    assert kit._first("tokens", lambda ids: [*ids, 0])(FULL) == replace(FULL, responses=({**ONE, "tokens": [5, 6, 0]}, TWO))
    assert kit._first("tokens", list)(FULL) is None and kit._first("other", list)(FULL) is None
