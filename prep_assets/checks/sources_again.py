"""The sources of a store, read a second time, whole or in parts; and its records joined with their source rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from prep_assets.config.family import Domain
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import Part, SourceFile, open_stored
from prep_assets.data.read import read_blocks
from prep_assets.data.stream import seekable
from prep_assets.data.tables import LINES as LINE_FORMATS
from prep_assets.data.tables import TABLES, rows_at_once
from prep_assets.errors import CheckFailed, Refused, StoreError
from prep_assets.pipeline.asset import END, Content, FromLines, FromRows, Store, StorePart
from prep_assets.pipeline.examples import Stretch, converter, shards_of
from prep_assets.pipeline.media import RecordFiles, record_files
from prep_assets.pipeline.sources import domain_of, pinned
from prep_assets.pipeline.verdicts import Dropped, dropped_rows, dropping
from prep_assets.pipeline.workspace import build_command
from prep_assets.plugins import of_extension
from prep_assets.proofs.accounting import places
from prep_assets.proofs.plain_reading import ReadRows
from prep_assets.proofs.sampled import FILE, numbers_of
from prep_assets.proofs.second_reading import ALL, ROWS, Between, Unsupported, canonical_json, decompressed, is_held_out, read_rows
from prep_assets.proofs.second_reading import Rows as SourceRows
from prep_assets.proofs.selection import Passages, Rules, Selected, select
from prep_assets.proofs.source_fields import is_wrapped
from prep_assets.proofs.source_rows import Reading
from prep_assets.proofs.words import ByteTable, Spelled
from prep_assets.samples import IMAGE, MEDIA, Group, Pair, Prompt, Record, Sample, Turn
from prep_assets.schemas.reader import Reader, apply
from prep_assets.stores.arrays import prefetch, stretches
from prep_assets.stores.files import note_mapped_bytes, row_of
from prep_assets.stores.table import Origins, Table
from prep_assets.workers.shards import Shard

T = TypeVar("T")

# A store in parts: stretches of its sources with their records. The plan depends on the store and its sources alone.
#
# Every record belongs to one part, whatever origin the store claims, and is proven against the rows of that part.


def parts_of(store: Store) -> list[Shard]:
    """Return the parts of a store of one domain, as tasks of shards; none where a row limit makes rows depend on all before them."""
    if domain_of(store.family, store.partition).max_items is not None or store.family.most_rows is not None:
        return []
    sources = pinned(store.workspace, type(store.family), store.raw, store.partition)
    shards = shards_of(sources, store.family.cluster.shards)
    first_places = [int(places(shard.task[0].file, shard.task[0].part.row)) for shard in shards]
    return [
        replace(shard, task=StorePart(shard.task, *ends)) for shard, ends in zip(shards, pairwise([0, *first_places[1:], END]), strict=True)
    ]


class Unsound(Exception):
    """A part of a store fails, or parts contradict each other. The checks of the whole store then say what is wrong."""


# Sources of a store: the files of a domain, or lines of other stores.


@dataclass(frozen=True)
class DomainSource:
    """The files of a domain, opened for a second reading by other code.

    Attributes:
        domain: its configuration.
        files: the training files, then the held-out files.
        held_out: for each file, whether all of it is held out.
        gives: the type that its schema makes of a row.
        rows_pinned: how many rows the raw asset counted in the files.
        benchmarks: reads the passages that no row may hold; `None` where no benchmark is configured.
        dropped: reads which rows verdicts drop; `None` where no asset judges the domain.
    """

    name: str
    domain: Domain
    files: tuple[SourceFile, ...]
    held_out: tuple[bool, ...]
    gives: type
    rows_pinned: int
    benchmarks: Callable[[], Passages] | None = None
    dropped: Callable[[], Dropped] | None = None
    _open: dict[int, IO[bytes]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, store: Store) -> DomainSource:
        """Open the source of a store that is made from rows.

        Raises:
            SourceError: a file changed since it was pinned.
            StoreError: the files were pinned again since the store was built.
        """
        family, source = store.family, store.asset.source
        assert isinstance(source, FromRows)
        sources = pinned(store.workspace, type(family), store.raw, store.partition)
        rows = int(store.workspace.built(store.raw, store.partition).manifest.counts["read"])
        if sources.content_hash != store.recipe["raw"]:
            command = build_command(store.asset.name, store.partition)
            raise StoreError(f"the source files were pinned again since this store was built. Build it again: {command}")
        held_out = (False,) * len(sources.files) + (True,) * len(sources.test_files)

        def passages() -> Passages:
            return Passages.of((row for file in sources.benchmarks for _, row in _rows(file, "line")), family.decontaminate.words)

        files, benchmarks = (*sources.files, *sources.test_files), passages if sources.benchmarks else None
        stages = dropping(store.workspace, type(family))
        dropped = partial(dropped_rows, store.workspace, store.asset.family, store.partition, stages) if stages else None
        return cls(store.partition, domain_of(family, store.partition), files, held_out, source.gives, rows, benchmarks, dropped)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the files, as in record ids."""
        return tuple([file.name for file in self.files])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the files, as stored."""
        return tuple([file.size for file in self.files])

    def missing(self, stream: str, record: int, file: int, row: int) -> str:
        """The error for a record that is not in the source where its stream says, or is out of order."""
        return f"record {record:,} of the store is row {row + 1} of file {file + 1}, which is not in the source"

    def rules(self, deduplicate: bool, limit: int | None) -> Rules:
        """Return the selection rules of the domain; `limit`: the row limit of its family."""
        domain, limits = self.domain, [number for number in (self.domain.max_items, limit) if number is not None]
        passages = self.benchmarks() if self.benchmarks else None
        value = domain.value(self.name)
        dropped = frozenset(self.dropped().rows) if self.dropped else frozenset[tuple[int, int]]()
        return Rules(domain.domain_key, value, domain.where, min(limits, default=None), deduplicate, passages, dropped, domain.forgotten)

    def rows(self, part: StorePart | None = None) -> Iterator[tuple[int, bool, SourceRows]]:
        """Yield number, held-out flag and rows of each file, or of a part. Files are opened lazily."""
        if part is not None:
            yield from ((stretch.file, self.held_out[stretch.file], self._stretch(part, stretch)) for stretch in part.stretches)
            return
        for number, file in enumerate(self.files):
            yield number, self.held_out[number], _rows(file, self.domain.txt)

    def _stretch(self, part: StorePart, stretch: Stretch) -> SourceRows:
        """Yield the rows of a stretch."""
        file, within, end = self.files[stretch.file], stretch.part, part.rows_end(stretch)
        if file.format not in LINE_FORMATS or self.domain.txt == "file":
            yield from _rows(file, self.domain.txt, Between(None, within.row, end))
            return
        if stretch.file not in self._open:  # keep compressed files open: the next stretch continues where this one ends
            self._open.clear()
            self._open[stretch.file] = decompressed(open_stored(file), file.compression)
        self._open[stretch.file].seek(within.start)
        size = None if within.stop is None else within.stop - within.start
        rows = read_rows(self._open[stretch.file], file.format, None, between=Between(size, within.row, end))
        yield from rows if file.redact is None else _redacted(file.redact, rows, file.name)


def _rows(file: SourceFile, txt: Literal["line", "file"], between: Between = ALL) -> SourceRows:
    with ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(seekable(file) if file.format in TABLES else open_stored(file))
        try:
            part = Part(between.first, between.end)
            at_once = rows_at_once(stream, file.format, part) if file.format in TABLES else ROWS
            read = read_rows(stream, file.format, file.compression, whole_file=txt == "file", between=between, at_once=at_once)
            yield from read if file.redact is None else _redacted(file.redact, read, file.name)
        except Unsupported:  # raised before the first row: only the project's own reader can recover a damaged list
            for block in read_blocks(file, 0, txt=txt):
                rows: list[Record | Unreadable] = sorted([*block.records, *block.unreadable], key=lambda row: row.row)
                yield from ((row.row, dict(row.payload) if isinstance(row, Record) else None) for row in rows)


def _redacted(redact: Callable[[Any], Any], rows: SourceRows, file: str) -> SourceRows:
    """The rows of a file without private data.

    Raises:
        CheckFailed: of a row more than its private data is replaced, which every other check would take for the row.
    """
    changed_beside = of_extension("redaction", "beside")
    for number, row in rows:
        redacted = None if row is None else redact(row)
        if fault := changed_beside(row, redacted):
            raise CheckFailed(
                f"{file}:{number + 1}: redact changes {fault!r} by more than placeholders. This is a fault of prep-assets; please report it"
            )
        yield number, redacted


class LineSource(Struct, frozen=True):
    """JSONL files of other stores.

    Attributes:
        paths: of the files, by file number.
    """

    paths: tuple[Path, ...]

    @classmethod
    def of(cls, store: Store) -> LineSource:
        """Return the source of a store that is made from lines."""
        source = store.asset.source
        assert isinstance(source, FromLines)
        paths = [store.above(asset, store.partition).directory / f"{name}.jsonl" for asset, name in source.files.values()]
        return cls(tuple(paths))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(path.name for path in self.paths)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the files."""
        return tuple(path.stat().st_size for path in self.paths)

    @property
    def held_out(self) -> tuple[bool, ...]:
        """`False` for each file: the split was decided earlier."""
        return (False,) * len(self.paths)

    def missing(self, stream: str, record: int, file: int, row: int) -> str:
        """See `DomainSource.missing`."""
        return f"record {record:,} of {stream} is line {row + 1}, which does not follow the one before it, or is not there"

    def rows(self, part: StorePart | None = None) -> Iterator[tuple[int, bool, SourceRows]]:
        """Yield the lines of each file; such stores have no parts."""
        for number, path in enumerate(self.paths):
            with path.open("rb") as file:
                yield number, False, read_rows(file, "jsonl", None)


