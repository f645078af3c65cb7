"""`forget`: take a record out of everything that holds it, prove that it is gone, and keep it out whatever is fetched again."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import FORGOTTEN
from prep_assets.data.quarantine import read_quarantine
from prep_assets.engine.events import Event
from prep_assets.engine.execute import build
from prep_assets.errors import ConfigError, Refused, StoreError
from prep_assets.explain.streams import family_of
from prep_assets.explain.where import Found, NotHere, Whereabouts, contents, has_records, where
from prep_assets.graph.graph import EVERY, family_assets
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.sources import strings_in
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import IMAGE, TOOL_CALL, Contrast, Example, Group, Pair, Prompt, Sample, Turn
from prep_assets.schemas.reader import apply
from prep_assets.stores.published import Place, versions
from prep_assets.stores.version_folders import Published

SHORTEST = 4
"""Characters of a text that is looked for; shorter ones stand in every store."""
BATCH = 512


@dataclass(frozen=True, slots=True)
class Old:
    """A version that is not current and still holds a record: its folder, and the records of it that say the same."""

    label: str
    published: Published
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of records that were to be forgotten.

    Attributes:
        tombstones: what was written; none where all were there already.
        held: stores that held one of them, and were built again.
        left: current stores that still hold one, by id or by text, and which records of them; empty where the proof holds.
        searched: how many current stores were searched, exports among them.
        old: versions on disk that are not current and hold one.
        removed: folders of such versions that were deleted.
    """

    tombstones: tuple[Tombstone, ...]
    held: tuple[str, ...]
    left: Mapping[str, tuple[str, ...]]
    searched: int
    old: tuple[Old, ...]
    removed: tuple[str, ...] = ()


def forget(
    workspace: Workspace,
    records: Sequence[str],
    *,
    reason: str = "",
    prune: bool = False,
    tell: Callable[[Event], None] = lambda event: None,
) -> Forgotten:
    """Forget records: write tombstones, build again what held them, search every current store for them.

    Args:
        records: as `where` names them.
        reason: why; it is written into the tombstone.
        prune: delete the versions that nothing uses of stores that held them, and drafts and candidates that hold them.

    Raises:
        ConfigError: no such record, or one that cannot be read.
        PrepAssetsError: a store that held one cannot be built without it. Its tombstone stays, so that nothing builds it with the record.
    """
    found = [each for record in records for each in where(workspace, record)]
    known = [each for each in found if each.payload != ""]
    for each in known:
        if isinstance(each.payload, str):
            raise ConfigError(f"{each.domain}#{each.id} cannot be read, so nothing is made of it. Take it out of its file")
    digests = {record: payload_digest(each.payload) for record in records for each in known if _names(record, each)}
    # a family whose store of the domain is not built yet must not be built with the record either
    named = ((each, next(record for record in records if _names(record, each))) for each in found)
    stones = (Tombstone(each.family, each.domain, each.id, digests[record], reason) for each, record in named)
    fresh = add_tombstones(workspace.configs, stones)
    after = Workspace(workspace.configs, workspace.stores, progress=workspace.progress)
    needles = [words for each in known for words in needles_of(workspace, each)]
    search = _Search(after, {(each.family, each.domain) for each in found}, needles)
    for asset, place in list(search.stores()):
        build(after, asset.name, partition=place.partition or None, tell=tell)
    left, searched = search.left(known)
    # one that is being read is not deleted: before old versions are searched, and after what `where` opened is let go
    gc.collect()
    if prune:
        search.let_go()
        gc.collect()
    pruned = search.stores() if prune else ()
    removed = tuple(f"{place.backend.where}/versions/{name}" for _, place in pruned for name in place.remove_unused())
    places: Iterable[Found | NotHere] = chain.from_iterable((*each.found, *each.not_here) for each in known)
    held = dict.fromkeys(f"{place.asset}[{place.partition}]" if place.partition else place.asset for place in places)
    return Forgotten(fresh, tuple(held), left, searched, tuple(search.old()), removed)


