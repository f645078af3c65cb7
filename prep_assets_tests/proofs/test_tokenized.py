"""Rows that bring token ids, read again: ids and weights value by value, and what their records must be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.mask import Truncation
from prep_assets.proofs.tokenized import left_of_tokenized
from prep_assets.samples import Sample, Tokenized, turn
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER

VOCABULARY = load_vocabulary(TOKENIZER)
CHATML = "<|im_start|>user\nHi<|im_end|>\n"


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


def test_a_trained_stretch_holds_whole_characters() -> None:
    ids = ids_of("a\u732b")
    assert len(ids) > 2, "the character is of several tokens"
    for trained, says in ((1, True), (2, False), (len(ids), True)):
        weights = [1.0] * trained + [0.0] * (len(ids) - trained)
        for order in (weights, [1 - weight for weight in weights]):
            if says:
                assert left_of_tokenized(sample(ids, order), Truncation(), nothing, VOCABULARY).ids is not None
                continue
            with pytest.raises(CheckFailed, match=r"^a trained stretch of the row begins or ends amid a character$"):
                left_of_tokenized(sample(ids, order), Truncation(), nothing, VOCABULARY)
    broken = sample(ids[:-1], [1.0] * (len(ids) - 1))
    assert left_of_tokenized(broken, Truncation(), nothing, VOCABULARY).ids is not None, "the row itself ends amid one"


@pytest.mark.parametrize(("mode", "kept"), [("start", slice(2, 5)), ("end", slice(0, 3))])
def test_a_row_is_cut_at_the_start_or_at_the_end(mode: str, kept: slice) -> None:
    ids, weights = ids_of("one two three four five")[:5], [0.5, 1.0, 0.0, 0.25, 1.0]
    left = left_of_tokenized(sample(ids, weights), Truncation(mode, 3), nothing, VOCABULARY)
    assert left.ids is not None and left.weights is not None
    assert (left.ids.tolist(), left.weights.tolist(), left.taken) == (ids[kept], weights[kept], 2)


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
