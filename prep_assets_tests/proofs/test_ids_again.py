"""Documents are tokenized again: a sample by the reference, the others by the fast engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import reference_ids as ids_again
from prep_assets.proofs.documents import Text, prove_texts
from prep_assets.proofs.reference_ids import IdsAgain, assemble, between, one_after_the_other, reference_ids
from prep_assets.stores import arrays
from prep_assets.text.ids import Flat
from prep_assets_tests.tokenization.loaded import CONFIGS, Loaded, load

TEXTS = [f"Document {i}: the \u00e9 of caf\u00e9s, {i * 7} and \u4e2d\u6587." for i in range(400)]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(CONFIGS / "tokenizer")


def stored(loaded: Loaded) -> list[Text]:
    flat = loaded.engines.reference.encode(TEXTS)
    return [Text(f"{i}", text, flat.ids[flat.offsets[i] : flat.offsets[i + 1]]) for i, text in enumerate(TEXTS)]


def none(texts: Sequence[str]) -> Any:
    """No text is early."""
    return np.zeros(len(texts), bool)


def test_ids_are_the_references_whoever_makes_them(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_again, "ONE_OF", 16)
    again = IdsAgain(loaded.vocabulary, loaded.engines)
    first = np.array([i % 3 != 0 for i in range(len(TEXTS))])
    counted = list[int]()
    for begins in (np.ones(len(TEXTS), bool), first):
        found, expected = again.encode(TEXTS, begins, np.arange(len(TEXTS)) < 5), loaded.engines.reference.encode(TEXTS)
        assert found.ids.tolist() == expected.ids.tolist() and found.offsets.tolist() == expected.offsets.tolist()
        counted.append(again.by_reference)
    assert 5 < counted[0] < len(TEXTS) / 4 and counted[1] == 2 * counted[0]


def test_without_a_fast_engine_the_reference_encodes_all(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    first = np.array([i % 3 != 0 for i in range(len(TEXTS))])
    alone = replace(loaded.engines, first=loaded.engines.reference)
    for engines in (None, alone):
        again = IdsAgain(loaded.vocabulary, engines)
        found, expected = again.encode(TEXTS, first, none(TEXTS)), reference_ids(loaded.vocabulary).encode(TEXTS, first)
        assert found.ids.tolist() == expected.ids.tolist() and found.offsets.tolist() == expected.offsets.tolist()
        again.encode(TEXTS[:7], first[:7], none(TEXTS[:7]))
        assert again.by_reference == len(TEXTS) + 7
    asked: list[Any] = []
    monkeypatch.setattr(ids_again, "reference_ids", lambda _: SimpleNamespace(encode=lambda *given: asked.append(given)))
    IdsAgain(loaded.vocabulary, None).encode(TEXTS, first, none(TEXTS))
    assert asked == [(TEXTS, first)], "a text that begins a document may have other ids"


@pytest.mark.parametrize("at", [0, 1, 57, 399])
def test_one_other_id_of_any_document_is_found(loaded: Loaded, at: int) -> None:
    texts = stored(loaded)
    assert prove_texts(texts, loaded.vocabulary, loaded.engines).passed
    table = loaded.vocabulary.token_bytes
    assert table is not None
    # the same text in other ids: each byte of one token for itself
    single = {own: number for number, own in enumerate(table) if len(own) == 1}
    ids = texts[at].ids.tolist()
    long = next(place for place, token in enumerate(ids) if len(table[token]) > 1)
    ids[long : long + 1] = [single[bytes([byte])] for byte in table[ids[long]]]
    texts[at] = replace(texts[at], ids=np.array(ids, np.uint32))
    verdict = prove_texts(texts, loaded.vocabulary, loaded.engines)
    assert not verdict.passed and verdict.worst is not None and verdict.worst.where == f"{at}"


def test_a_fast_engine_that_is_wrong_is_found_by_the_sample(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ids are in the store, so that it agrees with itself."""
    monkeypatch.setattr(ids_again, "ONE_OF", 8)

    [the] = loaded.engines.rest.encode([" the"]).ids.tolist()
    table = loaded.vocabulary.token_bytes
    assert table is not None
    pieces = table.index(b" "), table.index(b"the")

    class Wrong:
        name = "wrong"

        def encode(self, texts: Sequence[str]) -> Flat:
            """The reference's, but for a word that is left in two pieces."""
            flat = loaded.engines.reference.encode(texts)
            hits = flat.ids == the
            ids = np.repeat(flat.ids, 1 + hits)
            at = np.flatnonzero(hits) + np.arange(hits.sum())
            ids[at], ids[at + 1] = pieces
            return Flat(ids, flat.offsets + np.concatenate([[0], np.cumsum(hits)])[flat.offsets])

    engines = replace(loaded.engines, first=Wrong(), rest=Wrong())
    flat = engines.first.encode(TEXTS)
    texts = [Text(f"{i}", text, flat.ids[flat.offsets[i] : flat.offsets[i + 1]]) for i, text in enumerate(TEXTS)]
    verdict = prove_texts(texts, loaded.vocabulary, engines)
    assert not verdict.passed and "ids differ" in verdict.summary


# -- Ids of parts, put together as lists would be -----------------------------------------------------------------------------------------


def flat(texts: Sequence[Sequence[int]]) -> Flat:
    ids = np.array([id for each in texts for id in each], np.uint32)
    return Flat(ids, np.cumsum([0, *map(len, texts)]))


def lists(found: Flat) -> list[list[int]]:
    assert found.ids.dtype == np.uint32 and found.offsets[0] == 0 and found.offsets[-1] == len(found.ids)
    return [found.ids[begin:end].tolist() for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@pytest.mark.parametrize(("step", "narrow"), [(1, 1 << 31), (2, 0), (3, 1 << 31), (1 << 20, 0)])
def test_the_ids_of_texts_are_those_of_their_words(step: int, narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "STRETCH", step)
    monkeypatch.setattr(ids_again, "NARROW", narrow)
    words = [[7, 8], [9], [1, 2, 3], []]
    known = flat(words)
    for texts in ([[2], [], [0, 1, 0, 3]], [[], [3]], [[1, 1, 1, 2]], [[0], [1], [2], []]):
        which, borders = np.array([word for text in texts for word in text], np.int32), np.cumsum([0, *map(len, texts)])
        found = assemble(Flat(known.ids, known.offsets[:-1]), np.diff(known.offsets).astype(np.int32), which, borders)
        assert lists(found) == [[id for word in text for id in words[word]] for text in texts]


def test_control_tokens_between_texts() -> None:
    assert lists(between(flat([[7, 8], [], [9]]), np.array([5, -1, -1, 0, -1, 6]))) == [[5], [7, 8], [], [0], [9], [6]]
    assert lists(between(flat([]), np.array([0, 5]))) == [[0], [5]] and lists(between(flat([[7]]), np.array([-1]))) == [[7]]


def test_heads_and_tails_of_texts() -> None:
    found = one_after_the_other(flat([[1], [2, 3]]), flat([[4], [], [5, 6], [7]]), np.array([False, True, True, False]))
    assert lists(found) == [[4], [1], [2, 3, 5, 6], [7]]
