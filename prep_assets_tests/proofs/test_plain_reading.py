"""What plain rows say, read in the most obvious way."""

from __future__ import annotations

import pytest

from prep_assets.proofs.plain_reading import as_text, plain_contrast, plain_pair, plain_prompt


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


def test_plain_contrasts() -> None:
    row = {"query": "q", "pos": ["a", "b"], "negative_2": "d", "source": "s"}
    assert plain_contrast(row, "contrastive", {}) == {"query": "q", "positives": "a\nb", "negatives": "d"}
    assert plain_contrast({"anchor": "q", "positive": "p"}, "contrastive", {}) == {"query": "q", "positives": "p"}
    assert plain_contrast(row, "contrastive", {"query_key": "query"}) is None
    assert plain_contrast(row, "ques_embed_gen_hook", {}) is None
    assert plain_contrast({"query": "q", "pos": [{"text": "p"}]}, "contrastive", {}) is None
    assert plain_contrast({"query": "q", "pos": ["p"], "neg": ["a"], "negatives": ["b"]}, "contrastive", {}) is None
    assert as_text(["a", "b"]) == "a\nb"
