"""A row of a store → the records that it is made of, and a row of a source → the rows that hold it, by the indexes that stores keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.read_back import row_fault
from prep_assets.assets.commands import build_command
from prep_assets.assets.exports import Exporting
from prep_assets.assets.graph import EVERY, asset_named, lines_of
from prep_assets.assets.stage import FromParts
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.exports.source import SIDES, Pairs
from prep_assets.lineage.opened import WITH_ROWS, Opened, is_export, sft_split, source_rows, streams
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import Published
from prep_assets.stores.tokens import TokenStore


@dataclass(frozen=True, slots=True)
class Place:
    """One row, record, line or group of a store; `stream` is empty where the store has one only."""

    asset: str
    partition: str
    stream: str
    row: int


@dataclass(frozen=True, slots=True)
class Origin:
    """A row of a source: which raw asset pinned it, its domain, the number of the file in that domain, and the row in the file."""

    raw: str
    domain: str
    file: int
    row: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a row that comes from one record.

    Attributes:
        start, end: tokens of the row; none of a line of text.
        first: which token of the record's sequence stands at `start`.
        part: which of the record's sequences it is, see `derive`.
        path: the stores on the way to the source, the one with the tokens first.
        origin: the row of the source; `None` where it was generated.
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
        place: where it is.
        count: how many rows its stream has.
        ids: int64[T]; empty for a line of text.
        weights: float32[T], the loss weight of each token, below 0 where it is not attended; `None` where the store has no mask.
        pieces: what it is made of, ascending.
    """

    place: Place
    count: int
    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32] | None
    pieces: tuple[Piece, ...]


def stream_of(published: Published, name: str | None) -> str:
    """The stream that is meant: the one asked for, else the first.

    Raises:
        ConfigError: there is none of that name.
    """
    names = streams(published)
    if name is not None and name not in names:
        raise ConfigError(f"{published.manifest.asset} has no stream {name!r}{nearest(name, names) or '.'} There are: {', '.join(names)}")
    return name or (names[0] if names else "")


def read_row(opened: Opened, place: Place) -> Row:
    """A row, and what it is made of.

    Raises:
        ConfigError: there is no such row, or the asset has none.
    """
    if is_export(place.asset):
        return _exported(opened, place)
    if place.asset not in WITH_ROWS:
        raise ConfigError(f"{place.asset} has no rows to trace; assets that have: {', '.join(WITH_ROWS)}, and exports")
    store = opened.stream(place.asset, place.partition, place.stream)
    check_row(place, len(store))
    if isinstance(store, PackedStore):
        return _packed(opened, place, store)
    if isinstance(store, Lines):
        return _line(opened, place, store)
    if isinstance(store, GroupStore):
        return _group(place, store)
    return (_record if lines_of(place.asset, place.stream) is None else _tokenized_line)(opened, place, store)


def check_row(place: Place, count: int) -> None:
    """Raises:
    ConfigError: the store has no such row.
    """
    if not 0 <= place.row < count:
        stream = f" {place.stream}" if place.stream not in ("", place.asset) else ""
        raise ConfigError(f"row {place.row:,} of {place.asset}{stream}: there are {count:,}, numbered from 0")


def _packed(opened: Opened, place: Place, table: PackedStore) -> Row:
    entries = zip(*(np.asarray(table.documents[field][table.pieces(place.row)]).tolist() for field in _FIELDS), strict=True)
    pieces = []
    for start, length, source, record, first in entries:
        [piece] = read_row(opened, Place("sft_tokens", table.sources[source], sft_split(place.stream), record)).pieces
        pieces.append(replace(piece, start=start, end=start + length, first=first, path=(place, *piece.path)))
    weights = table.weights(place.row).astype(np.float32)
    return Row(place, len(table), np.asarray(table.tokens[place.row]).astype(np.int64), weights, tuple(pieces))


_FIELDS = ("row_offset", "length", "source", "record", "start")


def _origin(place: Place, store: TokenStore | Lines | GroupStore) -> Origin:
    return Origin(f"{EVERY[place.asset].family}_raw", *source_rows(store, place.partition).of(place.row))


def _record(opened: Opened, place: Place, store: TokenStore) -> Row:
    """A record of a domain's token store."""
    ids, weights = _arrays(store, place.row)
    return Row(place, len(store), ids, weights, (Piece(0, len(ids), 0, store.part(place.row)[0] - 1, (place,), _origin(place, store)),))


