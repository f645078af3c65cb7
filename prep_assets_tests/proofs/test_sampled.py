"""Ids that a model sampled: each way in which what is stored is not what was sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from prep_assets.proofs.groups import Rollout, check_sampled
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Sampled

SOURCE = Sampled(((5, 6), (7,)), (1, 2), ((-0.5, -0.25), (-1.0,)))

MASKED = Sampled(SOURCE.responses, SOURCE.prompt, SOURCE.logprobs, ((1, 0), (1,)))


def response(tokens: list[int], logprobs: list[float] | None = None, mask: list[float] | None = None) -> Mapping[str, Any]:
    made: dict[str, Any] = {"tokens": tokens, "loss_mask": [1] * len(tokens) if mask is None else mask}
    return made if logprobs is None else made | {"logprobs": logprobs}


FIRST, SECOND = response([5, 6], [-0.5, -0.25]), response([7], [-1.0])
RIGHT = Rollout("a", (1, 2), (FIRST, SECOND), SOURCE)


def test_groups_as_they_were_sampled() -> None:
    numbers = {"groups_checked": 2, "responses_checked": 4, "tokens_checked": 6}
    assert check_sampled([RIGHT, RIGHT]) == Verdict(True, "6 ids of 4 responses are stored as they were sampled", numbers)
    many = Rollout("b", (1,), (response([5] * 2000),), Sampled(((5,) * 2000,)))
    assert check_sampled([many] * 1000).summary == "2,000,000 ids of 1,000 responses are stored as they were sampled"


def test_of_several_turns_the_mask_is_that_of_the_source() -> None:
    assert check_sampled([Rollout("a", (1, 2), (response([5, 6], [-0.5, -0.25], [1, 0]), SECOND), MASKED)]).passed


def test_no_group_was_sampled() -> None:
    numbers = {"groups_checked": 0, "responses_checked": 0, "tokens_checked": 0}
    assert check_sampled([]) == Verdict(True, "no group has sampled ids: texts were tokenized", numbers)


@pytest.mark.parametrize(
    ("prompt", "responses", "source", "says"),
    [
        ((1, 3), (FIRST, SECOND), SOURCE, "2 ids of the prompt differ from the 2 of the source"),
        ((1, 2), (FIRST,), SOURCE, "1 responses are stored, the source has 2"),
        ((1, 2), (SECOND, FIRST), SOURCE, "response 0: 1 ids differ from the 2 that were sampled"),
        ((1, 2), (FIRST, response([8], [-1.0])), SOURCE, "response 1: 1 ids differ from the 1 that were sampled"),
        ((1, 2), (FIRST, response([7], [-1.0], [0])), SOURCE, "response 1: 1 sampled tokens are not trained"),
        ((1, 2), (response([5, 6], [-0.5, -0.25], [1, 0]), SECOND), SOURCE, "response 0: 1 sampled tokens are not trained"),
        ((1, 2), (FIRST, response([7], [-1.0], [0.5])), SOURCE, "response 1: 0 sampled tokens are not trained"),
        ((1, 2), (FIRST, SECOND), MASKED, "response 0: 0 sampled tokens are not trained, 1 that were not sampled are"),
        (
            (1, 2),
            (response([5, 6], [-0.5, -0.25], [0, 1]), SECOND),
            MASKED,
            "response 0: 1 sampled tokens are not trained, 1 that were not sampled are",
        ),
        ((1, 2), (response([5, 6], [-0.5, -0.25], [0, 0]), SECOND), MASKED, "response 0: 1 sampled tokens are not trained"),
        ((1, 2), (response([5, 6]), SECOND), SOURCE, "response 0: log-probabilities are in and not stored of the source"),
        (
            (1, 2),
            (FIRST, SECOND),
            Sampled(SOURCE.responses, SOURCE.prompt),
            "response 0: log-probabilities are stored and not in the source",
        ),
        ((1, 2), (FIRST, response([7], [-1.0001])), SOURCE, "response 1: log-probabilities differ from those of the source"),
        ((1, 2), (response([5, 6], [-0.25, -0.5]), SECOND), SOURCE, "response 0: log-probabilities differ from those of the source"),
    ],
)
def test_what_is_stored_is_not_what_was_sampled(prompt: Any, responses: Any, source: Sampled, says: str) -> None:
    verdict = check_sampled([RIGHT, Rollout("b", prompt, responses, source), RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"b: {says}", Worst("b", says))
    assert verdict.numbers["groups_checked"] == 2


def test_a_prompt_of_the_template() -> None:
    assert check_sampled([Rollout("a", (9, 9), (FIRST, SECOND), Sampled(SOURCE.responses, None, SOURCE.logprobs))]).passed


def test_log_probabilities_are_float32() -> None:
    """Off by half of the last bit of float32 they are those of the source; off by more they are not."""
    import numpy as np

    exact = (-0.1, -1e-46, -123.456, -1 - 0.99 * 2.0**-24, -0.99 * 2.0**-150)
    tokens = [5, 6, 7, 8, 9]
    stored = np.array(exact, np.float32)
    source = Sampled((tuple(tokens),), (1,), (exact,))
    assert check_sampled([Rollout("a", (1,), (response(tokens, stored.tolist()),), source)]).passed
    for at in range(5):
        off = stored.copy()
        off[at] = np.nextafter(np.nextafter(off[at], np.float32(-1000)), np.float32(-1000))
        assert not check_sampled([Rollout("a", (1,), (response(tokens, off.tolist()),), source)]).passed, at
