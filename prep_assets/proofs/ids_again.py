"""The ids of documents once more: a sample by the reference library, all others by the fast engine, where the reference has admitted one.

The fast engine finds what a store may have lost or mixed up: its ids are compared with those of every document. That the engine itself is right is for
the reference: every code point was encoded by both when it was admitted, and of each store the reference encodes the first documents, and of the others
those that the hash of their text picks: a part of a store has the same ones as the whole. What is no text for the fast engine goes to the reference in
any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.proofs.ids_together import interleaved
from prep_assets.proofs.reference_ids import reference_ids
from prep_assets.tokenization.engines import Engines
from prep_assets.tokenization.flat import Engine, Flat
from prep_assets.tokenization.vocabulary import Vocabulary

FIRST = 1 << 15
"""Tokens at the beginning of a stream whose documents the reference encodes."""
ONE_OF = 256
"""Of so many documents after them, one is encoded by the reference."""


class IdsAgain:
    """Tokenizes documents for a comparison.

    Attributes:
        by_reference: how many texts the reference has encoded so far.
    """

    def __init__(self, vocabulary: Vocabulary, engines: Engines | None) -> None:
        self.by_reference = 0
        self._vocabulary = vocabulary
        self._engines = None if engines is None or engines.first is engines.reference else engines

    def encode(self, texts: Sequence[str], first: npt.NDArray[np.bool_], early: npt.NDArray[np.bool_]) -> Flat:
        """Ids of each text, in order.

        Args:
            first: bool[n], which of them begin a document. The others follow a control token.
            early: bool[n], which are of documents that stand among the first `FIRST` tokens of their stream.
        """
        engines = self._engines
        if engines is None:
            self.by_reference += len(texts)
            return reference_ids(self._vocabulary).encode(texts, first)
        sample = early | np.fromiter((xxhash.xxh3_64_intdigest(text.encode()) % ONE_OF == 0 for text in texts), bool, len(texts))
        self.by_reference += int(sample.sum())
        whole = _either(engines.reference, engines.first, _of(texts, first), sample[first])
        if first.all():
            return whole
        return interleaved(whole, _either(engines.rest_reference, engines.rest, _of(texts, ~first), sample[~first]), first)


def _either(reference: Engine, fast: Engine, texts: Sequence[str], sample: npt.NDArray[np.bool_]) -> Flat:
    """Ids of each text: of the sample by the reference. Few batches have any of it."""
    if not sample.any():
        return fast.encode(texts)
    return interleaved(reference.encode(_of(texts, sample)), fast.encode(_of(texts, ~sample)), sample)


def _of(texts: Sequence[str], chosen: npt.NDArray[np.bool_]) -> list[str]:
    return list(compress(texts, chosen))
