"""Arrays on disk, columns that are worked on a stretch at a time, and reading ahead."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Full, Queue
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.errors import StoreError
from prep_assets.stores.files import mapped, named, went_through
from prep_assets.stores.verification import WrittenFile

# Arrays of numbers on disk: ``.npy`` files that are written whole or grow, and columns that wait on disk for what is made of them.


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """A new ``.npy`` file, as ``numpy.save`` writes it, without a second copy in memory."""
    values = np.ascontiguousarray(values)
    with WrittenFile(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write_array(values)


class Columns:
    """``.npy`` files of one dimension in a folder that grow together. NumPy leaves room in their headers for a longer shape, so these are written again at
    the end.

    Args:
        dtypes: of each column, by name.
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
        """Write them, and return where each ends."""
        for name, file in self._files.items():
            file.seek(0)
            about = {"descr": self._dtypes[name].str, "fortran_order": False, "shape": (self._count,)}
            np.lib.format.write_array_header_1_0(file, about)
        return [file.tell() for file in self._files.values()]

    def append(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Further elements of each column."""
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
"""Bytes of a growing column that wait in memory until they are written."""


class Spool:
    """A column that grows: its last elements in memory, what came before in a file that has no name and is gone with the process.

    What comes back from disk is compared with what was written.

    Args:
        dtype: of its elements; of several fields for a table.
        folder: where the file lies; the system's folder for temporary files where nothing is said.
    """

    def __init__(self, dtype: npt.DTypeLike, folder: Path | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._file: Any = None
        self._recent, self._written, self._hash = bytearray(), 0, xxhash.xxh3_64()

    def __len__(self) -> int:
        return (self._written + len(self._recent)) // self._dtype.itemsize

    def append(self, values: npt.ArrayLike) -> None:
        """Further elements."""
        self._recent += np.ascontiguousarray(values, self._dtype).reshape(-1).view(np.uint8).data
        if len(self._recent) >= RECENT:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 it is closed with the spool
        self._hash.update(self._recent)
        left = memoryview(self._recent)
        try:
            while left:
                left = left[os.pwrite(self._file.fileno(), left, self._written + len(self._recent) - len(left)) :]
        except OSError as error:
            raise named(error, self._folder or Path(tempfile.gettempdir())) from error
        self._written += len(self._recent)
        self._recent = bytearray()

    def array(self) -> npt.NDArray[Any]:
        """All elements, mapped where they are on disk: pages that the system takes back when it needs them.

        Raises:
            StoreError: the disk gives back something else than was written.
        """
        if self._file is None:
            return np.frombuffer(self._recent, self._dtype)
        if self._recent:
            self._write()
        found = mapped(np.memmap(self._file, np.uint8, "r+", shape=(self._written,)))
        hashed = xxhash.xxh3_64()
        for at in range(0, self._written, RECENT):
            hashed.update(found[at : at + RECENT].data)
            went_through(RECENT)
        if hashed.digest() != self._hash.digest():
            raise StoreError(
                "a temporary file does not hold what was written to it. Look for faults of the disk or the memory, then build again"
            )
        return found.view(self._dtype)


def numbers(column: npt.NDArray[Any], some: int = 1 << 14) -> Iterator[int]:
    """The elements of a long column, a few at a time as Python's numbers, each of which takes four times an element."""
    return (number for first in range(0, len(column), some) for number in column[first : first + some].tolist())


# Long columns of numbers that are worked on a stretch at a time: in memory while they are short, else mapped from a file without a name.
#
# The system takes mapped pages back when it needs them, so that work on a hundred million records takes the memory of one stretch.

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


# Reading ahead: the next items are made in a thread of their own while the last ones are worked on.
#
# It pays where one side of it releases Python's global lock, as tokenizers, numpy and files do. Order stays, so results do not depend on it.

T = TypeVar("T")

_LOOK_UP = 0.05
"""Seconds after which a thread whose queue is full looks whether anybody still wants its items."""
_PATIENCE = 1.0
"""Seconds that an end before the last item waits for the thread, which may be deep inside a tokenizer; it then ends by itself, unheard."""


def ahead(source: Iterable[T], *, depth: int = 1) -> Generator[T, None, None]:
    """The items of `source`, in order, made in another thread at most `depth` + 1 items ahead.

    What `source` raises is raised here, after the items before it. Close the generator (``contextlib.closing``) to end the thread early: it
    stops at its next item, and `source` is closed.
    """
    ready: Queue[tuple[T] | BaseException | None] = Queue(depth)
    unwanted = threading.Event()
    thread = threading.Thread(target=_make, args=(source, ready, unwanted), name="reads ahead", daemon=True)
    thread.start()
    try:
        while (made := ready.get()) is not None:
            if isinstance(made, BaseException):
                raise made
            yield made[0]
    finally:
        unwanted.set()
        thread.join(_PATIENCE)


def _make(source: Iterable[T], ready: Queue[tuple[T] | BaseException | None], unwanted: threading.Event) -> None:
    end: BaseException | None = None
    try:
        for item in source:
            if not _put(ready, (item,), unwanted):
                break
    except BaseException as error:  # it is raised again where the items are used
        end = error
    try:
        if isinstance(source, Generator):
            source.close()
    except BaseException as error:
        end = end or error
    _put(ready, end, unwanted)


def _put(ready: Queue[tuple[T] | BaseException | None], item: tuple[T] | BaseException | None, unwanted: threading.Event) -> bool:
    """Queue an item; false where it is no longer wanted."""
    while not unwanted.is_set():
        try:
            ready.put(item, timeout=_LOOK_UP)
            return True
        except Full:
            continue
    return False
