"""Mutations of plain token rows, documents and prompts (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.document_masks import MaskedDocument
from prep_assets.proofs.mutations import ATTENTION_CHANGES, Mutation

Ids = npt.NDArray[Any]


Change = Callable[[Sequence[Ids], int, int, int], list[Ids] | None]
"""All rows, the number of one, the end-of-text id, the size of the vocabulary → the rows with that one corrupted."""


def _with(rows: Sequence[Ids], at: int, ids: Ids) -> list[Ids]:
    return [*rows[:at], ids, *rows[at + 1 :]]


def _put(place: int, value: Callable[[int, int, int], int]) -> Change:
    def change(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
        if len(rows[at]) <= abs(place) + 1:
            return None
        ids = rows[at].astype(np.int64)
        ids[place] = value(int(ids[place]), eos, size)
        return _with(rows, at, ids)

    return change


def _swapped(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    places = np.flatnonzero(np.diff(rows[at][:-1]))
    if not len(places):
        return None
    ids, place = rows[at].copy(), int(places[0])
    ids[[place, place + 1]] = ids[[place + 1, place]]
    return _with(rows, at, ids)


def _of_the_next(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    other = rows[(at + 1) % len(rows)]
    return None if np.array_equal(other, rows[at]) else _with(rows, at, other)


def _random(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids]:
    return _with(rows, at, np.random.default_rng(0).integers(0, size, len(rows[at])))


def _shorter(rows: Sequence[Ids], at: int, eos: int, size: int) -> list[Ids] | None:
    return _with(rows, at, np.delete(rows[at], len(rows[at]) // 2)) if len(rows[at]) > 2 else None


def _other(token: int, eos: int, size: int) -> int:
    return next(number for number in ((token + step) % size for step in range(1, size)) if number != eos)


def _other_mask(change: Callable[[Ids], Ids]) -> Callable[[Sequence[MaskedDocument], int], list[MaskedDocument] | None]:
    """The document with another mask, alone."""

    def changed(documents: Sequence[MaskedDocument], at: int) -> list[MaskedDocument] | None:
        mask = documents[at].mask
        other = change(mask).astype(mask.dtype)
        return None if np.array_equal(other, mask) else [replace(documents[at], mask=other)]

    return changed


def _half(mask: Ids) -> Ids:
    """Fractions need floats; in a mask of whole numbers nothing changes."""
    return mask * 0.5 if mask.dtype.kind == "f" else mask


IDENTITY, ROWS, MASK = "tokenization_identity", "row_integrity", "mask_alignment"
MASK_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a document's mask lost", MASK, _other_mask(np.ones_like)),
    Mutation("nothing of a document trained", MASK, _other_mask(np.zeros_like)),
    Mutation("a document's mask turned round", MASK, _other_mask(lambda mask: mask == 0)),
    Mutation("the end of a document weighed otherwise", MASK, _other_mask(lambda mask: np.append(mask[:-1], mask[-1] == 0))),
    Mutation("a document's weights halved", MASK, _other_mask(_half)),
)
"""Corruptions of the masks of documents. A border moved by one token is not among them: the token may hold white space only."""
ATTENTION_MASK_MUTATIONS = tuple(
    Mutation(name, MASK, _other_mask(change)) for name, change in ATTENTION_CHANGES.items() if "shifted" not in name
)
"""Those that only documents with tokens that are not attended can have."""

PROMPT_TOKEN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("random tokens", IDENTITY, _random),
    Mutation("a token replaced", IDENTITY, _put(1, _other)),
    Mutation("two tokens swapped", IDENTITY, _swapped),
    Mutation("a token lost", IDENTITY, _shorter),
    Mutation("tokens of the next row", IDENTITY, _of_the_next),
    Mutation("an id outside the vocabulary", ROWS, _put(1, lambda token, eos, size: size)),
    Mutation("a negative id", ROWS, _put(1, lambda token, eos, size: -100)),
)
"""Corruptions of tokenized prompts."""

UNENDED_MUTATIONS: tuple[Mutation, ...] = (
    *PROMPT_TOKEN_MUTATIONS,
    Mutation("an end-of-text token in the middle", ROWS, _put(1, lambda token, eos, size: eos)),
)
"""Corruptions of documents that nothing ends."""

DOCUMENT_MUTATIONS: tuple[Mutation, ...] = (
    *UNENDED_MUTATIONS,
    Mutation("no end-of-text token", ROWS, _put(-1, _other)),
)
"""Corruptions of documents, each ended by the end-of-text token."""
