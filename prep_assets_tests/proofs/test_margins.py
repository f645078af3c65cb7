"""Margins of pairs: what is stored, and what the line says."""

from __future__ import annotations

import numpy as np
import pytest

from prep_assets.proofs.groups import Margin, check_margins
from prep_assets.proofs.merged import Asked, check_merged_records
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.tokens import TokenStore

RIGHT = (Margin("a", float(np.float32(0.1)), 0.1), Margin("b", None, None), Margin("c", -0.0, 0.0))


def test_margins_as_float32() -> None:
    numbers = {"pairs_checked": 3, "margins_checked": 2}
    assert check_margins(RIGHT) == Verdict(True, "2 margins of 3 pairs are those of their lines, as float32", numbers)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Margin("x", None, 0.5), "its margin is none, its line says 0.5"),
        (Margin("x", 0.0, None), "its margin is 0, its line says none"),
        (Margin("x", 0.5, 0.25), "its margin is 0.5, its line says 0.25"),
        (Margin("x", 0.5 + 1e-7, 0.5), "its margin is 0.5, its line says 0.5"),
    ],
)
def test_another_margin(wrong: Margin, says: str) -> None:
    verdict = check_margins([*RIGHT, wrong, *RIGHT])
    assert (verdict.passed, verdict.summary, verdict.worst) == (False, f"x: {says}", Worst("x", says))
    assert verdict.numbers == {"pairs_checked": 4, "margins_checked": 2 + (wrong.stored is not None)}


def stream(margins: list[float] | None) -> TokenStore:
    """Three records of a token each."""
    ones = np.arange(1, 4)
    said = None if margins is None else np.array(margins, np.float32)
    return TokenStore({"tokens": ones}, ones, np.zeros(3, np.int32), ones - 1, margins=said)


ASKED = Asked(np.array([1, 0, 1]), np.array([2, 1, 0]), np.zeros(3, np.int64), np.arange(3))
HAVING, LACKING = [1.5, np.nan, 0.25], None


@pytest.mark.parametrize(
    ("margins", "says"),
    [
        ([0.25, np.nan, 1.5], ""),
        ([0.25, 0.0, 1.5], "chosen record 1: has the margin 0, its part has nan"),
        ([0.25, np.nan, 1.0], "chosen record 2: has the margin 1, its part has 1.5"),
        (None, "chosen record 0: has the margin nan, its part has 0.25"),
    ],
)
def test_of_merged_records(margins: list[float] | None, says: str) -> None:
    merged = TokenStore({"tokens": np.array([3, 2, 1])}, np.arange(1, 4), np.zeros(3, np.int32), np.arange(3))
    merged = TokenStore(merged.arrays, merged.ends, merged.file, merged.row, margins=stream(margins).margins)
    verdict = check_merged_records("chosen", merged, [stream(LACKING), stream(HAVING)], ASKED)
    assert (verdict.passed, "" if verdict.passed else verdict.summary) == (not says, says)


def test_margins_of_nothing() -> None:
    assert check_margins([]).summary == "0 margins of 0 pairs are those of their lines, as float32"
