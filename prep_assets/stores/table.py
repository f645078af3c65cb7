"""A store as a table: records of named columns, and where each record comes from, whatever files hold them.

    schema     columns of a record, and the role of each
    TOKENS     tokens, loss_mask?, attention_mask?          documents, chats, sides of pairs, prompts
    PACKED     tokens, loss_mask, attention_mask?, …        rows of fixed length, which are pieces of records of other stores
    PAIRS      chosen, chosen_mask, rejected, …, margin?    two answers to a prompt
    GROUPS     prompts, responses, masks, rewards, …        prompts with scored responses
    LINES      line                                         JSON objects

What reads stores asks for columns by their roles, so one more kind of store is one more schema: the trained tokens of a record, for instance, are those
whose columns of the role `weight` are not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.array_types import Ints
from prep_assets.errors import StoreError, nearest
from prep_assets.stores.arrays import Spool, batches, cumulative_sums, equals_previous, fill_column, predecessors, rounded_up, sizes
from prep_assets.stores.files import map_file, note_mapped_bytes, row_of
from prep_assets.stores.groups import FURTHER, OF_RUNS, PROMPTS, RESPONSES, REWARDS, STREAMS, holds_groups
from prep_assets.stores.guards import Guards, guarded, load_array, load_columns, load_json
from prep_assets.stores.images import NO_IMAGES, Images, open_images
from prep_assets.stores.lists import StoredLists, open_lists
from prep_assets.stores.packed import POSITIONS as POSITIONS
from prep_assets.stores.packed import open_documents, open_rows
from prep_assets.stores.shards import ATTENTION, INDEX_FIELDS, STARTS, read_ours, signed

Role = Literal["ids", "weight", "attention", "value", "json"]
BLOCK = 1 << 22
"""Elements that are looked at together."""


class Column(Struct, frozen=True):
    """A column of a schema; a table may lack those that are optional.

    Attributes:
        role: token ids; the loss weight, or whether it is attended, of each token of the column `of`; other numbers; a JSON object.
        depth: 1: a record has an array; 2: a list of arrays; 0: one value.
        file, key: the stream that it is stored in, and its name there; by default the table's own stream, and its own name.
        counted: of a list of arrays, the stream of arrays that have one value for each.
    """

    name: str
    role: Role
    depth: int = 1
    of: str = ""
    file: str = ""
    key: str = ""
    counted: str = ""


class Schema(Struct, frozen=True):
    """The columns of a table.

    Attributes:
        name: how messages call such a table; `noun`: a record of it; `documents`: what its domains are counted in.
        packed: whether records are rows of pieces of other tables' records.
    """

    name: str
    columns: tuple[Column, ...]
    noun: str = "record"
    documents: str = "documents"
    packed: bool = False

    def role(self, role: Role, of: str = "") -> list[str]:
        """The columns with a role, in order; only those of the column `of`, if given."""
        return [column.name for column in self.columns if column.role == role and of in ("", column.of)]

    def fits(self, needed: Schema) -> bool:
        """Whether it has the sequences or objects of another schema, so that what takes tables of that one takes its own."""
        return self.packed == needed.packed and self._sequences == needed._sequences

    @property
    def _sequences(self) -> list[tuple[Role, int]]:
        return [(column.role, column.depth) for column in self.columns if column.role in ("ids", "json")]

    @property
    def unit(self) -> str:
        """What lengths count."""
        return "bytes" if self.role("json") else "tokens"


SIDES = CHOSEN, REJECTED = ("chosen", "rejected")
MARGIN = "margin"
_MASKS = (Column("loss_mask", "weight", of="tokens"), Column(ATTENTION, "attention", of="tokens"))
TOKENS = Schema(
    "token stream",
    (Column("tokens", "ids"), *_MASKS, Column(STARTS, "value", of="tokens"), Column(MARGIN, "value", 0)),
)
PACKED = Schema("packed table", (Column("tokens", "ids"), *_MASKS, Column(POSITIONS, "value", of="tokens")), "row", "pieces", packed=True)
PAIRS = Schema(
    "pairs",
    (
        *(
            column
            for side in SIDES
            for column in (
                Column(side, "ids", file=side, key="tokens"),
                Column(f"{side}_mask", "weight", of=side, file=side, key="loss_mask"),
            )
        ),
        Column(MARGIN, "value", 0, file=CHOSEN),
    ),
    "pair",
)
GROUPS = Schema(
    "groups",
    (
        Column("prompts", "ids", file=PROMPTS, key="tokens"),
        Column("responses", "ids", 2, file=RESPONSES, key="tokens", counted=REWARDS),
        Column("masks", "weight", 2, "responses", RESPONSES, "loss_mask", REWARDS),
        Column(REWARDS, "value", file=REWARDS),
        *(Column(name, "value", 2, "responses", RESPONSES, counted=REWARDS) for name in FURTHER),
        *(Column(name, "value", file=REWARDS) for name in OF_RUNS),
    ),
    "group",
)
LINE_FIELDS = {"source": np.int32, "file": np.int32, "row": np.int64}
"""Of the index of lines."""
LINES = Schema("JSONL", (Column("line", "json", 0),), documents="lines")


@dataclass(frozen=True, eq=False)
class Ragged:
    """A column of arrays, end to end in `values`.

    Attributes:
        values: flat; read in slices.
        ends: int64[m], where each array ends.
        starts: int64[m], where each begins; `None`: where the one before ends.
        records: int64[n], of a column of lists: how many arrays are before the end of each record; `None`: each record has one array.
    """

    values: Any
    ends: Ints
    starts: Ints | None = None
    records: Ints | None = None

    def starts_of(self, part: slice) -> Ints:
        """Where consecutive arrays begin."""
        return predecessors(self.ends, part, 0) if self.starts is None else self.starts[part]

    def arrays_of(self, part: slice) -> slice:
        """Which arrays consecutive records have."""
        return part if self.records is None else slice(int(predecessors(self.records, part, 0)[0]), int(self.records[part.stop - 1]))

    def spans(self, record: int) -> list[slice]:
        """Where the arrays of a record are in `values`."""
        if self.records is None and self.starts is None:
            return [slice(int(self.ends[record - 1]) if record else 0, int(self.ends[record]))]
        of = self.arrays_of(slice(record, record + 1))
        return list(map(slice, self.starts_of(of).tolist(), self.ends[of].tolist()))

    def span(self, part: slice) -> slice:
        """Where the values of consecutive records, at least one, are in those of a column without gaps."""
        of = self.arrays_of(part)
        return slice(int(self.starts_of(of)[0]), int(self.ends[of][-1])) if of.stop > of.start else slice(0, 0)

    def read(self, part: slice) -> tuple[npt.NDArray[Any], Ints]:
        """The values of consecutive records, at least one, of a column without gaps, end to end, and the length of each array."""
        of = self.arrays_of(part)
        return np.asarray(self.values[self.span(part)]), np.asarray(self.ends[of] - self.starts_of(of))

    def split(self, part: slice) -> list[npt.NDArray[Any]]:
        """The arrays of consecutive records, at least one, of a column without gaps, read at once."""
        values, lengths = self.read(part)
        return np.split(values, np.cumsum(lengths)[:-1])

    def arrays(self, record: int) -> list[npt.NDArray[Any]]:
        """The arrays of a record."""
        return [np.asarray(self.values[span]) for span in self.spans(record)]

    def lengths(self) -> Ints:
        """int64[n], elements of each record."""
        return self.by_record(sizes(self.ends) if self.starts is None else np.asarray(self.ends - self.starts, np.int64))

    def by_record(self, counts: Ints) -> Ints:
        """Sum a number of each array by record."""
        return (
            counts if self.records is None else np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])[self.records], prepend=0)
        )

    def nonzero(self) -> Ints:
        """int64[m], how many elements of each array are not 0."""
        counts = np.zeros(len(self.ends), np.int64)
        for part in batches(self.ends, BLOCK):
            starts, ends = self.starts_of(part), self.ends[part]
            first, stop = int(starts[0]), int(ends[-1])
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(self.values[first:stop]) != 0)])
            counts[part] = sums[ends - first] - sums[starts - first]
            note_mapped_bytes(stop - first)
        return counts


class Origins(Struct, frozen=True):
    """The source row of each record: int[n]. Records made of lines, or of records of other stores, have the numbers of these as rows.

    Attributes:
        domains: names.
        domain: index into `domains`.
        file, row: number of the file in its domain, and row in the file.
        several: whether adjacent records may come from one row.
    """

    domains: Sequence[str]
    domain: npt.NDArray[Any]
    file: npt.NDArray[Any]
    row: npt.NDArray[Any]
    several: bool = False

    def of(self, record: int) -> tuple[str, int, int]:
        """Domain, file and row of a record."""
        return self.domains[int(self.domain[record])], int(self.file[record]), int(self.row[record])

    def records(self, domain: str, file: int, row: int) -> list[int]:
        """The records that come from a source row."""
        if domain not in self.domains:
            return []
        found: list[int] = np.flatnonzero((self.domain == self.domains.index(domain)) & (self.file == file) & (self.row == row)).tolist()
        return found

    @property
    def places(self) -> Ints:
        """int64[n], file and row of each record packed into one number."""
        return fill_column(len(self.row), lambda part: (self.file[part].astype(np.int64) << 40) | self.row[part])

    @property
    def begins_row(self) -> npt.NDArray[np.bool_]:
        """bool[n], whether a record is the first of its source row; records of one row are adjacent."""
        same_file, same_row = equals_previous(self.file), equals_previous(self.row)
        return fill_column(len(self.row), lambda part: ~(same_file[part] & same_row[part]), bool)

    def part(self, record: int) -> tuple[int, int]:
        """The number of a record among the adjacent records of its source row, from 1, and their count."""
        low = high = record
        while low and self.of(low - 1) == self.of(record):
            low -= 1
        while high + 1 < len(self.row) and self.of(high + 1) == self.of(record):
            high += 1
        return record - low + 1, high - low + 1


class Pieces(Struct, frozen=True):
    """What the rows of an index are made of: int[p] by field, ordered by row and offset.

    Attributes:
        domains: names.
        fields: ``row`` and ``row_offset``: where a piece begins; its ``length``; ``source``, index into `domains`; ``record`` of that domain's store, and
            ``start``, the first token of it.
    """

    domains: Sequence[str]
    fields: Mapping[str, npt.NDArray[Any]]

    def of(self, row: int) -> slice:
        """The pieces of a row."""
        low, high = np.searchsorted(self.fields["row"], [row, row + 1]).tolist()
        return slice(low, high)

    def read(self, part: slice | Ints, *names: str) -> Iterator[tuple[int, ...]]:
        """Fields of some pieces."""
        return zip(*(np.asarray(self.fields[name])[part].tolist() for name in names), strict=True)


class Documents(NamedTuple):
    """What the domains of a table are measured by: its pieces or records. `domain` is an index into `domains`; `trained` is `None` without a mask."""

    domains: Sequence[str]
    domain: npt.NDArray[Any]
    lengths: Ints
    trained: Ints | None


class Block(NamedTuple):
    """Consecutive records: the number of the first, their ids, where each record begins and ends among them, and the weights of a stretch of them."""

    first: int
    ids: npt.NDArray[Any]
    starts: Ints
    ends: Ints
    weights: Callable[[slice], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Table:
    """The records of one stream of a store.

    Attributes:
        name: of the stream.
        columns: those that the stream has, by name.
        path: of the file of lines.
        origins: of each record; of an index, of nothing.
        images: the images, audio and video in its records.
        lists: lists beside its tokens, by name.
        pieces: what each record of an index is made of.
        width: places of each record, if all have equally many; 0 otherwise.
        align: of an index: its rows have room for each piece with its length rounded up to a multiple of it.
        chats: gives the messages of each record, read from the sources again, for an export that asks for them, or an object that holds them.
        tokenizer: of the ids, a `tokenizers.Tokenizer`, for an export that asks for it.
    """

    name: str
    schema: Schema
    count: int
    origins: Origins
    columns: Mapping[str, Ragged] = field(default_factory=dict)
    path: Path | None = None
    images: Images = NO_IMAGES
    lists: Mapping[str, StoredLists] = field(default_factory=dict)
    pieces: Pieces | None = None
    width: int = 0
    align: int = 1
    chats: Callable[[], Iterator[Any]] | None = None
    tokenizer: Any = None

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The objects of a table of lines."""
        return map(row_of, self.written())

    def record(self, record: int, column: str) -> npt.NDArray[Any]:
        """The one array that a record has in a column."""
        [array] = self.columns[column].arrays(record)
        return array

    def written(self) -> Iterator[bytes]:
        """Of a table of lines: them, with line breaks."""
        column = self.columns["line"]
        for part in batches(column.ends, 1 << 20):
            first, ends = int(column.starts_of(part)[0]), column.ends[part].tolist()
            text = np.asarray(column.values[first : ends[-1]]).tobytes()
            yield from (text[begin - first : end - first] for begin, end in pairwise([first, *ends]))

    def some(self, records: slice | Ints) -> Table:
        """Some records of a stream of tokens, ascending, with the images of all, and the lists where they are consecutive."""
        origins, part = self.origins, slice(0, self.count)
        own = Origins(origins.domains, origins.domain[records], origins.file[records], origins.row[records], origins.several)
        columns = {
            name: Ragged(
                column.values,
                column.ends[records],
                column.starts_of(part)[records] if not isinstance(records, slice) else column.starts_of(records),
            )
            for name, column in self.columns.items()
        }
        lists = {name: each.only(records) for name, each in self.lists.items()} if isinstance(records, slice) else {}
        return replace(self, count=len(own.row), origins=own, columns=columns, lists=lists)

    def has(self, role: Role, of: str = "") -> list[str]:
        """The columns with a role that the table has."""
        return [name for name in self.schema.role(role, of) if name in self.columns]

    @cached_property
    def lengths(self) -> Ints:
        """int64[n], tokens of each record, or bytes of each line."""
        return reduce(np.add, [self.columns[name].lengths() for name in self.has("json") or self.has("ids")])

    @cached_property
    def trained(self) -> Ints | None:
        """int64[n], trained tokens of each record; `None` without a mask. All masks are read for it."""
        masks = [self.columns[name] for name in self.has("weight")]
        return reduce(np.add, [mask.by_record(mask.nonzero()) for mask in masks]) if masks else None

    @cached_property
    def documents(self) -> Documents:
        """Its pieces or records, for figures by domain."""
        if self.pieces is None:
            return Documents(self.origins.domains, np.asarray(self.origins.domain), self.lengths, self.trained)
        starts, ends = self.documents_at
        trained = [Ragged(self.columns[name].values, ends, starts).nonzero() for name in self.has("weight")]
        return Documents(self.pieces.domains, self.pieces.fields["source"], ends - starts, reduce(np.add, trained) if trained else None)

    def ends(self, name: str) -> Ints:
        """int64[n], where records end in the values of a column, padding included."""
        return np.arange(1, len(self) + 1, dtype=np.int64) * self.width if self.width else self.columns[name].ends

    @property
    def documents_at(self) -> tuple[Ints, Ints]:
        """Where documents begin and end in the values of the one ids column: int64[n] each."""
        if self.pieces is None:
            [name] = self.has("ids")
            ends = np.asarray(self.columns[name].ends)
            return np.asarray(self.columns[name].starts_of(slice(0, len(ends)))), ends
        row, offset, length = (self.pieces.fields[name] for name in ("row", "row_offset", "length"))
        starts = row * self.width + offset
        return starts, starts + length

    def rooms(self, rows: slice) -> Ints:
        """int64[k], places of each piece of consecutive rows that are laid out for a trainer: its length rounded up to a multiple of `align`, and for the
        last of a row what is left of it, so that borders end where the row does."""
        assert self.pieces is not None
        row = np.asarray(self.pieces.fields["row"])
        part = slice(*np.searchsorted(row, [rows.start, rows.stop]).tolist())
        rooms = np.array(rounded_up(np.asarray(self.pieces.fields["length"][part], np.int64), self.align))
        last = np.flatnonzero(np.diff(row[part], append=rows.stop))
        rooms[last] += self.width - np.add.reduceat(rooms, np.append(0, last[:-1] + 1)) if len(last) else 0
        return rooms

    def of_domain(self, domain: str) -> npt.NDArray[np.bool_]:
        """bool[n], which records have something of a domain."""
        domains, numbers = (
            (self.origins.domains, self.origins.domain) if self.pieces is None else (self.pieces.domains, self.pieces.fields["source"])
        )
        chosen = np.array([name == domain for name in domains], bool)[numbers]
        return chosen if self.pieces is None else np.bincount(self.pieces.fields["row"], chosen, self.count) > 0

    def weights(self, ids: str, spans: slice) -> npt.NDArray[Any] | None:
        """The weights of a stretch of the values of an ids column, encoded by `signed`; `None` without a mask."""
        masks, attention = self.has("weight", ids), self.has("attention", ids)
        if not masks:
            return None
        return signed(self.columns[masks[0]].values[spans], self.columns[attention[0]].values[spans] if attention else None)

    def weights_of(self, record: int) -> npt.NDArray[Any]:
        """The weights of a record of a stream of tokens with a mask, as `weights` gives them."""
        found = self.weights("tokens", self.columns["tokens"].span(slice(record, record + 1)))
        assert found is not None
        return found

    def sequences(self, record: int, most: int | None = None) -> Iterator[tuple[str, Ints, npt.NDArray[np.float32] | None]]:
        """Yield each sequence of a record, cut after `most` tokens: its column, ids and weights, `None` where the column has no mask."""
        for name in self.has("ids"):
            for span in self.columns[name].spans(record):
                cut = span if most is None else slice(span.start, min(span.stop, span.start + most))
                weights = self.weights(name, cut)
                yield (
                    name,
                    np.asarray(self.columns[name].values[cut]).astype(np.int64),
                    None if weights is None else weights.astype(np.float32),
                )

    def joined(self, record: int, most: int | None = None) -> tuple[Ints, npt.NDArray[np.float32] | None, list[int]]:
        """Ids and weights of all sequences of a record, end to end, and where each begins. A sequence without a mask has weights of 0 beside others that
        have one."""
        sequences = list(self.sequences(record, most))
        starts = np.cumsum([0, *(len(ids) for _, ids, _ in sequences)]).tolist()[:-1]
        masked = any(weights is not None for *_, weights in sequences)
        weights = [np.zeros(len(ids), np.float32) if own is None else own for _, ids, own in sequences]
        return np.concatenate([ids for _, ids, _ in sequences]), np.concatenate(weights) if masked else None, starts

    def places(self, record: int) -> tuple[Ints, npt.NDArray[np.float32] | None]:
        """Ids and weights of all places of a row, with its padding."""
        [name], span = self.has("ids"), slice(record * self.width, (record + 1) * self.width)
        weights = self.weights(name, span)
        return np.asarray(self.columns[name].values[span]).astype(np.int64), None if weights is None else weights.astype(np.float32)

    def objects(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines with these ascending numbers."""
        for number in numbers:
            yield row_of(self.record(number, "line").tobytes())

    def blocks(self, size: int = BLOCK) -> Iterator[Block] | None:
        """All tokens in blocks of about `size`; `None` where a record is not one array."""
        if [self.columns[name].records for name in self.has("ids")] != [None]:
            return None
        return self._blocks(size, *self.has("ids"))

    def _blocks(self, size: int, name: str) -> Iterator[Block]:
        column = self.columns[name]
        for part in batches(column.ends, size):
            starts, ends = column.starts_of(part), column.ends[part]
            first, stop = int(starts[0]), int(ends[-1])

            def weights(span: slice, first: int = first) -> npt.NDArray[Any]:
                found = self.weights(name, slice(first + span.start, first + span.stop))
                return np.ones(span.stop - span.start) if found is None else found

            yield Block(part.start, np.asarray(column.values[first:stop]), starts - first, ends - first, weights)
            note_mapped_bytes(4 * (stop - first))


# Opening: the one place that knows how the files of each kind are called.

TRAIN, TEST = "train", "test"
_NOTHING = Origins((), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def stream_names(folder: Path) -> list[str]:
    """The streams of a store's folder, sorted; of groups ``train``, and ``test`` where any are held out."""
    if holds_groups(folder):
        return [TRAIN, *([TEST] if (folder / TEST).is_dir() else [])]
    paths = (path for pattern in ("*.index", "*.documents", "*/*.index") for path in folder.glob(pattern))
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in paths)


