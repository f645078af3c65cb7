"""Map rows of stores to the source records that they are made of, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.array_types import Float32s, Ints
from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.quarantine import Refusal, refusal
from prep_assets.data.read import read_blocks
from prep_assets.errors import ConfigError, StoreError, require_known, require_number
from prep_assets.extensions.explain.unchanged import Unchanged
from prep_assets.extensions.explain.verdicts import found_of
from prep_assets.extensions.exports.assets import Exporting, open_export_source
from prep_assets.extensions.exports.compared import row_fault
from prep_assets.extensions.exports.readable import Readable
from prep_assets.extensions.exports.registry import reader
from prep_assets.extensions.lines.write import strings_as_messages
from prep_assets.graph.graph import EVERY, asset_named, lines_of, stream_table, streams
from prep_assets.pipeline.asset import FromParts, Generated
from prep_assets.pipeline.sources import domain_of, pinned, read_sources, router_of
from prep_assets.pipeline.verdicts import QUALITY
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.samples import Record
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.table import PAIRS, SIDES, Pieces, Table
from prep_assets.stores.version_folders import Published

# Streams of any kind of store, and the source row of each of their records.
#
# `Opened` caches the stores of a workspace, and opens only those that are up to date with their configuration and sources.

DRAFT = " (draft)"
"""Suffix of the label of a draft."""
WITH_ROWS = tuple(name for name, asset in EVERY.items() if asset.streams)
"""Assets whose stores hold records; an export holds those of the store that it was made from."""


def source_files(raw: Published) -> list[Mapping[str, Any]]:
    """The entries of a raw store's files, in the order in which records number them: training files, then held-out ones."""
    listed = read_sources(raw)
    return [*listed["files"], *listed["test_files"]]


RowName = Callable[[int, int], str]
"""File and row → the id of a record, ``gsm8k.jsonl:17``."""


def row_names(raw: Published | None) -> RowName:
    """Ids of records by the file names of a raw store; by file numbers where it is gone."""
    names = [entry["name"] for entry in source_files(raw)] if raw else []
    return lambda file, row: f"{names[file] if file < len(names) else f'file {file + 1}'}:{row + 1}"


def sft_split(table: str) -> str:
    """The stream of `sft_tokens` that a packed table is made of."""
    return "dev" if table == "sft_dev_packed" else "train"


StoreKey = tuple[str, str]
"""Asset and partition."""
Exported = tuple[Exporting, Table, tuple[str, ...], Readable]


class Opened(Unchanged):
    """Stores that can be traced, since everything upstream of them is unchanged.

    Args:
        draft: asset and partition of the one store to read as a draft, whatever its checks say; its inputs are current stores.
    """

    def __init__(self, workspace: Workspace, draft: tuple[str, str] | None = None) -> None:
        super().__init__(workspace.plain)
        self.draft = draft
        self._streams, self._exports = dict[tuple[str, str, str], Table](), dict[StoreKey, Exported]()

    def stream(self, asset: str, partition: str, stream: str) -> Table:
        """One of its streams."""
        if (asset, partition, stream) not in self._streams:
            self._streams[asset, partition, stream] = stream_table(self.published(asset, partition), stream)
        return self._streams[asset, partition, stream]

    def export(self, asset: str, partition: str) -> Exported:
        """An export's declaration, its source store, the streams that it holds (two for pairs), and the reader of its files."""
        if (asset, partition) not in self._exports:
            self._exports[asset, partition] = self._open_export(asset, partition)
        return self._exports[asset, partition]

    def made_with(self, asset: str, partition: str = "") -> Workspace:
        """The workspace that a store was built with; for the draft, with the options of its run."""
        if (asset, partition) != self.draft:
            return self.workspace
        store = self.workspace.place(asset, partition).draft()
        return self.workspace.overriding(EVERY[asset].family, store.manifest.options) if store else self.workspace

    def label(self, asset: str, partition: str = "") -> str:
        """The label of a store in messages."""
        return self.workspace.place(asset, partition).label + (DRAFT if (asset, partition) == self.draft else "")

    def _draft(self, asset: str, partition: str) -> Published:
        label, command = self.workspace.place(asset, partition).label, build_command(asset, partition)
        if asset.endswith("_raw"):
            raise StoreError(f"a draft of {label} has no rows: trace the current store, or a draft of what is made from it")
        published = self.workspace.place(asset, partition).draft()
        if published is None:
            raise StoreError(f"{label} has no draft. Options of one run make one:\n  {command} --set KEY=VALUE")
        recipe = asset_named(asset, self.workspace).recipe(self.made_with(asset, partition), partition)
        if published.manifest.build_key != build_key(recipe):
            changed = ", ".join(differences(published.manifest.recipe, recipe))
            options = (
                json.dumps(published.manifest.options) if published.manifest.options else "which an earlier release did not write down"
            )
            raise StoreError(
                f"the draft of {label} is not what its options ({options}) would give now (changed: {changed}). Build it again:\n"
                f"  {command} --set KEY=VALUE"
            )
        return published

    def _open(self, asset: str, partition: str) -> Published:
        if (asset, partition) != self.draft:
            return super()._open(asset, partition)
        self.open_upstream(asset, partition)
        return self._draft(asset, partition)

    def _open_export(self, asset: str, partition: str) -> Exported:
        published = self.published(asset, partition)
        recipe = published.manifest.recipe
        exporting = Exporting("", EVERY[recipe["from"]], recipe["format"], recipe["stream"], recipe["options"])
        source = open_export_source(exporting, self.published(exporting.source.name, partition))
        stem = exporting.stem(partition)
        names = tuple(f"{stem}/{side}" if stem else side for side in SIDES) if source.schema.fits(PAIRS) else (stem or exporting.stream,)
        return exporting, source, names, reader(exporting.format)(published.directory, source, exporting.options)

    def hashes(self, asset: str, partition: str) -> Mapping[str, Any]:
        """The hashes of a store: build key, content, and tokenizer and template where it has them."""
        manifest = self.published(asset, partition).manifest
        recipe = {key: manifest.recipe[key] for key in ("tokenizer", "template") if key in manifest.recipe}
        return {"build_key": manifest.build_key, "content": manifest.content_hash, **recipe}


