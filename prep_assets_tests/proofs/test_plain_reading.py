"""What plain rows say, read in the most obvious way."""

from __future__ import annotations

from typing import Any

import pytest

from prep_assets.proofs.plain_reading import as_text, pair_lines, plain_contrast, plain_pair, plain_prompt


def test_plain_rows() -> None:
    dialogue = {"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c \n\nAssistant: d ", "rejected": "\n\nHuman: c\n\nAssistant: e"}
    assert plain_pair(dialogue, "hh", {}) == {"prompt": "Human: a\n\nAssistant: b\n\nHuman: c", "chosen": "d", "rejected": "e"}
    message = {"role": "assistant", "content": " 7 "}
    rated = {"prompt": " p ", "chosen": [{}, message], "rejected": [{}, {**message, "content": "9"}]}
    assert plain_pair(rated, "ultrafeedback", {}) == {"prompt": "p", "chosen": "7", "rejected": "9"}
    assert plain_pair({**rated, "rejected": [{**message, "thinking": "x"}]}, "ultrafeedback", {}) is None
    plain = {"prompt": " p", "chosen": "c ", "rejected": "r"}
    assert plain_pair(plain, "preference", {}) == plain
    for other in ({**plain, "system": "s"}, {**plain, "tools": [{}]}, {**plain, "chosen": [message]}, {"chosen": "c", "rejected": "r"}):
        assert plain_pair(other, "preference", {}) is None
    assert plain_pair(plain, "preference", {"template": False}) is None and plain_pair(plain, "kto", {}) is None
    assert plain_prompt({"question": " q "}, "gsm8k", {}) == {"prompt": "q"} == plain_prompt({"prompt": "q"}, "rl_prompt", {})
    for row, schema, options in (
        ({"prompt": [message]}, "rl_prompt", {}),
        ({"prompt": "q", "tools": [1]}, "rl_prompt", {}),
        ({"prompt": "q"}, "rl_prompt", {"system": "s"}),
    ):
        assert plain_prompt(row, schema, options) is None
    assert as_text("x") == "x" == as_text([{"role": "user", "content": "x"}])
    for value in ([], [{"role": "user"}], [{"role": "user", "content": "x"}] * 2, 1):
        assert as_text(value) is None


@pytest.mark.parametrize("field", ["system", "history", "tools", "documents", "chat_template_kwargs"])
def test_a_pair_with_more_than_texts_is_left_to_its_schema(field: str) -> None:
    plain = {"prompt": "p", "chosen": "c", "rejected": "r"}
    assert plain_pair({**plain, field: ["x"]}, "preference", {}) is None
    assert plain_pair({**plain, field: []}, "preference", {}) == plain


@pytest.mark.parametrize("field", ["system", "tools", "documents", "chat_template_kwargs"])
def test_a_prompt_with_more_than_text_is_left_to_its_schema(field: str) -> None:
    assert plain_prompt({"question": "q", field: ["x"]}, "gsm8k_prompt", {}) is None
    assert plain_prompt({"question": " q", field: []}, "gsm8k_prompt", {}) == {"prompt": "q"}


