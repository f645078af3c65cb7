"""`forget`: remove records from every store, prove that they are gone, and keep them out of later builds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import chain, islice, starmap
from typing import Any

from msgspec import Struct

from prep_assets import records as records_of
from prep_assets import where
from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import FORGOTTEN
from prep_assets.data.quarantine import read_quarantine
from prep_assets.engine.events import Event
from prep_assets.engine.execute import build
from prep_assets.errors import ConfigError, Refused, StoreError
from prep_assets.extensions.neighbours.opt_outs import Rule, matching
from prep_assets.graph.graph import EVERY, family_assets, family_of, has_records
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.sources import strings_in
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import MEDIA, TOOL_CALL, Group, Pair, Prompt, Sample, Turn, parts_of
from prep_assets.schemas.reader import apply
from prep_assets.stores.manifest import label_of
from prep_assets.stores.published import Place, versions
from prep_assets.stores.version_folders import Published

SHORTEST = 4
"""Characters of the shortest text that is searched for; shorter ones are in every store."""
BATCH = 512


class Old(Struct, frozen=True):
    """A version that is not current and still holds a record, with the ids of the matching records."""

    label: str
    published: Published
    records: tuple[str, ...]


class Forgotten(Struct, frozen=True):
    """The outcome of `forget`.

    Attributes:
        tombstones: new tombstones; empty where all existed already.
        held: stores that held a record, and were built again.
        left: label → ids of matching records, for current stores that still hold one by id or by text; empty where the proof holds.
        searched: count of current stores that were searched, exports included.
        old: versions on disk that are not current and hold a record.
        removed: folders of such versions that were deleted.
        rule: what rows were asked for by, field → values; empty where all were named.
        contents: label → hashes of the content of a store before and after; equal where it held none of the records.
        unsearched: raw stores that are not built, so that a rule could not look at their rows.
    """

    tombstones: tuple[Tombstone, ...]
    held: tuple[str, ...]
    left: Mapping[str, tuple[str, ...]]
    searched: int
    old: tuple[Old, ...]
    removed: tuple[str, ...] = ()
    rule: Mapping[str, tuple[str, ...]] = {}
    contents: Mapping[str, tuple[str, str]] = {}
    unsearched: tuple[str, ...] = ()


def forget(
    workspace: Workspace,
    records: Sequence[str],
    *,
    reason: str = "",
    prune: bool = False,
    rule: Rule | None = None,
    domains: Sequence[str] = (),
    tell: Callable[[Event], None] = lambda event: None,
) -> Forgotten:
    """Forget records: write tombstones, rebuild the stores that held them, and search every current store for them.

    Args:
        records: names as `where` takes them.
        rule: rows that are forgotten as well, of all pinned domains, or of `domains` alone.
        reason: written into the tombstones.
        prune: delete unused versions of stores that held them, and drafts and candidates that hold them.

    Raises:
        ConfigError: no such record, or one that cannot be read.
        PrepAssetsError: a store that held one cannot be built without it. The tombstone stays, so no build brings the record back.
    """
    named = [(record, location) for record in records for location in where(workspace, record)]
    readable = [location for _, location in named if location.payload != ""]
    for location in readable:
        if isinstance(location.payload, str):
            raise ConfigError(f"{location.domain}/{location.id} cannot be read, so nothing is made of it. Take it out of its file")
    digests = {record: payload_digest(location.payload) for record, location in named if location.payload != ""}
    matched, unsearched = ([], []) if rule is None else matching(workspace, rule, domains)
    # families whose store of the domain is not built yet get a tombstone too
    stones = [Tombstone(location.family, location.domain, location.id, digests[record], reason) for record, location in named]
    stones += [Tombstone(row.family, row.domain, row.id, payload_digest(row.payload), reason) for row in matched]
    fresh = add_tombstones(workspace.configs, stones)
    after = Workspace(workspace.configs, workspace.stores, progress=workspace.progress)
    rows = [(each.family, each.domain, each.payload) for each in readable] + [(each.family, each.domain, each.payload) for each in matched]
    needles = [words for row in rows for words in needles_of(workspace, *row)]
    touched = {(location.family, location.domain) for _, location in named} | {(each.family, each.domain) for each in matched}
    search = _Search(after, touched, needles)
    before = search.contents()
    for asset, place in list(search.stores()):
        build(after, asset.name, partition=place.partition or None, tell=tell)
    contents = {label: (before.get(label, ""), content) for label, content in search.contents().items()}
    known = [(location.family, f"{location.domain}/{location.id}") for location in readable]
    remaining, searched = search.left(known, {(row.family, f"{row.domain}/{row.id}") for row in matched})
    # versions with open readers are not deleted, so free what `where` opened, and delete before old versions are searched
    if prune:
        search.let_go()
    pruned = search.stores() if prune else ()
    removed = tuple(f"{place.backend.where}/versions/{name}" for _, place in pruned for name in place.remove_unused())
    found = ((place.asset, place.partition) for location in readable for place in location.found)
    refused = ((place.asset, place.partition) for location in readable for place in location.not_here)
    held = dict.fromkeys(
        [*starmap(label_of, chain(found, refused)), *(label for label, (old, new) in contents.items() if matched and old != new)]
    )
    asked = {} if rule is None else {field: tuple(sorted(values)) for field, values in rule.values.items()}
    return Forgotten(fresh, tuple(held), remaining, searched, tuple(search.old()), removed, asked, contents, tuple(unsearched))


class _Search(Struct, frozen=True):
    """A search for texts in the stores of some (family, domain) pairs."""

    workspace: Workspace
    domains: set[tuple[str, str]]
    needles: Sequence[Sequence[str]]

    def stores(self) -> Iterator[tuple[Asset, Place]]:
        """The stores on disk that may hold a record, upstream stores first."""
        for family in dict.fromkeys(family for family, _ in sorted(self.domains)):
            for asset in family_assets(self.workspace, family).values():
                for partition in asset.partitions(self.workspace):
                    place = self.workspace.place(asset.name, partition)
                    if place.exists and (not partition or (family, partition) in self.domains):
                        yield asset, place

    def contents(self) -> dict[str, str]:
        """Label → hash of the content of each current store."""
        found = ((place.label, place.current()) for _, place in self.stores())
        return {label: store.manifest.content_hash for label, store in found if store is not None}

    def left(self, known: Sequence[tuple[str, str]], matched: Set[tuple[str, str]]) -> tuple[dict[str, tuple[str, ...]], int]:
        """Label → ids of records, of (family, name), that current stores still hold, by index or by text; and the count of stores searched. Those that a
        rule matched are many: their names are looked for in each store once."""
        holders: dict[str, list[str]] = {}
        for family, name in known:
            for current in (candidate for candidate in where(self.workspace, name) if candidate.family == family):
                for occurrence in current.found:
                    holders.setdefault(occurrence.asset, []).append(name)
                if any(absence.reason != f"records/{FORGOTTEN}" for absence in current.not_here):
                    holders.setdefault("quarantine", []).extend(f"{absence.asset}: {absence.reason}" for absence in current.not_here)
        stores = list(self.stores())
        for asset, place in stores:
            published, source = place.current(), self._source(asset, place)
            if published is not None and asset.name in EVERY:
                of_family = {name for family, name in matched if family == asset.family}
                if held := _records_of_or_with(self.workspace, published, of_family, self.needles):
                    holders.setdefault(place.label, []).extend(held)
            elif published is None or published.manifest.recipe["source"] != source:
                # an export is covered by the search of the store that it was made from
                above = asset.inputs[0][1].name
                raise StoreError(f"{place.label} was not made from the current {above}, so it may hold what is forgotten. Build it again")
        return {label: tuple(dict.fromkeys(ids)) for label, ids in holders.items()}, len(stores)

    def let_go(self) -> None:
        """Unlink drafts and candidates that hold a record, so that they count as unused."""
        for asset, place in self.stores():
            for old in self._versions_holding(asset, place, (store for store in (place.draft(), place.candidate()) if store is not None)):
                place.let_go(old.published.version)

    def old(self) -> Iterator[Old]:
        """Versions that hold a record and are not current."""
        for asset, place in self.stores():
            current = place.current()
            yield from self._versions_holding(
                asset, place, (store for store in versions(place) if current is None or store.version != current.version)
            )

    def _versions_holding(self, asset: Asset, place: Place, candidates: Iterable[Published]) -> Iterator[Old]:
        source = self._source(asset, place)
        for version in candidates:
            records = records_with(self.workspace, version, self.needles)
            if asset.name not in EVERY and version.manifest.recipe["source"] != source:
                records = ["made from a version that is not current"]
            if records:
                yield Old(place.label, version, tuple(records))

    def _source(self, asset: Asset, place: Place) -> str | None:
        """The content hash of the current store that an export is made from."""
        return None if asset.name in EVERY else self.workspace.content(asset.inputs[0][1].name, place.partition)


class Search(Struct, frozen=True):
    """The outcome of `forgotten_rows`.

    Attributes:
        rows: ``DOMAIN/RECORD`` of the rows of the sources that tombstones name, wherever they stand now.
        searched: labels of the stores that were searched.
        left: label → ids of records that are such a row, or hold its text.
    """

    rows: tuple[str, ...]
    searched: tuple[str, ...]
    left: Mapping[str, tuple[str, ...]]


def forgotten_rows(workspace: Workspace, tombstones: Sequence[Tombstone], stores: Sequence[Published]) -> Search:
    """Search stores of one family for the rows that tombstones name, by id and by text. A row that moved in its file is found where builds refused it.

    Raises:
        SourceError: a source changed since it was pinned.
    """
    # tombstones of 0.2 count from 0; the digest says which of both it is
    names = {f"{each.domain}{separator}{each.record}" for each in tombstones for separator in "/#"}
    for store in stores:
        rejections = read_quarantine(store.quarantine) if store.quarantine else ()
        names |= {f"{store.manifest.partition}/{each.id}" for each in rejections if each.reason == FORGOTTEN}
    family, digests = tombstones[0].family, {(each.domain, each.digest) for each in tombstones}
    rows: dict[str, list[tuple[str, ...]]] = {}
    for record in sorted(names):
        with suppress(ConfigError):  # the file, or the row, is not there any more
            for found in where(workspace, record):
                if found.family == family and (found.domain, payload_digest(found.payload)) in digests:
                    rows[f"{found.domain}/{found.id}"] = needles_of(workspace, family, found.domain, found.payload)
    left: dict[str, tuple[str, ...]] = {}
    for store in stores:
        needles = [texts for sets in rows.values() for texts in sets]
        if held := dict.fromkeys(_records_of_or_with(workspace, store, rows, needles)):
            left[store.manifest.label] = tuple(held)
    return Search(tuple(rows), tuple(store.manifest.label for store in stores), left)


def _records_of_or_with(workspace: Workspace, published: Published, names: Collection[str], sets: Sequence[Sequence[str]]) -> list[str]:
    """Ids of a version's records that have one of these names, and of those as by `records_with`."""
    records = records_of(workspace, published) if names and has_records(published) else ()
    by_name = [name for each in records if (name := f"{each.domain}/{each.id}") in names]
    return [*by_name, *records_with(workspace, published, sets)]


