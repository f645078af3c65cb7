"""Stores by their streams: from a row to the source records that it is made of, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_exports import row_fault
from prep_assets.config.family import Family
from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import Unreadable
from prep_assets.data.files import SourceFile
from prep_assets.data.read import read_blocks
from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.exports.readable import SIDES, Pairs, Readable, Source
from prep_assets.exports.registry import reader
from prep_assets.graph.exports import Exporting, open_export_source
from prep_assets.graph.graph import EVERY, asset_named, holds, lines_of, upstream_of, with_parts
from prep_assets.pipeline.asset import FromParts
from prep_assets.pipeline.groups import splits
from prep_assets.pipeline.sources import domain_of, pinned, read_sources, router_of
from prep_assets.pipeline.workspace import Workspace, build_command
from prep_assets.samples import Record
from prep_assets.stores.groups import GroupStore, open_groups
from prep_assets.stores.lines import Lines, open_lines
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.packed import PackedStore, open_packed
from prep_assets.stores.published import open_published
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published

# Stores, opened by their streams whatever they hold, and which row of a source each of their records comes from.
#
# `Opened` opens those of a workspace: each once, and only where it still is what its configuration and its sources ask for.

DRAFT = " (draft)"
"""Behind the label of a draft."""
WITH_ROWS = (
    *("pretrain_tokens", "sft_tokens", "sft_packed", *with_parts("preferences", "rl_prompts"), "arithmetic_prompts", "contrastive"),
    *(*with_parts("preference_tokens", "rl_tokens"), "arithmetic_tokens", *with_parts("rl_groups")),
)
"""The assets whose stores have records of their own; exports have those of the store that they were made from."""
_HELD_OUT = re.compile(r"(.*_)?(dev|test)(_packed|/.*)?")
AnyStream = PackedStore | TokenStore | Lines | GroupStore
Int64s = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]
"""Float32, weights in the loss, below 0 where a token is not attended."""


def family_of(workspace: Workspace, asset: str) -> Family:
    """The configuration of an asset's family."""
    return workspace.family(FAMILIES[asset_named(asset, workspace).family])


def streams(published: Published) -> list[str]:
    """The streams, tables or files of rows in a store, those that are held out last; none of a raw store."""
    if holds(published.manifest.asset, GroupStore):
        return list(splits(published.directory))
    found = (path for pattern in ("*.index", "*.documents", "*/*.index") for path in published.directory.glob(pattern))
    names = sorted(path.relative_to(published.directory).with_suffix("").as_posix() for path in found)
    return sorted(names, key=lambda name: _HELD_OUT.fullmatch(name) is not None)


