"""Lines of a JSONL store by the rows that they come from, and by number, without all of them in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from prep_assets.assets.checks.stored_rows import Rows
from prep_assets.disk.arrays import Spool
from prep_assets.disk.columns import at, order
from prep_assets.proofs.ledger import find, places
from prep_assets.stores.lines import Lines, row_of


class LinesOfRows:
    """Which line of a file of one domain each row of its sources is; of two lines of one row the first."""

    def __init__(self, lines: Lines) -> None:
        own = lines.of(0)
        place = at(lines.places, own)
        ordered = order(place)
        self._place, self._line = at(place, ordered), at(own, ordered)
        self._missed = np.ones(len(own), bool)

    def __len__(self) -> int:
        return len(self._line)

    def of(self, rows: Rows) -> list[tuple[int, int]]:
        """The line of each row that is one, with the place of the row among these."""
        found, there = find(self._place, places(rows.file, rows.rows))
        self._missed[found[there]] = False
        return list(zip(self._line[found[there]].tolist(), np.flatnonzero(there).tolist(), strict=True))

    def missed(self) -> list[int]:
        """The lines that were no row's so far."""
        found: list[int] = self._line[self._missed].tolist()
        return found


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
