"""`where`: every place that holds a source row; `records`: what a version of a store holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import xxhash
from msgspec import Struct

from prep_assets.array_types import Float32s, Ints
from prep_assets.config.models import FAMILIES
from prep_assets.data.files import SourceFile, record_id
from prep_assets.data.quarantine import read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, StoreError, nearest, require_known
from prep_assets.extensions.explain.streams import Opened, Origin, RowName, files_of, pieces_of, read_rows, row_names, sft_split
from prep_assets.graph.graph import EVERY, family_assets, has_records, lines_of, stream_table, streams
from prep_assets.pipeline.asset import Asset, FromLines
from prep_assets.pipeline.sources import router_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Record
from prep_assets.stores.groups import REWARDS
from prep_assets.stores.published import version_with
from prep_assets.stores.table import TOKENS, Pieces, Table
from prep_assets.stores.version_folders import Published

# The records of any version of a store, current or not, with the names of their source rows.


class StoredRecord(Struct, frozen=True, eq=False):
    """One record of a store.

    Attributes:
        stream, domain: the stream that it is in, and its domain.
        id: id of its source row, ``gsm8k.jsonl:17``; its number where that row is no longer known.
        ids, weights: int64[T], float32[T]: tokens and loss weights, below 0 where they are not attended; empty for a line.
        line: the line of text; empty for tokens.
    """

    stream: str
    domain: str
    id: str
    ids: Ints
    weights: Float32s
    line: bytes = b""

    @property
    def digest(self) -> bytes:
        """A hash of the content: line, ids and weights."""
        hasher = xxhash.xxh3_128(self.line)
        hasher.update(self.ids.tobytes())
        hasher.update(self.weights.tobytes())
        return hasher.digest()


TOLD_EVERY = 1024
"""Records between two calls of a workspace's `progress`."""


def records(workspace: Workspace, published: Published) -> Iterator[StoredRecord]:
    """Yield every record of a version, held-out ones included, in stored order.

    Raises:
        ConfigError: the store has no records of its own, as an export.
    """
    manifest = published.manifest
    records, counts = _contents(workspace, published), manifest.counts
    if (progress := workspace.progress) is None:
        yield from records
        return
    total = counts.get("records", counts.get("kept", 0)) + counts.get("dev_records", counts.get("kept_dev", 0))
    for number, record in enumerate(records):
        if number % TOLD_EVERY == 0:
            progress(f"read {manifest.label}", min(number, total), total)
        yield record


def _contents(workspace: Workspace, published: Published) -> Iterator[StoredRecord]:
    manifest = published.manifest
    if not has_records(published):
        source = manifest.recipe.get("from")
        hint = f"; compare {source}, which it is made from" if source else ""
        raise ConfigError(f"{manifest.asset} holds no records{hint}")
    names_by_domain = cache(lambda domain: _names(workspace, published, domain))
    for stream in streams(published):
        table = stream_table(published, stream)
        if table.pieces is not None:
            yield from _index_records(workspace, published, table, table.pieces)
            continue
        by_line = lines_of(manifest.asset, stream) is not None and table.path is None  # records are named by their lines
        for number, content in enumerate(_contents_of(table)):
            domain, _, row = table.origins.of(number)
            name = f"line {row + 1}" if by_line else _record_name(names_by_domain(domain), table, number)
            yield StoredRecord(stream, domain or stream, name, *content)


def _names(workspace: Workspace, published: Published, domain: str) -> RowName:
    """Ids of a domain's records, by the raw store that a version was made from."""
    asset, recipe = EVERY[published.manifest.asset], published.manifest.recipe
    part = version_with(workspace.place(asset.parts, domain), recipe["domains"].get(domain)) if asset.parts else published
    return row_names(part and version_with(workspace.place(f"{asset.family}_raw", domain), part.manifest.recipe.get("raw")))