def open_stream(published: Published, stream: str) -> AnyStream:
    """One stream, table or file of rows of a store.

    Raises:
        StoreError: it is not there, or cannot be read.
    """
    folder = published.directory
    if holds(published.manifest.asset, GroupStore):
        return open_groups(splits(folder)[stream])
    if (folder / f"{stream}.documents").is_dir():
        return open_packed(folder, stream)
    return open_lines(folder, stream) if (folder / f"{stream}.jsonl").is_file() else open_tokens(folder, stream)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Which row of a source each record, line or group of a stream comes from: int[n] each.

    Attributes:
        domains, domain: the names, and the number of each record's among them.
        file, row: the number of the file in that domain, and the row in the file.
    """

    domains: Sequence[str]
    domain: npt.NDArray[Any]
    file: npt.NDArray[Any]
    row: npt.NDArray[Any]

    def of(self, record: int) -> tuple[str, int, int]:
        """Domain, file and row of a record."""
        return self.domains[int(self.domain[record])], int(self.file[record]), int(self.row[record])

    def records(self, domain: str, file: int, row: int) -> list[int]:
        """The records that come from a row."""
        if domain not in self.domains:
            return []
        found: list[int] = np.flatnonzero((self.domain == self.domains.index(domain)) & (self.file == file) & (self.row == row)).tolist()
        return found


def source_rows(store: TokenStore | Lines | GroupStore, partition: str) -> SourceRows:
    """Where the records of a stream come from; those of tokens from the domain that the store is of."""
    if isinstance(store, Lines):
        return SourceRows(store.sources, store.index["source"], store.index["file"], store.index["row"])
    if isinstance(store, GroupStore):
        return SourceRows(store.sources, store.source, store.prompts.file, store.prompts.row)
    return SourceRows((partition,), np.broadcast_to(0, len(store)), store.file, store.row)


def source_files(raw: Published) -> list[Mapping[str, Any]]:
    """What a raw store says of each of its files, as records number them: those to train on, then those held out."""
    listed = read_sources(raw)
    return [*listed["files"], *listed["test_files"]]


RowName = Callable[[int, int], str]
"""File and row → the id of a record, ``gsm8k.jsonl:17``."""


def row_names(raw: Published | None) -> RowName:
    """Ids of records as a raw store names its files; numbers where it is gone."""
    names = [entry["name"] for entry in source_files(raw)] if raw else []
    return lambda file, row: f"{names[file] if file < len(names) else f'file {file}'}:{row}"


def tokens_and_weights(store: TokenStore, record: int, most: int | None = None) -> tuple[Int64s, Weights | None]:
    """The first `most` tokens of a record and their weights in the loss; `None` where the store has no mask."""
    ids = store.record(record, "tokens")[:most].astype(np.int64)
    return ids, store.weights(record)[:most].astype(np.float32) if "loss_mask" in store.arrays else None


def group_sequences(store: GroupStore, group: int, most: int | None = None) -> list[tuple[Int64s, Weights]]:
    """The prompt of a group, whose weights are 0, and each response: the first `most` tokens of each."""
    prompt, _ = tokens_and_weights(store.prompts, group, most)
    responses = (tokens_and_weights(store.responses, each, most) for each in store.responses_of(group))
    trained = [(ids, np.ones(len(ids), np.float32) if weights is None else weights) for ids, weights in responses]
    return [(prompt, np.zeros(len(prompt), np.float32)), *trained]


def sft_split(table: str) -> str:
    """The stream of `sft_tokens` that a packed table is made of."""
    return "dev" if table == "sft_dev_packed" else "train"


class Opened:
    """Stores that can be traced: what they were made from is still what it was.

    Args:
        draft: asset and partition of a store whose draft is meant. What it was made from are current stores.
    """

    def __init__(self, workspace: Workspace, draft: tuple[str, str] | None = None) -> None:
        self.workspace, self.draft = workspace.plain, draft
        # an object's own caches, so that they go when it goes
        self.published = cache(self._published)
        self.stream = cache(lambda asset, partition, stream: open_stream(self.published(asset, partition), stream))
        self.export = cache(self._export)

    def made_with(self, asset: str, partition: str = "") -> Workspace:
        """The workspace as the build of a store saw it: with the options of the run that made it, where it is the draft."""
        if (asset, partition) != self.draft:
            return self.workspace
        store = self.workspace.place(asset, partition).draft()
        return self.workspace.overriding(EVERY[asset].family, store.manifest.options) if store else self.workspace

    def label(self, asset: str, partition: str = "") -> str:
        """How a store is called."""
        return self.workspace.place(asset, partition).label + (DRAFT if (asset, partition) == self.draft else "")

    def _draft(self, asset: str, partition: str) -> Published:
        label, command = self.workspace.place(asset, partition).label, build_command(asset, partition)
        if asset.endswith("_raw"):
            raise StoreError(f"a draft of {label} has no rows of its own: trace the current store, or a draft of what is made from it")
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

    def _published(self, asset: str, partition: str = "") -> Published:
        """The current store, whatever its checks say; or the draft, where that is meant.

        Raises:
            StoreError: there is none, or it is not what the configuration and the sources give; the message says what changed.
        """
        found, place = asset_named(asset, self.workspace), self.workspace.place(asset, partition)
        command = build_command(asset, partition)
        for above, key in upstream_of(self.workspace, found, partition):
            try:
                self.published(above.name, key)
            except StoreError as error:
                if self.workspace.place(above.name, key).exists and place.exists:
                    raise StoreError(f"{place.label} is out of date, because {error}") from error
                raise
        if (asset, partition) == self.draft:
            return self._draft(asset, partition)
        published = open_published(self.workspace.stores, asset, partition, remedy=command)
        recipe = found.recipe(self.workspace, partition)
        if published.manifest.config_key != build_key(recipe):
            changed = ", ".join(differences(published.manifest.recipe, recipe)) or "its options"
            source = ": a source file is not what it was" if not found.upstream and changed in ("files", "test_files") else ""
            raise StoreError(f"{place.label} is not what it would be now (changed: {changed}{source}). Build it again:\n  {command}")
        if published.manifest.build_key != published.manifest.config_key:
            options = ", ".join(differences(recipe, published.manifest.recipe))
            raise StoreError(
                f"{place.label} was published with options of one run ({options}), and the configuration file says otherwise. Put them into the "
                f"file, or build it again:\n  {command}"
            )
        return published

    def _export(self, asset: str, partition: str) -> tuple[Exporting, Source, tuple[str, ...], Readable]:
        """How an export was made; the store that it was made from; which streams of that, both sides of pairs; its own rows, as its format's
        reader gives them."""
        published = self.published(asset, partition)
        recipe = published.manifest.recipe
        each = Exporting("", EVERY[recipe["from"]], recipe["format"], recipe["stream"], recipe["options"])
        source = open_export_source(each, self.published(each.source.name, partition))
        stem = each.stem(partition)
        names = tuple(f"{stem}/{side}" if stem else side for side in SIDES) if isinstance(source, Pairs) else (stem or each.stream,)
        return each, source, names, reader(each.format)(published.directory, source, each.options)

    def hashes(self, asset: str, partition: str) -> Mapping[str, Any]:
        """What a store is made with: its build key and content, and the tokenizer and template where it has them."""
        manifest = self.published(asset, partition).manifest
        recipe = {key: manifest.recipe[key] for key in ("tokenizer", "template") if key in manifest.recipe}
        return {"build_key": manifest.build_key, "content": manifest.content_hash, **recipe}


# A row of a store → the records that it is made of, and a row of a source → the rows that hold it, by the indexes that stores keep.


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
    ids: Int64s
    weights: Weights | None
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
    if place.asset not in EVERY:
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
    ids, weights = tokens_and_weights(store, place.row)
    if lines_of(place.asset, place.stream) is None:
        piece = Piece(0, len(ids), 0, store.part(place.row)[0] - 1, (place,), _origin(place, store))
    else:  # it was made of a line
        [made_of] = (_merged(opened, place) if EVERY[place.asset].parts else read_row(opened, line_of(opened, place))).pieces
        piece = replace(made_of, end=len(ids), path=(place, *made_of.path))
    return Row(place, len(store), ids, weights, (piece,))


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


def _line(opened: Opened, place: Place, lines: Lines) -> Row:
    """A line, and the line of its domain that it was merged from."""
    origin, parts = _origin(place, lines), EVERY[place.asset].parts
    path: tuple[Place, ...] = (place,)
    if parts:
        part = opened.stream(parts, origin.domain, place.stream)
        assert isinstance(part, Lines)
        [at] = np.flatnonzero(part.places == lines.places[place.row])
        path = (place, Place(parts, origin.domain, place.stream, int(at)))
    generated = place.asset == "arithmetic_prompts"
    return Row(place, len(lines), np.zeros(0, np.int64), None, (Piece(0, 0, 0, 0, path, None if generated else origin),))


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
    ids, weights = zip(*group_sequences(store, place.row), strict=True)
    ends = np.cumsum([0, *map(len, ids)]).tolist()
    pieces = tuple(Piece(start, end, 0, part, path, origin) for part, (start, end) in enumerate(pairwise(ends)))
    return Row(place, len(store), np.concatenate(ids), np.concatenate(weights), pieces)


def _exported(opened: Opened, place: Place) -> Row:
    """A row of an export: that of the store that it was made from, or one of the documents in it."""
    each, source, names, read = opened.export(place.asset, place.partition)
    check_row(place, read.count)
    if read.documents and isinstance(source, PackedStore):
        found = _document(opened, place, source, names[0])
    elif isinstance(source, Pairs):
        found = _sides(opened, place, each)
    else:
        found = read_row(opened, Place(each.source.name, place.partition, names[0], place.row))
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
    if asset not in EVERY:
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
    each, source, names, read = opened.export(asset, partition)
    if read.documents and isinstance(source, PackedStore):
        rows = _entries(opened, source, names[0], origin)
    else:
        rows = [place.row for place in places_of(opened, each.source.name, partition, origin) if place.stream in names]
    return [Place(asset, partition, "", row) for row in dict.fromkeys(rows)]


# Rows of source files, read again by their numbers.

Rows = Mapping[tuple[int, int], Record | Unreadable]
"""By number of the file in the domain and row in the file."""


def files_of(workspace: Workspace, raw: str, domain: str) -> tuple[SourceFile, ...]:
    """The files of a domain as records number them: those to train on, then those held out.

    Raises:
        SourceError: a file changed since it was pinned.
    """
    found = pinned(workspace, FAMILIES[raw.removesuffix("_raw")], raw, domain)
    return (*found.files, *found.test_files)


def read_rows(workspace: Workspace, raw: str, domain: str, wanted: Collection[tuple[int, int]]) -> Rows:
    """The wanted rows of a domain; each file is read once, up to the last of them.

    Raises:
        SourceError: a file changed since it was pinned.
        StoreError: a file has no such row.
    """
    files, txt = files_of(workspace, raw, domain), domain_of(workspace.family(FAMILIES[raw.removesuffix("_raw")]), domain).txt
    found: dict[tuple[int, int], Record | Unreadable] = {}
    for number in sorted({file for file, _ in wanted}):
        if number >= len(files):
            raise StoreError(f"{raw}[{domain}] has {len(files)} files, and a record is of file {number}. Build the store again")
        missing = {row for file, row in wanted if file == number}
        with closing(_rows(files[number], number, txt)) as rows:
            for row in rows:
                if row.row in missing:
                    found[number, row.row] = row
                    missing.discard(row.row)
                if not missing:
                    break
        if missing:
            raise StoreError(f"{files[number].name} of {domain} has no row {min(missing):,}. Build the store again")
    return found


def _rows(file: SourceFile, number: int, txt: Any) -> Generator[Record | Unreadable]:
    for block in read_blocks(file, number, block_bytes=4 << 20, txt=txt):
        yield from block.records
        yield from block.unreadable


def nth_row(workspace: Workspace, raw: str, domain: str, number: int) -> tuple[Origin, int]:
    """Row `number` of a raw asset, over all its files in order, and how many rows it has.

    Raises:
        ConfigError: there is no such row.
        SourceError: a file changed since it was pinned.
    """
    published = workspace.published(raw, domain)
    assert published is not None
    counts = [entry["rows"] for entry in source_files(published)]
    total, before = sum(counts), 0
    if not 0 <= number < total:
        raise ConfigError(f"row {number:,} of {raw}[{domain}]: there are {total:,}, numbered from 0")
    family = workspace.family(FAMILIES[raw.removesuffix("_raw")])
    router, configured = router_of(workspace, family, domain), domain_of(family, domain)
    for index, (file, count) in enumerate(zip(files_of(workspace, raw, domain), counts, strict=True)):
        if number < before + count:
            at = before
            for block in router.picked(file, read_blocks(file, index, block_bytes=4 << 20, txt=configured.txt)):
                rows: list[Record | Unreadable] = sorted([*block.records, *block.unreadable], key=lambda each: each.row)
                if number < at + len(rows):
                    return Origin(raw, domain, index, rows[number - at].row), total
                at += len(rows)
        before += count
    raise StoreError(f"{raw}[{domain}] counts {total:,} rows, and its files have fewer. Build it again")
