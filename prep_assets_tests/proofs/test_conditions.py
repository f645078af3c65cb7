"""`where` and `domain_key`: the second evaluation agrees with the first, and with what is spelled out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prep_assets.data.blocks import WrongType, conditions
from prep_assets.proofs.selection import belongs, matches

tests = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "c"]),
    st.one_of(
        st.integers(0, 3),
        st.sampled_from(["x", "y", True, False, None, 1.5]),
        st.fixed_dictionaries({"==": st.integers(0, 3) | st.text(max_size=1)}),
        st.fixed_dictionaries({"!=": st.integers(0, 3) | st.booleans()}),
        st.fixed_dictionaries({"in": st.lists(st.integers(0, 3) | st.booleans(), min_size=1, max_size=3)}),
        st.fixed_dictionaries({"not_in": st.lists(st.integers(0, 3) | st.booleans(), min_size=1, max_size=3)}),
        st.fixed_dictionaries({word: st.integers(0, 3) for word in (">", "<=")}),
        st.fixed_dictionaries({word: st.integers(0, 3) | st.sampled_from(["x"]) for word in (">=", "<")}),
        st.fixed_dictionaries({"exists": st.booleans()}),
    ),
    max_size=3,
)
small = (
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y", 1.5, 1.0]) | st.dictionaries(st.just("b"), st.integers(0, 3))
)


@given(st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), small), tests)
def test_conditions(row: dict[str, Any], where: dict[str, Any]) -> None:
    def holds() -> bool:
        try:
            return all(test.holds(row) for test in conditions(where))
        except WrongType:
            return False

    assert matches(row, where) == holds()


ROW = {"n": 2, "f": 2.0, "s": "b", "t": True, "none": None, "a.b": 1, "o": {"p": {"q": 3}, "none": None}, "a": {"b": 5, "c": 7}}
HOLD: list[dict[str, Any]] = [
    *({"n": 2}, {"n": 2.0}, {"f": 2}, {"s": "b"}, {"t": True}, {"none": None}, {"a.b": 1}, {"a.c": 7}, {"o.p.q": 3}, {"o.none": None}, {}),
    *(
        {"n": {"==": 2}},
        {"n": {"!=": 3}},
        {"t": {"!=": 1}},
        {"s": {"!=": 2}},
        {"gone": {"!=": 2}},
        {"n": {"in": [1, 2]}},
        {"n": {"not_in": [1, True]}},
    ),
    *({"n": {">": 1}}, {"n": {">=": 2}}, {"n": {"<": 3}}, {"n": {"<=": 2}}, {"f": {">": 1, "<": 3}}, {"s": {">": "a", "<=": "b"}}),
    *(
        {"n": {"exists": True}},
        {"none": {"exists": True}},
        {"gone": {"exists": False}},
        {"o.p": {"exists": True}},
        {"o.p.q.r": {"exists": False}},
    ),
    *({"gone": {"not_in": [1]}}, {"n": 2, "s": "b"}, {"n": {">": 1}, "s": {"in": ["b"]}}),
]
MISS: list[dict[str, Any]] = [
    *(
        {"n": 3},
        {"n": "2"},
        {"n": True},
        {"t": 1},
        {"s": "c"},
        {"none": 0},
        {"a.b": 5},
        {"o.p.q": 4},
        {"o.q": 3},
        {"gone": None},
        {"o p q": 3},
    ),
    *(
        {"n": {"==": 3}},
        {"n": {"!=": 2}},
        {"n": {"in": [1, 3]}},
        {"n": {"in": ["2"]}},
        {"t": {"in": [1]}},
        {"n": {"not_in": [2]}},
        {"gone": {"in": [1]}},
    ),
    *(
        {"n": {">": 2}},
        {"n": {">=": 3}},
        {"n": {"<": 2}},
        {"n": {"<=": 1}},
        {"f": {">": 1, "<": 2}},
        {"s": {">": "b"}},
        {"s": {">": 1}},
        {"gone": {">": 1}},
    ),
    *({"n": {"exists": False}}, {"gone": {"exists": True}}, {"none": {"exists": False}}, {"none": {"<": 1}}, {"t": {">=": 1}}),
    *({"n": 2, "s": "c"}, {"n": 3, "s": "b"}),
]


def test_conditions_one_by_one() -> None:
    assert [where for where in HOLD if not matches(ROW, where)] == []
    assert [where for where in MISS if matches(ROW, where)] == []


def test_rows_of_one_source() -> None:
    assert belongs({}, None, "x") and belongs({"d": "x"}, "d", "x") and belongs({"d": 1}, "d", "1")
    assert not belongs({"d": "y"}, "d", "x") and not belongs({}, "d", "x") and not belongs({"d": None}, "d", "None")
    assert belongs({}, "d", "(missing)")