def _arrays(store: TokenStore, record: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None]:
    ids = store.record(record, "tokens").astype(np.int64)
    return ids, store.weights(record).astype(np.float32) if "loss_mask" in store.arrays else None


def _line(opened: Opened, place: Place, lines: Lines) -> Row:
    """A line, and the line of its domain that it was merged from."""
    origin, parts = _origin(place, lines), EVERY[place.asset].parts
    path: tuple[Place, ...] = (place,)
    if parts:
        [at] = np.flatnonzero(_lines(opened, Place(parts, origin.domain, place.stream, 0)).places == lines.places[place.row])
        path = (place, Place(parts, origin.domain, place.stream, int(at)))
    generated = place.asset == "arithmetic_prompts"
    return Row(place, len(lines), np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, path, None if generated else origin),))


def _lines(opened: Opened, place: Place) -> Lines:
    found = opened.stream(place.asset, place.partition, place.stream)
    assert isinstance(found, Lines)
    return found


def _tokenized_line(opened: Opened, place: Place, store: TokenStore) -> Row:
    """A record that was made of a line of a JSONL store."""
    [piece] = (_merged(opened, place) if EVERY[place.asset].parts else read_row(opened, line_of(opened, place))).pieces
    ids, weights = _arrays(store, place.row)
    return Row(place, len(store), ids, weights, (replace(piece, end=len(ids), path=(place, *piece.path)),))


def line_of(opened: Opened, place: Place) -> Place:
    """The line that a record of tokens was made of, in the store of lines whose order the stream has."""
    lines = lines_of(place.asset, place.stream)
    assert lines is not None
    return Place(lines[0], place.partition, lines[1], int(_line_numbers(opened, place)[place.row]))


def _line_numbers(opened: Opened, place: Place) -> npt.NDArray[Any]:
    """Of each record of tokens, the number of the line that it was made of."""
    found = opened.stream(place.asset, place.partition, place.stream)
    assert isinstance(found, TokenStore)
    return found.row


def _merged(opened: Opened, place: Place) -> Row:
    """The record of a domain, or of the arithmetic curriculum, that stands in a merged stream."""
    source = EVERY[place.asset].source
    assert isinstance(source, FromParts)
    if place.stream not in source.lines:
        return read_row(opened, Place(source.assets[1], "", place.stream, place.row))
    line = read_row(opened, line_of(opened, place)).pieces[0].path[-1]
    part = Place(source.assets[0], line.partition, place.stream, 0)
    return read_row(opened, replace(part, row=int(np.searchsorted(_line_numbers(opened, part), line.row))))


def _group(place: Place, store: GroupStore) -> Row:
    """A group: its prompt, then each response, end to end."""
    origin, whole = _origin(place, store), EVERY[place.asset].parts
    path: tuple[Place, ...] = (place,)
    if whole:
        before = int(np.count_nonzero(store.source[: place.row] == store.source[place.row]))
        path = (place, Place(whole, origin.domain, place.stream, before))
    prompt = store.prompts.record(place.row, "tokens")
    parts = [prompt, *(store.responses.record(each, "tokens") for each in store.responses_of(place.row))]
    masks = [np.zeros(len(prompt)), *(store.responses.record(each, "loss_mask") for each in store.responses_of(place.row))]
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    pieces = tuple(Piece(ends[part], ends[part + 1], 0, part, path, origin) for part in range(len(parts)))
    return Row(place, len(store), np.concatenate(parts).astype(np.int64), np.concatenate(masks).astype(np.float32), pieces)


def _exported(opened: Opened, place: Place) -> Row:
    """A row of an export: that of the store that it was made from, or one of the documents in it."""
    export = opened.export(place.asset, place.partition)
    each, source, read = export.each, export.source, export.read
    check_row(place, read.count)
    if read.documents and isinstance(source, PackedStore):
        found = _document(opened, place, source, export.streams[0])
    elif isinstance(source, Pairs):
        found = _sides(opened, place, each)
    else:
        found = read_row(opened, Place(each.source.name, place.partition, export.streams[0], place.row))
    pieces = tuple(replace(piece, path=(place, *piece.path)) for piece in found.pieces)
    if fault := row_fault(read, source, place.row, each.options):
        raise StoreError(f"{place.asset}: row {place.row:,}: {fault}. Export it again:\n  {build_command(place.asset, place.partition)}")
    return replace(found, place=place, count=read.count, pieces=pieces)


