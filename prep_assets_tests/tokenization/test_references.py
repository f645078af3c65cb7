"""Ids and masks against the projects that define them: train-llm-from-scratch and transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from prep_assets.samples import Sample, turn
from prep_assets.text.encode import Encoded, Encoder
from prep_assets.text.load_template import load_template
from prep_assets.text.render import render
from prep_assets.text.spans import MaskPolicy
from prep_assets_tests.effort import examples
from prep_assets_tests.tokenization.loaded import TEXT, Chat, Loaded, chats

Open = Callable[[str], Loaded]
END_OF_TEXT = 50256


def encode(loaded: Loaded, template: str, batch: Iterable[Chat], **options: Any) -> Encoded:
    chosen = load_template(template, loaded.vocabulary)
    encoder = Encoder(loaded.vocabulary, loaded.engines, MaskPolicy(), **options)
    return encoder.encode([render(Sample(tuple(turn(role, content) for role, content in chat)), chosen) for chat in batch])


def encode_chat(loaded: Loaded, chat: Chat) -> tuple[list[int], list[int]]:
    """train-llm-from-scratch's rule: header, content and the end-of-text token, each encoded alone; the answer and its end are trained."""
    ids: list[int] = []
    mask: list[int] = []
    for role, content in chat:
        header, words = loaded.ordinary([f"<|{role}|>\n", content])
        ids += [*header, *words, END_OF_TEXT]
        mask += [*[0] * len(header), *[int(role == "assistant")] * (len(words) + 1)]
    return ids, mask


# train-llm-from-scratch


def test_golden_vector_of_train_llm_from_scratch(open_tokenizer: Open) -> None:
    found = encode(open_tokenizer("gpt2"), "plain", [[("user", "What is 2+2?"), ("assistant", "<answer>4</answer>")]])
    question = [27, 91, 7220, 91, 29, 198, 2061, 318, 362, 10, 17, 30, 50256]
    answer = [27, 91, 562, 10167, 91, 29, 198, 27, 41484, 29, 19, 3556, 41484, 29, 50256]
    assert found.ids.tolist() == question + answer
    assert found.loss.tolist() == [0] * 20 + [1] * 8
    assert (found.offsets.tolist(), found.kept.tolist(), found.refused) == ([0, 28], [0], ())
    assert (found.ids.dtype.name, found.loss.dtype.name, found.offsets.dtype.name) == ("uint32", "float32", "int64")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("<|system|>\n", [27, 91, 10057, 91, 29, 198]),
        ("<think>", [27, 14925, 29]),
        ("</think>", [3556, 14925, 29]),
        ("</answer>", [3556, 41484, 29]),
        ("</think><answer>", [3556, 14925, 6927, 41484, 29]),
        ("<|endoftext|>", [27, 91, 437, 1659, 5239, 91, 29]),
    ],
)
def test_golden_markers_of_train_llm_from_scratch(open_tokenizer: Open, text: str, ids: list[int]) -> None:
    """Markers are ordinary text, the end-of-text token too where somebody types it."""
    for engine in (open_tokenizer("gpt2").engines.first, open_tokenizer("gpt2").engines.reference):
        assert engine.encode([text]).ids.tolist() == ids


def gsm8k(path: Path) -> list[Chat]:
    """The project's own reading of GSM8K: the notes out, the reasoning and the final answer each in a tag."""
    listed: list[Chat] = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        answer = re.sub(r"<<[^>]*>>", "", row["answer"]).strip()
        reasoning, final = answer.rsplit("####", 1)
        completion = f"<think>{reasoning.strip()}</think><answer>{final.strip()}</answer>"
        listed.append([("user", row["question"].strip()), ("assistant", completion)])
    return listed


def test_every_gsm8k_row_is_encoded_as_train_llm_from_scratch_does(open_tokenizer: Open, real_data: Path) -> None:
    loaded, rows = open_tokenizer("gpt2"), gsm8k(real_data / "gsm8k" / "train.jsonl")
    assert len(rows) == 7473
    found = encode(loaded, "plain", rows)
    assert found.kept.tolist() == list(range(7473))
    headers = dict(zip(("user", "assistant"), loaded.ordinary(["<|user|>\n", "<|assistant|>\n"]), strict=True))
    contents = iter(loaded.ordinary(content for chat in rows for _, content in chat))
    ids: list[int] = []
    mask: list[int] = []
    lengths = []
    for chat in rows:
        before = len(ids)
        for role, _ in chat:
            words = next(contents)
            ids += [*headers[role], *words, END_OF_TEXT]
            mask += [*[0] * len(headers[role]), *[int(role == "assistant")] * (len(words) + 1)]
        lengths.append(len(ids) - before)
    assert found.ids.tolist() == ids
    assert found.loss.tolist() == mask
    assert np.diff(found.offsets).tolist() == lengths


def test_the_bulk_and_the_single_form_of_the_rule_agree(open_tokenizer: Open, real_data: Path) -> None:
    loaded, rows = open_tokenizer("gpt2"), gsm8k(real_data / "gsm8k" / "train.jsonl")[:50]
    found = encode(loaded, "plain", rows)
    singles = [encode_chat(loaded, chat) for chat in rows]
    assert found.ids.tolist() == [token for ids, _ in singles for token in ids]
    assert found.loss.tolist() == [flag for _, mask in singles for flag in mask]
    assert len(found.ids) / len(rows) == pytest.approx(150, abs=20)


# transformers


def templates(loaded: Loaded) -> list[str]:
    return ["plain", "chatml", *(["tokenizer"] if loaded.vocabulary.chat_template else [])]


@settings(max_examples=examples(60), deadline=None)
@given(chat=chats(TEXT))
def test_ids_are_those_of_apply_chat_template(tokenizer: Loaded, chat: Chat) -> None:
    """For chats in which nobody typed a control token; there transformers would take it for one."""
    assume(not any(text in content for _, content in chat for text in tokenizer.vocabulary.control))
    for name in templates(tokenizer):
        found = encode(tokenizer, name, [chat], trains=False)
        listed = [{"role": role, "content": content} for role, content in chat]
        source = load_template(name, tokenizer.vocabulary).source
        ids = tokenizer.transformers.apply_chat_template(listed, chat_template=source, tokenize=True, return_dict=False)
        if found.refused:
            reason = found.refused[0][1].reason
            assert reason in ("lossy_tokenizer", "mask_border_inside_token")
            if reason == "lossy_tokenizer":
                assert (
                    tokenizer.vocabulary.decode(ids).strip()
                    != tokenizer.transformers.apply_chat_template(listed, chat_template=source, tokenize=False).strip()
                )
        else:
            assert found.ids.tolist() == ids


@settings(max_examples=examples(100), deadline=None)
@given(chat=chats(TEXT, rounds=3))
def test_masks_are_those_of_return_assistant_tokens_mask(shipped: Loaded, chat: Chat) -> None:
    """The shipped template says with ``{% generation %}`` what an assistant generates. An answer without a word is not trained here."""
    assume(all(content.strip() for role, content in chat if role == "assistant"))
    assume(not any(text in content for _, content in chat for text in shipped.vocabulary.control))
    found = encode(shipped, "tokenizer", [chat])
    reference = shipped.transformers.apply_chat_template(
        [{"role": role, "content": content} for role, content in chat], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert not found.refused
    assert found.ids.tolist() == reference["input_ids"]
    assert found.loss.tolist() == reference["assistant_masks"]
