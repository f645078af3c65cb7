"""The shipped tokenizer, and rows of ids as lists."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from prep_assets.text.ids import Flat
from prep_assets.text.vocabulary import Vocabulary
from prep_assets_tests.tokenization.loaded import CONFIGS, load

SHIPPED = load(CONFIGS / "tokenizer").vocabulary


def normalizing(vocabulary: Vocabulary) -> Vocabulary:
    """The same tokenizer, composing characters as every Qwen does."""
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer.from_str(vocabulary.backend.to_str())
    backend.normalizer = normalizers.NFC()
    return Vocabulary("composing", backend, vocabulary.special, None)


def rows(flat: Flat) -> list[list[int]]:
    assert flat.ids.dtype == np.uint32 and flat.offsets.dtype == np.int64
    return [flat.ids[start:end].tolist() for start, end in pairwise(flat.offsets.tolist())]
