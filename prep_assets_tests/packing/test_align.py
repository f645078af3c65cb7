"""Rows with room for padded documents, and rows in steps of like work, against the obvious versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.config.family import Align
from prep_assets.errors import CheckFailed, ConfigError
from prep_assets.packing import by_work, evenness, pack
from prep_assets_tests.effort import examples
from prep_assets_tests.packing import reference
from prep_assets_tests.packing.reference import LENGTHS, dropped_of, rows_of

pytestmark = pytest.mark.usefixtures("short_stretches")


# -- the multiple -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "tensor", "sequence", "multiple"),
    # of Megatron-Bridge's page on packed sequences: TP1 CP1 without SP is 1, TP4 CP1 with SP is 4; the others by its two lines of formula
    [
        (1, 1, False, 1),
        (1, 4, True, 4),
        (1, 4, False, 1),
        (2, 1, False, 4),
        (4, 2, True, 8),
        (3, 4, True, 12),
        (2, 8, True, 16),
        (3, 1, True, 6),
    ],
)
def test_what_a_topology_needs(context: int, tensor: int, sequence: bool, multiple: int) -> None:
    assert Align(context_parallel=context, tensor_parallel=tensor, sequence_parallel=sequence).multiple == multiple


def test_a_further_multiple() -> None:
    assert Align(context_parallel=3, multiple_of=16).multiple == 48


def test_rows_that_no_rank_could_split() -> None:
    with pytest.raises(ConfigError, match="row_len 10 is no multiple of align 4"):
        pack([3], 10, "bfd", align=4)
    with pytest.raises(ConfigError, match="align=4 has no effect with 'concat'"):
        pack([3], 8, "concat", align=4)


# -- rows with room ---------------------------------------------------------------------------------------------------------------------


def padded(piece: reference.Row, align: int) -> reference.Row:
    """The piece, with places that no token has, until a multiple is reached."""
    while len(piece) % align:
        piece = [*piece, (-1, -1)]
    return piece


def tokens(rows: Sequence[reference.Row]) -> list[reference.Row]:
    return [[token for token in row if token != (-1, -1)] for row in rows]


@settings(max_examples=examples(150))
@given(
    LENGTHS, st.integers(1, 6), st.integers(1, 5), st.sampled_from(["truncate", "drop", "split"]), st.sampled_from(["simple", "ffd", "bfd"])
)
def test_rows_are_those_of_padded_documents(lengths: list[int], align: int, times: int, overlong: str, strategy: Any) -> None:
    row_len = align * times
    pieces, dropped = reference.documents(lengths, row_len, overlong)
    sizes = [len(piece) if overlong == "split" else lengths[piece[0][0]] for piece in pieces]
    longer = [padded(piece, align) for piece in pieces]
    expected = (
        reference.next_fit(longer, row_len)
        if strategy == "simple"
        else reference.decreasing(longer, sizes, row_len, best=strategy == "bfd")
    )
    plan = pack(lengths, row_len, strategy, overlong=overlong, align=align)  # type: ignore[arg-type]
    assert rows_of(plan) == tokens(expected)
    assert dropped_of(plan) == dropped
    assert plan.rooms.tolist() == [len(padded([(0, 0)] * length, align)) for length in plan.length.tolist()]
    assert all(sum(plan.rooms[plan.row == row]) <= row_len for row in range(plan.rows))
    plan.check(lengths)


def test_a_plan_whose_padding_does_not_fit() -> None:
    dense = pack([5, 3], 8, "bfd")
    assert dense.rows == 1
    with pytest.raises(CheckFailed, match="row 0 needs 12 of 8 places where each member takes a multiple of 4"):
        replace(dense, align=4).check([5, 3])
    assert pack([5, 3], 8, "bfd", align=4).rows == 2


# -- rows of like work ------------------------------------------------------------------------------------------------------------------


def steps_of(plan: Any, ranks: int) -> list[list[int]]:
    """Of each whole step, the sum of squared lengths of its rows."""
    work = [sum(length**2 for length in plan.length[plan.row == row].tolist()) for row in range(plan.rows)]
    return [work[at : at + ranks] for at in range(0, len(work) - len(work) % ranks, ranks)]


@settings(max_examples=examples(100))
@given(LENGTHS, st.integers(2, 6), st.none() | st.integers(-9, 9))
def test_steps_are_of_neighbours_in_work(lengths: list[int], ranks: int, seed: int | None) -> None:
    plan = pack(lengths, 30, "bfd", align=3)
    ordered = by_work(plan, ranks, seed)
    assert sorted(map(sorted, rows_of(ordered))) == sorted(map(sorted, rows_of(plan)))
    assert np.array_equal(ordered.row, np.sort(ordered.row))
    steps = steps_of(ordered, ranks)
    for one in steps:
        for other in steps:
            assert one is other or max(one) <= min(other) or max(other) <= min(one)
    if seed is None:
        assert steps == sorted(steps, reverse=True)
    rest = [sum(length**2 for length in ordered.length[ordered.row == row].tolist()) for row in range(len(steps) * ranks, plan.rows)]
    assert not rest or not steps or max(rest) <= min(map(min, steps))
    costs = sum(map(max, steps))
    assert evenness(ordered, ranks) == pytest.approx(sum(map(sum, steps)) / (ranks * costs) if steps else 1.0)


def test_no_other_steps_cost_less() -> None:
    plan = pack([8, 2, 2, 2, 2, 1, 7, 4, 4, 3, 5, 6, 2], 8, "simple")
    assert plan.rows == 6
    work = [work for step in steps_of(plan, 1) for work in step]
    least = min(max(order[:2]) + max(order[2:4]) + max(order[4:]) for order in permutations(work))
    assert sum(map(max, steps_of(by_work(plan, 2, seed=3), 2))) == least < sum(map(max, steps_of(plan, 2)))


def test_the_order_of_steps_is_that_of_the_seed() -> None:
    plan = pack(list(range(1, 60)), 60, "bfd")
    assert len({str(by_work(plan, 3, seed).record.tolist()) for seed in range(5)}) == 5
    assert by_work(plan, 3, 1).record.tolist() == by_work(plan, 3, 1).record.tolist()
