"""AstrAI's shards: flat arrays by key, written as raw files or as HDF5 and read as one. `read_bin` and `read_h5` open them."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.h5 import FixedH5
from prep_assets.disk.written import WrittenFile, write_text
from prep_assets.stores.guards import bare, compared

Borders = Mapping[str, Mapping[str, list[int]]]
"""``offsets`` of records, and ``element_offsets`` of the elements of lists in them, by key; both begin with 0."""


class BinShard(AbstractContextManager["BinShard"]):
    """``<folder>/<key>.bin`` of raw little-endian elements, and ``meta.json``, which is written last.

    ``{"<key>": {"shape": [n], "dtype": "int32"}, …}``; where records have borders, each entry has them as well. Also a context manager: an
    exception leaves no ``meta.json``.
    """

    def __init__(self, folder: Path, dtypes: Mapping[str, npt.DTypeLike]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._dtypes = {key: np.dtype(dtype).newbyteorder("<") for key, dtype in dtypes.items()}
        self._files = {key: WrittenFile(folder / f"{key}.bin") for key in dtypes}
        self.sizes = dict.fromkeys(dtypes, 0)
        self.borders: Borders = {}

    def append(self, key: str, values: npt.NDArray[Any]) -> None:
        """Write further elements of a key, whatever their shape."""
        self._files[key].write_array(np.asarray(values, self._dtypes[key]))
        self.sizes[key] += values.size

    def close(self) -> None:
        """Finish the files."""
        self._close()
        meta = {key: {"shape": [self.sizes[key]], "dtype": dtype.name, **self.borders.get(key, {})} for key, dtype in self._dtypes.items()}
        write_text(self._folder / "meta.json", json.dumps(meta))

    def _close(self) -> None:
        for file in self._files.values():
            file.close()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._close()


def write_h5_shard(
    path: Path,
    dtypes: Mapping[str, npt.DTypeLike],
    sizes: Mapping[str, int],
    blocks: Callable[[str], Iterable[npt.NDArray[Any]]],
    borders: Borders,
) -> None:
    """``/<key>/data_0``, contiguous and uncompressed.

    Borders go into ``<name>.offsets.json`` beside it, because readers take everything inside a key's group for data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FixedH5(path, {f"{key}/data_0": ((sizes[key],), dtype) for key, dtype in dtypes.items()}, in_turn=True) as file:
        for key in dtypes:
            at = 0
            for block in blocks(key):
                file.write(f"{key}/data_0", at, block)
                at += len(block)
    if borders:
        write_text(path.with_name(f"{path.stem}.offsets.json"), json.dumps(borders))


class Segmented:
    """Several arrays read as one, without copying them together: by slices in steps of 1, tables also by row number.

    Attributes:
        parts: the arrays.
        dtype: of what is read.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        flat = (part for array in arrays for part in (array.parts if isinstance(array, Segmented) else [array]))
        # slices of a memmap as a plain array are several times cheaper
        self.parts: list[npt.NDArray[Any]] = [np.asarray(array) if isinstance(array, np.memmap) else array for array in flat]
        self._bounds = [0, *accumulate(map(len, self.parts))]
        self.dtype = self.parts[0].dtype

    def __len__(self) -> int:
        return self._bounds[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return len(self), *self.parts[0].shape[1:]

    def bare(self) -> Segmented:
        """The same without guards."""
        return Segmented([bare(array) for array in self.parts])

    def compared(self) -> Segmented:
        """The same without guards, after everything was compared."""
        return Segmented([compared(array) for array in self.parts])

    def __getitem__(self, part: int | slice) -> npt.NDArray[Any]:
        if not isinstance(part, slice):
            at = range(len(self))[part]
            return self[at : at + 1][0]  # type: ignore[no-any-return]
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise IndexError("a segmented array is read in steps of 1")
        if start >= stop:
            return np.zeros((0, *getattr(self.parts[0], "shape", (0,))[1:]), self.dtype)
        first = bisect_right(self._bounds, start) - 1
        low = self._bounds[first]
        if stop <= self._bounds[first + 1]:
            return self.parts[first][start - low : stop - low]
        last = bisect_right(self._bounds, stop - 1) - 1
        within = zip(self.parts[first : last + 1], self._bounds[first : last + 1], strict=True)
        return np.concatenate([array[max(0, start - low) : stop - low] for array, low in within])


@dataclass(frozen=True, slots=True)
class Window:
    """Some elements of an array, read at need."""

    array: Any
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        start, stop, _ = part.indices(len(self))
        return np.asarray(self.array[self.begin + start : self.begin + stop])
