"""Rows that bring token ids, read again: ids and weights value by value, and what their records must be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import Truncation
from prep_assets.proofs.tokenized import left_of_tokenized, tokenized_again
from prep_assets.samples import Sample, Tokenized, turn
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER

VOCABULARY = load_vocabulary(TOKENIZER)
CHATML = "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize(
    ("row", "options", "ids", "weights"),
    [
        ({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}, {}, [1, 2, 3], [0, 1, 1]),
        ({"input_ids": [1, 2], "labels": [1, 2], "loss_mask": [0, 0.5]}, {}, [1, 2], [0, 0.5]),
        ({"input_ids": [1, 2], "assistant_masks": [1, 0], "completion_mask": [1, 1]}, {}, [1, 2], [1, 0]),
        ({"prompt_ids": [1], "completion_ids": [2, 3]}, {}, [1, 2, 3], [0, 1, 1]),
        ({"prompt_ids": [1], "completion_ids": [2, 3], "loss_mask": [0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"prompt_ids": [1], "completion_ids": [2, 3], "loss_mask": [0, 0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"input_ids": [1, 2, 3], "labels": [-100, 3, 4]}, {"shifted": True}, [1, 2, 3, 4], [0, 0, 1, 1]),
        ({"input_ids": [1, 2], "loss_mask": [1, 0]}, {"shifted": True}, [1, 2], [0, 1]),
        ({"input_ids": [1, 2], "prompt_ids": [3], "completion_ids": [4]}, {}, [1, 2], [1, 1]),
        ({"input_ids": [1, 2, 3], "loss_mask": [0, 1]}, {}, [1, 2, 3], [0, 0, 1]),
        ({"a": [1, 2], "attention_mask": [0, 1]}, {"ids_key": "a", "mask_keys": ["attention_mask"]}, [1, 2], [0, 1]),
    ],
)
def test_a_row_is_read_again(row: dict[str, Any], options: dict[str, Any], ids: list[int], weights: list[float]) -> None:
    assert tokenized_again("tokenized", row, options) == (ids, weights)


def test_other_schemas() -> None:
    assert tokenized_again("nlg_read_hook", {"context": [1], "completion": [2]}, {}) == ([1, 2], [0, 1])
    assert tokenized_again("nlg_read_hook", {"c": [1], "d": [2]}, {"context_key": "c", "completion_key": "d"}) == ([1, 2], [0, 1])
    assert tokenized_again("my.module:function", {}, {}) is None


TAUGHT = {"input_ids": [1, 2, 3, 4], "target_token_ids": [[], [2], [], [4]], "target_logprobs": [[], [-1.0], [], [-1.0]]}


@pytest.mark.parametrize(
    ("row", "options", "ids", "weights"),
    [
        (TAUGHT, {}, [1, 2, 3, 4], [0, 1, 0, 1]),
        (TAUGHT, {"teacher_shifted": True}, [1, 2, 3, 4], [0, 0, 1, 0]),
        ({**TAUGHT, "attention_mask": [0, 1, 1, 1]}, {}, [2, 3, 4], [1, 0, 1]),
        ({**TAUGHT, "labels": [1, -100, 3, -100]}, {}, [1, 2, 3, 4], [1, 0, 1, 0]),
        (TAUGHT, {"shifted": True}, [1, 2, 3, 4], [0, 1, 1, 1]),
    ],
)
def test_entries_of_a_teacher_say_what_is_trained_where_nothing_else_does(
    row: dict[str, Any], options: dict[str, Any], ids: list[int], weights: list[float]
) -> None:
    assert tokenized_again("distilled", row, options) == (ids, weights)


def sample(ids: list[int], weights: list[float], text: str | None = None, *turns: Any) -> Sample:
    return Sample(turns, tokenized=Tokenized(tuple(ids), tuple(weights), text))


def nothing(_: Sample) -> Derived:
    raise AssertionError("there are no messages")


def ids_of(text: str) -> list[int]:
    return list(VOCABULARY.backend.encode(text, add_special_tokens=False).ids)


def test_what_is_trained_is_what_the_stretches_decode_to() -> None:
    ids = ids_of("one two three")
    weights = [1.0, 0.0, *[0.5] * (len(ids) - 2)]
    left = left_of_tokenized(sample(ids, weights), Truncation(), nothing, VOCABULARY)
    assert left.expected == (Expected(VOCABULARY.decode(ids[:1]), 1.0), Expected(VOCABULARY.decode(ids[2:]), 0.5))
    assert left.ids is not None and left.weights is not None and left.cut == "none"
    assert (left.ids.tolist(), left.weights.tolist()) == (ids, weights)
    assert (left.ids.dtype, left.weights.dtype) == (np.int64, np.float32)
    assert left.derived == Derived("", (), (), 0, ()) and left.taken == 0


@pytest.mark.parametrize(("mode", "kept"), [("start", slice(-3, None)), ("end", slice(3)), ("drop", slice(3))])
def test_a_part_is_left(mode: str, kept: slice) -> None:
    ids = list(range(100, 105))
    left = left_of_tokenized(sample(ids, [1.0] * 5), Truncation(mode, 3), nothing, VOCABULARY)
    assert left.ids is not None and left.weights is not None
    assert (left.ids.tolist(), left.weights.tolist(), left.taken) == (ids[kept], [1.0] * 3, 2)
    whole = left_of_tokenized(sample(ids, [1.0] * 5), Truncation(mode, 5), nothing, VOCABULARY)
    assert whole.ids is not None and whole.ids.tolist() == ids


def test_text_and_messages_must_have_the_ids_of_the_row() -> None:
    ids = ids_of(CHATML)
    controls = [(0, 12), (19, 29)]

    def chat(given: Sample) -> Derived:
        assert given.turns == (said,)
        return Derived(CHATML, (), tuple(controls), 0, ())

    said = turn("user", "Hi")
    assert left_of_tokenized(sample(ids, [1.0] * len(ids), CHATML, said), Truncation(), chat, VOCABULARY).ids is not None
    with pytest.raises(CheckFailed, match=f"the text of the row has other ids than the {len(ids)} that it brings"):
        left_of_tokenized(sample(ids, [1.0] * len(ids), CHATML + "!"), Truncation(), nothing, VOCABULARY)
    with pytest.raises(
        CheckFailed, match=f"the messages of the row have {len(ids)} ids, which differ from the {len(ids) - 1} that it brings"
    ):
        left_of_tokenized(sample(ids[1:], [1.0] * (len(ids) - 1), None, said), Truncation(), chat, VOCABULARY)


def test_a_text_may_have_the_tokens_that_the_tokenizer_writes_around_one() -> None:
    def encode(text: str, *, add_special_tokens: bool) -> Any:
        return SimpleNamespace(ids=[7] * add_special_tokens + list(map(ord, text)))

    words: Any = SimpleNamespace(encoder=SimpleNamespace(encode=encode), decode=lambda ids: "".join(map(chr, ids)))
    for ids in ([97, 98], [7, 97, 98]):
        left = left_of_tokenized(sample(ids, [1.0] * len(ids), "ab"), Truncation(), nothing, words)
        assert left.ids is not None and left.ids.tolist() == ids
    assert words.encoder.encode_special_tokens is False
    with pytest.raises(CheckFailed):
        left_of_tokenized(sample([7, 7, 97], [1.0] * 3, "a"), Truncation(), nothing, words)
