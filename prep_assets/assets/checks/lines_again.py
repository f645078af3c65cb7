"""Lines of a JSONL store, asked for in the order of the sources that they come from, without all of them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.disk.arrays import Spool, numbers
from prep_assets.disk.columns import at, order
from prep_assets.stores.lines import Lines, row_of


class Wanted:
    """Numbers by ascending places, each asked for once.

    Attributes:
        missed: the numbers of places that were not asked for, so far.
    """

    def __init__(self, places: npt.NDArray[np.int64], of: npt.NDArray[np.int64] | None = None) -> None:
        """`of`: the number of each place; its position by default."""
        ordered = order(places)
        self._pairs = zip(numbers(at(places, ordered)), numbers(ordered if of is None else at(of, ordered)), strict=True)
        self._next = next(self._pairs, None)
        self.missed: list[int] = []

    def take(self, place: int) -> int | None:
        """The number of a place; `None` where there is none. Places are asked for in ascending order."""
        while self._next is not None and self._next[0] < place:
            self._pass()
        if self._next is None or self._next[0] != place:
            return None
        found = self._next[1]
        self._next = next(self._pairs, None)
        return found

    def rest(self) -> Iterator[int]:
        """The numbers that were not asked for, once all places were."""
        while self._next is not None:
            self._pass()
        return iter(self.missed)

    def _pass(self) -> None:
        assert self._next is not None
        self.missed.append(self._next[1])
        self._next = next(self._pairs, None)


class LineByNumber:
    """Lines of a file by number, read from disk when they are asked for."""

    def __init__(self, lines: Lines) -> None:
        starts, begin = Spool(np.int64), 0
        with lines.guards.open(lines.path) as file:
            for some in iter(lambda: file.readlines(1 << 16), []):
                ends = begin + np.cumsum([len(line) for line in some])
                starts.append(np.concatenate([[begin], ends[:-1]]))
                begin = int(ends[-1])
        starts.append([begin])
        self._starts, self._file = starts.array(), lines.guards.open(lines.path)

    def __call__(self, number: int) -> Mapping[str, Any]:
        """The object on a line."""
        [found] = self.some([number])
        return found

    def some(self, numbers: Sequence[int]) -> list[Mapping[str, Any]]:
        """The objects on some lines."""
        return list(map(row_of, self.written(numbers)))

    def written(self, numbers: Sequence[int]) -> list[bytes]:
        """Some lines as they are written, each with its line break; those that stand one after the other are read together."""
        found: list[bytes] = []
        at = np.asarray(numbers, np.int64)
        for run in np.split(at, np.flatnonzero(np.diff(at) != 1) + 1) if numbers else ():
            bounds = self._starts[run[0] : run[-1] + 2]
            self._file.seek(int(bounds[0]))
            data = self._file.read(int(bounds[-1] - bounds[0]))
            found += [data[begin:end] for begin, end in pairwise((bounds - bounds[0]).tolist())]
        return found
