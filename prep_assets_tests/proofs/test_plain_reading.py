"""What plain rows say, read in the most obvious way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prep_assets.proofs.plain_reading import as_text, pair_line, plain_texts, plain_turns, questions, turns_of_rows
from prep_assets.schemas.rewards import LEVELS, arithmetic_rows


def test_plain_rows() -> None:
    dialogue = {"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c \n\nAssistant: d ", "rejected": "\n\nHuman: c\n\nAssistant: e"}
    assert plain_texts(dialogue, "hh", {}) == {"prompt": "Human: a\n\nAssistant: b\n\nHuman: c", "chosen": "d", "rejected": "e"}
    message = {"role": "assistant", "content": " 7 "}
    rated = {"prompt": " p ", "chosen": [{}, message], "rejected": [{}, {**message, "content": "9"}]}
    assert plain_texts(rated, "ultrafeedback", {}) == {"prompt": "p", "chosen": "7", "rejected": "9"}
    assert plain_texts({**rated, "rejected": [{**message, "thinking": "x"}]}, "ultrafeedback", {}) is None
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


@pytest.mark.parametrize("field", ["system", "history", "tools", "documents", "chat_template_kwargs"])
def test_a_pair_with_more_than_texts_is_left_to_its_schema(field: str) -> None:
    plain = {"prompt": "p", "chosen": "c", "rejected": "r"}
    assert plain_texts({**plain, field: ["x"]}, "preference", {}) is None
    assert plain_texts({**plain, field: []}, "preference", {}) == plain


@pytest.mark.parametrize("field", ["system", "history", "tools", "documents", "chat_template_kwargs"])
def test_a_prompt_with_more_than_text_is_left_to_its_schema(field: str) -> None:
    assert plain_texts({"question": "q", field: ["x"]}, "gsm8k_prompt", {}) is None
    assert plain_texts({"question": " q", field: []}, "gsm8k_prompt", {}) == {"prompt": "q"}


def test_a_dialogue_without_an_answer() -> None:
    assert plain_texts({"chosen": "alone", "rejected": "\n\nAssistant: e"}, "hh", {}) == {
        "prompt": "alone",
        "chosen": "alone",
        "rejected": "e",
    }


def completion(score: float, response: str) -> dict[str, Any]:
    return {"overall_score": score, "response": response}


def test_rated_completions() -> None:
    """The best and the worst, the first of those that are rated alike."""
    completions = [completion(2, "b"), completion(4, " a "), completion(1, "c "), completion(4, "d"), completion(1, "e")]
    row = {"instruction": " i ", "completions": completions}
    assert plain_texts(row, "ultrafeedback", {}) == {"prompt": "i", "chosen": "a", "rejected": "c"}
    assert plain_texts({**row, "prompt": " p ", "chosen": []}, "ultrafeedback", {}) == {"prompt": "p", "chosen": "a", "rejected": "c"}
    assert plain_texts({**row, "prompt": None}, "ultrafeedback", {}) == {"prompt": "i", "chosen": "a", "rejected": "c"}


def line_of(row: dict[str, Any], schema: str, options: dict[str, Any], form: str, tags: list[str]) -> dict[str, Any] | None:
    """The whole line of a row; `None` where it takes its schema."""
    texts = plain_texts(row, schema, options)
    return None if texts is None else pair_line(row, texts, schema, form, tags)


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


PAIR: dict[str, Any] = {"prompt": "p", "chosen": "a", "rejected": "b"}
TURNS = {"prompt": [said("user", "p")], "chosen": [said("assistant", "a")], "rejected": [said("assistant", "b")]}
DIALOGUE = {side: f"\n\nHuman: p\n\nAssistant: {text}" for side, text in (("chosen", "a"), ("rejected", "b"))}


def test_lines_of_pairs() -> None:
    assert line_of(PAIR, "preference", {}, "messages", ["<|e|>"]) == TURNS
    assert line_of(PAIR, "preference", {}, "text", ["<|e|>"]) == PAIR


def test_lines_of_dialogues() -> None:
    found = {**TURNS, "prompt": [said("user", "Human: p")]}
    assert line_of(DIALOGUE, "hh", {}, "messages", []) == found
    assert line_of(DIALOGUE, "hh", {}, "text", []) == {**PAIR, "prompt": "Human: p"}
    assert line_of({**DIALOGUE, "rejected": "\n\nHuman: q\n\nAssistant: b"}, "hh", {}, "messages", []) is None, "two prompts"
    assert line_of({"chosen": "\n\nAssistant: a", "rejected": "\n\nAssistant: b"}, "hh", {}, "messages", []) is None, "no prompt"
    again = {side: f"\n\nHuman: p\n\nAssistant: x{said}" for side, said in DIALOGUE.items()}
    assert line_of(again, "hh", {}, "text", []) == {**PAIR, "prompt": "Human: p\n\nAssistant: x\n\nHuman: p"}
    rounds = {side: f"\n\nHuman: p\n\nAssistant: {side}{said}" for side, said in DIALOGUE.items()}
    assert line_of(rounds, "hh", {}, "messages", []) is None, "one question, and two first answers"
    assert line_of({"chosen": ["a"], "rejected": ["b"]}, "hh", {}, "messages", []) is None


@pytest.mark.parametrize(
    "row",
    [
        {**PAIR, "system": "s"},
        {"prompt": "p", "chosen": "a"},
        {**PAIR, "chosen": TURNS["chosen"]},
        {**PAIR, "rejected": "a"},
        {**PAIR, "chosen": "a<|e|>"},
        TURNS,
        {**PAIR, "id": "1"},
    ],
)
def test_lines_that_take_their_schema(row: dict[str, Any]) -> None:
    for form in ("messages", "text"):
        assert line_of(row, "preference", {}, form, ["<|x|>", "<|e|>"]) is None
    assert line_of(PAIR, "preference", {"system": "s"}, "messages", []) is None
    assert line_of(PAIR, "kto", {}, "messages", []) is None


def test_plain_contrasts() -> None:
    many = {"query": "why so", "negative_1": "a", "negative_12": ["b"], "negative_x": "y", "pos": None, "negatives": ["c"], "n": 7}
    assert plain_texts(many, "contrastive", {}) == {"query": "why so", "negatives": "a\nb\nc"}
    row = {"query": "q", "pos": ["a", "b"], "negative_2": "d", "source": "s"}
    assert plain_texts(row, "contrastive", {}) == {"query": "q", "positives": "a\nb", "negatives": "d"}
    assert plain_texts({"anchor": "q", "positive": "p"}, "contrastive", {}) == {"query": "q", "positives": "p"}
    assert plain_texts(row, "contrastive", {"query_key": "query"}) is None
    assert plain_texts(row, "ques_embed_gen_hook", {}) is None
    assert plain_texts({"query": "q", "pos": [{"text": "p"}]}, "contrastive", {}) is None
    assert plain_texts({"query": "q", "pos": ["p"], "neg": ["a"], "negatives": ["b"]}, "contrastive", {}) is None
    assert as_text(["a", "b"]) == "a\nb"
    assert plain_texts({**row, "documents": "d", "history": ["h"]}, "contrastive", {}) is not None, "they say nothing of a query"


@pytest.mark.parametrize("levels", [(name,) for name in LEVELS] + [("mul", "seed", "add_sub"), ("two_step", "add")])
@pytest.mark.parametrize("unique", [False, True])
def test_questions_of_arithmetic(levels: tuple[str, ...], unique: bool) -> None:
    for n, largest, seed in ((34, 20, 0), (11, 3, 7), (2, 0, 1)) if not unique else ((34, 20, 0), (12, 3, 7)):
        rows = [(row["prompt"], int(row["gold"]), row["level"]) for row in arithmetic_rows(n, largest, seed, levels, unique)]
        assert [*questions(n, largest, seed, levels, unique=unique)] == rows


def test_questions_of_arithmetic_with_other_operands_are_other_questions() -> None:
    assert [*questions(3, 1, 0, ("two_step",), unique=False)] != [*questions(3, 2, 0, ("two_step",), unique=False)]
    assert next(questions(1, 0, 0, ("mul",), unique=True)) == ("What is 0 * 0?", 0, "mul")