def test_a_dialogue_without_an_answer() -> None:
    assert plain_pair({"chosen": "alone", "rejected": "\n\nAssistant: e"}, "hh", {}) == {
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
    assert plain_pair(row, "ultrafeedback", {}) == {"prompt": "i", "chosen": "a", "rejected": "c"}
    assert plain_pair({**row, "prompt": " p ", "chosen": []}, "ultrafeedback", {}) == {"prompt": "p", "chosen": "a", "rejected": "c"}
    assert plain_pair({**row, "prompt": None}, "ultrafeedback", {}) == {"prompt": "i", "chosen": "a", "rejected": "c"}


def pair_line(row: dict[str, Any], *options: Any) -> dict[str, Any] | None:
    """The line of one row, which is the same among others."""
    [found] = pair_lines([row], *options)
    among = [{**PAIR, "prompt": "others"}, row, {"prompt": 1}, dict(DIALOGUE), row]
    assert pair_lines(among, *options)[1::3] == [found, found]
    return found


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


PAIR: dict[str, Any] = {"prompt": "p", "chosen": "a", "rejected": "b"}
TURNS = {"prompt": [said("user", "p")], "chosen": [said("assistant", "a")], "rejected": [said("assistant", "b")]}
DIALOGUE = {side: f"\n\nHuman: p\n\nAssistant: {text}" for side, text in (("chosen", "a"), ("rejected", "b"))}
LONG = [said("system", "s"), said("user", "p"), said("assistant", "x"), said("user", "q")]


@pytest.mark.parametrize("row", [PAIR, TURNS, {**PAIR, "prompt": TURNS["prompt"]}, {**TURNS, "prompt": "p"}])
def test_lines_of_pairs(row: dict[str, Any]) -> None:
    assert pair_line(row, "preference", {}, "messages", ["<|e|>"]) == TURNS
    assert pair_line(row, "preference", {}, "text", ["<|e|>"]) == PAIR


def test_lines_of_dialogues() -> None:
    found = {**TURNS, "prompt": [said("user", "Human: p")]}
    assert pair_line(DIALOGUE, "hh", {}, "messages", []) == found
    assert pair_line(DIALOGUE, "hh", {}, "text", []) == {**PAIR, "prompt": "Human: p"}
    assert pair_line({**DIALOGUE, "rejected": "\n\nHuman: q\n\nAssistant: b"}, "hh", {}, "messages", []) is None, "two prompts"
    assert pair_line({"chosen": "\n\nAssistant: a", "rejected": "\n\nAssistant: b"}, "hh", {}, "messages", []) is None, "no prompt"
    rounds = {side: f"\n\nHuman: p\n\nAssistant: {side}{said}" for side, said in DIALOGUE.items()}
    assert pair_line(rounds, "hh", {}, "messages", []) is None, "one question, and two first answers"
    assert pair_line({"chosen": ["a"], "rejected": ["b"]}, "hh", {}, "messages", []) is None


def test_the_line_of_a_longer_conversation_has_messages() -> None:
    assert pair_line({**TURNS, "prompt": LONG}, "preference", {}, "messages", []) == {**TURNS, "prompt": LONG}
    assert pair_line({**TURNS, "prompt": LONG}, "preference", {}, "text", []) is None


@pytest.mark.parametrize(
    "row",
    [
        {**PAIR, "system": "s"},
        {"prompt": "p", "chosen": "a"},
        {**PAIR, "chosen": TURNS["chosen"]},
        {**PAIR, "rejected": TURNS["rejected"]},
        {**PAIR, "rejected": "a"},
        {**PAIR, "chosen": " "},
        {**PAIR, "chosen": "a<|e|>"},
        {**PAIR, "prompt": None},
        {**PAIR, "prompt": []},
        {**PAIR, "prompt": 3},
        {**PAIR, "prompt": ["p"]},
        {**PAIR, "prompt": LONG[:3]},
        {**PAIR, "prompt": [said("user", "p", name="n")]},
        {**PAIR, "prompt": [said("user", ["p"])]},
        {**PAIR, "prompt": [said("tool", "4"), said("user", "p")]},
        {**TURNS, "chosen": [said("assistant", "a"), said("assistant", "c")]},
        {**TURNS, "rejected": [said("assistant", "a"), said("assistant", "c")]},
        {**TURNS, "chosen": [said("user", "a")]},
    ],
)
def test_lines_that_take_their_schema(row: dict[str, Any]) -> None:
    for form in ("messages", "text"):
        assert pair_line(row, "preference", {}, form, ["<|x|>", "<|e|>"]) is None
    assert pair_line(PAIR, "preference", {"system": "s"}, "messages", []) is None
    assert pair_line(PAIR, "kto", {}, "messages", []) is None


def test_a_line_without_a_tag_among_those_with_one() -> None:
    tagged, half = {**PAIR, "prompt": "<|e|>"}, {**PAIR, "prompt": "\ud800"}
    assert pair_lines([tagged, PAIR, half], "preference", {}, "text", ["<|x|>", "<|e|>"]) == [None, PAIR, half]


def test_plain_contrasts() -> None:
    many = {"query": "why so", "negative_1": "a", "negative_12": ["b"], "negative_x": "y", "pos": None, "negatives": ["c"], "n": 7}
    assert plain_contrast(many, "contrastive", {}) == {"query": "why so", "negatives": "a\nb\nc"}
    row = {"query": "q", "pos": ["a", "b"], "negative_2": "d", "source": "s"}
    assert plain_contrast(row, "contrastive", {}) == {"query": "q", "positives": "a\nb", "negatives": "d"}
    assert plain_contrast({"anchor": "q", "positive": "p"}, "contrastive", {}) == {"query": "q", "positives": "p"}
    assert plain_contrast(row, "contrastive", {"query_key": "query"}) is None
    assert plain_contrast(row, "ques_embed_gen_hook", {}) is None
    assert plain_contrast({"query": "q", "pos": [{"text": "p"}]}, "contrastive", {}) is None
    assert plain_contrast({"query": "q", "pos": ["p"], "neg": ["a"], "negatives": ["b"]}, "contrastive", {}) is None
    assert as_text(["a", "b"]) == "a\nb"
