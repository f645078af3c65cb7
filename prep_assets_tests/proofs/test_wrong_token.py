"""Of a wrong mask, the first token that is wrong: words whose characters are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from prep_assets.proofs.mask import first_wrong
from prep_assets_tests.proofs.words import vocabulary

TOKENS = ("<e>", "user", "bot", "Hel", "lo", ".", "\ufffd", " there")
WORDS = vocabulary(*TOKENS)
ROW = ["user", "lo", "bot", "Hel", "lo", ".", "<e>", "user"]


@pytest.mark.parametrize(
    ("runs", "expected", "at"),
    [
        ([(3, 7)], ["Hello.<e>"], -1),
        ([(3, 6)], ["Hello.<e>"], 6),  # the end is not trained
        ([(4, 7)], ["Hello.<e>"], 3),  # the beginning is not
        ([(5, 6)], ["Hello.<e>"], 4),
        ([(3, 8)], ["Hello.<e>"], 7),  # what follows is
        ([(2, 7)], ["Hello.<e>"], 2),  # what is before it is
        ([(3, 7)], ["Help.<e>"], 4),
        ([(3, 7)], ["Hello!<e>"], 5),
        ([(3, 7)], ["xHello.<e>"], 2),
        ([(3, 7)], ["Hello.<e>userHello"], 7),
        ([(3, 8)], ["Hello.<e>user and more"], 7),  # there is no token that should be trained
        ([(1, 2), (3, 7)], ["Hello.<e>"], 1),  # "lo" is a part of the answer, which is trained all the same
        ([(3, 4), (4, 7)], ["Hello.<e>"], 4),  # another weight from there on
        ([(3, 7)], ["user", "Hello.<e>"], -1),
        ([(0, 1), (3, 7)], ["Hello.<e>"], 0),
        ([(3, 7), (7, 8)], ["Hello.<e>"], 7),  # a text too many
        ([(3, 7)], ["Hello.<e>", "user"], -1),  # one too few
        ([], ["Hello.<e>"], -1),
        ([(3, 7), (7, 8)], ["Hello.<e>", "us"], 7),
    ],
)
def test_the_first_token_that_is_wrong(runs: list[tuple[int, int]], expected: list[str], at: int) -> None:
    ids = np.array([TOKENS.index(token) for token in ROW])
    assert first_wrong(ids, runs, [WORDS.decode(ids[start:end]) for start, end in runs], expected, WORDS) == at


def test_what_truncation_leaves_of_a_character_is_not_wrong() -> None:
    ids = np.array([TOKENS.index(token) for token in ("\ufffd", "Hel", "user", "lo")])
    assert first_wrong(ids, [(0, 2), (3, 4)], ["\ufffdHel", "lo"], ["Hel", "."], WORDS) == 3


def test_white_space_at_the_ends_is_text() -> None:
    assert first_wrong(np.array([7]), [(0, 1)], [" there"], [" there"], WORDS) == -1
