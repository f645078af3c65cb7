"""A row of a store → the records that it is made of, by the indexes that stores keep."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.read_back import row_fault
from prep_assets.assets.commands import build_command
from prep_assets.assets.exports import Exporting
from prep_assets.assets.graph import EVERY, holds, lines_of, with_parts
from prep_assets.assets.stage import FromParts
from prep_assets.assets.writing.groups import splits
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.exports.source import SIDES, Pairs
from prep_assets.lineage.opened import Opened, is_export
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import Published

_HELD_OUT = re.compile(r"(.*_)?(dev|test)(_packed|/.*)?")


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


def streams(published: Published) -> list[str]:
    """The streams, tables or files of rows in a store, those that are held out last; none of a raw store."""
    if holds(published.manifest.asset, GroupStore):
        return list(splits(published.directory))
    found = (path for pattern in ("*.index", "*.documents", "*/*.index") for path in published.directory.glob(pattern))
    names = sorted(path.relative_to(published.directory).with_suffix("").as_posix() for path in found)
    return sorted(names, key=lambda name: _HELD_OUT.fullmatch(name) is not None)


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
    if place.asset not in _READ:
        raise ConfigError(f"{place.asset} has no rows to trace; assets that have: {', '.join(_READ)}, and exports")
    return _READ[place.asset](opened, place)


def check_row(place: Place, count: int) -> None:
    """Raises:
    ConfigError: the store has no such row.
    """
    if not 0 <= place.row < count:
        stream = f" {place.stream}" if place.stream not in ("", place.asset) else ""
        raise ConfigError(f"row {place.row:,} of {place.asset}{stream}: there are {count:,}, numbered from 0")


def _packed(opened: Opened, place: Place) -> Row:
    table = opened.packed(place.stream)
    check_row(place, len(table))
    split = "dev" if place.stream == "sft_dev_packed" else "train"
    entries = zip(*(np.asarray(table.documents[field][table.pieces(place.row)]).tolist() for field in _FIELDS), strict=True)
    pieces = []
    for start, length, source, record, first in entries:
        [piece] = _record(opened, Place("sft_tokens", table.sources[source], split, record)).pieces
        pieces.append(replace(piece, start=start, end=start + length, first=first, path=(place, *piece.path)))
    weights = table.weights(place.row).astype(np.float32)
    return Row(place, len(table), np.asarray(table.tokens[place.row]).astype(np.int64), weights, tuple(pieces))


_FIELDS = ("row_offset", "length", "source", "record", "start")


def _record(opened: Opened, place: Place) -> Row:
    """A record of a domain's token store."""
    store = opened.tokens(place.asset, place.partition, place.stream)
    check_row(place, len(store))
    raw = f"{place.asset.removesuffix('_tokens')}_raw"
    origin = Origin(raw, place.partition, int(store.file[place.row]), int(store.row[place.row]))
    piece = Piece(0, len(store.record(place.row, "tokens")), 0, store.part(place.row)[0] - 1, (place,), origin)
    return Row(place, len(store), *_arrays(store, place.row), (piece,))


def _arrays(store: Any, record: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32] | None]:
    ids = store.record(record, "tokens").astype(np.int64)
    return ids, store.weights(record).astype(np.float32) if "loss_mask" in store.arrays else None


def _line(opened: Opened, place: Place) -> Row:
    """A line, and the line of its domain that it was merged from."""
    lines = opened.lines(place.asset, place.partition, place.stream)
    check_row(place, len(lines))
    asset = EVERY[place.asset]
    path: tuple[Place, ...] = (place,)
    domain = lines.sources[int(lines.index["source"][place.row])]
    if asset.parts:
        [at] = np.flatnonzero(opened.lines(asset.parts, domain, place.stream).places == lines.places[place.row])
        path = (place, Place(asset.parts, domain, place.stream, int(at)))
    file, row = (int(lines.index[field][place.row]) for field in ("file", "row"))
    origin = None if place.asset == "arithmetic_prompts" else Origin(f"{asset.family}_raw", domain, file, row)
    return Row(place, len(lines), np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, path, origin),))


