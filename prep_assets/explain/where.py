"""`where`: from a row of a source to every place that holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prep_assets.config.family import Domain, Family
from prep_assets.config.models import FAMILIES, Preference
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest
from prep_assets.explain.streams import (
    WITH_ROWS,
    AnyStream,
    Opened,
    Origin,
    files_of,
    is_export,
    open_stream,
    pieces_of,
    read_rows,
    sft_split,
    source_rows,
    streams,
)
from prep_assets.graph.graph import EVERY, family_assets, lines_of
from prep_assets.pipeline.asset import Asset, FromLines
from prep_assets.pipeline.sources import read_sources, router_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Record
from prep_assets.stores.groups import GroupStore
from prep_assets.stores.lines import Lines
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.published import version_with
from prep_assets.stores.tokens import TokenStore, open_tokens
from prep_assets.stores.version_folders import Published

# The records of any version of a store, current or not: what each holds, and the name of the row that it comes from.


@dataclass(frozen=True, slots=True, eq=False)
class StoredRecord:
    """One record of a store.

    Attributes:
        stream, domain: where it is, and what it is of.
        id: of the row that it comes from, ``gsm8k.jsonl:17``; its number where the row is no longer known.
        ids, weights: int64[T], float32[T]: its tokens and their weights in the loss, below 0 where they are not attended; empty of a line.
        line: a line of text; empty of tokens.
    """

    stream: str
    domain: str
    id: str
    ids: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    line: bytes = b""

    @property
    def digest(self) -> bytes:
        """Equal exactly when the content is."""
        found = xxhash.xxh3_128(self.line)
        found.update(self.ids.tobytes())
        found.update(self.weights.tobytes())
        return found.digest()


def contents(workspace: Workspace, published: Published) -> Iterator[StoredRecord]:
    """Every record of a version, held-out ones too, in the order in which it is stored.

    Raises:
        ConfigError: a store without records, such as an export, whose rows are those of the store that it was made from.
    """
    manifest = published.manifest
    if manifest.asset not in WITH_ROWS:
        source = manifest.recipe.get("from")
        hint = f"; compare {source}, which it is made from" if source else ""
        raise ConfigError(f"{manifest.asset} holds no records of its own{hint}")
    for stream in streams(published):
        yield from _contents(workspace, published, stream, open_stream(published, stream))


def has_records(published: Published) -> bool:
    """Whether `contents` can read a store."""
    return published.manifest.asset in WITH_ROWS


Name = Callable[[int, int], str]
"""File and row → id of a record."""


def _names(workspace: Workspace, raw: str, domain: str, content: str | None) -> Name:
    """Ids of records as the raw store named its files that a version was made from; numbers where it is gone."""
    found = version_with(workspace.place(raw, domain), content)
    files = [] if found is None else [entry["name"] for which in ("files", "test_files") for entry in read_sources(found)[which]]
    return lambda file, row: f"{files[file]}:{row}" if file < len(files) else f"file {file}:{row}"


def _names_of(workspace: Workspace, published: Published, domains: Iterable[str]) -> dict[str, Name]:
    """Ids of the records of each domain of a store, by way of the stores that it was merged from."""
    manifest, asset = published.manifest, EVERY[published.manifest.asset]
    found = {}
    for domain in domains:
        part = version_with(workspace.place(asset.parts, domain), manifest.recipe["domains"].get(domain)) if asset.parts else published
        found[domain] = _names(workspace, f"{asset.family}_raw", domain, None if part is None else part.manifest.recipe.get("raw"))
    return found


def _contents(workspace: Workspace, published: Published, stream: str, store: AnyStream) -> Iterator[StoredRecord]:
    partition = published.manifest.partition
    if isinstance(store, PackedStore):
        yield from _packed(workspace, published, stream, store)
    elif isinstance(store, TokenStore) and lines_of(published.manifest.asset, stream):  # its records are called by their lines
        yield from _records(store, stream, partition or stream, lambda file, row: f"line {row}")
    elif isinstance(store, TokenStore):
        yield from _records(store, stream, partition, _names_of(workspace, published, [partition])[partition])
    else:
        rows = source_rows(store, partition)
        names = _names_of(workspace, published, rows.domains)
        for number, content in enumerate(_lines(store) if isinstance(store, Lines) else _groups(store)):
            domain, file, row = rows.of(number)
            yield StoredRecord(stream, domain, names[domain](file, row), *content)


def _records(store: TokenStore, stream: str, domain: str, name: Name) -> Iterator[StoredRecord]:
    first = store.begins_row
    part = 0
    for number in range(len(store)):
        part = 0 if first[number] else part + 1
        yield StoredRecord(stream, domain, _part_name(name, store, number, part), *_arrays(store, number))


def _part_name(name: Name, store: TokenStore, number: int, part: int) -> str:
    return name(int(store.file[number]), int(store.row[number])) + (f", answer {part + 1}" if part else "")


def _arrays(store: TokenStore, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    ids = store.record(number, "tokens").astype(np.int64)
    weights = store.weights(number) if "loss_mask" in store.arrays else np.ones(len(ids))
    return ids, weights.astype(np.float32)


def _packed(workspace: Workspace, published: Published, stream: str, table: PackedStore) -> Iterator[StoredRecord]:
    """The pieces of each record put together again. A record that is in the table several times is so many records."""
    recipe = published.manifest.recipe["tokens"]
    ids = {domain: cache(_record_names(workspace, domain, recipe.get(domain), sft_split(stream))) for domain in table.sources}
    order = np.lexsort([np.asarray(table.documents[field]) for field in ("start", "record", "source")])
    fields = [np.asarray(table.documents[field])[order].tolist() for field in ("source", "record", "start", "length", "row", "row_offset")]
    for _, pieces in groupby(zip(*fields, strict=True), key=itemgetter(0, 1)):
        for copy in _copies(pieces):
            yield _joined(table, copy, stream, ids)


def _copies(pieces: Iterable[Sequence[int]]) -> list[list[Sequence[int]]]:
    """The pieces of one record, ascending by start, as so many copies of it as are in the table; each piece goes on where one of them ends."""
    copies: list[list[Sequence[int]]] = []
    for piece in pieces:
        open_ends = [copy for copy in copies if copy[-1][2] + copy[-1][3] <= piece[2]]
        if open_ends:
            max(open_ends, key=lambda copy: copy[-1][2] + copy[-1][3]).append(piece)
        else:
            copies.append([piece])
    return copies


def _joined(table: PackedStore, pieces: Sequence[Sequence[int]], stream: str, ids: Mapping[str, Callable[[int], str]]) -> StoredRecord:
    domain = table.sources[pieces[0][0]]
    places = [(row, slice(offset, offset + length)) for _, _, _, length, row, offset in pieces]
    tokens = np.concatenate([np.asarray(table.tokens[row])[part] for row, part in places]).astype(np.int64)
    weights = np.concatenate([table.weights(row)[part] for row, part in places]).astype(np.float32)
    return StoredRecord(stream, domain, ids[domain](pieces[0][1]), tokens, weights)


def _record_names(workspace: Workspace, domain: str, content: str | None, split: str) -> Callable[[int], str]:
    tokens = version_with(workspace.place("sft_tokens", domain), content)
    if tokens is None:
        return lambda record: f"record {record}"
    store, name = open_tokens(tokens.directory, split), _names(workspace, "sft_raw", domain, tokens.manifest.recipe.get("raw"))
    return lambda record: _part_name(name, store, record, store.part(record)[0] - 1)


Content = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], bytes]
_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.float32)


def _lines(lines: Lines) -> Iterator[Content]:
    with lines.path.open("rb") as file:
        yield from ((*_NOTHING, line) for line in file)


def _groups(store: GroupStore) -> Iterator[Content]:
    for number in range(len(store)):
        prompt = store.prompts.record(number, "tokens")
        answers = [_arrays(store.responses, each) for each in store.responses_of(number)]
        ids = np.concatenate([prompt, *(each for each, _ in answers)]).astype(np.int64)
        weights = np.concatenate([np.zeros(len(prompt), np.float32), *(each for _, each in answers)])
        yield ids, weights, store.rewards.record(number, "rewards").tobytes()


# `where`: a row of a source to every place that holds it, or to the reason why none does.


@dataclass(frozen=True, slots=True)
class Found:
    """A stretch of a store that comes from the record.

    Attributes:
        asset, partition, stream, row: where.
        start, end: tokens of the row; both 0 of a line of text.
        first: which token of the record's sequence stands at `start`.
        part: which of its sequences: of a chat that became several examples, of a pair, of a group's responses.
        draft: whether the store is a draft.
    """

    asset: str
    partition: str
    stream: str
    row: int
    start: int
    end: int
    first: int
    part: int
    draft: bool = False


@dataclass(frozen=True, slots=True)
class NotHere:
    """A store that refused the record, or left it or a part of it out.

    Attributes:
        asset, partition: which.
        reason: ``stage/reason`` as it is counted; ``left_out`` of tokens that packing left out, ``not_read`` of a row that is not asked for.
        detail: in words.
        winner: of a duplicate, the record that came first.
        draft: whether the store is a draft.
    """

    asset: str
    partition: str
    reason: str
    detail: str
    winner: str | None = None
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where one record is, of one family.

    Attributes:
        family, domain, id: which record.
        payload: the raw row.
        found: every place that holds it.
        not_here: every store that holds less than all of it, and why.
        unknown: stores that cannot say, and why: missing, or out of date.
    """

    family: str
    domain: str
    id: str
    payload: Mapping[str, Any] | str
    found: tuple[Found, ...]
    not_here: tuple[NotHere, ...]
    unknown: tuple[tuple[str, str], ...]