def source_of(store: Store) -> DomainSource | LineSource:
    """Return the source of a store, opened once."""
    kind = DomainSource if isinstance(store.asset.source, FromRows) else LineSource
    return store.once("source", lambda: kind.of(store))


def domain_source(store: Store) -> DomainSource:
    """Return the source of a store that is made from rows."""
    source = source_of(store)
    assert isinstance(source, DomainSource)
    return source


def reading_of(store: Store, gives: type | None = None, **template: Any) -> Reading:
    """Return what reads the rows or the lines of a store by the columns of their definition; `template`: what of a template matters, see `Reading`."""
    if isinstance(store.asset.source, FromLines):
        line = store.asset.source.gives.__name__
        return Reading(f"lines of {line.lower()}s", {}, line, **template)
    source = domain_source(store)
    domain, made = source.domain, source.gives if gives is None else gives
    chosen_by = frozenset((*domain.where, *filter(None, [domain.domain_key])))
    reading = Reading(domain.schema_name, domain.options, made.__name__, ignore=frozenset(domain.ignore), chosen_by=chosen_by, **template)
    if domain.speaker_names != "keep":  # in front of texts
        reading.writes = None
    return reading


def streams_of(store: Store) -> list[Table]:
    """Return the streams of a store, or of its part. Records that are made from lines have the number of their source file."""
    source, tables = store.asset.source, store.streams()
    if not isinstance(source, FromLines):
        return list(tables.values())
    numbers = {name.rpartition("/")[0]: number for number, name in enumerate(source.files)}
    return [
        replace(table, origins=structs.replace(table.origins, file=np.broadcast_to(np.int32(numbers[name.rpartition("/")[0]]), len(table))))
        for name, table in tables.items()
    ]


