"""Arrays on disk, long columns processed in stretches, and prefetching."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Full, Queue
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.stores.files import mapped, note_mapped_bytes, with_path
from prep_assets.stores.verification import WrittenFile

# Arrays on disk: ``.npy`` files, written whole or grown, and columns spooled to disk.


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write a ``.npy`` file as ``numpy.save`` does, without a second copy in memory."""
    values = np.ascontiguousarray(values)
    with WrittenFile(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write_array(values)


class Columns:
    """One-dimensional ``.npy`` files of equal length in a folder, appended to in step. NumPy leaves room in a header for a longer shape, so the headers
    are rewritten at the end.

    Args:
        dtypes: dtype of each column, by name.
    """

    def __init__(self, folder: Path, dtypes: Mapping[str, npt.DTypeLike]) -> None:
        folder.mkdir(exist_ok=True)
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self._files = {name: WrittenFile(folder / f"{name}.npy") for name in dtypes}
        self._count = 0
        self._begin = self._write_headers()

    def __len__(self) -> int:
        return self._count

    def _write_headers(self) -> list[int]:
        """Write the headers, and return the offset at which each ends."""
        for name, file in self._files.items():
            file.seek(0)
            header = {"descr": self._dtypes[name].str, "fortran_order": False, "shape": (self._count,)}
            np.lib.format.write_array_header_1_0(file, header)
        return [file.tell() for file in self._files.values()]

    def append(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Append equally many elements to every column."""
        for name, file in self._files.items():
            added = np.asarray(values[name], self._dtypes[name])
            file.write_array(added)
        self._count += len(added)

    def close(self) -> None:
        """Finish the files."""
        if self._write_headers() != self._begin:
            raise StoreError(
                f"{next(iter(self._files.values())).path}: the header of {self._count:,} entries has another size than that of none"
            )
        for file in self._files.values():
            file.close()

    def discard(self) -> None:
        """Remove the files."""
        for file in self._files.values():
            file.abandon()
            file.path.unlink(missing_ok=True)


RECENT = 1 << 17
"""Bytes of a growing column that are buffered in memory before they are written."""


class Spool:
    """A growing column: the last elements are in memory, the rest in an unnamed file that disappears with the process.

    What is read back is checked against the hash of what was written.

    Args:
        dtype: of an element; a structured dtype for a table.
        folder: of the file; the system's folder for temporary files by default.
    """

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None = None) -> None:
        self.dtype, self._folder = np.dtype(dtype), folder
        self._file: Any = None
        self._recent, self._written, self._hash = bytearray(), 0, xxhash.xxh3_64()

    def __len__(self) -> int:
        return (self._written + len(self._recent)) // self.dtype.itemsize

    def append(self, values: npt.ArrayLike) -> None:
        """Append elements."""
        self._recent += np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data
        if len(self._recent) >= RECENT:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 it is closed with the spool
        self._hash.update(self._recent)
        unwritten = memoryview(self._recent)
        try:
            while unwritten:
                unwritten = unwritten[os.pwrite(self._file.fileno(), unwritten, self._written + len(self._recent) - len(unwritten)) :]
        except OSError as error:
            raise with_path(error, self._folder or Path(tempfile.gettempdir())) from error
        self._written += len(self._recent)
        self._recent = bytearray()

    def array(self) -> npt.NDArray[Any]:
        """Return all elements; those on disk are memory-mapped, so the system can reclaim their pages.

        Raises:
            StoreError: the disk does not return what was written.
        """
        if self._file is None:
            return np.frombuffer(self._recent, self.dtype)
        if self._recent:
            self._write()
        stored = mapped(np.memmap(self._file, np.uint8, "r+", shape=(self._written,)))
        digest = xxhash.xxh3_64()
        for start in range(0, self._written, RECENT):
            digest.update(stored[start : start + RECENT].data)
            note_mapped_bytes(RECENT)
        if digest.digest() != self._hash.digest():
            raise StoreError(
                "a temporary file does not hold what was written to it. Look for faults of the disk or the memory, then build again"
            )
        return stored.view(self.dtype)


def numbers(column: npt.NDArray[Any], size: int = 1 << 14) -> Iterator[int]:
    """Yield the elements of a long column as Python integers, `size` at a time, because an integer takes four times the memory of an element."""
    return (number for first in range(0, len(column), size) for number in column[first : first + size].tolist())


# Long columns, processed in stretches: in memory while they are short, otherwise mapped from an unnamed file.
#
# The system reclaims mapped pages when it needs them, so work on a hundred million records takes the memory of one stretch.

IN_MEMORY = 1 << 20
"""Bytes of the largest column that is kept in memory."""
STRETCH = 1 << 13
"""Elements processed at a time."""
DIGIT = 12
"""Bits per pass of the radix sort."""


def stretches(count: int, size: int | None = None) -> Iterator[slice]:
    """Yield slices that cover `count` elements, `size` (default `STRETCH`) at a time."""
    step = size or STRETCH
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))
        note_mapped_bytes(8 * step)


def zeros(count: int, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Return a column of zeros.

    Raises:
        OSError: the disk of temporary files has no room for it.
    """
    element_type = np.dtype(dtype)
    if count * element_type.itemsize <= IN_MEMORY:
        return np.zeros(count, element_type)
    with tempfile.TemporaryFile() as file:
        try:
            # a page that has no room when it is written ends the process
            os.posix_fallocate(file.fileno(), 0, count * element_type.itemsize)
        except OSError as error:
            raise with_path(error, Path(tempfile.gettempdir())) from error
        return mapped(np.memmap(file, element_type, "r+", shape=(count,)))


def fill_column(count: int, values: Callable[[slice], npt.ArrayLike], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Return a column of `count` elements, filled stretch by stretch, in order, with what `values` returns."""
    column = zeros(count, dtype)
    for part in stretches(count):
        column[part] = values(part)
    return column


def take(column: npt.NDArray[Any], index: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
    """Return ``column[index]``."""
    return fill_column(len(index), lambda part: column[index[part]], column.dtype)


def compress(condition: npt.NDArray[np.bool_], column: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Return the elements of `column` at which `condition` is true; without a column, their indices."""
    selected = zeros(int(np.count_nonzero(condition)), np.int64 if column is None else column.dtype)
    filled = 0
    for part in stretches(len(condition)):
        places = np.flatnonzero(condition[part]) + part.start
        selected[filled : filled + len(places)] = places if column is None else column[places]
        filled += len(places)
    return selected


def concatenate(columns: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Concatenate columns."""
    column, filled = zeros(sum(map(len, columns)), dtype), 0
    for part in columns:
        for stretch in stretches(len(part)):
            column[filled + stretch.start : filled + stretch.stop] = part[stretch]
        filled += len(part)
    return column


def rounded_up(lengths: Ints, multiple: int) -> Ints:
    """Return int64, the lengths rounded up to multiples of a number."""
    if multiple == 1:
        return lengths
    return fill_column(len(lengths), lambda part: -(-lengths[part] // multiple) * multiple)


def spread(lengths: Ints, rooms: Ints) -> Ints:
    """Return int64[T], the place of each token where arrays of these lengths, end to end, are laid out with a room for each."""
    places: Ints = np.arange(int(lengths.sum())) + np.repeat(np.cumsum(rooms - lengths) - (rooms - lengths), lengths)
    return places


def predecessors(column: npt.NDArray[Any], part: slice, first: int) -> npt.NDArray[Any]:
    """Return the predecessor of each element of a stretch; `first` is that of the column's first element."""
    if part.start == part.stop:
        return column[:0]
    return np.concatenate([column[part.start - 1 : part.start] if part.start else [first], column[part.start : part.stop - 1]])


def equals(column: npt.NDArray[Any], value: int) -> npt.NDArray[np.bool_]:
    """Return, for each element, whether it equals `value`."""
    return fill_column(len(column), lambda part: column[part] == value, bool)


def equals_previous(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return, for each element, whether it equals its predecessor."""
    same = fill_column(len(column), lambda part: column[part] == predecessors(column, part, 0), bool)
    same[:1] = False
    return same


def cumulative_sums(column: npt.NDArray[Any]) -> Ints:
    """Return the cumulative sum."""
    total = 0

    def running_sums(part: slice) -> Ints:
        nonlocal total
        running = np.cumsum(column[part], dtype=np.int64) + total
        total = int(running[-1])
        return running

    return fill_column(len(column), running_sums)


def sizes(ends: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return the lengths of consecutive runs, given their ends."""
    return fill_column(len(ends), lambda part: ends[part] - predecessors(ends, part, 0))


def batches(ends: npt.NDArray[np.integer[Any]], size: int) -> Iterator[slice]:
    """Yield slices of consecutive runs, given their ends: at most `size` elements at a time, but at least one run."""
    first = start = 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, start + size, "right")))
        yield slice(first, stop)
        first, start = stop, int(ends[stop - 1])


def in_batches(items: Iterable[T], size_of: Callable[[T], int], most: int, count: int = sys.maxsize) -> Iterator[list[T]]:
    """Yield consecutive items in lists of at most `count`; a list ends once it has the size `most`, and an item that is larger is a list of its own."""
    batch, size = list[T](), 0
    for item in items:
        item_size = size_of(item)
        if batch and item_size > most:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item_size
        if size >= most or len(batch) == count:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def argsort(keys: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return the indices that sort a column, as ``argsort(kind="stable")`` does.

    A least-significant-digit radix sort: each pass is a counting sort, a stretch at a time.

    Args:
        keys: not negative.
    """
    if 8 * len(keys) <= IN_MEMORY:
        return np.argsort(keys, kind="stable")
    ordered = fill_column(len(keys), lambda part: np.arange(part.start, part.stop))
    most = max(int(keys[part].max()) for part in stretches(len(keys)))
    for shift in range(0, most.bit_length(), DIGIT):
        ordered = _sort_by_digit(keys, ordered, shift)
    return ordered


def sorted_groups(keys: npt.NDArray[np.integer[Any]]) -> Iterator[Ints]:
    """Yield the indices that sort a column, about a stretch at a time; equal keys are never in two of them."""
    ordered, first = argsort(keys), 0
    while first < len(keys):
        stop = min(first + STRETCH, len(keys))
        while stop < len(keys) and keys[ordered[stop]] == keys[ordered[stop - 1]]:
            stop += 1
        yield ordered[first:stop]
        first = stop


def _sort_by_digit(keys: npt.NDArray[np.integer[Any]], ordered: Ints, shift: int) -> Ints:
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
        digit_counts = np.bincount(digits, minlength=len(counts))
        within = np.arange(len(digits)) - np.repeat(np.cumsum(digit_counts) - digit_counts, digit_counts)
        moved[np.repeat(begins, digit_counts) + within] = ordered[part][by_value]
        begins += digit_counts
    return moved


def in_arrow(numbers: npt.NDArray[np.integer[Any]]) -> Any:
    """Return integers as a pyarrow array. pyarrow's own conversion imports ``numpy.ma``, which takes 10 ms."""
    import pyarrow as pa

    contiguous = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(contiguous.dtype), len(contiguous), [None, pa.py_buffer(contiguous)])


# Prefetching: a thread makes the next items while the caller works on the last ones.
#
# It pays where either side releases the GIL, as tokenizers, NumPy and files do. Order is kept, so results do not depend on it.

T = TypeVar("T")

_POLL = 0.05
"""Seconds between two checks of a thread whose queue is full whether its items are still wanted."""
_JOIN_TIMEOUT = 1.0
"""Seconds to wait for the thread when it is stopped early. It may be inside a tokenizer; it then ends later by itself, and what it raises is lost."""


def prefetch(source: Iterable[T], *, depth: int = 1) -> Generator[T, None, None]:
    """Yield the items of `source`, in order, produced in another thread at most `depth` + 1 items ahead.

    What `source` raises is raised by the generator, after the items before it. Close the generator (``contextlib.closing``) to stop the thread
    early: it stops at its next item, and `source` is closed.
    """
    queue: Queue[tuple[T] | BaseException | None] = Queue(depth)
    unwanted = threading.Event()
    thread = threading.Thread(target=_produce, args=(source, queue, unwanted), name="reads ahead", daemon=True)
    thread.start()
    try:
        while (entry := queue.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]
    finally:
        unwanted.set()
        thread.join(_JOIN_TIMEOUT)


def _produce(source: Iterable[T], queue: Queue[tuple[T] | BaseException | None], unwanted: threading.Event) -> None:
    end: BaseException | None = None
    try:
        for item in source:
            if not _enqueue(queue, (item,), unwanted):
                break
    except BaseException as error:  # raised again in the consumer's thread
        end = error
    try:
        if isinstance(source, Generator):
            source.close()
    except BaseException as error:
        end = end or error
    _enqueue(queue, end, unwanted)


def _enqueue(queue: Queue[tuple[T] | BaseException | None], entry: tuple[T] | BaseException | None, unwanted: threading.Event) -> bool:
    """Put an entry into the queue; return false if it is no longer wanted."""
    while not unwanted.is_set():
        try:
            queue.put(entry, timeout=_POLL)
            return True
        except Full:
            continue
    return False
