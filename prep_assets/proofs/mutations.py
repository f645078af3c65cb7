"""What a mutation is: a corruption that a check must catch. Ours are in `prep_assets.extensions.selftest.mutations`.

Each names the check that must catch it, and changes one or two records in a copy of the user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

Change = Callable[..., Any]
"""What is corrupted (rows, lines, a table), the index of the row to corrupt, and further arguments of the kind of store → the corrupted copy, or
`None` where that row is not suitable."""


class Mutation(Struct, frozen=True):
    """One way to corrupt a store.

    Attributes:
        name: what was done.
        caught_by: the check that must fail.
        change: the function that corrupts.
    """

    name: str
    caught_by: str
    change: Change


T = TypeVar("T")


def mutate_one(change: Callable[..., Any]) -> Change:
    """Return all rows with one mutated; `change`: row and further arguments → mutated row."""

    def changed(rows: Sequence[T], at: int, *extra: Any) -> list[T] | None:
        mutated = change(rows[at], *extra)
        return None if mutated is None else [*rows[:at], mutated, *rows[at + 1 :]]

    return changed


def mutate_alone(change: Callable[[Any], Any]) -> Change:
    """Return the mutated row alone."""

    def changed(rows: Sequence[T], at: int) -> list[T] | None:
        mutated = change(rows[at])
        return None if mutated is None else [mutated]

    return changed


def mutate_field(name: str, change: Callable[..., Any], *of: str) -> Callable[..., Any]:
    """Mutate a field of a row that has it, where that changes it; `change`: its value, and those of the fields `of` → its new value."""

    def changed(row: Any, *extra: Any) -> Any:
        stored = getattr(row, name)
        if stored is None or (value := change(stored, *(getattr(row, each) for each in of))) is None:
            return None
        if isinstance(stored, np.ndarray):
            value = value.astype(stored.dtype)
            return None if np.array_equal(value, stored) else replace(row, **{name: value})
        return None if value == stored and type(value) is type(stored) else replace(row, **{name: value})

    return changed
