"""What a teacher holds for likely at the tokens of a stream, for distillation.

A stream with a teacher has a folder ``<name>.teacher/``. Tokens have any number of entries, which stand end to end, those of one token from the likeliest
on:

    count.npy uint32      the number of entries of each token; 0 where the teacher says nothing of it
    end.npy int64         the end of the entries of each record
    id.npy uint32         of each entry, the token that the teacher holds for likely at this place
    logprob.npy float16   and its log-probability there

A log-probability is off by at most 1/2048 of itself (2^-25 near 0), which moves no probability by more than 0.0002: the largest of x·exp(-x) is 1/e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns
from prep_assets.stores.guards import Guards, load_array

COLUMNS = ({"count": np.uint32}, {"end": np.int64}, {"id": np.uint32, "logprob": np.float16})
"""By what they have an element for: tokens, records, entries."""


class TeacherBlock(Struct, frozen=True):
    """Entries of a batch of records: `counts` int64[T] of its tokens, `sizes` int64[n] of its records, `ids` int64[E] and `logprobs` float64[E]."""

    counts: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    ids: npt.NDArray[Any]
    logprobs: npt.NDArray[Any]

    @classmethod
    def joined(cls, blocks: Sequence[TeacherBlock]) -> TeacherBlock:
        """Several batches as one."""
        empty = np.zeros(0, np.int64)
        names = ("counts", "sizes", "ids", "logprobs")
        return cls(*(np.concatenate([empty, *(getattr(block, name) for block in blocks)]) for name in names))

    def only(self, records: npt.NDArray[np.bool_], lengths: npt.NDArray[np.int64]) -> TeacherBlock:
        """The chosen records: bool[n]; `lengths` are those of all in tokens."""
        entries = np.repeat(records, self.sizes)
        return TeacherBlock(self.counts[np.repeat(records, lengths)], self.sizes[records], self.ids[entries], self.logprobs[entries])


class TeacherWriter:
    """Writes the entries of a stream; writes nothing if there are none."""

    def __init__(self, directory: Path, name: str) -> None:
        self._folder = directory / f"{name}.teacher"
        self._columns: tuple[Columns, ...] = ()
        self._entries = 0

    def append(self, block: TeacherBlock) -> None:
        """Append the entries of a batch of records."""
        if not self._columns:
            self._columns = tuple(Columns(self._folder, dtypes) for dtypes in COLUMNS)
        of_tokens, of_records, of_entries = self._columns
        of_tokens.append({"count": block.counts})
        of_records.append({"end": self._entries + np.cumsum(block.sizes, dtype=np.int64)})
        of_entries.append({"id": block.ids, "logprob": block.logprobs})
        self._entries += len(block.ids)

    def close(self) -> None:
        """Finish the files."""
        for columns in self._columns:
            columns.close()


@dataclass(frozen=True, slots=True)
class Teachers:
    """The entries of a stream, opened for reading; T tokens, n records, E entries.

    Attributes:
        counts: uint32[T]. ends: int64[n]. ids: uint32[E]. logprobs: float16[E]. See above.
    """

    counts: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint32]
    logprobs: npt.NDArray[np.float16]

    def part(self, records: slice, tokens: slice) -> Teachers:
        """The entries of consecutive records, of which `tokens` are the tokens, not yet read."""
        begin, end = (int(self.ends[record - 1]) if record else 0 for record in (records.start, records.stop))
        return Teachers(self.counts[tokens], self.ends[records] - begin, self.ids[begin:end], self.logprobs[begin:end])

    def block(self, records: slice, tokens: slice) -> TeacherBlock:
        """The entries of consecutive records, of which `tokens` are the tokens, as a batch."""
        part = self.part(records, tokens)
        return TeacherBlock(*map(np.asarray, (part.counts, np.diff(part.ends, prepend=0), part.ids, part.logprobs)))


def open_teachers(folder: Path, tokens: int, records: int, guards: Guards) -> Teachers:
    """Open the entries of a stream of so many tokens and records.

    Raises:
        StoreError: the files are inconsistent.
    """
    arrays = {column: load_array(folder / f"{column}.npy", guards) for columns in COLUMNS for column in columns}
    count, end, ids, logprob = (arrays[column] for column in ("count", "end", "id", "logprob"))
    entries = int(end[-1]) if len(end) else 0
    if (len(count), len(end), len(ids), len(logprob)) != (tokens, records, entries, entries):
        raise StoreError(
            f"{folder}: its parts do not fit together: {len(count):,} counts of {tokens:,} tokens, {len(end):,} ends of {records:,} records, {len(ids):,} ids "
            f"and {len(logprob):,} log-probabilities of {entries:,} entries. Build it again"
        )
    return Teachers(count, end, ids, logprob)
