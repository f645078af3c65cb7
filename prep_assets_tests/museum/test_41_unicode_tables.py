"""A fast tokenizer was built with newer Unicode tables than the reference, so combining marks and new emoji were cut elsewhere.

Year: 2026
Hit: gigatoken#35, #37
Cost: Other ids for the same text, in a few rows of a corpus.
Stopped by: an engine is used only where it gives the reference's ids on the edge set; `tokenization_identity` compares every row
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prep_assets.tokenization import engines
from prep_assets.tokenization.edge_set import edge_set
from prep_assets.tokenization.engines import Flat, choose_engine
from prep_assets.tokenization.load import load_vocabulary
from prep_assets_tests.assets.workspaces import TOKENIZER

NEW_EMOJI = "\U0001fae8"


def test_the_edge_set_has_what_differed() -> None:
    joined = "".join(edge_set())
    assert NEW_EMOJI in joined and "e\u0301\u0323" in joined


def test_an_engine_that_differs_on_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(engines.GigatokenEngine):
        """Cuts one emoji otherwise."""

        def encode(self, texts: Any) -> Flat:
            flat = super().encode(texts)
            ids = flat.ids.copy()
            for number, text in enumerate(texts):
                if NEW_EMOJI in text:
                    ids[flat.offsets[number + 1] - 1] += 1
            return Flat(np.asarray(ids, np.uint32), flat.offsets)

    vocabulary = load_vocabulary(TOKENIZER)
    assert choose_engine(vocabulary).verdict.startswith("gigatoken: equal")
    monkeypatch.setattr(engines, "GigatokenEngine", Newer)
    refused = choose_engine(vocabulary)
    assert refused.first is refused.reference and repr(NEW_EMOJI)[1:-1] in refused.verdict
