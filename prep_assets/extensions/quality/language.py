"""The languages of texts, by the model of py3langid, for many texts at a time."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.errors import ConfigError
from prep_assets.extensions.quality.compiled import compiled
from prep_assets.samples import changed

LONGEST = 2000
"""Characters of an example that are looked at, from its start."""
_BETWEEN = b"\xff"
"""No byte of UTF-8, after which the automaton is in its first state."""
_LANES = 32
"""Texts that are read side by side, as each step waits for memory."""


class Identifier(Struct, frozen=True, eq=False):
    """py3langid's naive Bayes over n-grams of bytes, which an automaton finds.

    Attributes:
        library: its identifier, which knows the language (`nb_classes`) and the prior of each class; two classes may have one language.
        moves: uint32[r * 256], row and byte → the next state.
        rows: uint32[s], state → where its row begins in `moves`.
        features: int32[s], state → the feature that is found there, f for none.
        weights: float32[f, c], of each feature for each class.
    """

    library: Any
    moves: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint32]
    features: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]

    def classify(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """The language of each text and its probability, as py3langid's `classify` gives them with `norm_probs`, to the bit."""
        encoded = [*map(self.library._encode, texts)]
        lengths = np.array([*map(len, encoded)], np.int64)
        stream = np.frombuffer(_BETWEEN.join([*encoded, b""]), np.uint8)
        feature, counts, until = _features(stream, np.cumsum(lengths + 1), self.moves, self.rows, self.features, len(self.weights))
        counted = np.log1p(counts)
        scores = np.zeros((len(texts), len(self.library.nb_classes)), np.float32)
        for number, (begin, end) in enumerate(pairwise([0, *until.tolist()])):
            # one by one and in this order, as floating-point sums depend on it
            np.matmul(counted[begin:end], self.weights.take(feature[begin:end], axis=0), out=scores[number])
        scores[np.diff(until, prepend=0) > 0] += self.library.nb_pc
        scores *= (1.0 / np.sqrt(np.maximum(lengths, 1))).astype(np.float32)[:, None]
        np.exp(scores - scores.max(axis=1, keepdims=True), out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        for first, same in self.library._alias_pairs:
            scores[:, first] += scores[:, same]
            scores[:, same] = 0
        best = scores.argmax(axis=1)
        return [(self.library.nb_classes[label], score) for label, score in zip(best.tolist(), scores.max(axis=1).tolist(), strict=True)]


@compiled
def _features(
    stream: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    moves: npt.NDArray[np.uint32],
    rows: npt.NDArray[np.uint32],
    features: npt.NDArray[np.int32],
    classes: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The features of texts in the order in which each is found there first: which, int64[k]; how often, float32[k]; and how many the texts up to each one
    have, int64[n].

    Args:
        stream: the bytes of texts, each with a byte after it at which the automaton begins anew.
        ends: where each text ends, with that byte.
        classes: number of features.
    """
    begins, lengths = np.zeros(_LANES, np.int64), np.zeros(_LANES, np.int64)  # of lanes, which are whole texts and read side by side
    lane, longest = 0, 0
    for end in ends:
        lengths[lane] = end - begins[lane]
        longest = max(longest, lengths[lane])
        if lengths[lane] >= len(stream) // _LANES and lane < _LANES - 1:
            lane += 1
            begins[lane] = end
    states, state = np.zeros(len(stream), np.uint32), np.zeros(_LANES, np.uint32)
    for at in range(longest):
        for lane in range(_LANES):
            if at < lengths[lane]:
                place = begins[lane] + at
                state[lane] = states[place] = moves[rows[state[lane]] + stream[place]]
    seen, until = np.zeros(classes + 1, np.float32), np.zeros(len(ends), np.int64)
    found, counts = np.empty(len(stream) + 1, np.int64), np.empty(len(stream), np.float32)
    begin, count, seen[classes] = 0, 0, 1  # no feature is never a new one, without a branch, which a processor would guess wrong
    for text in range(len(ends)):
        first = count
        for at in range(begin, ends[text]):
            feature = features[states[at]]
            found[count] = feature
            count += seen[feature] == 0
            seen[feature] += np.float32(1)
        for number in range(first, count):
            counts[number], seen[found[number]] = seen[found[number]], 0
        begin, until[text] = ends[text], count
    return found[:count], counts[:count], until


@bounded_cache("model of languages", 1)
def _model() -> Identifier:
    """The library's model, which takes half a second to load, of all languages."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    library: Any = LanguageIdentifier.from_model_file(MODEL_FILE)
    moves, features = np.array(library.tk_nextmove, np.uint32), np.array(library.tk_output, np.int32)
    if moves[_BETWEEN[0] :: 256].any() or features[0] >= 0:
        raise ConfigError("quality step 'language': this version of py3langid has a model of another kind. Install py3langid 0.4")
    rows = (np.array(library.tk_row, np.int64) << 8).astype(np.uint32)
    features[features < 0] = len(library.nb_ptc)
    return Identifier(library, moves, rows, features, np.ascontiguousarray(library.nb_ptc, np.float32))


@bounded_cache("identifiers of languages", 4)
def identifier(among: tuple[str, ...] | None) -> Identifier:
    """The model of some languages, or of all."""
    model, library = _model(), copy(_model().library)
    if unknown := sorted({*(among or ())} - {*library.nb_classes}):
        raise ConfigError(
            f"quality step 'language': {', '.join(unknown)} is no language that py3langid knows: {', '.join(library.nb_classes)}"
        )
    library.set_languages(among)
    return changed(model, library=library, weights=np.ascontiguousarray(library.nb_ptc, np.float32))