def _record_name(name: RowName, table: Table, record: int) -> str:
    part = table.origins.part(record)[0] if table.schema.fits(TOKENS) else 1
    return name(*table.origins.of(record)[1:]) + (f", answer {part}" if part > 1 else "")


def _index_records(workspace: Workspace, published: Published, table: Table, index: Pieces) -> Iterator[StoredRecord]:
    """Join the pieces of records. A record that is in the table several times is yielded as often."""

    def record_names(domain: str) -> Callable[[int], str]:
        content = published.manifest.recipe["tokens"].get(domain)
        tokens = version_with(workspace.place("sft_tokens", domain), content)
        if tokens is None:
            return lambda record: f"record {record}"
        records, name = stream_table(tokens, sft_split(table.name)), _names(workspace, tokens, domain)
        return lambda record: _record_name(name, records, record)

    names_by_domain = cache(record_names)
    order = np.lexsort([index.fields[field] for field in ("start", "record", "source")])
    fields = index.read(order, "source", "record", "start", "length", "row", "row_offset")
    for (source, record), pieces in groupby(fields, key=itemgetter(0, 1)):
        domain = index.domains[source]
        for copy in _copies(pieces):
            spans = [slice(row * table.width + offset, row * table.width + offset + length) for _, _, _, length, row, offset in copy]
            ids = np.concatenate([np.asarray(table.columns["tokens"].values[span]) for span in spans]).astype(np.int64)
            weights = np.concatenate([table.weights("tokens", span) for span in spans]).astype(np.float32)
            yield StoredRecord(table.name, domain, names_by_domain(domain)(record), ids, weights)


