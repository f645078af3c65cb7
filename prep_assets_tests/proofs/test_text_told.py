"""What is told of texts to who tokenizes them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from prep_assets.proofs import documents as module
from prep_assets.proofs.documents import Text, prove_texts
from prep_assets.text.ids import Flat
from prep_assets_tests.proofs.test_text import Bytes


def test_each_part_is_told_whether_it_begins_a_document_and_whether_that_is_early(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, bool, bool]] = []

    class Notes:
        by_reference = 0

        def __init__(self, *_: Any) -> None: ...

        def encode(self, texts: Sequence[str], first: Any, early: Any) -> Flat:
            told.extend(zip(texts, first.tolist(), early.tolist(), strict=True))
            data = [text.encode() for text in texts]
            return Flat(np.frombuffer(b"".join(data), np.uint8).astype(np.uint32), np.cumsum([0, *map(len, data)]))

    monkeypatch.setattr(module, "IdsAgain", Notes)
    texts = [
        Text("0", "whole", np.array([*b"whole"]), early=True),
        Text("1", "in two", np.array([*b"in two"]), ("in", " two"), early=True),
        Text("2", "late", np.array([*b"late"])),
        Text("3", "in two", np.array([*b"in two"]), ("in ", "two")),
    ]
    vocabulary: Any = Bytes()
    assert prove_texts(texts, vocabulary, batch=3).passed
    assert told == [
        ("whole", True, True),
        ("in", False, True),
        (" two", False, True),
        ("late", True, False),
        ("in ", False, False),
        ("two", False, False),
    ]
