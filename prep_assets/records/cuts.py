"""Where a source file can be cut, so that several processes read it: at rows, about a fixed number of bytes apart, the same for every reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from prep_assets.records.files import Part, SourceFile
from prep_assets.records.remote import is_remote
from prep_assets.records.stream import stream_of
from prep_assets.records.tables import stretches

SHARD_BYTES = 4 << 20
"""Bytes between two cuts, about: decompressed ones of lines, those of the columns of a table. Cuts are pinned with a source, so that another
number makes raw stores stale."""
LINES = ("jsonl", "txt")
"""Formats with one row a line."""
TABLES = ("parquet", "arrow")
_MOST_OF_ONE = 16
"""Most pieces of one row group or batch, because each piece is read from the beginning of the group."""
_CHUNK = 1 << 20
MOST_SHARDS = 4096
"""Into how many shards a domain is cut at most, unless more are asked for: joining costs some milliseconds for each."""
Cut = tuple[int, int]
"""Where a part begins and the number of its first row. It begins at a decompressed byte of a file of lines, at a row of a table."""


def shard_size(whole: int, count: int | Literal["auto"]) -> int:
    """Bytes of text that a shard should have: what is large is not cut at every place where it could be."""
    return max(SHARD_BYTES, -(-whole // (MOST_SHARDS if count == "auto" else count)))


def parts(cuts: Sequence[Cut]) -> Iterator[Part]:
    """The stretches between cuts, from the beginning of a file to its end."""
    for (start, row), (stop, _) in pairwise([(0, 0), *cuts, (-1, 0)]):
        yield Part(start, None if stop < 0 else stop, row)


@dataclass(slots=True)
class LineCuts:
    """Finds the cuts of a file of lines while its bytes go by: the first line that begins at or after each multiple of `size`.

    Attributes:
        size: bytes between two cuts, about.
        found: the cuts so far.
        seen: bytes so far.
    """

    size: int = SHARD_BYTES
    found: list[Cut] = field(default_factory=list)
    seen: int = 0
    _rows: int = 0

    def __call__(self, data: bytes) -> None:
        """Take the next bytes, however many."""
        counted = 0
        while (newline := data.find(b"\n", max(counted, self._next - 1 - self.seen))) >= 0:
            start = newline + 1
            self._rows += data.count(b"\n", counted, start)
            self.found.append((self.seen + start, self._rows))
            counted = start
        self._rows += data.count(b"\n", counted)
        self.seen += len(data)

    @property
    def cuts(self) -> list[Cut]:
        """The cuts of a file that has ended. Where its last line ends there is nothing to cut off."""
        return [cut for cut in self.found if cut[0] < self.seen]

    @property
    def _next(self) -> int:
        """The line that begins at this byte, or the first one after it, is the next cut."""
        return (self.found[-1][0] // self.size + 1) * self.size if self.found else self.size


def line_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a file of lines, which is read through."""
    lines = LineCuts(size)
    with stream_of(file, watch=lines) as stream:
        while stream.read(_CHUNK):
            pass
    return lines.cuts


def table_cuts(file: SourceFile, size: int = SHARD_BYTES) -> list[Cut]:
    """The cuts of a sound Parquet or Arrow file. One that must be copied to be read at any place has none."""
    if file.compression is not None or is_remote(file.url):
        return []
    cuts: list[Cut] = []
    row = done = 0
    for rows, count in stretches(file):
        pieces = max(1, min(_MOST_OF_ONE, count // size, rows))
        for piece in range(pieces):
            if done >= size:
                first = row + rows * piece // pieces
                cuts.append((first, first))
                done = 0
            done += count // pieces
        row += rows
    return cuts