def where(workspace: Workspace, record: str, *, drafts: bool = False) -> list[Whereabouts]:
    """Everything that holds a record, family by family.

    Args:
        record: ``DOMAIN#FILE:ROW``, or ``DOMAIN#ROW`` where the domain has one file; rows count from 0.
        drafts: look into the drafts as well.

    Raises:
        ConfigError: no such domain, file or row.
        SourceError: a source changed since it was pinned.
        StoreError: no family has pinned the domain.
    """
    opened = Opened(workspace)
    found: list[Whereabouts] = []
    faults: list[PrepAssetsError] = []
    domain, rest, families = _families(opened.workspace, record)
    for family in families:
        try:
            found.append(_Search(opened, family, *origin_of(opened, f"{family}_raw", domain, rest), drafts).search())
        except PrepAssetsError as error:  # a domain of the same name may have other files, or not be built yet, in another family
            faults.append(error)
            if not isinstance(error, ConfigError):
                found.append(Whereabouts(family, domain, rest, "", (), (), ((f"{family}_raw[{domain}]", _why(error)),)))
    if len(faults) == len(families):
        raise faults[0]
    return found


def _why(error: PrepAssetsError) -> str:
    """The first line of an error; the command that fixes it is on the next one."""
    return str(error).splitlines()[0].partition(" Build it")[0]


