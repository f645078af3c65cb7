"""Turns of plain rows, one by one and of a block at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prep_assets.proofs.plain_reading import plain_turns, turns_of_rows


@pytest.mark.parametrize(
    ("value", "turns"),
    [
        (" p", (("r",), (" p",))),
        ([{"who": "a", "what": "x"}, {"what": "y ", "who": "b"}], (("a", "b"), ("x", "y "))),
        *((value, None) for value in (" ", None, 7, {"who": "a", "what": "x"}, [], ["xy"], [{"who": "a", "what": "x", "n": 1}])),
        *(([{"who": "a", "what": "x"}, other], None) for other in ({"who": "a", "text": "x"}, {"who": "a"}, {"who": 1, "what": "x"}, None)),
        *(([{"who": "a", "what": what}], None) for what in (None, "", " \n", ["x"])),
    ],
)
def test_turns_of_texts(value: Any, turns: Any) -> None:
    assert plain_turns(value, "who", "what", role="r") == turns
    assert plain_turns([{"role": "a", "content": "x"}]) == (("a",), ("x",)) and plain_turns("x") == (("",), ("x",))


TEXTS = st.sampled_from(["", " ", "x", "y z", 1, None])
MESSAGES = st.dictionaries(st.sampled_from(["who", "what", "n"]), TEXTS, max_size=3) | st.fixed_dictionaries(
    {"who": st.just("a"), "what": st.just("x")}
)
PLAIN = st.lists(st.fixed_dictionaries({"who": st.sampled_from("ab"), "what": st.sampled_from(["x", "y z"])}), min_size=1, max_size=3)


@example([[{"who": "a", "what": "x"}], [{"who": "a", "what": " "}]])
@example([[{"who": "a", "what": "x"}], [{"who": "a", "what": 1}]])
@example([[{"who": "a", "what": "x", "n": "y"}]])
@example([({"who": "a", "what": "x"},)])
@given(st.lists(PLAIN, max_size=4) | st.lists(st.one_of(PLAIN, st.lists(MESSAGES, max_size=3), TEXTS), max_size=4))
def test_turns_of_a_block_are_those_of_each_row(values: list[Any]) -> None:
    assert turns_of_rows(values, "who", "what") == [plain_turns(value, "who", "what") for value in values]
