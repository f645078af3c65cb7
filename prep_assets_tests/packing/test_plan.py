from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.errors import CheckFailed, ConfigError
from prep_assets.packing import PackPlan, pack
from prep_assets_tests.effort import examples
from prep_assets_tests.packing.reference import LENGTHS, ROW_LEN, problems, rows_of

pytestmark = pytest.mark.usefixtures("short_stretches")

LENGTHS_HERE = [3, 4, 9, 2]
FIELDS = ("row", "record", "start", "length", "row_offset")


def plan_by_hand() -> PackPlan:
    """Rows of 6: ``aaa...``, ``bbbbdd``, ``cccccc``, the last three tokens of c are dropped."""
    return PackPlan(
        row_len=6,
        rows=3,
        row=np.array([0, 1, 1, 2]),
        record=np.array([0, 1, 3, 2]),
        start=np.array([0, 0, 0, 0]),
        length=np.array([3, 4, 2, 6]),
        row_offset=np.array([0, 0, 4, 0]),
        dropped=np.array([[2, 6, 3]]),
    )


def changed(plan: PackPlan, field: str, index: Any, value: int) -> PackPlan:
    array = getattr(plan, field).copy()
    array[index] = value
    return replace(plan, **{field: array})


def test_the_plan_made_by_hand_holds() -> None:
    plan = plan_by_hand()
    plan.check(LENGTHS_HERE)
    assert problems(plan, LENGTHS_HERE) == []
    assert (plan.used, plan.fill) == (15, 15 / 18)


MUTATIONS = {
    "overlap": (lambda p: changed(p, "row_offset", 2, 3), "row 1: member 2 begins at 3 and overlaps the one that ends at 4"),
    "gap": (lambda p: changed(p, "row_offset", 2, 5), "row 1: a gap from 4 to 5"),
    "gap at the start": (lambda p: changed(p, "row_offset", 0, 1), "row 0: a gap from 0 to 1"),
    "negative offset": (lambda p: changed(p, "row_offset", 0, -1), "row 0: member 0 begins at -1 and overlaps"),
    "overflow": (lambda p: replace(p, row_len=5), r"row 1 overflows: member 2 ends at 6, the row has 5 places \(and 1 more like it\)"),
    "dropped tokens uncounted": (lambda p: replace(p, dropped=p.dropped[:0]), "record 2: tokens 6 to 8 are in no row and not in dropped"),
    "one dropped token uncounted": (lambda p: changed(p, "dropped", (0, 2), 2), "record 2: tokens 8 to 8 are in no row"),
    "hole in a record": (
        lambda p: changed(changed(p, "dropped", (0, 1), 7), "dropped", (0, 2), 2),
        "record 2: tokens 6 to 6 are in no row",
    ),
    "first token missing": (lambda p: changed(changed(p, "start", 0, 1), "length", 0, 2), "record 0: tokens 0 to 0 are in no row"),
    "token twice": (lambda p: changed(p, "dropped", (0, 1), 5), "record 2: tokens 5 to 5 are in two pieces"),
    "beyond the record": (lambda p: changed(p, "dropped", (0, 2), 4), "record 2: pieces end at 10, the record has 9 tokens"),
    "record missing": (lambda p: changed(p, "record", 2, 1), "record 1: tokens 0 to 1 are in two pieces"),
    "no such record": (lambda p: changed(p, "record", 2, 4), "piece of record 4, but there are 4 records"),
    "no such row": (lambda p: changed(p, "row", 3, 3), "member 3 is in row 3 of 3"),
    "negative row": (lambda p: changed(p, "row", 0, -1), "member 0 is in row -1 of 3"),
    "empty row at the end": (lambda p: replace(p, rows=4), "row 3 of 4 has no member"),
    "empty row between": (lambda p: replace(p, rows=4, row=np.array([0, 1, 1, 3])), "row 2 of 4 has no member"),
    "rows not in order": (lambda p: replace(p, row=np.array([0, 2, 2, 1])), "not ordered by row: member 2 is in 2, the next in 1"),
    "empty member": (lambda p: changed(p, "length", 0, 0), "member 0 has length 0"),
    "empty dropped piece": (lambda p: changed(p, "dropped", (0, 2), 0), "dropped piece 0 has length 0"),
    "arrays of two sizes": (lambda p: replace(p, start=p.start[:3]), r"must all have shape \(M,\)"),
    "dropped of another shape": (lambda p: replace(p, dropped=p.dropped[:, :2]), r"shape \(K, 3\), got \(1, 2\)"),
}


@pytest.mark.parametrize(("mutate", "message"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_check_catches(mutate: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        mutate(plan_by_hand()).check(LENGTHS_HERE)


def test_check_catches_pieces_out_of_order() -> None:
    plan = pack([5], 3, "concat")
    swapped = PackPlan(3, 2, plan.row, plan.record, np.array([2, 0]), np.array([3, 2]), plan.row_offset, plan.dropped)
    with pytest.raises(CheckFailed, match="record 0: the piece from 0 comes after the one from 2"):
        swapped.check([5])


def test_check_catches_other_lengths() -> None:
    with pytest.raises(CheckFailed, match="record 4: tokens 0 to 0 are in no row"):
        plan_by_hand().check([*LENGTHS_HERE, 1])
    with pytest.raises(CheckFailed, match="there are 3 records"):
        plan_by_hand().check(LENGTHS_HERE[:3])


@settings(max_examples=examples(200))
@given(LENGTHS.filter(bool), ROW_LEN, st.sampled_from(["concat", "simple", "bfd"]), st.data())
def test_every_change_of_one_number_is_caught(lengths: list[int], row_len: int, strategy: Any, data: st.DataObject) -> None:
    plan = pack(lengths, row_len, strategy, **({} if strategy == "concat" else {"overlong": "truncate"}))
    field = data.draw(st.sampled_from([*FIELDS, *(["dropped"] if len(plan.dropped) else [])]))
    array = getattr(plan, field)
    index = np.unravel_index(data.draw(st.integers(0, array.size - 1)), array.shape)
    mutated = changed(plan, field, index, int(array[index]) + data.draw(st.sampled_from([-2, -1, 1, 2])))
    with pytest.raises(CheckFailed):
        mutated.check(lengths)


def test_members_and_row_bounds() -> None:
    plan = plan_by_hand()
    assert plan.row_bounds.tolist() == [0, 1, 3, 4]
    assert plan.members(slice(1, 3)) == slice(1, 4)
    assert plan.members(slice(None)) == slice(0, 4)
    assert plan.members(slice(2, 1)) == slice(3, 3)
    assert plan.members(slice(-1, None)) == slice(3, 4)
    with pytest.raises(ConfigError, match="step 2"):
        plan.members(slice(0, 3, 2))


def test_rows_of_the_hand_made_plan() -> None:
    """The drawing in `plan_by_hand` is what the reference reads from it."""
    drawn = ["".join("abcd"[record] for record, _ in row) for row in rows_of(plan_by_hand())]
    assert drawn == ["aaa", "bbbbdd", "cccccc"]
