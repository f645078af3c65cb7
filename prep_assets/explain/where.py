"""`where`: from a row of a source to every place that holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import xxhash

from prep_assets.config.models import FAMILIES, Preference
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest
from prep_assets.explain.streams import (
    WITH_ROWS,
    Int64s,
    Opened,
    Origin,
    RowName,
    Weights,
    files_of,
    group_sequences,
    open_stream,
    pieces_of,
    read_rows,
    row_names,
    sft_split,
    source_rows,
    streams,
    tokens_and_weights,
)
from prep_assets.graph.graph import EVERY, family_assets, lines_of
from prep_assets.pipeline.asset import Asset, FromLines
from prep_assets.pipeline.sources import router_of
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
    ids: Int64s
    weights: Weights
    line: bytes = b""

    @property
    def digest(self) -> bytes:
        """Equal exactly when the content is."""
        found = xxhash.xxh3_128(self.line)
        found.update(self.ids.tobytes())
        found.update(self.weights.tobytes())
        return found.digest()


def has_records(published: Published) -> bool:
    """Whether `contents` can read a store."""
    return published.manifest.asset in WITH_ROWS


def contents(workspace: Workspace, published: Published) -> Iterator[StoredRecord]:
    """Every record of a version, held-out ones too, in the order in which it is stored.

    Raises:
        ConfigError: a store without records, such as an export, whose rows are those of the store that it was made from.
    """
    manifest = published.manifest
    if not has_records(published):
        source = manifest.recipe.get("from")
        hint = f"; compare {source}, which it is made from" if source else ""
        raise ConfigError(f"{manifest.asset} holds no records of its own{hint}")
    named = cache(lambda domain: _names(workspace, published, domain))
    for stream in streams(published):
        store = open_stream(published, stream)
        if isinstance(store, PackedStore):
            yield from _packed(workspace, published, stream, store)
        elif isinstance(store, TokenStore):
            of_lines = lines_of(manifest.asset, stream) is not None  # its records are called by their lines
            name = (lambda file, row: f"line {row}") if of_lines else named(manifest.partition)
            for number in range(len(store)):
                ids, weights = tokens_and_weights(store, number)
                weights = np.ones(len(ids), np.float32) if weights is None else weights
                yield StoredRecord(stream, manifest.partition or stream, _with_part(name, store, number), ids, weights)
        else:
            rows = source_rows(store, manifest.partition)
            for number, content in enumerate(_lines(store) if isinstance(store, Lines) else _groups(store)):
                domain, file, row = rows.of(number)
                yield StoredRecord(stream, domain, named(domain)(file, row), *content)


def _names(workspace: Workspace, published: Published, domain: str) -> RowName:
    """Ids of records of a domain as the raw store calls them that a version was made from, by way of the store that it was merged from."""
    asset, recipe = EVERY[published.manifest.asset], published.manifest.recipe
    part = version_with(workspace.place(asset.parts, domain), recipe["domains"].get(domain)) if asset.parts else published
    return row_names(part and version_with(workspace.place(f"{asset.family}_raw", domain), part.manifest.recipe.get("raw")))


def _with_part(name: RowName, store: TokenStore, record: int) -> str:
    part, _ = store.part(record)
    return name(int(store.file[record]), int(store.row[record])) + (f", answer {part}" if part > 1 else "")


def _packed(workspace: Workspace, published: Published, stream: str, table: PackedStore) -> Iterator[StoredRecord]:
    """The pieces of each record put together again. A record that is in the table several times is so many records."""

    def record_names(domain: str) -> Callable[[int], str]:
        content = published.manifest.recipe["tokens"].get(domain)
        tokens = version_with(workspace.place("sft_tokens", domain), content)
        if tokens is None:
            return lambda record: f"record {record}"
        store, name = open_tokens(tokens.directory, sft_split(stream)), _names(workspace, tokens, domain)
        return lambda record: _with_part(name, store, record)

    named = cache(record_names)
    order = np.lexsort([np.asarray(table.documents[field]) for field in ("start", "record", "source")])
    fields = [np.asarray(table.documents[field])[order].tolist() for field in ("source", "record", "start", "length", "row", "row_offset")]
    for (source, record), pieces in groupby(zip(*fields, strict=True), key=itemgetter(0, 1)):
        domain = table.sources[source]
        for copy in _copies(pieces):
            places = [(row, slice(offset, offset + length)) for _, _, _, length, row, offset in copy]
            ids = np.concatenate([np.asarray(table.tokens[row])[part] for row, part in places]).astype(np.int64)
            weights = np.concatenate([table.weights(row)[part] for row, part in places]).astype(np.float32)
            yield StoredRecord(stream, domain, named(domain)(record), ids, weights)


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


Content = tuple[Int64s, Weights, bytes]


def _lines(lines: Lines) -> Iterator[Content]:
    with lines.path.open("rb") as file:
        yield from ((np.zeros(0, np.int64), np.zeros(0, np.float32), line) for line in file)


def _groups(store: GroupStore) -> Iterator[Content]:
    for number in range(len(store)):
        ids, weights = map(np.concatenate, zip(*group_sequences(store, number), strict=True))
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
            found.append(_whereabouts(opened, family, *origin_of(opened, f"{family}_raw", domain, rest), drafts=drafts))
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


def _whereabouts(opened: Opened, family: str, origin: Origin, file: SourceFile, *, drafts: bool) -> Whereabouts:
    """Where a row is among the stores of a family, and, where that is asked for, among their drafts."""
    workspace, identity = opened.workspace, record_id(file, origin.row)
    try:
        record = read_rows(workspace, origin.raw, origin.domain, [(origin.file, origin.row)])[origin.file, origin.row]
    except StoreError as error:
        raise ConfigError(f"{origin.domain}#{identity}: the file has no such row") from error
    found: list[Found] = []
    not_here: list[NotHere] = []
    unknown: list[tuple[str, str]] = []
    stores = [
        (asset, partition)
        for asset in family_assets(workspace, family).values()
        for partition in asset.partitions(workspace)
        if partition in ("", origin.domain)
    ]
    every = [(opened, *store) for store in stores]
    for asset, partition in stores if drafts else ():
        if asset.stage != "raw" and workspace.place(asset.name, partition).draft():
            every.append((Opened(workspace, (asset.name, partition)), asset, partition))
    for view, asset, partition in every:
        try:
            places = [
                Found(
                    asset.name, partition, place.stream, place.row, piece.start, piece.end, piece.first, piece.part, view.draft is not None
                )
                for place, piece in pieces_of(view, asset.name, partition, origin)
            ]
            not_here += _refusals(view, asset, partition, identity, found)
        except StoreError as error:
            unknown.append((view.label(asset.name, partition), _why(error)))
        else:
            found += places
    for view in dict.fromkeys(view for view, asset, _ in every if asset.name == "sft_packed"):
        not_here += _left_out(view, found)
    if not found and not not_here and not unknown:
        not_here.append(NotHere(origin.raw, origin.domain, "not_read", _not_read(workspace, family, origin.domain, record)))
    return Whereabouts(family, origin.domain, identity, record.payload, tuple(found), tuple(not_here), tuple(unknown))


def _refusals(opened: Opened, asset: Asset, partition: str, identity: str, found: list[Found]) -> Iterator[NotHere]:
    """Refusals of a record by a store; `found` has the places of what the store was made from."""
    if asset.name not in EVERY or asset.name == "sft_template":
        return
    quarantine, ids = opened.published(asset.name, partition).quarantine, {identity}
    if isinstance(asset.source, FromLines):  # its records are called by their lines
        made_of = {name for name, _ in asset.source.files.values()}
        lines = (each for each in found if each.asset in made_of and each.partition == partition and not each.draft)
        ids = {f"{each.stream}.jsonl:{each.row}" for each in lines}
    for refusal in read_quarantine(quarantine) if quarantine else ():
        if refusal.id in ids:
            winner = refusal.detail.rpartition(" ")[2] if refusal.reason == "duplicate" else None
            yield NotHere(asset.name, partition, f"{refusal.stage}/{refusal.reason}", refusal.detail, winner, opened.draft is not None)


def _left_out(opened: Opened, found: list[Found]) -> Iterator[NotHere]:
    """Tokens of the record that no row of a packed table has."""
    try:
        opened.published("sft_packed")
    except StoreError:
        return
    draft = opened.draft is not None
    packed = [each for each in found if each.asset == "sft_packed" and each.draft == draft]
    for record in (each for each in found if each.asset == "sft_tokens" and not each.draft):
        mine = [each for each in packed if sft_split(each.stream) == record.stream and each.part == record.part]
        held = {token for each in mine for token in range(each.first, each.first + each.end - each.start)}
        if missing := record.end - record.start - len(held):
            detail = (
                f"{missing:,} of the {record.end - record.start:,} tokens of record {record.row:,} are in no row: packing left them out"
            )
            yield NotHere("sft_packed", "", "left_out", detail, draft=draft)


def _not_read(workspace: Workspace, family: str, name: str, record: Any) -> str:
    configured = workspace.family(FAMILIES[family])
    router = router_of(workspace, configured, name)
    if isinstance(record, Record) and router.key and str(record.payload.get(router.key)) != router.value:
        return f"its {router.key!r} is {record.payload.get(router.key)!r}, which makes it another domain's"
    limits = {"max_items": configured.domains[name].max_items}
    if isinstance(configured, Preference):
        limits["max_per_source"] = configured.max_per_source
    shown = ", ".join(f"{limit}: {count:,}" for limit, count in limits.items() if count is not None)
    return f"the domain is not read so far ({shown})" if shown else "no store is built of it"
