"""A fast tokenizer was built with newer Unicode tables than the reference, so combining marks and new emoji were cut elsewhere.

Year: 2026
Hit: gigatoken#35, #37
Cost: Other ids for the same text, in a few rows of a corpus.
Stopped by: each code point is encoded by both engines, and texts with one that differs go to the reference; `tokenization_identity` compares every row
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.text import engines, suspects
from prep_assets.text.engines import RoutedEngine, choose_engine
from prep_assets.text.ids import Flat
from prep_assets.text.suspects import edge_set
from prep_assets.text.vocabulary import load_vocabulary
from prep_assets_tests.graph.workspaces import TOKENIZER

NEW_EMOJI = "\U0001fae8"


def test_the_edge_set_has_what_differed() -> None:
    joined = "".join(edge_set())
    assert NEW_EMOJI in joined and "e\u0301\u0323" in joined


def test_texts_with_it_go_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(engines.GigatokenEngine):
        """Cuts one emoji otherwise."""

        def encode(self, texts: Any) -> Flat:
            flat = super().encode(texts)
            ids = flat.ids.copy()
            for number, text in enumerate(texts):
                if NEW_EMOJI in text:
                    ids[flat.offsets[number + 1] - 1] += 1
            return Flat(np.asarray(ids, np.uint32), flat.offsets)

    monkeypatch.setenv("PREP_ASSETS_CACHE", "")
    monkeypatch.setattr(suspects, "TRIED", ((0, 128), (0x1FA00, 0x1FB00)))
    monkeypatch.setattr(engines, "GigatokenEngine", Newer)
    chosen = choose_engine(load_vocabulary(TOKENIZER))
    assert chosen.verdict.endswith("documents with one of 1 code points go to tokenizers")
    texts = ["plain", f"new {NEW_EMOJI}", "old \U0001faa8"]
    found, expected = chosen.first.encode(texts), chosen.reference.encode(texts)
    assert found.ids.tolist() == expected.ids.tolist() and found.offsets.tolist() == expected.offsets.tolist()
    assert isinstance(chosen.first, RoutedEngine) and chosen.first.odd(texts).tolist() == [False, True, False]