# Records of a stream joined with their source rows.

TOKENS_AT_ONCE = 1 << 19
"""About how many tokens the records of one `StoredRows` have."""
_MOST_OF_ROW = 1 << 16
"""Records of one row that are looked for ahead."""


class StoredRows(Struct, frozen=True, eq=False, dict=True):
    """Consecutive records of a stream.

    Attributes:
        first: number of the first record in the stream.
        names: of the files of the source.
        places: int64[n], file and row of each record, see `proofs.accounting.places`.
        payloads: the fields of each row.
        spell: returns `spelled`.
    """

    first: int
    names: Sequence[str]
    places: npt.NDArray[np.int64]
    payloads: ReadRows
    spell: Callable[[], Spelled | None]

    def __len__(self) -> int:
        return len(self.payloads)

    @cached_property
    def numbers(self) -> list[int]:
        """See `numbers_of`."""
        return [*map(int, numbers_of(self.places))]

    @cached_property
    def spelled(self) -> Spelled | None:
        """The tokens of all records as bytes; `None` where those of each id are not proven."""
        return self.spell()

    @cached_property
    def rows(self) -> list[int]:
        """The number of each row in its file."""
        return [*map(int, self.places & ((1 << FILE) - 1))]

    @cached_property
    def _files(self) -> list[int]:
        return [*map(int, self.places >> FILE)]

    def identity(self, at: int) -> str:
        """Return the id of a record."""
        return f"{self.names[self._files[at]]}:{self.rows[at] + 1}"

    def records(self) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        """Yield number in the stream, id and row fields of each record."""
        return ((self.first + at, self.identity(at), payload) for at, payload in enumerate(self.payloads))