def holds_pairs(folder: Path) -> bool:
    """Whether the two sides of pairs are all that a folder has, but for folders in it."""
    return [name for name in stream_names(folder) if "/" not in name] == [*SIDES]


def open_table(folder: Path, name: str | None = None, domain: str = "", guards: Guards | None = None, schema: Schema = TOKENS) -> Table:
    """Open a store's folder: its groups or pairs, or its only stream.

    Args:
        name: one of several streams; of groups and pairs, ``test`` for those that are held out.
        domain: of all records, where the stream does not say it.
        schema: of a stream of records, as its asset declares it.

    Raises:
        StoreError: it is missing or cannot be read; the folder has several streams and no `name` is given.
    """
    guards, inner = guards or Guards(), folder / name if name and (folder / name).is_dir() else folder
    if holds_groups(inner) and (name in (None, TRAIN) or inner != folder):
        return _groups(inner, name or TRAIN, guards)
    if (name is None or inner != folder) and holds_pairs(inner):
        return _pairs(inner, name or "", domain, guards)
    names = stream_names(folder)
    if name is None and len(names) != 1:
        problem = f"several: {', '.join(names)}. Say which with stream=…" if names else "none of ours. Give the folder that has the payload"
        raise StoreError(f"{folder}: one token stream, table or JSONL file is exported at a time, found {problem}")
    if name is not None and name not in names:
        raise StoreError(f"{folder} has no stream {name!r}{nearest(name, names) or '.'} It has: {', '.join(names) or 'none'}")
    return open_stream(folder, name or names[0], domain, guards, schema)


