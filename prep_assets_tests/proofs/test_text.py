"""Tokenization identity of documents: bytes are compared only where the tokenizer's own decoder confirms them, and every fault is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from prep_assets.proofs.text import Text, prove_texts
from prep_assets.proofs.token_bytes import unproven_id
from prep_assets.tokenization.reference_engine import ReferenceEngine
from prep_assets.tokenization.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, load

LATE = 3001
"""A document after those that the tokenizer's own decoder decodes, and not among those that are tokenized again."""


@pytest.fixture(scope="module", params=NAMES)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """Each of the four tokenizers in turn; the real ones only where they are at hand."""
    name = request.param
    return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary


@pytest.fixture(scope="module")
def many(vocabulary: Vocabulary) -> tuple[Text, ...]:
    """Documents with more tokens than the vocabulary has before `LATE`."""
    words = "The cat sat on the mat \u732b\U0001f408 \ufffd caf\u00e9 \u00a0 and the dog did not. "
    texts = [f"{' ' * (i % 3)}{words}{i}" for i in range(LATE + 300)]
    flat = ReferenceEngine(vocabulary.spec).encode(texts)
    assert flat.offsets[LATE - 500] > vocabulary.size
    return tuple(Text(f"{i}", text, flat.ids[flat.offsets[i] : flat.offsets[i + 1]]) for i, text in enumerate(texts))


def prove(texts: Sequence[Text], vocabulary: Vocabulary) -> tuple[bool, str]:
    verdict = prove_texts(texts, vocabulary)
    assert not verdict.passed or verdict.numbers["documents_decoded"] == len(texts)
    return verdict.passed, verdict.worst.where if verdict.worst else ""


def with_table(vocabulary: Vocabulary, table: Sequence[bytes]) -> Vocabulary:
    """The same tokenizer with another idea of the bytes behind its ids."""
    changed = replace(vocabulary)
    changed.__dict__["token_bytes"] = tuple(table)
    return changed


def test_documents_as_they_are_pass(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert prove(many, vocabulary) == (True, "")


@pytest.mark.parametrize("at", [0, LATE])
def test_another_token_is_found(many: tuple[Text, ...], vocabulary: Vocabulary, at: int) -> None:
    texts = list(many)
    ids = texts[at].ids.copy()
    ids[len(ids) // 2] = ids[len(ids) // 2 - 1]
    texts[at] = replace(texts[at], ids=ids)
    assert prove(texts, vocabulary) == (False, f"{at}")


@pytest.mark.parametrize("shift", [1, -1])
def test_a_token_that_belongs_to_the_next_document_is_found(many: tuple[Text, ...], vocabulary: Vocabulary, shift: int) -> None:
    texts = list(many)
    left, right = texts[LATE], texts[LATE + 1]
    both, cut = np.concatenate([left.ids, right.ids]), len(left.ids) + shift
    texts[LATE : LATE + 2] = [replace(left, ids=both[:cut]), replace(right, ids=both[cut:])]
    assert prove(texts, vocabulary) == (False, f"{LATE}")


def test_bytes_that_only_look_like_the_text_are_found(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert vocabulary.token_bytes is not None
    stray = vocabulary.token_bytes.index(b"\xff") if b"\xff" in vocabulary.token_bytes else vocabulary.token_bytes.index(b"\x80")
    assert vocabulary.decode([stray]) == "\ufffd"
    texts = list(many)
    texts[LATE] = replace(texts[LATE], text="\ufffd", ids=np.array([stray], np.uint32))
    assert prove(texts, vocabulary) == (False, f"{LATE}")


def test_the_bytes_of_each_id_are_those_of_the_tokenizers_own_decoder(vocabulary: Vocabulary) -> None:
    assert unproven_id(vocabulary) is None


def test_two_ids_whose_bytes_are_mistaken_for_each_other_are_noticed(vocabulary: Vocabulary) -> None:
    table = vocabulary.token_bytes
    assert table is not None
    partial = [number for number, own in enumerate(table) if own and 0x80 <= own[0] < 0xF5 and own[0] not in (0xC0, 0xC1)]
    for one, other in (partial[:2], partial[-2:], (300, 301)):
        swapped = list(table)
        swapped[one], swapped[other] = table[other], table[one]
        assert unproven_id(with_table(vocabulary, swapped)) is not None, (table[one], table[other])


def test_where_the_bytes_are_not_confirmed_documents_are_decoded(many: tuple[Text, ...], vocabulary: Vocabulary) -> None:
    assert vocabulary.token_bytes is not None
    wrong = with_table(vocabulary, [own + b"x" for own in vocabulary.token_bytes])
    assert prove(many, wrong) == (True, "")
    texts = list(many)
    texts[LATE] = replace(texts[LATE], text=texts[LATE].text + "x")
    assert prove(texts, wrong) == (False, f"{LATE}")
