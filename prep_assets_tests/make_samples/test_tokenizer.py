"""The shipped tokenizer opens with transformers, gives every text back, and its template marks what the assistant says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from make_samples.tokenizer import write_tokenizer

from prep_assets_tests.effort import examples

TRAINED_WITH = "0.23.3"
SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<|pad|>": 3}
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(CONFIGS / "tokenizer")


def test_training_again_gives_the_shipped_tokenizer(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, CONFIGS / "samples")
    files = ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in (CONFIGS / "tokenizer").iterdir()) == files
    assert (tmp_path / files[1]).read_bytes() == (CONFIGS / "tokenizer" / files[1]).read_bytes()
    if tokenizers.__version__ == TRAINED_WITH:
        assert (tmp_path / files[0]).read_bytes() == (CONFIGS / "tokenizer" / files[0]).read_bytes()
    trained = tokenizers.Tokenizer.from_file(str(tmp_path / files[0]))
    assert trained.get_vocab_size() == 4096
    assert trained.decode(trained.encode("Grüße, 你好 🎉\n").ids) == "Grüße, 你好 🎉\n"


def test_the_vocabulary_is_special_tokens_then_bytes_then_merges(tokenizer: Any) -> None:
    model = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert len(tokenizer) == len(model["vocab"]) == 4096 == 4 + 256 + len(model["merges"])
    assert sorted(model["vocab"].values()) == list(range(4096))
    assert {token: model["vocab"][token] for token in SPECIAL} == SPECIAL
    assert all(len(token) == 1 for token, number in model["vocab"].items() if 4 <= number < 260)


def test_nothing_is_normalized_or_added() -> None:
    pipeline = json.loads((CONFIGS / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))
    assert pipeline["normalizer"] is None
    assert pipeline["post_processor"] is None
    assert (pipeline["pre_tokenizer"]["type"], pipeline["pre_tokenizer"]["add_prefix_space"]) == ("ByteLevel", False)
    assert pipeline["decoder"]["type"] == "ByteLevel"


def test_the_special_tokens_are_one_id_each_and_have_their_roles(tokenizer: Any) -> None:
    assert {token: tokenizer.encode(token) for token in SPECIAL} == {token: [number] for token, number in SPECIAL.items()}
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 3)
    assert set(tokenizer.all_special_ids) == {0, 1, 2, 3}


def test_every_sample_text_comes_back(tokenizer: Any, every_text: list[str]) -> None:
    assert len(every_text) > 2000
    assert [text for text in every_text if tokenizer.decode(tokenizer.encode(text)) != text] == []


@cache
def opened() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(CONFIGS / "tokenizer" / "tokenizer.json"))


@given(st.text())
@settings(max_examples=examples(100), deadline=None)
def test_any_text_comes_back(text: str) -> None:
    assert opened().decode(opened().encode(text).ids, skip_special_tokens=False) == text


def test_the_template_renders_chatml(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Hello!\n\nHow?"},
        {"role": "user", "content": "x"},
    ]
    expected = (
        "<|im_start|>system\nBe brief.\n<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
        "<|im_start|>assistant\nHello!\n\nHow?<|im_end|>\n<|im_start|>user\nx<|im_end|>\n"
    )
    assert tokenizer.apply_chat_template(messages, tokenize=False) == expected
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == expected + "<|im_start|>assistant\n"


def marked_texts(tokenizer: Any, messages: list[dict[str, str]]) -> list[str]:
    """The text of every unbroken run of marked tokens."""
    encoded = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    pairs = zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)
    return [tokenizer.decode([number for number, _ in run]) for marked, run in groupby(pairs, key=lambda pair: pair[1]) if marked]


def answers(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]


def test_the_mask_marks_the_answers_and_their_stop_tokens(tokenizer: Any, rows: Callable[[str], list[Any]]) -> None:
    for row in rows("chats.jsonl"):
        assert marked_texts(tokenizer, row["messages"]) == answers(row["messages"])


def test_the_mask_marks_an_answer_that_repeats_the_question_once_and_an_empty_one_by_its_stop_token(tokenizer: Any) -> None:
    messages = [
        {"role": "user", "content": "ping"},
        {"role": "assistant", "content": "ping"},
        {"role": "user", "content": "assistant"},
        {"role": "assistant", "content": ""},
    ]
    assert marked_texts(tokenizer, messages) == ["ping<|im_end|>", "<|im_end|>"]


def test_without_an_answer_nothing_is_marked(tokenizer: Any) -> None:
    assert marked_texts(tokenizer, [{"role": "user", "content": "Hello?"}]) == []