def _tokenized_line(opened: Opened, place: Place) -> Row:
    """A record that was made of a line of a JSONL store."""
    store = opened.tokens(place.asset, place.partition, place.stream)
    check_row(place, len(store))
    [piece] = _merged(opened, place).pieces if EVERY[place.asset].parts else _line(opened, line_of(opened, place)).pieces
    ids, weights = _arrays(store, place.row)
    return Row(place, len(store), ids, weights, (replace(piece, end=len(ids), path=(place, *piece.path)),))


def line_of(opened: Opened, place: Place) -> Place:
    """The line that a record of tokens was made of, in the store of lines whose order the stream has."""
    lines = lines_of(place.asset, place.stream)
    assert lines is not None
    return Place(lines[0], place.partition, lines[1], int(opened.tokens(place.asset, place.partition, place.stream).row[place.row]))


def _merged(opened: Opened, place: Place) -> Row:
    """The record of a domain, or of the arithmetic curriculum, that stands in a merged stream."""
    source = EVERY[place.asset].source
    assert isinstance(source, FromParts)
    if place.stream not in source.lines:
        return read_row(opened, Place(source.assets[1], "", place.stream, place.row))
    line = _line(opened, line_of(opened, place)).pieces[0].path[-1]
    rows = opened.tokens(source.assets[0], line.partition, place.stream).row
    return read_row(opened, Place(source.assets[0], line.partition, place.stream, int(np.searchsorted(rows, line.row))))


def _group(opened: Opened, place: Place) -> Row:
    """A group: its prompt, then each response, end to end."""
    store = opened.groups(place.asset, place.partition, place.stream)
    check_row(place, len(store))
    domain, asset = store.sources[int(store.source[place.row])], EVERY[place.asset]
    path: tuple[Place, ...] = (place,)
    if asset.parts:
        before = int(np.count_nonzero(store.source[: place.row] == store.source[place.row]))
        path = (place, Place(asset.parts, domain, place.stream, before))
    origin = Origin("rl_raw", domain, int(store.prompts.file[place.row]), int(store.prompts.row[place.row]))
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
    whole = _packed(opened, Place("sft_packed", "", stream, number))
    piece = whole.pieces[place.row - table.pieces(number).start]
    part = slice(piece.start, piece.end)
    assert whole.weights is not None
    return Row(whole.place, len(table), whole.ids[part], whole.weights[part], (replace(piece, start=0, end=piece.end - piece.start),))


def _sides(opened: Opened, place: Place, each: Exporting) -> Row:
    """A pair: its chosen answer, then the rejected one, each with the prompt."""
    folder = "" if (stem := each.stem(place.partition)) is None else f"{stem}/"
    rows = [_tokenized_line(opened, Place(each.source.name, place.partition, f"{folder}{side}", place.row)) for side in SIDES]
    chosen, rejected = (row.pieces[0] for row in rows)
    at = chosen.end
    ids, weights = (np.concatenate([getattr(row, name) for row in rows]) for name in ("ids", "weights"))
    return Row(rows[0].place, rows[0].count, ids, weights, (chosen, replace(rejected, start=at, end=at + rejected.end)))


_READ: Mapping[str, Callable[[Opened, Place], Row]] = {
    "pretrain_tokens": _record,
    "sft_tokens": _record,
    "sft_packed": _packed,
    **dict.fromkeys(with_parts("preferences", "rl_prompts"), _line),
    "arithmetic_prompts": _line,
    "contrastive": _line,
    **dict.fromkeys((*with_parts("preference_tokens", "rl_tokens"), "arithmetic_tokens"), _tokenized_line),
    **dict.fromkeys(with_parts("rl_groups"), _group),
}
