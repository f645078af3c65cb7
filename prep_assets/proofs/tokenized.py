"""Pretokenized rows: what their records must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from prep_assets.errors import CheckFailed
from prep_assets.proofs.derive import Derived, Expected
from prep_assets.proofs.formats import definition_of, resolved, rule_named
from prep_assets.proofs.mask import Left, Truncation, ids_of
from prep_assets.samples import Sample
from prep_assets.stores.lists import lists_of
from prep_assets.text.vocabulary import Vocabulary

BROKEN = "\ufffd"
"""What a part of a character decodes to."""
NO_TURNS = Derived("", (), (), 0, ())


def tokenized_again(schema: str, row: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[list[int], list[float]] | None:
    """Return ids and weights of a row, read by the rule that its definition names in ``x-tokens``; `None` where it names none. Where lists stand beside ids,
    and neither labels nor masks, they say which tokens are trained."""
    found, lists = resolved(schema, options), lists_of(schema)
    if found is None or (name := definition_of(found[0]).get("x-tokens")) is None:
        return None
    read: tuple[list[int], list[float]] = rule_named(name)(row, found[1], None if lists is None else lambda: lists.trains(row, options))
    return read


def left_of_tokenized(sample: Sample, truncation: Truncation, derive: Callable[[Sample], Derived], vocabulary: Vocabulary) -> Left:
    """Return what truncation must leave of a pretokenized row.

    Args:
        sample: with `tokenized` from a second reading, and the turns of the row, if any.

    Raises:
        CheckFailed: the ids are not those of the text or the messages of the row.
    """
    assert sample.tokenized is not None
    tokenized = sample.tokenized
    ids, weights = np.fromiter(tokenized.ids, np.int64), np.fromiter(tokenized.weights, np.float32)
    if sample.turns and not np.array_equal(ids, expected := ids_of(derive(sample), vocabulary)):
        raise CheckFailed(f"the messages of the row have {len(expected)} ids, which differ from the {len(ids)} that it brings")
    if tokenized.text is not None and not any(np.array_equal(ids, reading) for reading in _readings(tokenized.text, vocabulary)):
        raise CheckFailed(f"the text of the row has other ids than the {len(ids)} that it brings")
    if splits_character(ids, weights, vocabulary):
        raise CheckFailed("a trained stretch of the row begins or ends amid a character")
    whole = len(ids)
    if truncation.limit is not None:
        window = slice(-truncation.limit, None) if truncation.mode == "start" else slice(truncation.limit)
        ids, weights = ids[window], weights[window]
    return Left(NO_TURNS, _stretches(ids, weights, vocabulary), ids, "none", weights, whole - len(ids))


def splits_character(ids: Any, weights: Any, vocabulary: Vocabulary) -> bool:
    """Return whether trained stretches, decoded alone, have more broken characters than the row has."""
    runs = [[at for at, _ in run] for trained, run in groupby(enumerate(weights), key=lambda pair: bool(pair[1])) if trained]
    broken = sum(vocabulary.decode(ids[run]).count(BROKEN) for run in runs)
    return broken > vocabulary.decode(ids).count(BROKEN)


def _readings(text: str, vocabulary: Vocabulary) -> list[list[int]]:
    """Return the ids of a text with its control tokens: without and with the special tokens that the tokenizer adds."""
    vocabulary.encoder.encode_special_tokens = False
    return [vocabulary.encoder.encode(text, add_special_tokens=special).ids for special in (False, True)]


def _stretches(ids: Any, weights: Any, vocabulary: Vocabulary) -> tuple[Expected, ...]:
    stretches = []
    for weight, places in groupby(range(len(ids)), key=lambda at: float(weights[at])):
        run = list(places)
        if weight:
            stretches.append(Expected(vocabulary.decode(ids[run]), weight))
    return tuple(stretches)
