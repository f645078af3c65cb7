"""`local_shuffle` shuffled one document at a time, which shuffles nothing.

Year: 2024
Hit: dolma#139
Cost: Corpora trained in the order of their files.
Stopped by: the order of a packed table is that of the seed; `shuffle: true` leaves no correlation with the source
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prep_assets.stores.packed import open_packed
from prep_assets_tests.museum.gallery import ASSISTANT, USER, packed, said

CHATS = [[said(USER, f"What is {number} + 1?"), said(ASSISTANT, f"It is {number + 1}.")] for number in range(400)]


def correlation(order: np.ndarray) -> float:
    """Spearman's, of the order in the table with that of the source."""
    return float(np.corrcoef(order, np.arange(len(order)))[0, 1])


def test_the_order_is_another(tmp_path: Path) -> None:
    orders = {}
    for shuffle in (True, False):
        stand = packed(tmp_path / str(shuffle), CHATS, row_len=256, packing={"strategy": "simple", "shuffle": shuffle})
        assert stand.failing() == []
        orders[shuffle] = np.asarray(open_packed(stand.published.directory, "sft_packed").documents["record"])
    assert sorted(orders[True]) == sorted(orders[False]) == list(range(len(CHATS)))
    assert abs(correlation(orders[True])) < 0.2
    assert correlation(orders[False]) > 0.99
