"""A fast tokenizer was built with newer Unicode tables than the reference, so combining marks and new emoji were cut elsewhere.

Year: 2026
Hit: gigatoken#35, #37
Cost: Other ids for the same text, in a few rows of a corpus.
Stopped by: the gate of edge texts, before an engine is used
"""

from __future__ import annotations

import numpy as np

from prep_assets.tokenization.edge_set import edge_set
from prep_assets.tokenization.engines import Flat, ReferenceEngine
from prep_assets.tokenization.vocabulary import load_vocabulary
from prep_assets_tests.pipelines.workspaces import TOKENIZER


def test_the_edge_set_has_what_differed() -> None:
    joined = "\n".join(edge_set())
    assert "\U0001fae8" in joined, "the emoji of Unicode 15.1 that DeepSeek's tokenizer cut otherwise"
    assert "e\u0301\u0323" in joined, "two combining marks, as Qwen2.5 cut them otherwise"


def test_an_engine_that_differs_on_one_edge_text_is_not_used() -> None:
    from prep_assets.tokenization.engines import first_difference

    vocabulary = load_vocabulary(TOKENIZER)
    reference = ReferenceEngine(vocabulary.spec)

    class Newer:
        name = "newer tables"

        def encode(self, texts: list[str]) -> Flat:
            flat = reference.encode(texts)
            ids = flat.ids.copy()
            for number, text in enumerate(texts):
                if "\U0001fae8" in text:
                    ids[flat.offsets[number + 1] - 1] += 1
            return Flat(np.asarray(ids, np.uint32), flat.offsets)

    assert first_difference(Newer(), reference) is not None
    assert first_difference(reference, reference) is None
