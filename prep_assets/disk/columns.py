"""Long columns of numbers that are worked on a stretch at a time: in memory while they are short, else mapped from a file without a name.

The system takes mapped pages back when it needs them, so that work on a hundred million records takes the memory of one stretch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.faults import named
from prep_assets.disk.pages import mapped, went_through

Ints = npt.NDArray[np.int64]
IN_MEMORY = 1 << 20
"""Bytes of the largest column that is no file."""
STRETCH = 1 << 13
"""Elements that are worked on at a time."""
DIGIT = 12
"""Bits by which a column is ordered in one pass."""


def stretches(count: int, size: int | None = None) -> Iterator[slice]:
    """All of `count` elements, `size` (`STRETCH`) at a time."""
    step = size or STRETCH
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))
        went_through(8 * step)


def zeros(count: int, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A column of zeros.

    Raises:
        OSError: the disk of temporary files has no room for it.
    """
    kind = np.dtype(dtype)
    if count * kind.itemsize <= IN_MEMORY:
        return np.zeros(count, kind)
    with tempfile.TemporaryFile() as file:
        try:
            os.posix_fallocate(file.fileno(), 0, count * kind.itemsize)  # a page that has no room when it is written ends the process
        except OSError as error:
            raise named(error, Path(tempfile.gettempdir())) from error
        return mapped(np.memmap(file, kind, "r+", shape=(count,)))


def made(count: int, values: Callable[[slice], npt.ArrayLike], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A column of `count` elements; `values` gives those of each stretch, in order."""
    column = zeros(count, dtype)
    for part in stretches(count):
        column[part] = values(part)
    return column


def at(column: npt.NDArray[Any], index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
    """The elements of a column at some places."""
    return made(len(index), lambda part: column[index[part]], column.dtype)


def where(holds: npt.NDArray[np.bool_], column: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """The elements at which something holds; their places, where no column is given."""
    found = zeros(int(np.count_nonzero(holds)), np.int64 if column is None else column.dtype)
    filled = 0
    for part in stretches(len(holds)):
        places = np.flatnonzero(holds[part]) + part.start
        found[filled : filled + len(places)] = places if column is None else column[places]
        filled += len(places)
    return found


def joined(columns: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Columns end to end."""
    whole, filled = zeros(sum(map(len, columns)), dtype), 0
    for column in columns:
        for part in stretches(len(column)):
            whole[filled + part.start : filled + part.stop] = column[part]
        filled += len(column)
    return whole


def before(column: npt.NDArray[Any], part: slice, first: int) -> npt.NDArray[Any]:
    """The element before each of a stretch; `first` stands before the whole column."""
    return np.concatenate([column[part.start - 1 : part.start] if part.start else [first], column[part.start : part.stop - 1]])


def equals(column: npt.NDArray[Any], value: int) -> npt.NDArray[np.bool_]:
    """Of each element, whether it has a value."""
    return made(len(column), lambda part: column[part] == value, bool)


def repeats(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Of each element, whether it equals the one before it."""
    found = made(len(column), lambda part: column[part] == before(column, part, 0), bool)
    found[:1] = False
    return found


def sums(column: npt.NDArray[Any]) -> Ints:
    """Of each element, the sum of all up to it."""
    total = 0

    def up_to(part: slice) -> Ints:
        nonlocal total
        running = np.cumsum(column[part], dtype=np.int64) + total
        total = int(running[-1])
        return running

    return made(len(column), up_to)


def sizes(ends: npt.NDArray[np.integer[Any]]) -> Ints:
    """How many elements each of several runs has, given where each ends."""
    return made(len(ends), lambda part: ends[part] - before(ends, part, 0))


def batches(ends: npt.NDArray[np.integer[Any]], size: int) -> Iterator[slice]:
    """Successive runs, given where each ends: as many at a time as have `size` elements together, at least one."""
    first = start = 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, start + size, "right")))
        yield slice(first, stop)
        first, start = stop, int(ends[stop - 1])


def order(keys: npt.NDArray[np.integer[Any]]) -> Ints:
    """The places of a column's elements from the least to the greatest, equal ones in their order, as ``argsort(kind="stable")``.

    By digits, the last first: each pass puts a stretch at a time where counting says that it belongs.

    Args:
        keys: none below 0.
    """
    if 8 * len(keys) <= IN_MEMORY:
        return np.argsort(keys, kind="stable")
    ordered = made(len(keys), lambda part: np.arange(part.start, part.stop))
    most = max(int(keys[part].max()) for part in stretches(len(keys)))
    for shift in range(0, most.bit_length(), DIGIT):
        ordered = _by_digit(keys, ordered, shift)
    return ordered


def together(keys: npt.NDArray[np.integer[Any]]) -> Iterator[Ints]:
    """The places of a column's elements in `order`, a stretch or so at a time, equal ones never apart."""
    ordered, first = order(keys), 0
    while first < len(keys):
        stop = min(first + STRETCH, len(keys))
        while stop < len(keys) and keys[ordered[stop]] == keys[ordered[stop - 1]]:
            stop += 1
        yield ordered[first:stop]
        first = stop


def _by_digit(keys: npt.NDArray[np.integer[Any]], ordered: Ints, shift: int) -> Ints:
    def digit(part: slice) -> npt.NDArray[np.uint16]:
        return ((keys[ordered[part]] >> keys.dtype.type(shift)) & keys.dtype.type((1 << DIGIT) - 1)).astype(np.uint16)

    counts = np.zeros(1 << DIGIT, np.int64)
    for part in stretches(len(keys)):
        counts += np.bincount(digit(part), minlength=len(counts))
    if counts.max() == len(keys):
        return ordered
    begins, moved = np.cumsum(counts) - counts, zeros(len(keys))
    for part in stretches(len(keys)):
        digits = digit(part)
        by_value = np.argsort(digits, kind="stable")
        here = np.bincount(digits, minlength=len(counts))
        within = np.arange(len(digits)) - np.repeat(np.cumsum(here) - here, here)
        moved[np.repeat(begins, here) + within] = ordered[part][by_value]
        begins += here
    return moved


def in_arrow(numbers: npt.NDArray[np.integer[Any]]) -> Any:
    """Whole numbers as pyarrow takes them. By itself it loads masked arrays to look at an array, for 10 ms."""
    import pyarrow as pa

    whole = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole)])
