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
    assert ["".join("abcd"[record] for record, _ in row) for row in rows_of(plan)] == ["aaa", "bbbbdd", "cccccc"]


MUTATIONS = {
    "overlap": (
        lambda p: changed(p, "row_offset", 2, 3),
        "member 2 has 2 tokens at 3 of row 1, where place 4 of 6 comes next, 0 rows after",
    ),
    "gap": (lambda p: changed(p, "row_offset", 2, 5), "at 5 of row 1, where place 4"),
    "negative offset": (lambda p: changed(p, "row_offset", 0, -1), "at -1 of row 0, where place 0 of 6 comes next, 1 rows after"),
    "overflow": (lambda p: replace(p, row_len=5), "member 2 has 2 tokens at 4 of row 1, where place 4 of 5"),
    "empty member": (lambda p: changed(p, "length", 0, 0), "member 0 has 0 tokens"),
    "negative row": (lambda p: changed(p, "row", 0, -1), "member 1 .* 2 rows after"),
    "rows not in order": (lambda p: replace(p, row=np.array([0, 2, 2, 1])), "of row 2, .* 2 rows after"),
    "empty row at the end": (lambda p: replace(p, rows=4), "members are in 3 of 4 rows"),
    "no such row": (lambda p: replace(p, rows=2), "members are in 3 of 2 rows"),
    "dropped tokens uncounted": (lambda p: replace(p, dropped=p.dropped[:0]), "record 2: its pieces end at 6, it has 9 tokens"),
    "hole in a record": (lambda p: changed(p, "dropped", (0, 1), 7), "record 2 of 4: a piece of tokens 7 to 9, where 6 comes next"),
    "token twice": (lambda p: changed(p, "dropped", (0, 1), 5), "record 2 of 4: a piece of tokens 5 to 7, where 6 comes next"),
    "beyond the record": (lambda p: changed(p, "dropped", (0, 2), 4), "record 2: its pieces end at 10, it has 9 tokens"),
    "no such record": (lambda p: changed(p, "record", 2, 4), "record 4 of 4"),
    "empty dropped piece": (lambda p: changed(p, "dropped", (0, 2), 0), "record 2 of 4: a piece of tokens 6 to 5"),
    "arrays of two sizes": (lambda p: replace(p, start=p.start[:3]), r"shapes \[\(3,\), \(4,\)\]"),
    "dropped of another shape": (lambda p: replace(p, dropped=p.dropped[:, :2]), r"\(1, 2\), not \(K, 3\)"),
    "pieces out of order": (
        lambda p: replace(p, record=np.array([2, 1, 3, 2]), start=np.array([6, 0, 0, 0]), dropped=np.array([[0, 0, 3]])),
        "record 2 of 4: pieces out of order",
    ),
}


@pytest.mark.parametrize(("mutate", "message"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_check_catches(mutate: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        mutate(plan_by_hand()).check(LENGTHS_HERE)


def test_check_catches_other_lengths() -> None:
    for lengths, message in (([*LENGTHS_HERE, 1], "record 4: its pieces end at 0, it has 1"), (LENGTHS_HERE[:3], "record 3 of 3")):
        with pytest.raises(CheckFailed, match=message):
            plan_by_hand().check(lengths)


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
