"""A document that was cut for fill-in-the-middle, put together again from either order."""

from __future__ import annotations

import pytest

from prep_assets.proofs.documents import parts_in_order

SENTINELS = {"prefix": 90, "suffix": 91, "middle": 92}


@pytest.mark.parametrize(
    ("ids", "parts"),
    [
        ([1, 2, 3], None),
        ([], None),
        ([90, 1, 2, 91, 5, 92, 3, 4], [[1, 2], [3, 4], [5]]),
        ([90, 91, 5, 6, 92, 1, 2], [[], [1, 2], [5, 6]]),
        ([90, 91, 92], [[], [], []]),
    ],
)
def test_parts_in_the_order_of_the_text(ids: list[int], parts: list[list[int]] | None) -> None:
    assert parts_in_order(ids, SENTINELS) == parts


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([1, 90, 91, 92], [(1, 90), (2, 91), (3, 92)]),
        ([90, 1, 92, 2, 91], [(0, 90), (2, 92), (4, 91)]),
        ([90, 91], [(0, 90), (1, 91)]),
        ([90, 91, 92, 92], [(0, 90), (1, 91), (2, 92), (3, 92)]),
        ([90, 91, 92] * 3, [(0, 90), (1, 91), (2, 92), (3, 90), (4, 91), (5, 92)]),
    ],
)
def test_sentinels_that_are_not_one_each_in_order(ids: list[int], found: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError) as raised:
        parts_in_order(ids, SENTINELS)
    assert str(raised.value) == f"sentinels {found} (place, id), needs [90, 91, 92] in this order from place 0"