# Store row → records, and source row → store rows, by the indexes of the stores.


@dataclass(frozen=True, slots=True)
class Place:
    """One row, record, line or group of a store; `stream` is empty where the store has only one."""

    asset: str
    partition: str
    stream: str
    row: int


@dataclass(frozen=True, slots=True)
class Origin:
    """A source row: the raw asset that pins it, its domain, its file's number in the domain, and its row in the file."""

    raw: str
    domain: str
    file: int
    row: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that comes from one record.

    Attributes:
        start, end: tokens of the row; both 0 for a line of text.
        first: index in the record's sequence of the token at `start`.
        part: index of the sequence among those of its record, see `Derive`.
        path: the rows on the way to the source, that of the traced store first.
        origin: the source row; `None` where the record was generated.
    """

    start: int
    end: int
    first: int
    part: int
    path: tuple[Place, ...]
    origin: Origin | None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row of a store.

    Attributes:
        place: its store, stream and number.
        count: rows in its stream.
        ids: int64[T]; empty for a line of text.
        weights: float32[T], the loss weight of each token, below 0 where it is not attended; `None` where the store has no mask.
        pieces: the stretches that it is made of, ascending.
    """

    place: Place
    count: int
    ids: Ints
    weights: Float32s | None
    pieces: tuple[Piece, ...]


def stream_of(published: Published, name: str | None) -> str:
    """The stream called `name`, or by default the first that has a row: labelled answers, where there is no pair.

    Raises:
        ConfigError: no stream has that name.
    """
    names = streams(published)
    if name is not None:
        require_known(f"{published.manifest.asset} has no stream", name, names)
    with_rows = (each for each in names if len(names) == 1 or len(stream_table(published, each)))
    return name or next(with_rows, names[0] if names else "")


def read_row(opened: Opened, place: Place) -> Row:
    """Read a row and its pieces.

    Raises:
        ConfigError: no such row, or an asset without rows.
    """
    if place.asset not in EVERY:
        return _exported_row(opened, place)
    if place.asset not in WITH_ROWS:
        raise ConfigError(f"{place.asset} has no rows to trace; assets that have: {', '.join(WITH_ROWS)}, and exports")
    table = opened.stream(place.asset, place.partition, place.stream)
    check_row(place, len(table))
    if table.path is not None:
        return _line_row(opened, place, table)
    if table.pieces is not None:
        return Row(place, len(table), *table.places(place.row), _index_pieces(opened, place, table.pieces))
    ids, weights, starts = table.joined(place.row)
    if lines_of(place.asset, place.stream) is None:
        ends, path, origin = [*starts[1:], len(ids)], _path(place, table), _origin(place, table)
        first = table.origins.part(place.row)[0] - 1 if len(starts) == 1 else 0
        pieces = tuple(Piece(start, end, 0, first + part, path, origin) for part, (start, end) in enumerate(zip(starts, ends, strict=True)))
    else:  # tokenized from a line
        [piece] = (_domain_row(opened, place) if EVERY[place.asset].parts else read_row(opened, line_of(opened, place))).pieces
        pieces = (replace(piece, end=len(ids), path=(place, *piece.path)),)
    return Row(place, len(table), ids, weights, pieces)