def open_stream(folder: Path, name: str, domain: str = "", guards: Guards | None = None, schema: Schema = TOKENS) -> Table:
    """Open a stream by its files, also one of those that groups and pairs are made of; otherwise as `open_table`."""
    guards = guards or Guards()
    if (folder / f"{name}.documents").is_dir():
        return _packed(folder, name, guards)
    return _lines(folder, name, guards) if (folder / f"{name}.jsonl").is_file() else _tokens(folder, name, domain, guards, schema)


def _lines(folder: Path, name: str, guards: Guards) -> Table:
    path, index = folder / f"{name}.jsonl", folder / f"{name}.index"
    if not index.is_dir():
        raise StoreError(f"{folder} has no lines {name!r}")
    domain, file, row = load_columns(index, LINE_FIELDS, guards).values()
    ends = Spool(np.int64)
    with guards.open(path) as text:
        lengths = map(len, text)
        while batch := list(islice(lengths, 4096)):
            ends.append(batch)
    if len(ends) != len(row):
        raise StoreError(f"{path}: {len(ends):,} lines, row in its index has {len(row):,}")
    origins = Origins(tuple(load_json(index / "sources.json", guards)), domain, file, row)
    column = Ragged(guarded(map_file(path), guards.guard(path)), cumulative_sums(ends.array()))
    return Table(name, LINES, len(row), origins, {"line": column}, path)