def _families(workspace: Workspace, record: str) -> tuple[str, str, list[str]]:
    """The domain of a record's name, the rest of it, and the families that have the domain."""
    domain, separator, rest = record.partition("#")
    if not separator or not rest:
        raise ConfigError(
            f"{record!r} names no record. Write DOMAIN#FILE:ROW, e.g. gsm8k#gsm8k.jsonl:17, or DOMAIN#17 where there is one file"
        )
    having = {family: workspace.family(kind).domains for family, kind in FAMILIES.items() if workspace.has(family)}
    names = {name for domains in having.values() for name in domains}
    if domain not in names:
        raise ConfigError(f"no domain {domain!r}{nearest(domain, names) or '.'} There are: {', '.join(sorted(names))}")
    return domain, rest, [family for family, domains in having.items() if domain in domains]


def origin_of(opened: Opened, raw: str, domain: str, rest: str) -> tuple[Origin, SourceFile]:
    """The row of a source that ``FILE:ROW``, or ``ROW``, means, and its file.

    Raises:
        ConfigError, SourceError, StoreError: as `where`.
    """
    opened.published(raw, domain)
    files = files_of(opened.workspace, raw, domain)
    name, _, row = rest.rpartition(":")
    if not row.isdecimal():
        raise ConfigError(f"{rest!r}: a record is FILE:ROW, the row a number from 0")
    if not name and len(files) > 1:
        raise ConfigError(
            f"{domain} has {len(files)} files, so a row alone names no record. Write one of: "
            + ", ".join(f"{domain}#{file.name}:{row}" for file in files[:5])
        )
    number = next((at for at, file in enumerate(files) if name in ("", file.name)), None)
    if number is None:
        known = [file.name for file in files]
        raise ConfigError(f"{domain} has no file {name!r}{nearest(name, known) or '.'} It has: {', '.join(known[:10])}")
    return Origin(raw, domain, number, int(row)), files[number]


