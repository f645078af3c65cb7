"""Mutations: what goes wrong in training data, done on purpose to a copy, to see that the check made for it notices.

Each mutation names the check that must catch it. It changes one record (or two) of a copy of the user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.mask import Row
from prep_assets.stores.tokens import signed, unsigned
from prep_assets.tokenization.vocabulary import Vocabulary

Change = Callable[[Sequence[Row], int, Vocabulary], list[Row] | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to corrupt a store.

    Attributes:
        name: what was done.
        caught_by: the check that must fail.
        change: what is corrupted (rows, lines, a table), the number of the one in it to corrupt, and what else the table of mutations says → the corrupted
            copy, or `None` where that one does not lend itself to it.
    """

    name: str
    caught_by: str
    change: Callable[..., Any]


def _with(rows: Sequence[Row], at: int, *, ids: npt.NDArray[Any] | None = None, mask: npt.NDArray[Any] | None = None) -> list[Row]:
    changed = list(rows)
    row = rows[at]
    changed[at] = replace(row, ids=row.ids if ids is None else ids, mask=row.mask if mask is None else mask)
    return changed


def _first_run(mask: npt.NDArray[np.generic]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(mask != 0, prepend=False, append=False))
    return int(edges[0]), int(edges[1])


def _shift(by: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        mask = np.roll(rows[at].mask, by)
        mask[0 if by > 0 else -1] = 0
        return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)

    return change