def needles_of(workspace: Workspace, family: str, name: str, payload: Mapping[str, Any] | str) -> list[tuple[str, ...]]:
    """Sets of texts of a record; a store that contains all texts of one set holds it. One set has the strings of the raw row, as in lines and
    quarantines; the others have the turns as they are rendered, a prompt with one answer per set."""
    domain = workspace.family(FAMILIES[family]).domains[name]
    sets = [_searchable(strings_in(payload))]
    for form in (Sample, Pair, Prompt, Group):
        with suppress(Refused, ConfigError):
            example = apply(converter(domain, form), payload)  # type: ignore[arg-type]
            prompt, *answers = parts_of(example) or ((),)
            sets += [_searchable(_words((*prompt, *answer))) for answer in answers or [()]]
            break
    return list(dict.fromkeys(texts for texts in sets if texts))


def _words(turns: Sequence[Turn]) -> Iterator[str]:
    """The texts that a template writes verbatim."""
    return (region.text for turn in turns for region in turn.regions if region.kind not in (*MEDIA, TOOL_CALL) and not region.drop)


def _searchable(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if len(text.strip()) >= SHORTEST))


def records_with(workspace: Workspace, published: Published, sets: Sequence[Sequence[str]]) -> list[str]:
    """Ids of a version's records that contain all texts of one of the sets: decoded tokens, lines, and the quarantine."""
    ids: list[str] = []
    if not sets:
        return ids
    records = records_of(workspace, published) if has_records(published) else iter(())
    while batch := list(islice(records, BATCH)):
        matches = [
            record for record in batch if not len(record.ids) and _contains_any_set(" ".join(strings_in(json.loads(record.line))), sets)
        ]
        if encoded := [record for record in batch if len(record.ids)]:
            vocabulary = workspace.vocabulary(family_of(workspace, published.manifest.asset))
            texts = vocabulary.decode_batch([record.ids.tolist() for record in encoded])
            matches += [record for record, text in zip(encoded, texts, strict=True) if _contains_any_set(text, sets)]
        ids += [f"{record.domain}/{record.id}" for record in matches]
    for rejection in read_quarantine(published.quarantine) if published.quarantine else ():
        payload = rejection.payload
        if any(all(text in payload or json.dumps(text, ensure_ascii=False)[1:-1] in payload for text in texts) for texts in sets):
            ids.append(f"{rejection.id} in quarantine")
    return ids


def _contains_any_set(text: str, sets: Sequence[Sequence[str]]) -> bool:
    return any(all(needle in text for needle in texts) for texts in sets)
