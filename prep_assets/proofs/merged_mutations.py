"""Mutations of merged stores: what goes wrong where stores are put together, done on purpose to copies (see `mutations`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.proofs.merged import Shelf
from prep_assets.proofs.mutations import Mutation


@dataclass(frozen=True, slots=True)
class Records:
    """A stream in memory: its arrays by key, where each record ends, and the file and row of each."""

    arrays: Mapping[str, npt.NDArray[Any]]
    ends: npt.NDArray[np.int64]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]


NAME = "merged"


def _lines(shelf: Shelf, order: Sequence[int]) -> Shelf:
    lines = list(shelf.lines)
    return Shelf(shelf.origin[list(order)], [lines[at] for at in order])


def _line_lost(shelf: Shelf, at: int) -> Shelf:
    return _lines(shelf, [each for each in range(len(shelf.origin)) if each != at])


def _line_twice(shelf: Shelf, at: int) -> Shelf:
    return _lines(shelf, [*range(len(shelf.origin)), at])


def _lines_exchanged(shelf: Shelf, at: int) -> Shelf | None:
    """With the index they had, so that only their content tells."""
    lines, other = list(shelf.lines), (at + 1) % len(shelf.origin)
    return None if lines[at] == lines[other] else replace(_lines(shelf, _exchanged(len(lines), at, other)), origin=shelf.origin)


def _order_exchanged(shelf: Shelf, at: int) -> Shelf | None:
    count = len(shelf.origin)
    return None if count < 2 else _lines(shelf, _exchanged(count, at, (at + 1) % count))


def _exchanged(count: int, one: int, other: int) -> list[int]:
    order = list(range(count))
    order[one], order[other] = other, one
    return order


def _line_altered(shelf: Shelf, at: int) -> Shelf:
    lines = list(shelf.lines)
    lines[at] = lines[at].replace(b"}", b" }", 1)
    return Shelf(shelf.origin, lines)


def _another_domain(shelf: Shelf, at: int) -> Shelf:
    origin = shelf.origin.copy()
    origin[at, 0] += 1
    return replace(shelf, origin=origin)


LINE_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a line lost", NAME, _line_lost),
    Mutation("a line twice", NAME, _line_twice),
    Mutation("two lines exchanged", NAME, _lines_exchanged),
    Mutation("another order", NAME, _order_exchanged),
    Mutation("a space more in a line", NAME, _line_altered),
    Mutation("a line of another domain", NAME, _another_domain),
)
"""Corruptions of merged lines."""


def _records(found: Records, order: list[int]) -> Records:
    starts = np.concatenate([[0], found.ends[:-1]])
    spans = [slice(int(starts[at]), int(found.ends[at])) for at in order]
    arrays = {key: np.concatenate([array[:0], *(array[span] for span in spans)]) for key, array in found.arrays.items()}
    return Records(arrays, np.cumsum((found.ends - starts)[order]), found.file[order], found.row[order])


def _record_lost(found: Records, at: int) -> Records:
    return _records(found, [each for each in range(len(found.ends)) if each != at])


def _record_twice(found: Records, at: int) -> Records:
    return _records(found, [*range(len(found.ends)), at])


def _records_exchanged(found: Records, at: int) -> Records | None:
    """With the rows they had, so that only their content tells."""
    count = len(found.ends)
    changed = replace(_records(found, _exchanged(count, at, (at + 1) % count)), file=found.file, row=found.row)
    return None if all(np.array_equal(array, found.arrays[key]) for key, array in changed.arrays.items()) else changed


def _row_moved(found: Records, at: int) -> Records:
    row = found.row.copy()
    row[at] += 1
    return replace(found, row=row)


def _value(key: str) -> Callable[[Records, int], Records | None]:
    """The last value of a record is another."""

    def change(found: Records, at: int) -> Records | None:
        if key not in found.arrays:
            return None
        array = found.arrays[key].copy()
        array[found.ends[at] - 1] = not array[found.ends[at] - 1] if key == "loss_mask" else array[found.ends[at] - 1] + 1
        return replace(found, arrays={**found.arrays, key: array})

    return change


def _border_moved(found: Records, at: int) -> Records | None:
    if at + 1 == len(found.ends):
        return None
    ends = found.ends.copy()
    ends[at] -= 1
    return replace(found, ends=ends)


RECORD_MUTATIONS: tuple[Mutation, ...] = (
    Mutation("a record lost", NAME, _record_lost),
    Mutation("a record twice", NAME, _record_twice),
    Mutation("two records exchanged", NAME, _records_exchanged),
    Mutation("a record of another line", NAME, _row_moved),
    Mutation("another token", NAME, _value("tokens")),
    Mutation("a loss mask turned round", NAME, _value("loss_mask")),
    Mutation("another reward", NAME, _value("rewards")),
    Mutation("another log-probability", NAME, _value("logprobs")),
    Mutation("a border moved", NAME, _border_moved),
)
"""Corruptions of merged records."""