def _copies(pieces: Iterable[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Split the pieces of one record, ascending by start, into its copies in the table; a piece continues the copy that ends last before it."""
    copies: list[list[Sequence[int]]] = []
    for piece in pieces:
        open_ends = [copy for copy in copies if copy[-1][2] + copy[-1][3] <= piece[2]]
        if open_ends:
            max(open_ends, key=lambda copy: copy[-1][2] + copy[-1][3]).append(piece)
        else:
            copies.append([piece])
    return copies


Content = tuple[Ints, Float32s, bytes]


def _contents_of(table: Table) -> Iterator[Content]:
    """Ids, weights and other values of each record, in order; tokens without a mask are trained."""
    if table.path is not None:
        yield from ((np.zeros(0, np.int64), np.zeros(0, np.float32), line) for line in table.written())
        return
    for number in range(len(table)):
        ids, weights, _ = table.joined(number)
        values = [table.columns[name].arrays(number)[0].tobytes() for name in (REWARDS,) if name in table.columns]
        yield ids, np.ones(len(ids), np.float32) if weights is None else weights, b"".join(values)


# `where`: a source row → every place that holds it, or the reason why none does.


@dataclass(frozen=True, slots=True)
class Found:
    """A stretch of a stored row that comes from the record.

    Attributes:
        asset, partition, stream, row: the stored row.
        start, end: tokens of the row; both 0 for a line of text.
        first: index in the record's sequence of the token at `start`.
        part: index of the sequence: among the examples of a chat, the sides of a pair, the prompt and responses of a group.
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
    """A store that rejected the record, or left out all or part of it.

    Attributes:
        asset, partition: the store.
        reason: ``stage/reason`` as in the counts; ``left_out`` for tokens that packing dropped, ``not_read`` for a row outside the configured selection.
        detail: the reason in words.
        winner: for a duplicate, the record that came first.
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
    """Where one record is in the stores of one family.

    Attributes:
        family, domain, id: the record.
        payload: the raw row.
        found: every place that holds it.
        not_here: stores that hold none or only part of it, and why.
        unknown: (label, reason) of stores that are missing or out of date.
    """

    family: str
    domain: str
    id: str
    payload: Mapping[str, Any] | str
    found: tuple[Found, ...]
    not_here: tuple[NotHere, ...]
    unknown: tuple[tuple[str, str], ...]


def where(workspace: Workspace, record: str, *, drafts: bool = False) -> list[Whereabouts]:
    """Find everything that holds a record, family by family.

    Args:
        record: ``DOMAIN/FILE:NUMBER``, or ``DOMAIN/NUMBER`` where the domain has one file, counted from 1; with ``#`` for the first ``/``, counted
            from 0 as in 0.2.
        drafts: search drafts too.

    Raises:
        ConfigError: no such domain, file or row.
        SourceError: a source changed since it was pinned.
        StoreError: no family has pinned the domain.
    """
    opened = Opened(workspace)
    results: list[Whereabouts] = []
    errors: list[PrepAssetsError] = []
    domain, rest, families = _families(opened.workspace, record)
    for family in families:
        try:
            results.append(_whereabouts(opened, family, *origin_of(opened, f"{family}_raw", domain, rest), drafts=drafts))
        except PrepAssetsError as error:  # a domain of the same name may have other files, or not be built yet, in another family
            errors.append(error)
            if not isinstance(error, ConfigError):
                results.append(Whereabouts(family, domain, rest, "", (), (), ((f"{family}_raw[{domain}]", _first_line(error)),)))
    if len(errors) == len(families):
        raise errors[0]
    return results


def _first_line(error: PrepAssetsError) -> str:
    """The first line of an error, without the command that fixes it."""
    return str(error).splitlines()[0].partition(" Build it")[0]


def _families(workspace: Workspace, record: str) -> tuple[str, str, list[str]]:
    """Split a record's name into domain and rest, counted from 1, and list the families that have the domain."""
    domain, rest = split_name(record)
    family_domains = {family: workspace.family(kind).domains for family, kind in FAMILIES.items() if workspace.has(family)}
    names = {name for domains in family_domains.values() for name in domains}
    require_known("no domain", domain, sorted(names))
    return domain, rest, [family for family, domains in family_domains.items() if domain in domains]


def split_name(record: str) -> tuple[str, str]:
    """Split the name of a record into its domain and ``FILE:NUMBER`` or ``NUMBER``, counted from 1."""
    matched = re.fullmatch(r"([^/#]+)([/#])(?:(.+):)?(\d+)", record)
    if matched is None:
        raise ConfigError(
            f"{record!r} names no record. Write DOMAIN/FILE:NUMBER, e.g. gsm8k/gsm8k.jsonl:17, or gsm8k/17 if there is one file"
        )
    domain, separator, file, number = matched.groups()
    if separator == "/" and int(number) == 0:
        raise ConfigError(f"{record!r} names no record: records are counted from 1")
    return domain, (f"{file}:" if file else "") + str(int(number) + (separator == "#"))


def origin_of(opened: Opened, raw: str, domain: str, rest: str) -> tuple[Origin, SourceFile]:
    """Resolve ``FILE:NUMBER``, or ``NUMBER``, counted from 1, to a source row and its file.

    Raises:
        ConfigError, SourceError, StoreError: as `where`.
    """
    opened.published(raw, domain)
    files = files_of(opened.workspace, raw, domain)
    name, _, row = rest.rpartition(":")
    if not name and len(files) > 1:
        raise ConfigError(
            f"{domain} has {len(files)} files, so a number alone names no record. Write one of: "
            + ", ".join(f"{domain}/{file.name}:{row}" for file in files[:5])
        )
    number = next((at for at, file in enumerate(files) if name in ("", file.name)), None)
    if number is None:
        known = [file.name for file in files]
        raise ConfigError(f"{domain} has no file {name!r}{nearest(name, known) or '.'} It has: {', '.join(known[:10])}")
    return Origin(raw, domain, number, int(row) - 1), files[number]


def _whereabouts(opened: Opened, family: str, origin: Origin, file: SourceFile, *, drafts: bool) -> Whereabouts:
    """Search the stores of a family, and their drafts if asked, for a source row."""
    workspace, identity = opened.workspace, record_id(file, origin.row)
    try:
        record = read_rows(workspace, origin.raw, origin.domain, [(origin.file, origin.row)])[origin.file, origin.row]
    except StoreError as error:
        raise ConfigError(f"{origin.domain}/{identity}: the file has no such record") from error
    occurrences: list[Found] = []
    not_here: list[NotHere] = []
    unknown: list[tuple[str, str]] = []
    stores = [
        (asset, partition)
        for asset in family_assets(workspace, family).values()
        for partition in asset.partitions(workspace)
        if partition in ("", origin.domain)
    ]
    views = [(opened, *store) for store in stores]
    for asset, partition in stores if drafts else ():
        if asset.stage != "raw" and workspace.place(asset.name, partition).draft():
            views.append((Opened(workspace, (asset.name, partition)), asset, partition))
    for view, asset, partition in views:
        try:
            new_occurrences = [
                Found(
                    asset.name, partition, place.stream, place.row, piece.start, piece.end, piece.first, piece.part, view.draft is not None
                )
                for place, piece in pieces_of(view, asset.name, partition, origin)
            ]
            not_here += _rejections(view, asset, partition, identity, occurrences)
        except StoreError as error:
            unknown.append((view.label(asset.name, partition), _first_line(error)))
        else:
            occurrences += new_occurrences
    for view in dict.fromkeys(view for view, asset, _ in views if asset.name == "sft_packed"):
        not_here += _left_out(view, occurrences)
    if not occurrences and not not_here and not unknown:
        not_here.append(NotHere(origin.raw, origin.domain, "not_read", _not_read(workspace, family, origin.domain, record)))
    return Whereabouts(family, origin.domain, identity, record.payload, tuple(occurrences), tuple(not_here), tuple(unknown))


def _rejections(opened: Opened, asset: Asset, partition: str, identity: str, occurrences: list[Found]) -> Iterator[NotHere]:
    """The rejections of a record by a store; `occurrences` has the lines that the store was made from."""
    if asset.name not in EVERY or asset.name == "sft_template":
        return
    quarantine, ids = opened.published(asset.name, partition).quarantine, {identity}
    if isinstance(asset.source, FromLines):  # records are named by their lines
        line_assets = {name for name, _ in asset.source.files.values()}
        occurrences_of_lines = (
            line for line in occurrences if line.asset in line_assets and line.partition == partition and not line.draft
        )
        ids = {f"{line.stream}.jsonl:{line.row + 1}" for line in occurrences_of_lines}
    for rejection in read_quarantine(quarantine) if quarantine else ():
        if rejection.id in ids:
            winner = rejection.detail.rpartition(" ")[2] if rejection.reason == "duplicate" else None
            yield NotHere(
                asset.name, partition, f"{rejection.stage}/{rejection.reason}", rejection.detail, winner, opened.draft is not None
            )


def _left_out(opened: Opened, occurrences: list[Found]) -> Iterator[NotHere]:
    """Tokens of the record that are in no row of a packed table."""
    try:
        opened.published("sft_packed")
    except StoreError:
        return
    draft = opened.draft is not None
    packed = [piece for piece in occurrences if piece.asset == "sft_packed" and piece.draft == draft]
    for record in (piece for piece in occurrences if piece.asset == "sft_tokens" and not piece.draft):
        pieces = [piece for piece in packed if sft_split(piece.stream) == record.stream and piece.part == record.part]
        packed_tokens = {token for piece in pieces for token in range(piece.first, piece.first + piece.end - piece.start)}
        if missing := record.end - record.start - len(packed_tokens):
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
    if (limit := getattr(configured, "max_per_source", None)) is not None:
        limits["max_per_source"] = limit
    shown = ", ".join(f"{limit}: {count:,}" for limit, count in limits.items() if count is not None)
    return f"the domain is not read so far ({shown})" if shown else "no store is built of it"
