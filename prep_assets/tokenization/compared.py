"""An engine whose ids are compared with another reading of the same tokenizer on a sample of everything that it encodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prep_assets.errors import ConfigError
from prep_assets.tokenization.agreement import REMEDY
from prep_assets.tokenization.engines import Engines, choose_engine
from prep_assets.tokenization.flat import Engine, Flat
from prep_assets.tokenization.vocabulary import Vocabulary

SAMPLE, LONGEST = 8, 20_000
"""Texts of each batch, spread over it, and the characters of each that are compared."""


class ComparedEngine:
    """`engine`, and `other` on a sample of each batch.

    Raises:
        ConfigError: from `encode`, where the two differ.
    """

    def __init__(self, engine: Engine, other: Engine, tokenizer: str) -> None:
        self.name, self._engine, self._other, self._tokenizer = engine.name, engine, other, tokenizer

    def encode(self, texts: Sequence[str]) -> Flat:
        some = [texts[at][:LONGEST] for at in np.unique(np.linspace(0, len(texts) - 1, SAMPLE).astype(int))] if texts else []
        for text in some:
            found, expected = self._engine.encode([text]).ids, self._other.encode([text]).ids
            if not np.array_equal(found, expected):
                at = int(np.argmax(found[: len(expected)] != expected[: len(found)])) if len(found) and len(expected) else 0
                raise ConfigError(
                    f"tokenizer {self._tokenizer!r}: tokenizer.json and transformers give other ids to a text of this data, {text[:80]!r}…: "
                    f"{len(found):,} and {len(expected):,} ids, which part at id number {at}. {REMEDY}"
                )
        return self._engine.encode(texts)


def compared(engines: Engines, vocabulary: Vocabulary, other: Vocabulary) -> Engines:
    """`engines`, which stop where `other` reads a text of the data otherwise."""
    against = choose_engine(other.with_control(vocabulary.written), reference_only=True)
    first = ComparedEngine(engines.first, against.first, vocabulary.name)
    rest = first if engines.rest is engines.first else ComparedEngine(engines.rest, against.rest, vocabulary.name)
    return replace(engines, first=first, rest=rest, verdict=f"{engines.verdict}; compared with transformers on a sample of the data")