def _names(record: str, found: Whereabouts) -> bool:
    domain, _, rest = record.partition("#")
    return domain == found.domain and found.id.endswith(rest)


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for in the stores of some families' domains."""

    workspace: Workspace
    domains: set[tuple[str, str]]
    needles: Sequence[Sequence[str]]

    def stores(self) -> Iterator[tuple[Asset, Place]]:
        """The stores on disk that may hold a record, what feeds others first."""
        for family in dict.fromkeys(family for family, _ in sorted(self.domains)):
            for asset in family_assets(self.workspace, family).values():
                for partition in asset.partitions(self.workspace):
                    place = self.workspace.place(asset.name, partition)
                    if place.exists and (not partition or (family, partition) in self.domains):
                        yield asset, place

    def left(self, known: Sequence[Whereabouts]) -> tuple[dict[str, tuple[str, ...]], int]:
        """What current stores still hold, by their indexes and by their text; and how many were searched."""
        found: dict[str, list[str]] = {}
        for each in known:
            name = f"{each.domain}#{each.id}"
            for again in (one for one in where(self.workspace, name) if one.family == each.family):
                for held in again.found:
                    found.setdefault(held.asset, []).append(name)
                if any(gone.reason != f"records/{FORGOTTEN}" for gone in again.not_here):
                    found.setdefault("quarantine", []).extend(f"{gone.asset}: {gone.reason}" for gone in again.not_here)
        stores = list(self.stores())
        for asset, place in stores:
            published, source = place.current(), self._source(asset, place)
            if published is not None and asset.name in EVERY:
                if records := records_with(self.workspace, published, self.needles):
                    found.setdefault(place.label, []).extend(records)
            elif published is None or published.manifest.recipe["source"] != source:
                # an export is sound where it was made from the store that is searched
                above = asset.upstream[0]
                raise StoreError(f"{place.label} was not made from the current {above}, so it may hold what is forgotten. Build it again")
        return {label: tuple(dict.fromkeys(each)) for label, each in found.items()}, len(stores)

    def let_go(self) -> None:
        """Take drafts and candidates that hold a record off their pointers, so that nothing uses them."""
        for asset, place in self.stores():
            for old in self._holding(asset, place, (each for each in (place.draft(), place.candidate()) if each is not None)):
                place.let_go(old.published.version)

    def old(self) -> Iterator[Old]:
        """The versions that are not current and hold a record."""
        for asset, place in self.stores():
            current = place.current()
            yield from self._holding(asset, place, (each for each in versions(place) if current is None or each.version != current.version))

    def _holding(self, asset: Asset, place: Place, among: Iterable[Published]) -> Iterator[Old]:
        source = self._source(asset, place)
        for version in among:
            records = records_with(self.workspace, version, self.needles)
            if asset.name not in EVERY and version.manifest.recipe["source"] != source:
                records = ["made from a version that is not current"]
            if records:
                yield Old(place.label, version, tuple(records))

    def _source(self, asset: Asset, place: Place) -> str | None:
        """The content of the current store that an export is made from."""
        return None if asset.name in EVERY else self.workspace.content(asset.upstream[0], place.partition)


def needles_of(workspace: Workspace, found: Whereabouts) -> list[tuple[str, ...]]:
    """What a store that holds a record says: sets of texts; one of each must be there whole. The row's own strings, as a line or a quarantine has
    them; and the words of its turns, as they are rendered: a prompt with each of its answers."""
    domain = workspace.family(FAMILIES[found.family]).domains[found.domain]
    sets = [_long(strings_in(found.payload))]
    for form in (Sample, Pair, Prompt, Group):
        with suppress(Refused, ConfigError):
            example = apply(converter(domain, form), found.payload)  # type: ignore[arg-type]
            sets += [_long(_words(turns)) for turns in _conversations(example)]
            break
    return list(dict.fromkeys(each for each in sets if each))


def _conversations(example: Example) -> list[tuple[Turn, ...]]:
    match example:
        case Sample():
            return [example.turns]
        case Pair():
            return [(*example.prompt, *example.chosen), (*example.prompt, *example.rejected)]
        case Contrast():
            return []
        case Prompt():
            return [example.prompt]
        case Group():
            return [(*example.prompt, *response) for response in example.responses]


def _words(turns: Sequence[Turn]) -> Iterator[str]:
    """The texts of regions that a template writes as they are."""
    return (region.text for turn in turns for region in turn.regions if region.kind not in (IMAGE, TOOL_CALL) and not region.drop)


def _long(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if len(text.strip()) >= SHORTEST))


def records_with(workspace: Workspace, published: Published, sets: Sequence[Sequence[str]]) -> list[str]:
    """Ids of the records of a version whose text holds all texts of one of the sets; tokens are decoded, lines are read, the quarantine is searched."""
    found: list[str] = []
    if not sets:
        return found
    records = contents(workspace, published) if has_records(published) else iter(())
    while batch := list(islice(records, BATCH)):
        held = [each for each in batch if not len(each.ids) and _has(" ".join(strings_in(json.loads(each.line))), sets)]
        if encoded := [each for each in batch if len(each.ids)]:
            vocabulary = workspace.vocabulary(family_of(workspace, published.manifest.asset))
            texts = vocabulary.decode_batch([each.ids.tolist() for each in encoded])
            held += [each for each, text in zip(encoded, texts, strict=True) if _has(text, sets)]
        found += [f"{each.domain}#{each.id}" for each in held]
    for refusal in read_quarantine(published.quarantine) if published.quarantine else ():
        payload = refusal.payload
        if any(all(text in payload or json.dumps(text, ensure_ascii=False)[1:-1] in payload for text in texts) for texts in sets):
            found.append(f"{refusal.id} in quarantine")
    return found


def _has(text: str, sets: Sequence[Sequence[str]]) -> bool:
    return any(all(each in text for each in texts) for texts in sets)