def check_row(place: Place, count: int) -> None:
    """Raises:
    ConfigError: the store has no such row.
    """
    require_number("row", place.row, f"{place.asset} {place.stream}" if place.stream not in ("", place.asset) else place.asset, count)


def _index_pieces(opened: Opened, place: Place, index: Pieces) -> tuple[Piece, ...]:
    pieces = []
    for start, length, source, record, first in index.read(index.of(place.row), "row_offset", "length", "source", "record", "start"):
        [piece] = read_row(opened, Place("sft_tokens", index.domains[source], sft_split(place.stream), record)).pieces
        pieces.append(replace(piece, start=start, end=start + length, first=first, path=(place, *piece.path)))
    return tuple(pieces)


def _origin(place: Place, table: Table) -> Origin:
    return Origin(f"{EVERY[place.asset].family}_raw", *table.origins.of(place.row))


def _path(place: Place, table: Table) -> tuple[Place, ...]:
    """A record, and the one of its domain that it was copied from."""
    if not (part_asset := EVERY[place.asset].parts):
        return (place,)
    origins = table.origins
    before = int(np.count_nonzero(np.asarray(origins.domain[: place.row]) == origins.domain[place.row]))
    return place, Place(part_asset, origins.of(place.row)[0], place.stream, before)


def _line_row(opened: Opened, place: Place, table: Table) -> Row:
    """A line; its path has the line of its domain that it was merged from."""
    origin, part_asset = _origin(place, table), EVERY[place.asset].parts
    path: tuple[Place, ...] = (place,)
    if part_asset:
        part = opened.stream(part_asset, origin.domain, place.stream)
        line, *more = part.origins.records(origin.domain, origin.file, origin.row)
        if more:  # labelled answers of one row, which only what they say tells apart
            [stored], found = table.objects([place.row]), part.objects([line, *more])
            line = next(at for at, each in zip((line, *more), found, strict=True) if stored in (each, strings_as_messages(each)))
        path = (place, Place(part_asset, origin.domain, place.stream, line))
    generated = isinstance(EVERY[place.asset].source, Generated)
    return Row(place, len(table), np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, path, None if generated else origin),))


def line_of(opened: Opened, place: Place) -> Place:
    """The line that a record of tokens was made from."""
    lines = lines_of(place.asset, place.stream)
    assert lines is not None
    return Place(lines[0], place.partition, lines[1], int(_line_numbers(opened, place)[place.row]))


def _line_numbers(opened: Opened, place: Place) -> npt.NDArray[Any]:
    """The line number of each record of tokens: int[n]."""
    return opened.stream(place.asset, place.partition, place.stream).origins.row


def _domain_row(opened: Opened, place: Place) -> Row:
    """The record of a domain, or of the arithmetic curriculum, behind a record of a merged stream."""
    source = EVERY[place.asset].source
    assert isinstance(source, FromParts)
    if place.stream not in source.lines:
        return read_row(opened, Place(source.assets[1], "", place.stream, place.row))
    line = read_row(opened, line_of(opened, place)).pieces[0].path[-1]
    part = Place(source.assets[0], line.partition, place.stream, 0)
    return read_row(opened, replace(part, row=int(np.searchsorted(_line_numbers(opened, part), line.row))))


def _exported_row(opened: Opened, place: Place) -> Row:
    """A row of an export, read from its source store: a row, or one document of a packed row."""
    exporting, source, names, read = opened.export(place.asset, place.partition)
    check_row(place, read.count)
    if read.documents and source.pieces is not None:
        row = _document_row(opened, place, source, names[0])
    elif source.schema.fits(PAIRS):
        row = _pair_row(opened, place, exporting)
    else:
        row = read_row(opened, Place(exporting.source.name, place.partition, names[0], place.row))
    pieces = tuple(replace(piece, path=(place, *piece.path)) for piece in row.pieces)
    if fault := row_fault(read, source, place.row, exporting.options):
        raise StoreError(f"{place.asset}: row {place.row:,}: {fault}. Export it again:\n  {build_command(place.asset, place.partition)}")
    return replace(row, place=place, count=read.count, pieces=pieces)


