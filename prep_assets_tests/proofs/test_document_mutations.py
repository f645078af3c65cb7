"""Each corruption of documents and prompts does what its name says, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.documents import MaskedDocument
from prep_assets.proofs.mutations import DOCUMENT_MUTATIONS, MASK_MUTATIONS, PROMPT_TOKEN_MUTATIONS
from prep_assets.samples import Sample

EOS, SIZE = 0, 10
ROWS = [np.array([5, 5, 6, 7, EOS]), np.array([9, 8, EOS]), np.array([1, EOS]), np.array([4, 4])]


def masked(mask: Any) -> MaskedDocument:
    return MaskedDocument("a", Sample(()), mask, mask)


def changed(name: str, at: int, rows: Sequence[Any] = ROWS) -> list[int] | None:
    [mutation] = [each for each in DOCUMENT_MUTATIONS if each.name == name]
    before = [row.copy() for row in rows]
    found = mutation.change(rows, at, EOS, SIZE)
    assert all(np.array_equal(one, two) for one, two in zip(before, rows, strict=True)), "the rows themselves stay"
    assert found is None or all(each is rows[number] for number, each in enumerate(found) if number != at)
    return None if found is None else found[at].tolist()


@pytest.mark.parametrize(
    ("name", "caught_by", "results"),
    [
        ("a token replaced", "tokenization_identity", [[5, 6, 6, 7, 0], [9, 9, 0], None, None]),
        ("two tokens swapped", "tokenization_identity", [[5, 6, 5, 7, 0], [8, 9, 0], None, None]),
        ("a token lost", "tokenization_identity", [[5, 5, 7, 0], [9, 0], None, None]),
        ("tokens of the next row", "tokenization_identity", [[9, 8, 0], [1, 0], [4, 4], [5, 5, 6, 7, 0]]),
        ("an id outside the vocabulary", "row_integrity", [[5, 10, 6, 7, 0], [9, 10, 0], None, None]),
        ("a negative id", "row_integrity", [[5, -100, 6, 7, 0], [9, -100, 0], None, None]),
        ("an end-of-text token in the middle", "row_integrity", [[5, 0, 6, 7, 0], [9, 0, 0], None, None]),
        ("no end-of-text token", "row_integrity", [[5, 5, 6, 7, 1], [9, 8, 1], None, None]),
    ],
)
def test_each_corruption(name: str, caught_by: str, results: list[list[int] | None]) -> None:
    assert [changed(name, at) for at in range(4)] == results
    assert [each.caught_by for each in DOCUMENT_MUTATIONS if each.name == name] == [caught_by]


def test_random_tokens() -> None:
    found = changed("random tokens", 0)
    assert found == np.random.default_rng(0).integers(0, SIZE, 5).tolist()
    assert changed("random tokens", 1) == found[:3]


def test_the_tables() -> None:
    assert [each.name for each in PROMPT_TOKEN_MUTATIONS] == [each.name for each in DOCUMENT_MUTATIONS][:7]
    assert changed("tokens of the next row", 0, [ROWS[0], ROWS[0]]) is None


@pytest.mark.parametrize(("token", "other"), [(3, 4), (9, 1), (8, 9), (0, 1)])
def test_another_token_is_never_the_end_of_text(token: int, other: int) -> None:
    assert kit._other(token, EOS, SIZE) == other


def test_a_token_put_somewhere() -> None:
    """The factory is called when the module is read, so it is called here again."""
    put = kit._put(1, lambda token, eos, size: 100 * token + 10 * eos + size)
    assert [None if (found := put(ROWS, at, 3, 9)) is None else found[at].tolist() for at in range(4)] == [
        [5, 539, 6, 7, 0],
        [9, 839, 0],
        None,
        None,
    ]
    last = kit._put(-2, lambda token, eos, size: token + 1)
    assert last([np.array([1, 2, 3], np.uint16), np.array([1, 2, 3, 4])], 0, 0, 9) is None
    found = last([np.array([1, 2, 3, 4], np.uint16)], 0, 0, 9)
    assert found is not None and (found[0].tolist(), found[0].dtype) == ([1, 2, 4, 4], np.int64)


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("a document's mask lost", [[1, 1, 1], None, [1, 1, 1]]),
        ("nothing of a document trained", [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ("a document's mask turned round", [[0, 1, 0], [0, 0, 0], [1, 0, 0]]),
        ("the end of a document weighed otherwise", [[1, 0, 0], [1, 1, 0], [0, 0.5, 0]]),
        ("a document's weights halved", [[0.5, 0, 0.5], [0.5, 0.5, 0.5], [0, 0.25, 0.5]]),
    ],
)
def test_each_corruption_of_a_mask(name: str, results: list[list[float] | None]) -> None:
    [mutation] = [each for each in MASK_MUTATIONS if each.name == name]
    masks = [np.array(values, np.float32) for values in ([1, 0, 1], [1, 1, 1], [0, 0.5, 1])]
    found = [mutation.change([masked(each) for each in masks], at) for at in range(3)]
    assert mutation.caught_by == "mask_alignment"
    assert [None if each is None else each[0].mask.tolist() for each in found] == results
    assert all(each is None or (len(each) == 1 and each[0].mask.dtype == np.float32) for each in found)


def test_whole_numbers_are_not_halved() -> None:
    [halved] = [each for each in MASK_MUTATIONS if "halved" in each.name]
    assert halved.change([masked(np.array([1, 0, 1], np.int8))], 0) is None


def test_another_mask_has_the_same_type() -> None:
    turned = kit._other_mask(lambda mask: mask == 0)
    found = turned([masked(np.array([1, 0], np.int8))], 0)
    assert found is not None and (found[0].mask.tolist(), found[0].mask.dtype) == ([0, 1], np.int8)
    assert kit._other_mask(lambda mask: mask)([masked(np.array([1, 0]))], 0) is None
    assert kit._half(np.array([1.0, 0.5])).tolist() == [0.5, 0.25]
