"""The drawings in docs/packing.md are what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prep_assets.packing import pack
from prep_assets_tests.packing.reference import rows_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "packing.md").read_text(encoding="utf-8")
DRAWN = re.findall(r"^(concat|simple|ffd|bfd|bfd_split)(?:, (\S+))? +((?:[a-e]+\.*(?:  )?)+)$", PAGE, flags=re.MULTILINE)


def test_every_strategy_is_drawn() -> None:
    assert {strategy for strategy, _, _ in DRAWN} == {"concat", "simple", "ffd", "bfd", "bfd_split"}


@pytest.mark.parametrize(("strategy", "option", "drawing"), DRAWN)
def test_drawing(strategy: Any, option: str, drawing: str) -> None:
    options: Any = {"tail": "drop"} if option == "tail=drop" else {"overlong": option} if option else {}
    plan = pack([12, 9, 9, 2, 23], 20, strategy, **options)
    rows = ["".join("abcde"[record] for record, _ in row).ljust(20, ".") for row in rows_of(plan)]
    assert rows == drawing.split()