class Join:
    """Finds the rows of the records of a stream, as these come.

    Args:
        every: whether all records have a row among those that come; else later ones are left out.
    """

    def __init__(self, store: Store, stream: Table, *, every: bool = True) -> None:
        self._store, self._source, self._stream, self._every, self._position = store, source_of(store), stream, every, 0

    def add(self, block: Selected) -> Iterator[StoredRows]:
        """Yield the next records, which come from the rows of a block; all records of a row are together."""
        stream, position = self._stream, self._position
        if position == len(stream) or not block.files or not block.files[0] <= stream.origins.file[position] <= block.files[-1]:
            return
        readable = [at for at, payload in enumerate(block.payloads) if payload is not None]
        offered, last = places(block.files, block.rows)[readable], -1
        while len(indices := _next_rows(offered, stream, self._position, last)):
            # a list of its own, so that who keeps a few rows does not keep the others
            payloads, first = ReadRows([block.payloads[readable[number]] or {} for number in indices.tolist()]), self._position
            self._position, last = first + len(indices), int(offered[indices[-1]])
            records = slice(first, self._position)
            yield StoredRows(first, self._source.names, offered[indices], payloads, partial(self._spelled, records))
            tokens = next(iter(stream.columns.values())).span(records)
            note_mapped_bytes(4 * (tokens.stop - tokens.start))

    def _spelled(self, records: slice) -> Spelled | None:
        return byte_table(self._store).take(self._stream.columns["tokens"].read(records)[0])

    def end(self) -> Iterator[StoredRows]:
        """Yield nothing more.

        Raises:
            StoreError: a record of the store is not in its source, or not in the order of the source.
        """
        at, stream = self._position, self._stream
        if at != len(stream) and self._every:
            raise StoreError(self._source.missing(stream.name, at, int(stream.origins.file[at]), int(stream.origins.row[at])))
        yield from ()


def byte_table(store: Store) -> ByteTable:
    """Return the bytes of each id, which all checks of a store ask; they are proven if its tokens are many."""

    def table() -> ByteTable:
        made = ByteTable(store.vocabulary)
        made.is_ready(sum(len(stream.columns[name].values) for stream in store.streams().values() for name in stream.has("ids")))
        return made

    return store.once("bytes of ids", table)


def stored_rows(store: Store, stream: Table) -> Iterator[StoredRows]:
    """Yield the records of a stream with their rows, in order.

    Raises:
        StoreError: see `Join.end`.
        SourceError: a source changed since it was pinned.
    """
    join = Join(store, stream)
    with closing(prefetch(_rows_of(source_of(store), stream))) as blocks:
        for block in blocks:
            yield from join.add(block)
    yield from join.end()


def _rows_of(source: DomainSource | LineSource, stream: Table) -> Iterator[Selected]:
    """Yield the rows of the files that a stream has records of."""
    files = {number for part in stretches(len(stream)) for number in np.unique(stream.origins.file[part]).tolist()}
    return select((rows for rows in source.rows() if rows[0] in files), Rules(deduplicate=False))


def _next_rows(offered: npt.NDArray[np.int64], stream: Table, first: int, last: int) -> npt.NDArray[np.int64]:
    """Return the indices in `offered` of the rows of the next records of a stream, as long as these come from there in order.

    Args:
        offered: places of rows, ascending.
        last: place of the previous record; -1 where it is not in this block.
    """
    column, origins = next(iter(stream.columns.values())), stream.origins
    ends = np.asarray(column.ends[first : first + len(offered)])
    begin = int(ends[0] - 1) if len(ends) else 0
    count = min(len(ends), max(1, int(np.searchsorted(ends, begin + TOKENS_AT_ONCE))))
    found = _places_in(origins, slice(first, first + count))
    if origins.several and len(found):
        ahead = _places_in(origins, slice(first + count, first + count + _MOST_OF_ROW))
        found = np.append(found, ahead[: int(np.argmin(np.append(ahead == found[-1], False)))])
    indices, steps = np.searchsorted(offered, found), np.diff(found, prepend=last)
    is_next = (steps >= 0) if origins.several else (steps > 0)
    is_next[is_next] = offered[np.minimum(indices[is_next], len(offered) - 1)] == found[is_next]
    return indices if is_next.all() else indices[: int(np.argmin(is_next))]


