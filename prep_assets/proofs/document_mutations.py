"""Mutations of plain token rows, documents and prompts (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.mutations import ATTENTION_CHANGES

Ids = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TokenMutation:
    """One way to corrupt rows of tokens.

    Attributes:
        name: what was done.
        caught_by: the check that must fail.
        change: all rows, the number of one, the end-of-text id, the size of the vocabulary → that row's new ids, or `None`.
    """

    name: str
    caught_by: str
    change: Callable[[Sequence[Ids], int, int, int], Ids | None]


def _put(place: int, value: Callable[[int, int, int], int]) -> Callable[[Sequence[Ids], int, int, int], Ids | None]:
    def change(rows: Sequence[Ids], at: int, eos: int, size: int) -> Ids | None:
        if len(rows[at]) <= abs(place) + 1:
            return None
        ids = rows[at].astype(np.int64)
        ids[place] = value(int(ids[place]), eos, size)
        return ids

    return change


def _swapped(rows: Sequence[Ids], at: int, eos: int, size: int) -> Ids | None:
    places = np.flatnonzero(np.diff(rows[at][:-1]))
    if not len(places):
        return None
    ids, place = rows[at].copy(), int(places[0])
    ids[[place, place + 1]] = ids[[place + 1, place]]
    return ids


def _of_the_next(rows: Sequence[Ids], at: int, eos: int, size: int) -> Ids | None:
    other = rows[(at + 1) % len(rows)]
    return None if np.array_equal(other, rows[at]) else other


def _random(rows: Sequence[Ids], at: int, eos: int, size: int) -> Ids | None:
    return np.random.default_rng(0).integers(0, size, len(rows[at]))


def _shorter(rows: Sequence[Ids], at: int, eos: int, size: int) -> Ids | None:
    return np.delete(rows[at], len(rows[at]) // 2) if len(rows[at]) > 2 else None


def _other(token: int, eos: int, size: int) -> int:
    return next(number for number in ((token + step) % size for step in range(1, size)) if number != eos)


@dataclass(frozen=True, slots=True)
class MaskMutation:
    """One way to corrupt the loss mask of a document, which ``mask_alignment`` must catch: the mask → another, or `None`."""

    name: str
    change: Callable[[Ids], Ids | None]


def _other_mask(change: Callable[[Ids], Ids]) -> Callable[[Ids], Ids | None]:
    def changed(mask: Ids) -> Ids | None:
        other = change(mask).astype(mask.dtype)
        return None if np.array_equal(other, mask) else other

    return changed


def _half(mask: Ids) -> Ids:
    """Fractions need floats; in a mask of whole numbers nothing changes."""
    return mask * 0.5 if mask.dtype.kind == "f" else mask


MASK_MUTATIONS: tuple[MaskMutation, ...] = (
    MaskMutation("a document's mask lost", _other_mask(np.ones_like)),
    MaskMutation("nothing of a document trained", _other_mask(np.zeros_like)),
    MaskMutation("a document's mask turned round", _other_mask(lambda mask: mask == 0)),
    MaskMutation("the end of a document weighed otherwise", _other_mask(lambda mask: np.append(mask[:-1], mask[-1] == 0))),
    MaskMutation("a document's weights halved", _other_mask(_half)),
)
"""Corruptions of the masks of documents. A border moved by one token is not among them: the token may hold white space only."""
ATTENTION_MASK_MUTATIONS = tuple(
    MaskMutation(name, _other_mask(change)) for name, change in ATTENTION_CHANGES.items() if "shifted" not in name
)
"""Those that only documents with tokens that are not attended can have."""

IDENTITY, ROWS = "tokenization_identity", "row_integrity"

PROMPT_TOKEN_MUTATIONS: tuple[TokenMutation, ...] = (
    TokenMutation("random tokens", IDENTITY, _random),
    TokenMutation("a token replaced", IDENTITY, _put(1, _other)),
    TokenMutation("two tokens swapped", IDENTITY, _swapped),
    TokenMutation("a token lost", IDENTITY, _shorter),
    TokenMutation("tokens of the next row", IDENTITY, _of_the_next),
    TokenMutation("an id outside the vocabulary", ROWS, _put(1, lambda token, eos, size: size)),
    TokenMutation("a negative id", ROWS, _put(1, lambda token, eos, size: -100)),
)
"""Corruptions of tokenized prompts."""

UNENDED_MUTATIONS: tuple[TokenMutation, ...] = (
    *PROMPT_TOKEN_MUTATIONS,
    TokenMutation("an end-of-text token in the middle", ROWS, _put(1, lambda token, eos, size: eos)),
)
"""Corruptions of documents that nothing ends."""

DOCUMENT_MUTATIONS: tuple[TokenMutation, ...] = (
    *UNENDED_MUTATIONS,
    TokenMutation("no end-of-text token", ROWS, _put(-1, _other)),
)
"""Corruptions of documents, each ended by the end-of-text token."""
