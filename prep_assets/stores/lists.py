"""Lists beside tokens, which a package declares: any number of entries at each token of a stream, such as what a teacher holds for likely there.

    [project.entry-points."prep_assets.lists"]
    teacher = "prep_assets.extensions.distillation.lists:TEACHER"

A stream with such lists has a folder ``<name>.<name of the lists>/``; entries stand end to end:

    count.npy uint32      the number of entries of each token
    end.npy int64         the end of the entries of each record
    <field>.npy           a number of each entry, for each field
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets import plugins
from prep_assets.array_types import Ints
from prep_assets.errors import StoreError
from prep_assets.stores.arrays import Columns
from prep_assets.stores.guards import Guards, load_array

COUNT, OTHERS = "count.npy", ("index", "images", "documents")
"""A file that all lists have, and what other folders of a stream are called."""


class Lists(Struct, frozen=True, eq=False):
    """Lists that a package declares for conversations. What it gives besides is loaded when it is first needed.

    Attributes:
        name: of the folder; also the stage of its rejections.
        entries: what messages call its entries.
        fields: dtype of each number of an entry.
        schema: rows of this schema bring such lists, all of them, and are stored with token ids of their own.
        encode: `Conversations` and items → kept items, their tokens and lists; the rejected items are in quarantine.
        check: gives the `Check` of token streams.
        trains: row and options → whether each token of its ids is trained, where the row has neither labels nor masks.
        judge: store → what derives a rejection of the stage again from its reason and row, as `checks.rejections` says.
    """

    name: str
    entries: str
    fields: Mapping[str, str]
    schema: str
    encode: Callable[[Any, Sequence[Any]], tuple[list[Any], Any, Entries]]
    check: Callable[[], Any]
    trains: Callable[[Mapping[str, Any], Mapping[str, Any]], list[bool]]
    judge: Callable[[Any], Callable[[str, Mapping[str, Any]], str | None]]


@cache
def declared() -> Mapping[str, Lists]:
    """The lists of all packages, by name."""
    return {lists.name: lists for lists in plugins.load_all("lists")}


def lists_of(schema: str) -> Lists | None:
    """The lists that rows of a schema bring."""
    return next((lists for lists in declared().values() if lists.schema == schema), None)


class Entries(Struct, frozen=True):
    """Entries of a batch of records: `counts` int64[T] of its tokens, `sizes` int64[n] of its records, `values` by field, [E] each."""

    counts: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    values: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def joined(cls, fields: Mapping[str, str], batches: Sequence[Entries]) -> Entries:
        """Several batches as one."""
        empty = np.zeros(0, np.int64)
        counts, sizes = (np.concatenate([empty, *(getattr(batch, name) for batch in batches)]) for name in ("counts", "sizes"))
        return cls(counts, sizes, {name: np.concatenate([empty, *(batch.values[name] for batch in batches)]) for name in fields})

    def only(self, records: npt.NDArray[np.bool_], lengths: Ints) -> Entries:
        """The chosen records: bool[n]; `lengths` are those of all in tokens."""
        chosen = np.repeat(records, self.sizes)
        return Entries(
            self.counts[np.repeat(records, lengths)], self.sizes[records], {name: values[chosen] for name, values in self.values.items()}
        )


class ListWriter:
    """Writes lists of a stream."""

    def __init__(self, folder: Path, fields: Mapping[str, str]) -> None:
        self._count, self._end = Columns(folder, {"count": np.uint32}), Columns(folder, {"end": np.int64})
        self._values = Columns(folder, fields)

    def append(self, entries: Entries) -> None:
        """Append the entries of a batch of records."""
        self._count.append({"count": entries.counts})
        self._end.append({"end": len(self._values) + np.cumsum(entries.sizes, dtype=np.int64)})
        self._values.append(entries.values)

    def close(self) -> None:
        """Finish the files."""
        for columns in (self._count, self._end, self._values):
            columns.close()


@dataclass(frozen=True, slots=True)
class StoredLists:
    """The entries of a stream, opened for reading; T tokens, n records, E entries.

    Attributes:
        counts: uint32[T]. ends: int64[n]. values: by field, [E] each.
    """

    counts: npt.NDArray[np.uint32]
    ends: Ints
    values: Mapping[str, npt.NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def only(self, records: slice) -> StoredLists:
        """The entries of consecutive records, not yet read, with the counts of all tokens."""
        begin, end = (int(self.ends[record - 1]) if record else 0 for record in (records.start, records.stop))
        return StoredLists(self.counts, self.ends[records] - begin, {name: column[begin:end] for name, column in self.values.items()})

    def read(self, records: slice, tokens: slice) -> Entries:
        """The entries of consecutive records, of which `tokens` are the tokens."""
        part = self.only(records)
        values = {name: np.asarray(column) for name, column in part.values.items()}
        return Entries(np.asarray(self.counts[tokens]), np.diff(part.ends, prepend=0), values)


def open_lists(directory: Path, name: str, tokens: int, records: int, guards: Guards) -> dict[str, StoredLists]:
    """Open the lists of the stream `name`, which has so many tokens and records.

    Raises:
        StoreError: the files are inconsistent, or no installed package declares such lists.
    """
    found = {}
    for folder in directory.glob(f"{escape(name)}.*"):
        suffix = folder.name[len(name) + 1 :]
        # most streams have none; the packages that declare some are loaded only where one may have
        if suffix in OTHERS or "." in suffix or not folder.is_dir():
            continue
        if (lists := declared().get(suffix)) is None:
            if (folder / COUNT).is_file():
                raise StoreError(
                    f"{folder} has lists that no installed package declares. Install the one that wrote them, or build it again without"
                )
            continue
        count, end, *values = (load_array(folder / f"{column}.npy", guards) for column in ("count", "end", *lists.fields))
        entries = int(end[-1]) if len(end) else 0
        if (len(count), len(end), *map(len, values)) != (tokens, records, *[entries] * len(values)):
            said = ", ".join(f"{len(column):,} of {field}" for field, column in zip(lists.fields, values, strict=True))
            raise StoreError(
                f"{folder}: its parts do not fit together: {len(count):,} counts of {tokens:,} tokens, {len(end):,} ends of {records:,} records, {said}, of "
                f"{entries:,} entries. Build it again"
            )
        found[lists.name] = StoredLists(count, end, dict(zip(lists.fields, values, strict=True)))
    return found


def list_entries(tables: Iterable[Mapping[str, StoredLists]]) -> Counter[str]:
    """How many entries tables have in their lists, by name."""
    counts = Counter(dict.fromkeys(declared(), 0))
    for lists in tables:
        counts.update({name: len(entries) for name, entries in lists.items()})
    return counts
