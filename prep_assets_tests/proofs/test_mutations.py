"""Each corruption of token rows does what its name says, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import mutations as kit
from prep_assets.proofs.mask import Row
from prep_assets.proofs.mutations import ATTENTION_MUTATIONS, MUTATIONS
from prep_assets_tests.proofs.words import vocabulary

WORDS = vocabulary("<e>", "<s>", "a", "b", "c", "d", "e", "f")


def row(name: str, ids: list[int], mask: list[float]) -> Row:
    return Row(name, np.array(ids, np.uint16), np.array(mask, np.float32), ())


LONG = row("long", [1, 2, 3, 4, 5, 6, 7, 2, 0, 3], [0, 0, 0, 0, 0, 0, 1, 1, 1, 0])
FIRST = row("first", [2, 3, 0], [1, 1, 1])
OPEN = row("open", [5, 2, 3], [0, 0.5, 0.5])
ROWS = [LONG, FIRST, OPEN]


def seen(found: Any, at: int) -> Any:
    if found is None:
        return None
    assert len(found) == len(ROWS)
    return found[at].ids.tolist(), found[at].mask.tolist()


def ids(at: int, *values: int) -> Any:
    return list(values), ROWS[at].mask.tolist()


def mask(at: int, *values: float) -> Any:
    return ROWS[at].ids.tolist(), list(values)


CASES: list[tuple[str, str, list[Any]]] = [
    (
        "mask shifted by +1",
        "mask_alignment",
        [mask(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1), mask(1, 0, 1, 1), mask(2, 0, 0, 0.5)],
    ),
    (
        "mask shifted by -1",
        "mask_alignment",
        [mask(0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0), mask(1, 1, 1, 0), mask(2, 0.5, 0.5, 0)],
    ),
    ("role header trained", "mask_alignment", [mask(0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0), None, mask(2, 1, 0.5, 0.5)]),
    ("stop token not trained", "mask_alignment", [mask(0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0), mask(1, 1, 1, 0), None]),
    ("mask all ones", "mask_alignment", [mask(0, *[1] * 10), None, mask(2, 1, 1, 1)]),
    ("mask all zeros", "row_integrity", [mask(0, *[0] * 10), mask(1, 0, 0, 0), mask(2, 0, 0, 0)]),
    ("masks of two records swapped", "mask_alignment", [mask(0, *[1] * 10), mask(1, 0, 0.5, 0.5), mask(2, 0, 0, 0)]),
    ("a user turn trained", "mask_alignment", [mask(0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0), None, None]),
    (
        "missing mask filled with zeros",
        "mask_alignment",
        [mask(0, *[0] * 10), mask(1, 1, 0, 0), mask(2, 0, 0, 0)],
    ),
    ("a trained token replaced", "mask_alignment", [ids(0, 1, 2, 3, 4, 5, 6, 2, 2, 0, 3), ids(1, 3, 3, 0), ids(2, 5, 3, 3)]),
    ("a token of the prompt replaced", "tokenization_identity", [ids(0, 1, 2, 3, 2, 5, 6, 7, 2, 0, 3), None, None]),
    (
        "first control token doubled",
        "tokenization_identity",
        [
            ([1, 1, 2, 3, 4, 5, 6, 7, 2, 0, 3], [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]),
            ([0, 2, 3, 0], [0, 1, 1, 1]),
            None,
        ],
    ),
    ("tail of a record cut off", "mask_alignment", [([1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 0, 1]), ([2], [1]), ([5], [0])]),
    ("an image has a token too many", "tokenization_identity", [None, None, None]),
    ("an image has a token too few", "tokenization_identity", [None, None, None]),
]


@pytest.mark.parametrize(("name", "caught_by", "results"), CASES)
def test_each_corruption(name: str, caught_by: str, results: list[Any]) -> None:
    [mutation] = [each for each in MUTATIONS if each.name == name]
    assert mutation.caught_by == caught_by
    before = [(each.ids.tolist(), each.mask.tolist()) for each in ROWS]
    for at, wanted in enumerate(results):
        found = mutation.change(ROWS, at, WORDS)
        assert seen(found, at) == wanted
        if found is not None and name != "masks of two records swapped":
            assert all(each is ROWS[number] for number, each in enumerate(found) if number != at)
    assert [(each.ids.tolist(), each.mask.tolist()) for each in ROWS] == before


def test_every_corruption_is_looked_at() -> None:
    assert [name for name, *_ in CASES] == [each.name for each in MUTATIONS]


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize(
    ("ids", "trained", "at"),
    [
        ([2, 2, 2, 2, 1, 1, 3, 1, 1, 1, 4, 0, 0, 0, 0], [11, 12, 13, 14], 7),
        ([1, 1, 1, 3, 0, 0], [], 0),
        ([3, 1, 1, 0, 0], [], 1),
        ([3, 0, 0, 0, 1, 1], [1], 2),
        ([3, 1, 0, 2, 2], [], None),
        ([1], [], None),
        ([1, 1, 0, 0], [0, 1, 2, 3], None),
    ],
)
def test_a_placeholder_is_the_longest_run_of_an_untrained_control_token(
    ids: list[int], trained: list[int], at: int | None, by: int
) -> None:
    before = row("pictures", ids, [float(place in trained) for place in range(len(ids))])
    found = kit._placeholder(by)([OPEN, before], 1, WORDS)
    if at is None:
        assert found is None
        return
    assert found is not None and found[0] is OPEN and found[1].ids.dtype == np.uint16
    changed = [*ids[:at], *ids[at : at + 1] * (1 + by), *ids[at + 1 :]]
    assert found[1].ids.tolist() == changed
    assert np.flatnonzero(found[1].mask).tolist() == [place + by * (place > at) for place in trained]


def test_masks_are_swapped_both_ways() -> None:
    found = kit._swapped(ROWS, 2, WORDS)
    assert found is not None and found[1] is FIRST
    assert (found[2].mask.tolist(), found[0].mask.tolist()) == ([0, 0, 0], [0, 0.5, 0.5, 0, 0.5, 0.5, 0, 0.5, 0.5, 0])
    assert kit._swapped([FIRST, FIRST], 0, WORDS) is None


def test_the_factories() -> None:
    """They are called when the module is read, so they are called here again."""
    assert seen(kit._shift(1)(ROWS, 1, WORDS), 1) == mask(1, 0, 1, 1)
    assert seen(kit._shift(2)(ROWS, 1, WORDS), 1) == mask(1, 0, 1, 1)
    assert seen(kit._shift(-2)(ROWS, 1, WORDS), 1) == mask(1, 1, 1, 0)
    assert seen(kit._shift(0)(ROWS, 2, WORDS), 2) == mask(2, 0, 0.5, 0)
    nothing = replace(OPEN, mask=np.zeros(3))
    assert kit._shift(1)([nothing], 0, WORDS) is None
    assert seen(kit._filled(0)(ROWS, 1, WORDS), 1) == mask(1, 0, 0, 0) and kit._filled(1)(ROWS, 1, WORDS) is None
    attended = kit._unattended(kit._attention(lambda attended, loss: ~attended | (loss > 0)))
    hidden = row("hidden", [2, 3, 4], [0, -1, 0.5])
    found = attended([FIRST, hidden], 1, WORDS)
    assert found is not None and found[0] is FIRST and found[1].mask.tolist() == [-1, 0, 0.5]
    assert attended([LONG, hidden], 0, WORDS) is None, "of it every token is attended"


def test_what_does_not_lend_itself() -> None:
    second = row("second", [2, 3, 4], [0, 1, 1])
    assert kit._prompt_replaced([second], 0, WORDS) is None and kit._user_trained([second], 0, WORDS) is None
    late = row("late", [2, 3, 4, 5, 6, 7, 2, 3, 4], [0] * 8 + [1])
    assert kit._user_trained([late], 0, WORDS)[0].mask.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1]  # type: ignore[index]
    third = row("third", [2, 3, 4], [0, 0, 1])
    found = kit._prompt_replaced([third], 0, WORDS)
    assert found is not None and found[0].ids.tolist() == [2, 2, 4]
    assert kit._zero_filled([row("x", [2, 3], [1, 0])], 0, WORDS) is None
    assert kit._zero_filled([row("x", [2, 3, 4], [1, 1, 0])], 0, WORDS)[0].mask.tolist() == [1, 0, 0]  # type: ignore[index]
    doubled = kit._doubled_bos(ROWS, 0, WORDS)
    assert doubled is not None and doubled[0].ids.dtype == np.uint16


HIDDEN = row("hidden", [2, 3, 4, 5, 6], [0, -1, -1, 0.5, 0])


@pytest.mark.parametrize(
    ("name", "caught_by", "result"),
    [
        ("attention lost", "mask_alignment", [0, 0, 0, 0.5, 0]),
        ("attention turned round", "mask_alignment", [-1, 0, 0, -1.5, -1]),
        ("attention shifted by +1", "mask_alignment", [0, 0, -1, -1.5, 0]),
        ("attention shifted by -1", "mask_alignment", [-1, -1, 0, 0.5, 0]),
        ("trained tokens not attended", "mask_alignment", [0, -1, -1, -1.5, 0]),
        ("a trained token not attended", "row_integrity", [0, -1, -1, -1.5, 0]),
    ],
)
def test_each_corruption_of_attention(name: str, caught_by: str, result: list[float]) -> None:
    """Weights below 0 are those of tokens that are not attended: -1, less the loss weight that none may have there."""
    [mutation] = [each for each in ATTENTION_MUTATIONS if each.name == name]
    rows = [LONG, HIDDEN]
    assert mutation.caught_by == caught_by and mutation.change(rows, 0, WORDS) is None
    changed = mutation.change(rows, 1, WORDS)
    assert changed is not None and changed[0] is LONG
    assert changed[1].mask.tolist() == result and HIDDEN.mask.tolist() == [0, -1, -1, 0.5, 0]
