"""How a verdict shows a row."""

from __future__ import annotations

from prep_assets.proofs.verdict import shown


def test_the_beginning_of_a_row() -> None:
    assert shown({"b": "é", "a": [1, None]}) == '{"b": "é", "a": [1, null]}'
    assert shown({"a": "é" * 500}) == '{"a": "' + "é" * 393