def _document(opened: Opened, place: Place, table: PackedStore, stream: str) -> Row:
    """One document of a packed table."""
    number = int(table.documents["row"][place.row])
    whole = read_row(opened, Place("sft_packed", "", stream, number))
    piece = whole.pieces[place.row - table.pieces(number).start]
    part = slice(piece.start, piece.end)
    assert whole.weights is not None
    return Row(whole.place, len(table), whole.ids[part], whole.weights[part], (replace(piece, start=0, end=piece.end - piece.start),))


def _sides(opened: Opened, place: Place, each: Exporting) -> Row:
    """A pair: its chosen answer, then the rejected one, each with the prompt."""
    folder = "" if (stem := each.stem(place.partition)) is None else f"{stem}/"
    rows = [read_row(opened, Place(each.source.name, place.partition, f"{folder}{side}", place.row)) for side in SIDES]
    chosen, rejected = (row.pieces[0] for row in rows)
    at = chosen.end
    ids, weights = (np.concatenate([getattr(row, name) for row in rows]) for name in ("ids", "weights"))
    return Row(rows[0].place, rows[0].count, ids, weights, (chosen, replace(rejected, start=at, end=at + rejected.end)))


# -- the other way ----------------------------------------------------------------------------------------------------------------------


def pieces_of(opened: Opened, asset: str, partition: str, origin: Origin) -> Iterator[tuple[Place, Piece]]:
    """Each stretch of a store that comes from a row of a source, with the row of the store that it is in.

    Raises:
        StoreError: the store is missing or out of date.
    """
    for place in places_of(opened, asset, partition, origin):
        for piece in read_row(opened, place).pieces:
            if piece.origin == origin:
                yield place, piece


def places_of(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    """The rows of a store that hold a row of a source; what is generated holds none."""
    if is_export(asset):
        return _exported_places(opened, asset, partition, origin)
    if asset not in WITH_ROWS or asset.startswith("arithmetic_"):
        return []
    places = [Place(asset, partition, stream, 0) for stream in streams(opened.published(asset, partition))]
    return [replace(place, row=row) for place in places for row in _holding(opened, place, origin)]


def _holding(opened: Opened, place: Place, origin: Origin) -> list[int]:
    """The rows of one stream."""
    store, found = opened.stream(place.asset, place.partition, place.stream), list[int]()
    if isinstance(store, PackedStore):
        found = np.unique(np.asarray(store.documents["row"])[_entries(opened, store, place.stream, origin)]).tolist()
    elif not isinstance(store, TokenStore) or (made_of := lines_of(place.asset, place.stream)) is None:
        found = source_rows(store, place.partition).records(origin.domain, origin.file, origin.row)
    elif made_of[0] != "arithmetic_prompts":  # which no source has
        lines = _holding(opened, Place(made_of[0], place.partition, made_of[1], 0), origin)
        found = np.flatnonzero(np.isin(store.row, lines)).tolist()
    return found


def _entries(opened: Opened, table: PackedStore, stream: str, origin: Origin) -> list[int]:
    """The pieces of a packed table that come from a row of a source: numbers of entries in `PackedStore.documents`."""
    if origin.domain not in table.sources:
        return []
    records = _holding(opened, Place("sft_tokens", origin.domain, sft_split(stream), 0), origin)
    source = np.asarray(table.documents["source"]) == table.sources.index(origin.domain)
    found: list[int] = np.flatnonzero(source & np.isin(table.documents["record"], records)).tolist()
    return found


def _exported_places(opened: Opened, asset: str, partition: str, origin: Origin) -> list[Place]:
    export = opened.export(asset, partition)
    if export.read.documents and isinstance(export.source, PackedStore):
        table = opened.stream("sft_packed", "", export.streams[0])
        assert isinstance(table, PackedStore)
        rows = _entries(opened, table, export.streams[0], origin)
    else:
        [above] = asset_named(asset, opened.workspace).upstream
        rows = [place.row for place in places_of(opened, above, partition, origin) if place.stream in export.streams]
    return [Place(asset, partition, "", row) for row in dict.fromkeys(rows)]