def _header(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    mask = rows[at].mask.copy()
    mask[max(0, start - 3) : start] = 1
    return _with(rows, at, mask=mask) if start else None


def _no_eos(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    _, end = _first_run(rows[at].mask)
    if int(rows[at].ids[end - 1]) not in vocabulary.control.values():
        return None
    mask = rows[at].mask.copy()
    mask[end - 1] = 0
    return _with(rows, at, mask=mask)


def _filled(value: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        mask = np.full_like(rows[at].mask, value)
        return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)

    return change


def _swapped(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    other = (at + 1) % len(rows)
    mine, theirs = rows[at], rows[other]
    if np.array_equal(mine.mask, theirs.mask):
        return None
    changed = list(rows)
    changed[at] = replace(mine, mask=np.resize(theirs.mask, len(mine.mask)))
    changed[other] = replace(theirs, mask=np.resize(mine.mask, len(theirs.mask)))
    return changed


def _user_trained(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    mask = rows[at].mask.copy()
    mask[start // 4 : start // 2] = 1
    return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)


def _zero_filled(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    """A mask that was left out for a record and later filled up with zeros: what follows is right, this record is not."""
    mask = rows[at].mask.copy()
    mask[len(mask) // 2 :] = 0
    return None if np.array_equal(mask, rows[at].mask) else _with(rows, at, mask=mask)


def _replaced(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    ids = rows[at].ids.copy()
    ids[start] = next(token for token in range(vocabulary.size) if token != ids[start] and token not in vocabulary.control.values())
    return _with(rows, at, ids=ids)


def _prompt_replaced(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    start, _ = _first_run(rows[at].mask)
    if start < 2:
        return None
    ids = rows[at].ids.copy()
    ids[start // 2] = next(
        token for token in range(vocabulary.size) if token != ids[start // 2] and token not in vocabulary.control.values()
    )
    return _with(rows, at, ids=ids)


def _doubled_bos(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    control = next((token for token in rows[at].ids.tolist() if token in vocabulary.control.values()), None)
    if control is None:
        return None
    return _with(
        rows, at, ids=np.concatenate([[control], rows[at].ids]).astype(rows[at].ids.dtype), mask=np.concatenate([[0], rows[at].mask])
    )


def _tail_cut(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
    _, end = _first_run(rows[at].mask)
    keep = max(1, end - 2)
    return _with(rows, at, ids=rows[at].ids[:keep], mask=rows[at].mask[:keep])


def _longest_placeholder(row: Row, vocabulary: Vocabulary) -> int | None:
    """Where the longest run of one untrained control token stands, of two or more: most likely an image."""
    control = set(vocabulary.control.values())
    found, longest, start = None, 1, 0
    for (token, is_trained), run in groupby(zip(row.ids.tolist(), (row.mask != 0).tolist(), strict=True)):
        count = len(list(run))
        if count > longest and token in control and not is_trained:
            found, longest = start, count
        start += count
    return found


def _placeholder(by: int) -> Change:
    def change(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        start = _longest_placeholder(rows[at], vocabulary)
        if start is None:
            return None
        count = np.ones(len(rows[at].ids), np.int64)
        count[start] += by
        return _with(rows, at, ids=np.repeat(rows[at].ids, count), mask=np.repeat(rows[at].mask, count))

    return change


def _attention(
    change: Callable[[npt.NDArray[np.bool_], npt.NDArray[Any]], npt.NDArray[np.bool_]],
) -> Callable[[npt.NDArray[Any]], npt.NDArray[Any]]:
    """What of the weights of a row another attention makes; `change`: whether each token is attended, and its loss weight → attended."""

    def changed(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        loss, attended = unsigned(weights)
        return signed(loss, change(attended, loss))

    return changed


ATTENTION_CHANGES: Mapping[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "attention lost": _attention(lambda attended, loss: np.ones_like(attended)),
    "attention turned round": _attention(lambda attended, loss: ~attended),
    "attention shifted by +1": _attention(lambda attended, loss: np.append(True, attended[:-1])),
    "attention shifted by -1": _attention(lambda attended, loss: np.append(attended[1:], True)),
    "trained tokens not attended": _attention(lambda attended, loss: attended & (loss == 0)),
}
"""Corruptions of an attention mask: what was done → weights, as `TokenStore.weights` has them, → those of the corrupted row."""


def _unattended(change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Change:
    def changed(rows: Sequence[Row], at: int, vocabulary: Vocabulary) -> list[Row] | None:
        return _with(rows, at, mask=change(rows[at].mask)) if (rows[at].mask < 0).any() else None

    return changed


ATTENTION_MUTATIONS = (
    *(Mutation(name, "mask_alignment", _unattended(change)) for name, change in ATTENTION_CHANGES.items()),
    Mutation("a trained token not attended", "row_integrity", _unattended(ATTENTION_CHANGES["trained tokens not attended"])),
)
"""Those that only rows with tokens that are not attended can have."""
IMAGE_MUTATIONS = (
    Mutation("an image has a token too many", "tokenization_identity", _placeholder(1)),
    Mutation("an image has a token too few", "tokenization_identity", _placeholder(-1)),
)
"""Those of them that only rows with images can have."""
MUTATIONS: tuple[Mutation, ...] = (
    Mutation("mask shifted by +1", "mask_alignment", _shift(1)),
    Mutation("mask shifted by -1", "mask_alignment", _shift(-1)),
    Mutation("role header trained", "mask_alignment", _header),
    Mutation("stop token not trained", "mask_alignment", _no_eos),
    Mutation("mask all ones", "mask_alignment", _filled(1)),
    Mutation("mask all zeros", "row_integrity", _filled(0)),
    Mutation("masks of two records swapped", "mask_alignment", _swapped),
    Mutation("a user turn trained", "mask_alignment", _user_trained),
    Mutation("missing mask filled with zeros", "mask_alignment", _zero_filled),
    Mutation("a trained token replaced", "mask_alignment", _replaced),
    Mutation("a token of the prompt replaced", "tokenization_identity", _prompt_replaced),
    Mutation("first control token doubled", "tokenization_identity", _doubled_bos),
    Mutation("tail of a record cut off", "mask_alignment", _tail_cut),
    *IMAGE_MUTATIONS,
)
"""Corruptions of token stores, each with the check that must catch it."""
