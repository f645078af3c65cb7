"""Trained runs that differ from their stretches by white space alone, and kinds of chats that no chat has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import chat_blocks as module

RENDER = b"x  yz  w"


@pytest.mark.parametrize(
    ("stretch", "run", "alike"),
    [
        ((1, 7), (1, 7), True),
        ((1, 7), (2, 7), True),
        ((1, 7), (3, 7), True),
        ((1, 7), (1, 6), True),
        ((1, 7), (3, 5), True),
        ((2, 6), (1, 7), True),
        ((1, 6), (1, 7), True),
        ((2, 5), (1, 5), True),
        ((3, 6), (3, 7), True),
        ((1, 7), (0, 7), False),
        ((1, 7), (1, 8), False),
        ((1, 7), (4, 7), False),
        ((1, 7), (1, 4), False),
        ((3, 5), (2, 5), False),
        ((3, 5), (3, 6), False),
        ((3, 7), (2, 7), False),
        ((1, 5), (1, 6), False),
    ],
)
@pytest.mark.parametrize("row", [0, 1])
def test_only_a_stretch_that_ends_with_white_space_may_end_elsewhere_in_it(
    row: int, stretch: tuple[int, int], run: tuple[int, int], alike: bool
) -> None:
    laid: Any = SimpleNamespace(data=RENDER + b" " * row + RENDER, base=np.array([0, len(RENDER) + row]))
    inner = stretch[0] + 1, stretch[1] - 1
    assert module._but_for_spaces(laid, [row, *run], [row, *stretch], *inner) is alike


@pytest.mark.parametrize(
    ("first_ends", "last_begins", "alike"),
    [(3, 5, True), (7, 1, True), (2, 5, False), (1, 5, False), (3, 6, False), (3, 7, False)],
)
def test_a_token_that_holds_nothing_of_a_stretch_is_none_of_it(first_ends: int, last_begins: int, alike: bool) -> None:
    """A run from 1 to 7 for a stretch from 2 to 6, which has white space at both edges: what its first and its last token hold decides."""
    laid: Any = SimpleNamespace(data=RENDER, base=np.array([0]))
    assert module._but_for_spaces(laid, [0, 1, 7], [0, 2, 6], first_ends, last_begins) is alike
