"""The rows that the records of a stream come from, read from their sources again, by the block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.stage import Store
from prep_assets.disk.ahead import ahead
from prep_assets.disk.columns import stretches
from prep_assets.errors import StoreError
from prep_assets.proofs.message_rows import MessageRows
from prep_assets.proofs.selection import Rules, Selected, select
from prep_assets.records.files import SourceFile, record_id
from prep_assets.stores.tokens import TokenStore

TOKENS_AT_ONCE = 1 << 19
"""About how many tokens the records have whose rows are given together."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file, in its order.

    Attributes:
        file: number of the file.
        rows: their numbers.
        payloads: their fields.
    """

    file: int
    rows: Sequence[int]
    payloads: Sequence[Mapping[str, Any]]


def readable(block: Selected) -> Rows:
    """The rows of a block that can be read."""
    if isinstance(block.payloads, MessageRows):
        return Rows(block.file, block.rows, block.payloads)
    kept = [(row, payload) for row, payload in zip(block.rows, block.payloads, strict=True) if payload is not None]
    return Rows(block.file, [row for row, _ in kept], [payload for _, payload in kept])


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Consecutive records of a stream, which come from one file.

    Attributes:
        first: number of the first of them in the stream.
        file: the file.
        rows: int64[n], the row of each.
        payloads: its fields.
    """

    first: int
    file: SourceFile
    rows: npt.NDArray[np.int64]
    payloads: Sequence[Mapping[str, Any]]

    def identity(self, at: int) -> str:
        """The id of one of them."""
        return record_id(self.file, int(self.rows[at]))


def stored_rows(
    store: Store, name: str, stream: TokenStore, *, several: bool = False, given: Iterator[Rows] | None = None
) -> Iterator[StoredRows]:
    """The records of a stream of the domain `name`, in order, each with its row.

    Args:
        several: whether neighbours in the store may come from one row.
        given: the rows of the domain, where somebody reads them already.

    Raises:
        StoreError: a record of the store is not in its source, or not in the order of the source.
        SourceError: a source changed since it was pinned.
    """
    second, at = Second.of(store, name), 0
    with closing(ahead(_rows(second, stream))) if given is None else nullcontext(given) as blocks:
        for block in blocks:
            offered, before = np.asarray(block.rows, np.int64), -1
            while len(found := _found(offered, block.file, stream, at, before, several)):
                yield StoredRows(at, second.files[block.file], offered[found], _those(block.payloads, found, several))
                at, before = at + len(found), int(offered[found[-1]])
    if at != len(stream):
        raise StoreError(
            f"record {at:,} of the store is row {int(stream.row[at])} of file {int(stream.file[at])}, which is not in the source"
        )


def _rows(second: Second, stream: TokenStore) -> Iterator[Rows]:
    """The rows of the files that a stream has records of."""
    files = (each for each in second.rows() if any((stream.file[part] == each[0]).any() for part in stretches(len(stream))))
    return map(readable, select(files, Rules(deduplicate=False)))


def source_records(
    store: Store, name: str, stream: TokenStore, *, several: bool = False, given: Iterator[Rows] | None = None
) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """The same one by one: number in the stream, id, and the fields of the row."""
    for some in stored_rows(store, name, stream, several=several, given=given):
        for at, payload in enumerate(some.payloads):
            yield some.first + at, some.identity(at), payload


def _those(payloads: Sequence[Mapping[str, Any]], which: npt.NDArray[np.int64], several: bool) -> Sequence[Mapping[str, Any]]:
    """Copies, so that who keeps a few rows does not keep those beside them."""
    if isinstance(payloads, MessageRows) and not several:
        return payloads.taken(which)
    return [payloads[number] for number in which.tolist()]


def _found(offered: npt.NDArray[np.int64], file: int, stream: TokenStore, first: int, before: int, several: bool) -> npt.NDArray[np.int64]:
    """Of the next records of a stream, as far as they come from rows of a file in their order, the places of their rows among those offered.

    Args:
        offered: the numbers of some rows, ascending.
        before: the row of the record before; -1 where that is none of these.
    """
    part = slice(first, first + len(offered))
    ends, rows = np.asarray(stream.ends[part]), np.asarray(stream.row[part])
    begin = int(ends[0] - 1) if len(ends) else 0
    most = max(1, int(np.searchsorted(ends, begin + TOKENS_AT_ONCE)))
    rows = rows[:most]
    found = np.searchsorted(offered, rows)
    steps = np.diff(rows, prepend=before)
    fits = (np.asarray(stream.file[part])[:most] == file) & ((steps >= 0) if several else (steps > 0))
    fits[fits] = offered[np.minimum(found[fits], len(offered) - 1)] == rows[fits]
    return found if fits.all() else found[: int(np.argmin(fits))]