def _document_row(opened: Opened, place: Place, table: Table, stream: str) -> Row:
    """One document of a packed table."""
    assert table.pieces is not None
    number = int(table.pieces.fields["row"][place.row])
    whole = read_row(opened, Place("sft_packed", "", stream, number))
    piece = whole.pieces[place.row - table.pieces.of(number).start]
    part = slice(piece.start, piece.end)
    assert whole.weights is not None
    return Row(whole.place, len(table), whole.ids[part], whole.weights[part], (replace(piece, start=0, end=piece.end - piece.start),))


def _pair_row(opened: Opened, place: Place, exporting: Exporting) -> Row:
    """A pair as one row: prompt and chosen answer, then prompt and rejected answer."""
    folder = "" if (stem := exporting.stem(place.partition)) is None else f"{stem}/"
    rows = [read_row(opened, Place(exporting.source.name, place.partition, f"{folder}{side}", place.row)) for side in SIDES]
    chosen, rejected = (row.pieces[0] for row in rows)
    middle = chosen.end
    ids, weights = (np.concatenate([getattr(row, name) for row in rows]) for name in ("ids", "weights"))
    return Row(rows[0].place, rows[0].count, ids, weights, (chosen, replace(rejected, start=middle, end=middle + rejected.end)))


# -- from source rows to stores ----------------------------------------------------------------------------------------------------------------------


def pieces_of(opened: Opened, asset: str, partition: str, origin: Origin) -> Iterator[tuple[Place, Piece]]:
    """Yield the stretches of a store that come from a source row, with the rows that they are in.

    Raises:
        StoreError: the store is missing or out of date.
    """
    for place in places_of(opened, asset, partition, origin):
        for piece in read_row(opened, place).pieces:
            if piece.origin == origin:
                yield place, piece