def _tokens(folder: Path, name: str, domain: str, guards: Guards, schema: Schema = TOKENS) -> Table:
    index = folder / f"{name}.index"
    if not index.is_dir():
        raise StoreError(f"{folder} has no token stream {name!r}: neither {index.name} nor {name}.documents is there")
    ends, file, row = load_columns(index, INDEX_FIELDS, guards).values()
    columns = {key: Ragged(array, ends) for key, array in read_ours(folder, name, guards).items()}
    count, tokens = len(ends), int(ends[-1]) if len(ends) else 0
    images, lists = open_images(folder, name, guards), open_lists(folder, name, tokens, count, guards)
    for key, column in columns.items():
        if len(column.values) != tokens:
            raise StoreError(f"{folder}: {name}/{key} has {len(column.values):,} elements, its index says {tokens:,}")
    if (path := index / f"{MARGIN}.npy").is_file():
        columns[MARGIN] = Ragged(load_array(path, guards), np.arange(1, count + 1))
        if len(columns[MARGIN].values) != count:
            raise StoreError(f"{path}: {len(columns[MARGIN].values):,} margins of {count:,} records. Build it again")
    return Table(name, schema, count, Origins((domain,), np.broadcast_to(0, count), file, row), columns, images=images, lists=lists)


def _packed(folder: Path, name: str, guards: Guards) -> Table:
    documents, domains, width, align = open_documents(folder, name, guards)
    rows = open_rows(folder, name, width, guards)
    last = int(documents["row"][-1]) if len(documents["row"]) else -1
    if last >= (count := len(rows["tokens"])):
        raise StoreError(
            f"{folder / name}.documents: its last document is in row {last:,} of a table of {count:,} rows. Build the store again"
        )
    pieces = Pieces(domains, {key: np.asarray(values) for key, values in documents.items()})
    values = {key: array.reshape(-1) for key, array in rows.items()}
    return packed_table(name, values, pieces, count, width, open_images(folder, name, guards), align)


