"""What a mutation is: a corruption that a check must catch. Ours are in `prep_assets.extensions.selftest.mutations`.

Each names the check that must catch it, and changes one or two records in a copy of the user's own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from prep_assets.proofs.rows import Line

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


# Of lines.

LOST = object()
"""In the place of a value that is taken away."""


def with_fields(line: Line, **changes: Any) -> Line | None:
    """Return the line with other field values; `None` where nothing changes."""
    stored = {key: value for key, value in {**line.stored, **changes}.items() if value is not LOST}
    same = stored == line.stored and [*map(type, stored.values())] == [*map(type, line.stored.values())]
    return None if same else replace(line, stored=stored)


def field(name: str, value: Callable[[Any], Any]) -> Change:
    """Mutate one field of a line that has it."""
    return mutate_one(lambda line: with_fields(line, **{name: value(line.stored[name])}) if name in line.stored else None)


def of_next_line(name: str) -> Change:
    """Give every line a field of the next one."""

    def changed(lines: Sequence[Line], at: int) -> list[Line] | None:
        values = [line.stored.get(name) for line in lines]
        if len({str(value) for value in values}) < 2:
            return None
        shifted = zip(lines, [*values[1:], values[0]], strict=True)
        return [line if value is None else replace(line, stored={**line.stored, name: value}) for line, value in shifted]

    return changed


def mutate_last_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Apply `change` to a text, to the last message, or to the last part of its content. A message without text, such as a lone tool call, stays."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        key = next((key for key in ("text", "content") if value[-1].get(key)), None)
        return value if key is None else [*value[:-1], {**value[-1], key: changed(value[-1][key])}]

    return changed


half_as_long = mutate_last_text(lambda text: text[: len(text) // 2] or text + text)
longer = mutate_last_text(lambda text: text + " Hurry.")


def blank(value: Any) -> Any:
    """A text, or messages, with white space alone and no call."""
    return " " if isinstance(value, str) else [{"role": value[-1]["role"], "content": " "}]


row_lost = mutate_one(lambda line: replace(line, made=None))
"""The row of a line no longer gives a line."""
