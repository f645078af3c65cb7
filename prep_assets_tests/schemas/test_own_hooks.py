"""Read hooks as users of Cerebras Model Zoo have written them, loaded by ``module:function`` and given their kwargs."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Pair, Sample
from prep_assets.schemas.reader import apply
from prep_assets.schemas.registry import convert_with


def qa_hook(example: dict[str, Any], **read_hook_kwargs: Any) -> list[dict[str, Any]]:
    question = example.get(read_hook_kwargs["question_key"])
    answer = example.get(read_hook_kwargs["answer_key"])
    if not answer:
        return []
    return [
        {"type": "user", "content": [{"passage": example["passage"]}, {"question": question}], "semantic_loss_weight": [1, 0]},
        {"type": "assistant", "content": [{"answer": answer}]},
    ]


def pair_hook(example: dict[str, Any], prompt_key: str) -> list[dict[str, Any]]:
    return [
        {"type": kind, "content": [{"text": example[key]}]} for kind, key in (("prompt", prompt_key), ("chosen", "a"), ("rejected", "b"))
    ]


def token_hook(example: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "context", "content": example["ids"]}]


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = types.ModuleType("my_hooks")
    made.qa_hook, made.pair_hook, made.token_hook = qa_hook, pair_hook, token_hook  # type: ignore[attr-defined]
    sys.modules["my_hooks"] = made
    yield
    del sys.modules["my_hooks"]


ROW = {"passage": "Aspirin thins the blood.", "q": "What does it do?", "a": "It thins the blood.", "b": "Nothing."}


def test_the_semantic_data_array_of_a_hook_is_read() -> None:
    sample = apply(convert_with("my_hooks:qa_hook", {"question_key": "q", "answer_key": "a"}), ROW)
    assert isinstance(sample, Sample)
    found = [(turn.role, region.kind, region.text, region.loss_weight) for turn in sample.turns for region in turn.regions]
    assert found == [
        ("user", "passage", ROW["passage"], 1.0),
        ("user", "question", ROW["q"], 0.0),
        ("assistant", "answer", ROW["a"], None),
    ]


def test_an_array_of_three_is_a_pair() -> None:
    found = apply(convert_with("my_hooks:pair_hook", {"prompt_key": "q"}), ROW)
    assert isinstance(found, Pair)
    assert (found.prompt[0].text, found.chosen[0].text, found.rejected[0].text) == (ROW["q"], ROW["a"], ROW["b"])


def test_an_empty_array_is_a_refused_row_and_is_counted() -> None:
    with pytest.raises(Refused, match="empty_text"):
        apply(convert_with("my_hooks:qa_hook", {"question_key": "q", "answer_key": "missing"}), ROW)


def test_token_ids_are_refused() -> None:
    with pytest.raises(Refused) as raised:
        apply(convert_with("my_hooks:token_hook"), {"ids": [1, 2]})
    assert raised.value.stage == "schema"


def test_a_keyword_that_the_hook_does_not_take_stops() -> None:
    with pytest.raises(ConfigError, match=r"takes no option 'answer_key'"):
        convert_with("my_hooks:pair_hook", {"prompt_key": "q", "answer_key": "a"})