def packed_table(
    name: str, values: Mapping[str, Any], pieces: Pieces, rows: int, width: int, images: Images = NO_IMAGES, align: int = 1
) -> Table:
    """The table of packed rows: the values of each column, rows end to end with their padding."""
    starts = np.arange(rows, dtype=np.int64) * width
    ends = starts + np.bincount(pieces.fields["row"], pieces.fields["length"], rows).astype(np.int64)
    columns = {key: Ragged(array, ends, starts) for key, array in values.items()}
    return Table(name, PACKED, rows, _NOTHING, columns, images=images, pieces=pieces, width=width, align=align)


def _pairs(folder: Path, name: str, domain: str, guards: Guards) -> Table:
    chosen, rejected = sides = [_tokens(folder, side, domain, guards) for side in SIDES]
    if not np.array_equal(chosen.origins.row, rejected.origins.row) or any("loss_mask" not in side.columns for side in sides):
        raise StoreError(
            f"these are not pairs: {len(chosen):,} chosen and {len(rejected):,} rejected records, which must be of the same rows "
            "and have a loss_mask. Build the store again"
        )
    names = {"tokens": "", "loss_mask": "_mask"}
    columns = {f"{side.name}{names[key]}": column for side in sides for key, column in side.columns.items() if key != MARGIN}
    margins = {MARGIN: chosen.columns[MARGIN]} if MARGIN in chosen.columns else {}
    return Table(name, PAIRS, len(chosen), chosen.origins, {**columns, **margins})


