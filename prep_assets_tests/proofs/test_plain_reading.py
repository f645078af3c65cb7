"""What plain rows say, read in the most obvious way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prep_assets.proofs.plain_reading import as_text, plain_texts, plain_turns, turns_of_rows


def test_plain_rows() -> None:
    dialogue = {"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c \n\nAssistant: d ", "rejected": "\n\nHuman: c\n\nAssistant: e"}
    assert plain_texts(dialogue, "hh", {}) == {"prompt": "Human: a\n\nAssistant: b\n\nHuman: c", "chosen": "d", "rejected": "e"}
    message = {"role": "assistant", "content": " 7 "}
    rated = {"prompt": " p ", "chosen": [{}, message], "rejected": [{}, {**message, "content": "9"}]}
    assert plain_texts(rated, "ultrafeedback", {}) == {"prompt": "p", "chosen": "7", "rejected": "9"}
    assert plain_texts({**rated, "rejected": [{**message, "thinking": "x"}]}, "ultrafeedback", {}) is None
    completions = [{"overall_score": score, "response": text} for score, text in ((2, "b"), (4, " a "), (1, "c "), (4, "d"), (1, "e"))]
    ranked = {"instruction": " i ", "completions": completions}
    assert plain_texts(ranked, "ultrafeedback", {}) == {"prompt": "i", "chosen": "a", "rejected": "c"}, (
        "the first of the best and of the worst"
    )
    plain = {"prompt": " p", "chosen": "c ", "rejected": "r"}
    assert plain_texts(plain, "preference", {}) == plain
    for other in ({**plain, "system": "s"}, {**plain, "tools": [{}]}, {**plain, "chosen": [message]}, {"chosen": "c", "rejected": "r"}):
        assert plain_texts(other, "preference", {}) is None
    assert plain_texts(plain, "preference", {"template": False}) is None and plain_texts(plain, "kto", {}) is None
    assert plain_texts({"question": " q "}, "gsm8k", {}) == {"prompt": "q"} == plain_texts({"prompt": "q"}, "rl_prompt", {})
    for row, schema, options in (
        ({"prompt": [message]}, "rl_prompt", {}),
        ({"prompt": "q", "tools": [1]}, "rl_prompt", {}),
        ({"prompt": "q"}, "rl_prompt", {"system": "s"}),
    ):
        assert plain_texts(row, schema, options) is None
    assert as_text("x") == "x" == as_text([{"role": "user", "content": "x"}])
    for value in ([], [{"role": "user"}], [{"role": "user", "content": "x"}] * 2, 1):
        assert as_text(value) is None


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
