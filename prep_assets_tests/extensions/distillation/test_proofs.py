"""What a teacher says of tokens: the second reading of each form, and each way in which what is stored is not what the rows say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest

from prep_assets.extensions.distillation.proofs.entries import Taught, check_teacher
from prep_assets.proofs.verdict import Verdict, Worst

SAID = ((), ((5, -0.5), (6, -1.5)), ((9, -0.25), (7, -2.0), (6, -3.0)), ((8, -0.125),))
RIGHT = Taught(
    "a",
    np.array([4, 5, 7, 8]),
    np.array([0, 2, 3, 1]),
    np.array([5, 6, 9, 7, 6, 8]),
    np.array([-0.5, -1.5, -0.25, -2.0, -3.0, -0.125], np.float16),
    SAID,
)
COUNTED = {"records_checked": 1, "tokens_with_entries": 3, "entries_checked": 6, "own": 3, "before": 0, "behind": 0}
NONE = dict.fromkeys(COUNTED, 0)


def test_what_the_rows_say() -> None:
    doubled = {key: 2 * number for key, number in COUNTED.items()}
    says = "12 entries of 6 tokens are those of their rows, as float16; 6 tokens are among their own"
    assert check_teacher([RIGHT, RIGHT]) == Verdict(True, says, doubled)
    assert check_teacher([]) == Verdict(True, "no token has entries of a teacher", NONE)
    say = check_teacher([RIGHT]).say
    assert say is not None and say(doubled) == says


def wrong(**changes: Any) -> Taught:
    return replace(RIGHT, id="b", **changes)


def said(at: int, *entries: tuple[int, float]) -> dict[str, Any]:
    """Other entries of a token, stored as they are said."""
    source = [*SAID[:at], entries, *SAID[at + 1 :]]
    flat = [entry for place in source for entry in place]
    return {
        "source": source,
        "counts": np.array(list(map(len, source))),
        "ids": np.array([token for token, _ in flat]),
        "logprobs": np.array([value for _, value in flat], np.float32),
    }


@pytest.mark.parametrize(
    ("entries", "holds"),
    [(((8, 0.0),), True), (((8, 0.0), (9, log(0.01))), True), (((8, -0.685), (9, -0.685)), True), (((8, -0.68), (9, -0.68)), False)],
)
def test_probabilities_add_up_to_one_or_little_more(entries: Sequence[tuple[int, float]], holds: bool) -> None:
    assert check_teacher([wrong(**said(3, *entries))]).passed is holds


@pytest.mark.parametrize(
    ("value", "stored", "holds"),
    [(-1.0, -1.0 + 2**-11 + 2**-25, True), (-3.0, -3.0 + 3 * 2**-10.9, False), (-(2**-30), 0.0, True), (-(2**-24.5), 0.0, False)],
)
def test_a_log_probability_is_off_by_half_of_its_last_bit_at_most(value: float, stored: float, holds: bool) -> None:
    changes = said(3, (8, value))
    values = changes["logprobs"].astype(np.float64)
    values[-1] = stored
    assert check_teacher([wrong(**{**changes, "logprobs": values})]).passed is holds


@pytest.mark.parametrize(("by", "side"), [(-1, "0 of 2 tokens are among their own entries, 3 among those before them, 0"), (1, "0 of 2")])
def test_more_tokens_among_the_entries_of_a_neighbour(by: int, side: str) -> None:
    source = [*SAID[1:], ()] if by == -1 else [(), (), *SAID[1:3]]
    entries = [entry for place in source for entry in place]
    moved = replace(
        RIGHT,
        counts=np.array(list(map(len, source))),
        ids=np.array([token for token, _ in entries]),
        logprobs=np.array([value for _, value in entries], np.float16),
        source=source,
    )
    named = [3, 2][by == 1]
    counts = {"before": 3, "behind": 0} if by == -1 else {"before": 0, "behind": 2}
    verdict = check_teacher([moved])
    says = "0 of {} tokens are among their own entries, {before} among those before them, {behind} among those behind".format(
        named, **counts
    )
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"all records: {says}", Worst("all records", says))
    assert verdict.numbers == {"records_checked": 1, "tokens_with_entries": named, "entries_checked": len(entries), "own": 0, **counts}
    assert check_teacher([moved, RIGHT]).passed, "as many as their own"