def _groups(folder: Path, name: str, guards: Guards) -> Table:
    prompts, responses, rewards = (_tokens(folder, stream, "", guards) for stream in STREAMS)
    ends, index = rewards.columns[REWARDS].ends, folder / f"{PROMPTS}.index"
    scores = len(rewards.columns[REWARDS].values)
    if len(prompts) != len(rewards) or len(responses) != scores:
        raise StoreError(
            f"{folder}: {len(prompts):,} prompts and {len(responses):,} responses, but {len(rewards):,} groups of {scores:,} rewards"
        )
    if (before := np.flatnonzero(np.diff(ends, prepend=0) < 0)).size:
        raise StoreError(f"{folder}: the responses of group {before[0]:,} end at {int(ends[before[0]]):,}, before they begin")
    domain, domains = np.asarray(load_array(index / "source.npy", guards)), tuple(load_json(index / "sources.json", guards))
    if len(domain) != len(prompts) or (len(domain) and not 0 <= int(domain.min()) <= int(domain.max()) < len(domains)):
        raise StoreError(f"{index}: {len(domain):,} domain numbers of {len(prompts):,} groups, which must be below {len(domains)}")
    names = {"tokens": RESPONSES, "loss_mask": "masks"}
    of_responses = {names.get(key, key): replace(column, records=ends) for key, column in responses.columns.items()}
    columns = {PROMPTS: prompts.columns["tokens"], **of_responses, **rewards.columns}
    return Table(name, GROUPS, len(prompts), Origins(domains, domain, prompts.origins.file, prompts.origins.row), columns)