class _Search:
    def __init__(self, opened: Opened, family: str, origin: Origin, file: SourceFile, drafts: bool) -> None:
        self._opened, self._family, self._origin, self._file, self._drafts = opened, family, origin, file, drafts
        self._workspace = opened.workspace
        self._configured: Family = self._workspace.family(FAMILIES[family])
        self._id = record_id(file, origin.row)
        try:
            self._record = read_rows(self._workspace, origin.raw, origin.domain, [(origin.file, origin.row)])[origin.file, origin.row]
        except StoreError as error:
            raise ConfigError(f"{origin.domain}#{self._id}: the file has no such row") from error

    def search(self) -> Whereabouts:
        found: list[Found] = []
        not_here: list[NotHere] = []
        unknown = []
        for opened, asset, partition in self._stores():
            draft = opened.draft is not None
            try:
                here = [
                    Found(asset.name, partition, place.stream, place.row, piece.start, piece.end, piece.first, piece.part, draft)
                    for place, piece in pieces_of(opened, asset.name, partition, self._origin)
                ]
                not_here += self._refusals(opened, asset, partition, found)
            except StoreError as error:
                unknown.append((opened.label(asset.name, partition), _why(error)))
                continue
            found += here
        not_here += self._left_out(found, draft=False)
        if ("sft_packed", "") in self._drafted():
            not_here += self._left_out(found, draft=True)
        if not found and not not_here and not unknown:
            not_here.append(NotHere(self._origin.raw, self._origin.domain, "not_read", self._not_read()))
        payload = self._record.payload
        return Whereabouts(self._family, self._origin.domain, self._id, payload, tuple(found), tuple(not_here), tuple(unknown))

    def _stores(self) -> Iterator[tuple[Opened, Asset, str]]:
        """Every store of the family that may hold the record, then every draft that is asked for."""
        drafted = self._drafted()
        for asset, partition in self._places():
            yield self._opened, asset, partition
        for asset, partition in self._places():
            if (asset.name, partition) in drafted:
                yield Opened(self._workspace, (asset.name, partition)), asset, partition

    def _places(self) -> Iterator[tuple[Asset, str]]:
        for asset in family_assets(self._workspace, self._family).values():
            for partition in asset.partitions(self._workspace):
                if partition in ("", self._origin.domain):
                    yield asset, partition

    def _drafted(self) -> set[tuple[str, str]]:
        if not self._drafts:
            return set()
        places = ((asset, partition) for asset, partition in self._places() if asset.stage != "raw")
        return {(asset.name, partition) for asset, partition in places if self._workspace.place(asset.name, partition).draft()}

    # -- refused ------------------------------------------------------------------------------------------------------------------------

    def _refusals(self, opened: Opened, asset: Asset, partition: str, found: list[Found]) -> Iterator[NotHere]:
        published = opened.published(asset.name, partition) if asset.name != "sft_template" and not is_export(asset.name) else None
        if published is None or published.quarantine is None:
            return
        ids = {self._id}
        if isinstance(asset.source, FromLines):  # its records are called by their lines
            made_of = {name for name, _ in asset.source.files.values()}
            ids = {
                f"{each.stream}.jsonl:{each.row}"
                for each in found
                if each.asset in made_of and each.partition == partition and not each.draft
            }
        for refusal in read_quarantine(published.quarantine):
            if refusal.id in ids:
                winner = refusal.detail.rpartition(" ")[2] if refusal.reason == "duplicate" else None
                yield NotHere(asset.name, partition, f"{refusal.stage}/{refusal.reason}", refusal.detail, winner, opened.draft is not None)

    # -- left out -----------------------------------------------------------------------------------------------------------------------

    def _left_out(self, found: list[Found], *, draft: bool) -> Iterator[NotHere]:
        """Tokens of the record that no packed row has."""
        packed = [each for each in found if each.asset == "sft_packed" and each.draft == draft]
        for record in (each for each in found if each.asset == "sft_tokens" and not each.draft):
            table = "sft_dev_packed" if record.stream == "dev" else "sft_packed"
            held = {
                token
                for each in packed
                if (each.stream, each.part) == (table, record.part)
                for token in range(each.first, each.first + each.end - each.start)
            }
            missing = record.end - record.start - len(held)
            if missing and self._can_say("sft_packed", draft=draft):
                detail = (
                    f"{missing:,} of the {record.end - record.start:,} tokens of record {record.row:,} are in no row: packing left them out"
                )
                yield NotHere("sft_packed", "", "left_out", detail, draft=draft)

    def _can_say(self, asset: str, *, draft: bool) -> bool:
        try:
            (Opened(self._workspace, (asset, "")) if draft else self._opened).published(asset)
        except StoreError:
            return False
        return True

    def _not_read(self) -> str:
        domain: Domain = self._configured.domains[self._origin.domain]
        router = router_of(self._workspace, self._configured, self._origin.domain)
        if isinstance(self._record, Record) and router.key and str(self._record.payload.get(router.key)) != router.value:
            return f"its {router.key!r} is {self._record.payload.get(router.key)!r}, which makes it another domain's"
        limits = {"max_items": domain.max_items}
        if isinstance(self._configured, Preference):
            limits["max_per_source"] = self._configured.max_per_source
        shown = ", ".join(f"{name}: {limit:,}" for name, limit in limits.items() if limit is not None)
        return f"the domain is not read so far ({shown})" if shown else "no store is built of it"
