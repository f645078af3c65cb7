"""The reference's ids of every row: words that were met before are looked up, and nothing else is taken on trust."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prep_assets.proofs.documents import Text, prove_texts
from prep_assets.proofs.mask import Conversation, prove_identity
from prep_assets.proofs.reference_ids import ReferenceIds
from prep_assets.proofs.words import whole_tokens
from prep_assets.text.engines import Engines, choose_engine
from prep_assets.text.ids import Flat
from prep_assets.text.suspects import edge_set
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.effort import examples
from prep_assets_tests.proofs.shipped import SHIPPED, normalizing, rows
from prep_assets_tests.tokenization.loaded import CONFIGS, NAMES, load

WORDS = st.sampled_from(
    [
        "the",
        " cat",
        "  sat",
        "\n",
        "\n\n ",
        "'s",
        " 12",
        "345",
        "\t",
        "é",
        "e\u0301",
        " \u0308",
        "猫",
        "，",
        " .",
        "!!",
        "\u00a0",
        "x\u3000",
        "_",
        "▁",
    ]
)
TEXTS = st.lists(
    st.one_of(st.lists(WORDS, max_size=12).map("".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)), max_size=6
)


@pytest.fixture(scope="module", params=NAMES)
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    name = request.param
    return load(CONFIGS / "tokenizer" if name == "shipped" else request.getfixturevalue("real_data") / "tokenizers" / name).vocabulary


def same(texts: list[str], first: list[bool], engines: Engines, again: ReferenceIds) -> bool:
    flat = again.encode(texts, np.array(first, bool))
    by = {True: engines.reference, False: engines.rest_reference}
    wanted = {
        begins: iter(rows(engine.encode([text for text, own in zip(texts, first, strict=True) if own is begins])))
        for begins, engine in by.items()
    }
    return again.cuts and rows(flat) == [next(wanted[begins]) for begins in first]


def test_every_edge_text(vocabulary: Vocabulary) -> None:
    texts = [text for text in edge_set() if text]
    texts += [f"and {text} then {text}" for text in texts]
    # where there is nothing to compose, the other tokenizer is this one
    decomposed = [text for at, text in enumerate(texts) if at % 16 == 0 or not unicodedata.is_normalized("NFC", text)]
    for tokenizer, some in ((vocabulary, texts), (normalizing(vocabulary), decomposed)):
        assert same(some, [i % 2 == 0 for i in range(len(some))], choose_engine(tokenizer, reference_only=True), ReferenceIds(tokenizer))


def test_any_texts(vocabulary: Vocabulary) -> None:
    tokenizers = [(choose_engine(each, reference_only=True), ReferenceIds(each)) for each in (vocabulary, normalizing(vocabulary))]

    @settings(max_examples=examples(60))
    @given(TEXTS, st.data())
    def check(texts: list[str], data: st.DataObject) -> None:
        texts = [text for text in texts if text]
        first = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
        assert all(same(texts, first, engines, again) for engines, again in tokenizers)

    check()


def uncanonical(ids: Any, vocabulary: Vocabulary) -> Any:
    """Other ids for the same text: some token as the two that make it."""
    table = vocabulary.token_bytes
    assert table is not None
    of = {own: number for number, own in reversed(list(enumerate(table))) if own}
    for at, token in enumerate(ids.tolist()):
        own = table[token]
        for cut in range(1, len(own)):
            if own[:cut] in of and own[cut:] in of:
                return np.concatenate([ids[:at], [of[own[:cut]], of[own[cut:]]], ids[at + 1 :]])
    raise AssertionError("no token can be cut in two")


def with_added(*contents: str, **flags: bool) -> Vocabulary:
    """The shipped tokenizer with words of its own, which are found in text."""
    from tokenizers import AddedToken, Tokenizer

    backend = Tokenizer.from_str(SHIPPED.backend.to_str())
    backend.add_tokens([AddedToken(content, normalized=False, **flags) for content in contents])
    return Vocabulary(f"with {contents} {flags}", backend, SHIPPED.special, None)


def test_added_tokens_that_reach_over_the_end_of_a_word() -> None:
    texts = ["so x=y</think>", "a<think>b</think>.\n\nc</thi", "</think></think>x.y", "x.y.x.y, x.yx"]
    for contents, flags, cut in (
        (("<think>", "</think>", "x.y", ".x"), {}, (b"<think>", b"</think>", b"x.y")),
        (("<think>", "y."), {"lstrip": True}, (b"<think>", b"y.")),
        (("x.y",), {"single_word": True}, None),
    ):
        vocabulary = with_added(*contents, **flags)
        assert whole_tokens(vocabulary.spec) == cut
        assert same(texts, [True, False, True, False], choose_engine(vocabulary, reference_only=True), ReferenceIds(vocabulary))


@pytest.mark.parametrize("at", [5, 233, 299])
def test_other_ids_for_the_same_text_are_found_in_every_row(vocabulary: Vocabulary, at: int) -> None:
    """Audit, section 3: such ids decode to the text, and only every fiftieth row was tokenized again."""
    texts = [f"The {i}th cat sat on the mat." for i in range(300)]
    flat = choose_engine(vocabulary, reference_only=True).reference.encode(texts)
    rows = [flat.ids[start:end] for start, end in pairwise(flat.offsets.tolist())]
    other = uncanonical(rows[at], vocabulary)
    assert vocabulary.decode(other) == vocabulary.decode(rows[at])
    documents = [Text(f"{i}", text, ids) for i, (text, ids) in enumerate(zip(texts, rows, strict=True))]
    chats = [Conversation(f"{i}", ids, text, (), 0) for i, (text, ids) in enumerate(zip(texts, rows, strict=True))]
    assert prove_texts(documents, vocabulary).passed and prove_identity(chats, vocabulary).passed
    documents[at], chats[at] = replace(documents[at], ids=other), replace(chats[at], ids=other)
    for verdict in (prove_texts(documents, vocabulary), prove_identity(chats, vocabulary)):
        assert not verdict.passed and verdict.worst is not None and verdict.worst.where == f"{at}"


def test_a_wrong_token_of_a_tokenizer_that_normalizes_is_found() -> None:
    """Audit W15: rows of such tokenizers were not decoded, and the summary counted them as if they had been."""
    vocabulary = normalizing(load(CONFIGS / "tokenizer").vocabulary)
    flat = choose_engine(vocabulary, reference_only=True).reference.encode([f"The {i}th cafe\u0301." for i in range(300)])
    rows = [
        Conversation(f"{i}", flat.ids[a:b], f"The {i}th cafe\u0301.", (), 0) for i, (a, b) in enumerate(pairwise(flat.offsets.tolist()))
    ]
    verdict = prove_identity(rows, vocabulary)
    assert verdict.passed and verdict.numbers["rows_tokenized_again"] == 300
    wrong = rows[233].ids.copy()
    wrong[1] += 1
    verdict = prove_identity([*rows[:233], replace(rows[233], ids=wrong), *rows[234:]], vocabulary)
    assert not verdict.passed and verdict.worst is not None and verdict.worst.where == "233"


def test_a_tokenizer_whose_words_join_after_all_is_found_out() -> None:
    """Should it ever be thought safe and be none, whole texts say so."""
    vocabulary = load(CONFIGS / "tokenizer").vocabulary
    again = ReferenceIds(vocabulary)
    again.words.ids_of([b" cat"], lambda parts: Flat(np.array([7], np.uint32), np.array([0, 1])))
    flat = again.encode(["the cat"])
    assert again.cuts is False
    assert flat.ids.tolist() == choose_engine(vocabulary, reference_only=True).reference.encode(["the cat"]).ids.tolist()
