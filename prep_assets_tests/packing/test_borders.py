from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import ConfigError
from prep_assets.packing import (
    PackPlan,
    cu_seqlens,
    first_of_document,
    pack,
    position_ids,
    segment_ids,
    seq_lengths,
    seq_start_id,
    used_places,
)
from prep_assets_tests.effort import examples
from prep_assets_tests.packing.reference import LENGTHS, ROW_LEN

ALL = slice(None)


@st.composite
def plan_and_rows(draw: st.DrawFn) -> tuple[PackPlan, slice]:
    strategy: Any = draw(st.sampled_from(["concat", "simple", "bfd_split"]))
    plan = pack(draw(LENGTHS), draw(ROW_LEN), strategy, **({"overlong": "truncate"} if strategy == "simple" else {}))
    bound = st.integers(0, plan.rows + 1)
    return plan, draw(st.one_of(st.just(ALL), st.builds(slice, bound, bound)))


def drawn(plan: PackPlan, rows: slice) -> dict[str, list[list[int]]]:
    """Every dialect of a block of rows, one token at a time."""
    names = ("doc_reset", "continuous", "segments", "first", "used")
    block: dict[str, list[list[int]]] = {name: [] for name in names}
    for row in list(range(plan.rows))[rows]:
        lengths = [int(plan.length[m]) for m in range(plan.row.size) if plan.row[m] == row]
        padding = [0] * (plan.row_len - sum(lengths))
        block["doc_reset"].append([i for n in lengths for i in range(n)] + padding)
        block["continuous"].append(list(range(sum(lengths))) + padding)
        block["segments"].append([k for k, n in enumerate(lengths, 1) for _ in range(n)] + padding)
        block["first"].append([int(i == 0) for n in lengths for i in range(n)] + padding)
        block["used"].append([1] * sum(lengths) + padding)
    return block


@settings(max_examples=examples(200))
@given(plan_and_rows())
def test_blocks(case: tuple[PackPlan, slice]) -> None:
    plan, rows = case
    expected = drawn(plan, rows)
    shape = (len(expected["used"]), plan.row_len)
    for got, name, dtype in (
        (position_ids(plan, rows, "doc_reset"), "doc_reset", np.int32),
        (position_ids(plan, rows, "continuous"), "continuous", np.int32),
        (segment_ids(plan, rows), "segments", np.int32),
        (first_of_document(plan, rows), "first", bool),
        (used_places(plan, rows), "used", bool),
    ):
        assert (got.shape, got.dtype) == (shape, dtype)
        assert got.astype(int).tolist() == expected[name]


@settings(max_examples=examples(100))
@given(plan_and_rows())
def test_one_row(case: tuple[PackPlan, slice]) -> None:
    plan, _ = case
    for row, segments in enumerate(drawn(plan, ALL)["segments"]):
        lengths = [segments.count(k) for k in range(1, max(segments) + 1)]
        ends = [sum(lengths[:k]) for k in range(len(lengths) + 1)]
        assert seq_lengths(plan, row).tolist() == lengths
        assert seq_start_id(plan, row).tolist() == ends[:-1]
        assert cu_seqlens(plan, row).tolist() == ends
        padded = ends if ends[-1] == plan.row_len else [*ends, plan.row_len]
        assert cu_seqlens(plan, row, padding_segment=True).tolist() == padded
        assert {f(plan, row).dtype for f in (seq_lengths, seq_start_id, cu_seqlens)} == {np.dtype(np.int32)}


def test_refusals() -> None:
    plan = pack([3, 4], 8, "simple")
    assert position_ids(plan, ALL, "none") is None
    with pytest.raises(ConfigError, match="'reset' are not one of"):
        position_ids(plan, ALL, "reset")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="row 1 of a plan with 1 rows"):
        cu_seqlens(plan, 1)
    with pytest.raises(ConfigError, match="step 2"):
        segment_ids(plan, slice(0, 1, 2))