def places_of(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    """The rows of a store that hold a source row; none of a generated store."""
    if asset not in EVERY:
        return _places_in_export(opened, asset, partition, origin)
    if asset not in WITH_ROWS or asset.startswith("arithmetic_"):
        return []
    places = [Place(asset, partition, stream, 0) for stream in streams(opened.published(asset, partition))]
    return [replace(place, row=row) for place in places for row in _rows_holding(opened, place, origin)]


def _rows_holding(opened: Opened, place: Place, origin: Origin) -> list[int]:
    """The rows of one stream that hold a source row."""
    table, rows = opened.stream(place.asset, place.partition, place.stream), list[int]()
    if table.pieces is not None:
        rows = np.unique(table.pieces.fields["row"][_entries(opened, table.pieces, place.stream, origin)]).tolist()
    elif table.path is not None or (line_stream := lines_of(place.asset, place.stream)) is None:
        rows = table.origins.records(origin.domain, origin.file, origin.row)
    elif line_stream[0] != "arithmetic_prompts":  # generated, so no source row is in it
        lines = _rows_holding(opened, Place(line_stream[0], place.partition, line_stream[1], 0), origin)
        rows = np.flatnonzero(np.isin(table.origins.row, lines)).tolist()
    return rows


def _entries(opened: Opened, index: Pieces, stream: str, origin: Origin) -> list[int]:
    """The numbers of the pieces that come from a source row."""
    if origin.domain not in index.domains:
        return []
    records = _rows_holding(opened, Place("sft_tokens", origin.domain, sft_split(stream), 0), origin)
    source = index.fields["source"] == list(index.domains).index(origin.domain)
    entries: list[int] = np.flatnonzero(source & np.isin(index.fields["record"], records)).tolist()
    return entries


def _places_in_export(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    exporting, source, names, read = opened.export(asset, partition)
    if read.documents and source.pieces is not None:
        rows = _entries(opened, source.pieces, names[0], origin)
    else:
        rows = [place.row for place in places_of(opened, exporting.source.name, partition, origin) if place.stream in names]
    return [Place(asset, partition, "", row) for row in dict.fromkeys(rows)]


# Rows of source files by number.

Rows = Mapping[tuple[int, int], Record | Unreadable]
"""(file number in the domain, row in the file) → record."""


def files_of(workspace: Workspace, raw: str, domain: str) -> tuple[SourceFile, ...]:
    """The files of a domain in the order in which records number them: training files, then held-out ones.

    Raises:
        SourceError: a file changed since it was pinned.
    """
    pins = pinned(workspace, FAMILIES[raw.removesuffix("_raw")], raw, domain)
    return (*pins.files, *pins.test_files)


def found_rows(workspace: Workspace, published: Published, wanted: Callable[[str], object], most: int) -> Iterator[Refusal]:
    """Yield what quality steps found of a domain, with the rows as their family reads them.

    Args:
        wanted: whether to yield those of a ``stage/reason``.
        most: how many at the most.
    """
    family, domain = published.manifest.asset.removesuffix(f"_{QUALITY}"), published.manifest.partition
    found = [*islice((each for each in found_of(published) if wanted(f"{each[1]}/{each[2]}")), most)]
    rows = read_rows(workspace, f"{family}_raw", domain, {at for at, *_ in found}) if found else {}
    files = files_of(workspace, f"{family}_raw", domain)
    for at, stage, reason, detail in found:
        yield refusal(record_id(files[at[0]], at[1]), stage, reason, detail, rows[at].payload)


def read_rows(workspace: Workspace, raw: str, domain: str, wanted: Collection[tuple[int, int]]) -> Rows:
    """Read the wanted rows of a domain; a file is read once, up to its last wanted row.

    Raises:
        SourceError: a file changed since it was pinned.
        StoreError: a file has no such row.
    """
    files, txt = files_of(workspace, raw, domain), domain_of(workspace.family(FAMILIES[raw.removesuffix("_raw")]), domain).txt
    records: dict[tuple[int, int], Record | Unreadable] = {}
    for number in sorted({file for file, _ in wanted}):
        if number >= len(files):
            raise StoreError(f"{raw}[{domain}] has {len(files)} files, and a record is of file {number}. Build the store again")
        missing = {row for file, row in wanted if file == number}
        with closing(_rows(files[number], number, txt)) as rows:
            for row in rows:
                if row.row in missing:
                    records[number, row.row] = row
                    missing.discard(row.row)
                if not missing:
                    break
        if missing:
            raise StoreError(f"{files[number].name} of {domain} has no row {min(missing) + 1:,}. Build the store again")
    return records


def rows_of(workspace: Workspace, raw: str, domain: str, number: int) -> Iterator[Record | Unreadable]:
    """Every row of a file of a domain, as its family reads it.

    Raises:
        SourceError: it changed since it was pinned.
    """
    txt = domain_of(workspace.family(FAMILIES[raw.removesuffix("_raw")]), domain).txt
    yield from _rows(files_of(workspace, raw, domain)[number], number, txt)


def _rows(file: SourceFile, number: int, txt: Any) -> Generator[Record | Unreadable]:
    for block in read_blocks(file, number, block_bytes=4 << 20, txt=txt):
        yield from block.records
        yield from block.unreadable


def nth_row(workspace: Workspace, raw: str, domain: str, number: int) -> tuple[Origin, int]:
    """The origin of row `number` of a raw asset, counted over all its files in order, and the count of its rows.

    Raises:
        ConfigError: no such row.
        SourceError: a file changed since it was pinned.
    """
    published = workspace.published(raw, domain)
    assert published is not None
    counts = [entry["rows"] for entry in source_files(published)]
    total, files_before = sum(counts), 0
    require_number("row", number, f"{raw}[{domain}]", total)
    family = workspace.family(FAMILIES[raw.removesuffix("_raw")])
    router, configured = router_of(workspace, family, domain), domain_of(family, domain)
    for index, (file, count) in enumerate(zip(files_of(workspace, raw, domain), counts, strict=True)):
        if number < files_before + count:
            first = files_before
            for block in router.picked(file, read_blocks(file, index, block_bytes=4 << 20, txt=configured.txt)):
                rows: list[Record | Unreadable] = sorted([*block.records, *block.unreadable], key=lambda record: record.row)
                if number < first + len(rows):
                    return Origin(raw, domain, index, rows[number - first].row), total
                first += len(rows)
        files_before += count
    raise StoreError(f"{raw}[{domain}] counts {total:,} rows, and its files have fewer. Build it again")
