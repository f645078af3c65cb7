"""Margins of pairs: what is stored, and what the line says."""

from __future__ import annotations

from dataclasses import replace

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


def stream(margins: list[float] | None, count: int = 3) -> TokenStore:
    """Records of a token each."""
    ones = np.arange(1, count + 1)
    said = None if margins is None else np.array(margins, np.float32)
    return TokenStore({"tokens": ones}, ones, np.zeros(count, np.int32), ones - 1, margins=said)


ASKED = Asked(np.array([1, 0, 1, 0, 1]), np.array([2, 1, 0, 2, 1]), np.zeros(5, np.int64), np.arange(5))
HAVING, NAN = [1.5, 0.75, np.nan], np.nan


@pytest.mark.parametrize("at_once", [2, 4096])
@pytest.mark.parametrize(
    ("margins", "says"),
    [
        ([NAN, NAN, 1.5, NAN, 0.75], ""),
        ([NAN, 0.0, 1.5, NAN, 0.75], "chosen record 1: has the margin 0, its part has nan"),
        ([NAN, NAN, 1.25, NAN, 0.75], "chosen record 2: has the margin 1.25, its part has 1.5"),
        ([NAN, NAN, 1.5, NAN, NAN], "chosen record 4: has the margin nan, its part has 0.75"),
        ([0.0, NAN, 1.5, NAN, 0.75], "chosen record 0: has the margin 0, its part has nan"),
        (None, "chosen record 2: has the margin nan, its part has 1.5"),
    ],
)
def test_of_merged_records(monkeypatch: pytest.MonkeyPatch, margins: list[float] | None, says: str, at_once: int) -> None:
    monkeypatch.setattr("prep_assets.proofs.merged._AT_ONCE", at_once)
    merged = replace(stream(margins, 5), arrays={"tokens": np.array([3, 2, 1, 3, 2])})
    verdict = check_merged_records("chosen", merged, [stream(None), stream(HAVING)], ASKED)
    assert (verdict.passed, "" if verdict.passed else verdict.summary) == (not says, says)
    assert verdict.numbers == {"records_checked": 5, "tokens_checked": 5}


def test_no_margins_anywhere() -> None:
    merged = replace(stream(None, 5), arrays={"tokens": np.array([3, 2, 1, 3, 2])})
    assert check_merged_records("chosen", merged, [stream(None), stream(None)], ASKED).passed


def test_margins_of_nothing() -> None:
    assert check_margins([]).summary == "0 margins of 0 pairs are those of their lines, as float32"