def _places_in(origins: Origins, part: slice) -> npt.NDArray[np.int64]:
    """Return the places of records; -1 for a row that no file can have."""
    row = np.asarray(origins.row[part])
    return np.where((row >= 0) & (row < 1 << FILE), places(origins.file[part], row), -1)


# Examples of rows, by the schema of the domain; and the files that they name.


def example_of(convert: Reader, payload: Mapping[str, Any], identity: str, kind: type[T]) -> T:
    """Return the example of this kind that a record came from; see `as_example`."""
    try:
        return as_example(apply(convert, payload), identity, kind)
    except Refused as refusal:
        return as_example(refusal, identity, kind)


def as_example(example: object, identity: str, kind: type[T]) -> T:
    """Return what a schema made of the row of a record, checked.

    Raises:
        StoreError: it is no example of this kind, so the record cannot come from this row.
    """
    if isinstance(example, Refused):
        raise StoreError(f"the store holds {identity}, which its schema refuses: {example}") from example
    if not isinstance(example, kind):
        raise StoreError(f"the store holds {identity}, which its schema reads as a {type(example).__name__}")
    if unlike := [tool for tool in (example.tools if isinstance(example, Sample | Pair | Prompt | Group) else ()) if not is_wrapped(tool)]:
        raise StoreError(f"the store holds {identity} with a tool that is not wrapped once: {unlike[0]!r:.300}")
    return example


def files_of(store: Store) -> RecordFiles:
    """What the records of a store have of files."""
    domain = None if store.partition not in store.family.domains else domain_of(store.family, store.partition)
    return record_files()(store.workspace, store.family, domain)


def shown_text(turn: Turn, image: str) -> str:
    """Return the text of a turn as trained, with `image` for each image without a placeholder."""
    return "".join(region.placeholder or image if region.kind in MEDIA else region.text for region in turn.regions if not region.drop)


# What decides the side of the split of a row, computed a second time.

STRING_ROLES = ("user", "assistant", "prompt", "completion")
"""Roles of a turn that may be written as a string."""


def held_out(prompt: Any, fraction: float, plain: bool) -> int:
    """Return `Stored.belongs` of a prompt. Prompts are compared in plain form, whatever the form of the file."""
    if plain and not isinstance(prompt, str):
        if any(message.keys() != {"role", "content"} for message in prompt):
            return -1
        prompt = prompt[0]["content"] if len(prompt) == 1 and prompt[0]["role"] in STRING_ROLES else prompt
    return int(fraction > 0 and is_held_out(prompt_json(prompt), fraction))


class _Asked(msgspec.Struct):
    prompt: Any = msgspec.UNSET
    query: Any = msgspec.UNSET


_decode = msgspec.json.Decoder(_Asked).decode


def prompt_of_line(line: bytes) -> Any:
    """Return the query of a line, or its prompt. No other field is decoded."""
    try:
        fields = _decode(line)
    except (msgspec.MsgspecError, ValueError):
        fields = _Asked(**{key: value for key, value in row_of(line).items() if key in ("prompt", "query")})
    if fields.query is not msgspec.UNSET:
        return fields.query
    if fields.prompt is msgspec.UNSET:
        raise KeyError("prompt")
    return fields.prompt


def prompt_json(prompt: Any) -> bytes:
    """Return the JSON of a prompt, keys in their order, which decides whether it is held out."""
    return json.dumps(prompt, ensure_ascii=False, separators=(",", ":")).encode()


def by_fields(store: Store) -> Content:
    """Split by all fields of a row."""
    return canonical_json


def by_text(store: Store) -> Content:
    """Split by the text of a document."""
    convert, files = converter(domain_source(store).domain, Sample), files_of(store)
    image = files.marks().get(IMAGE, "")

    def text(payload: Mapping[str, Any]) -> bytes:
        document = apply(convert, payload)
        assert isinstance(document, Sample)
        with suppress(CheckFailed):  # a rejected record, which is on no side
            document = files.ready_again(document)
        return "".join(shown_text(turn, image) for turn in document.turns).encode()

    return text
