"""`forget`: take a record out of everything that holds it, prove that it is gone, and keep it out whatever is fetched again."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prep_assets.config.loading import Tombstone, add_tombstones, payload_digest
from prep_assets.config.models import FAMILIES
from prep_assets.data.blocks import FORGOTTEN
from prep_assets.data.quarantine import read_quarantine
from prep_assets.engine.events import Event
from prep_assets.engine.execute import build
from prep_assets.errors import ConfigError, Refused, StoreError
from prep_assets.explain.streams import family_of
from prep_assets.explain.where import Found, NotHere, StoredRecord, Whereabouts, contents, has_records, where
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
    fresh = add_tombstones(workspace.configs, (_tombstone(each, digests, records, reason) for each in found))
    after = Workspace(workspace.configs, workspace.stores, progress=workspace.progress)
    concerned = {(each.family, each.domain) for each in found}
    needles = [words for each in known for words in needles_of(workspace, each)]
    for asset, place in list(_stores(after, concerned)):
        build(after, asset.name, partition=place.partition or None, tell=tell)
    left, searched = _left(after, concerned, known, needles)
    # one that is being read is not deleted: before old versions are searched, and after what `where` opened is let go
    gc.collect()
    if prune:
        _let_go(after, concerned, needles)
        gc.collect()
    pruned = _stores(after, concerned) if prune else ()
    removed = tuple(f"{place.backend.where}/versions/{name}" for _, place in pruned for name in place.remove_unused())
    return Forgotten(fresh, _held(known), left, searched, tuple(_old(after, concerned, needles)), removed)


def _names(record: str, found: Whereabouts) -> bool:
    domain, _, rest = record.partition("#")
    return domain == found.domain and found.id.endswith(rest)


def _tombstone(found: Whereabouts, digests: Mapping[str, str], records: Sequence[str], reason: str) -> Tombstone:
    """A family whose store of the domain is not built yet must not be built with the record either."""
    record = next(record for record in records if _names(record, found))
    return Tombstone(found.family, found.domain, found.id, digests[record], reason)


def _held(known: Sequence[Whereabouts]) -> tuple[str, ...]:
    """Labels of the stores that held a record, or its refusal."""
    places: list[Found | NotHere] = []
    for each in known:
        places += [*each.found, *each.not_here]
    return tuple(dict.fromkeys(f"{place.asset}[{place.partition}]" if place.partition else place.asset for place in places))


def _stores(workspace: Workspace, concerned: set[tuple[str, str]]) -> Iterator[tuple[Asset, Place]]:
    """The stores on disk that may hold a record of these families' domains, what feeds others first."""
    for family in dict.fromkeys(family for family, _ in sorted(concerned)):
        for asset in family_assets(workspace, family).values():
            for partition in asset.partitions(workspace):
                place = workspace.place(asset.name, partition)
                if place.exists and (not partition or (family, partition) in concerned):
                    yield asset, place


def _left(
    workspace: Workspace, concerned: set[tuple[str, str]], known: Sequence[Whereabouts], needles: Sequence[Sequence[str]]
) -> tuple[dict[str, tuple[str, ...]], int]:
    """What current stores still hold, by their indexes and by their text; and how many were searched."""
    found: dict[str, list[str]] = {}
    for each in known:
        for again in where(workspace, f"{each.domain}#{each.id}"):
            for here in again.found if again.family == each.family else ():
                found.setdefault(here.asset, []).append(f"{each.domain}#{each.id}")
            if any(gone.reason != f"records/{FORGOTTEN}" for gone in again.not_here) and again.family == each.family:
                found.setdefault("quarantine", []).extend(f"{gone.asset}: {gone.reason}" for gone in again.not_here)
    searched = 0
    for asset, place in _stores(workspace, concerned):
        published = place.current()
        searched += 1
        if published is None or asset.name not in EVERY:  # an export is current only where it was made from the store that is searched
            _check_export(workspace, asset, place)
            continue
        if records := records_with(workspace, published, needles):
            found.setdefault(place.label, []).extend(records)
    return {label: tuple(dict.fromkeys(each)) for label, each in found.items()}, searched


def _check_export(workspace: Workspace, asset: Asset, place: Place) -> None:
    published = place.current()
    source = workspace.published(asset.upstream[0], place.partition)
    if published is None or source is None or published.manifest.recipe["source"] != source.manifest.content_hash:
        raise StoreError(
            f"{place.label} was not made from the current {asset.upstream[0]}, so it may hold what is forgotten. Build it again"
        )


def _let_go(workspace: Workspace, concerned: set[tuple[str, str]], needles: Sequence[Sequence[str]]) -> None:
    """Take drafts and candidates that hold a record off their pointers, so that nothing uses them."""
    for asset, place in _stores(workspace, concerned):
        pointed = (each for each in (place.draft(), place.candidate()) if each is not None)
        for old in _holding(workspace, asset, place, pointed, needles):
            place.let_go(old.published.version)


def _old(workspace: Workspace, concerned: set[tuple[str, str]], needles: Sequence[Sequence[str]]) -> Iterator[Old]:
    for asset, place in _stores(workspace, concerned):
        current = place.current()
        others = (version for version in versions(place) if current is None or version.version != current.version)
        yield from _holding(workspace, asset, place, others, needles)


def _holding(
    workspace: Workspace, asset: Asset, place: Place, among: Iterable[Published], needles: Sequence[Sequence[str]]
) -> Iterator[Old]:
    """The versions of a store that hold a record."""
    clean = _clean_sources(workspace, asset, place)
    for version in among:
        records = records_with(workspace, version, needles)
        if asset.name not in EVERY and version.manifest.recipe["source"] not in clean:
            records = ["made from a version that is not current"]
        if records:
            yield Old(place.label, version, tuple(records))


def _clean_sources(workspace: Workspace, asset: Asset, place: Place) -> set[str]:
    source = workspace.published(asset.upstream[0], place.partition) if asset.name not in EVERY else None
    return {source.manifest.content_hash} if source else set()


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
    found = []
    if has_records(published) and sets:
        batch: list[StoredRecord] = []
        for held in contents(workspace, published):
            batch.append(held)
            if len(batch) == BATCH:
                found += _batch_holding(workspace, published, batch, sets)
                batch = []
        found += _batch_holding(workspace, published, batch, sets)
    for refusal in read_quarantine(published.quarantine) if published.quarantine and sets else ():
        if any(all(text in refusal.payload or _as_json(text) in refusal.payload for text in texts) for texts in sets):
            found.append(f"{refusal.id} in quarantine")
    return found


def _batch_holding(workspace: Workspace, published: Published, batch: Sequence[StoredRecord], sets: Sequence[Sequence[str]]) -> list[str]:
    lines = [held for held in batch if not len(held.ids)]
    found = [held for held in lines if _has(" ".join(strings_in(json.loads(held.line))), sets)]
    encoded = [held for held in batch if len(held.ids)]
    if encoded:
        vocabulary = workspace.vocabulary(family_of(workspace, published.manifest.asset))
        decoded = vocabulary.decode_batch([held.ids.tolist() for held in encoded])
        found += [held for held, text in zip(encoded, decoded, strict=True) if _has(text, sets)]
    return [f"{held.domain}#{held.id}" for held in found]


def _has(text: str, sets: Sequence[Sequence[str]]) -> bool:
    return any(all(each in text for each in texts) for texts in sets)


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
