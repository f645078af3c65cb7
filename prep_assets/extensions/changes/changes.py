"""`diff`, what differs between two versions of a store, `compare`, between two folders of stores, and `impact`, what a change of the configuration
would change."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field

from prep_assets import StoredRecord, records
from prep_assets.checks.bounds import metrics_of
from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError, nearest
from prep_assets.graph.graph import assets_of, has_records, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import build_key, differences, label_of
from prep_assets.stores.published import Place, versions
from prep_assets.stores.version_folders import Published

# Two versions of a store compared: records added, removed and changed, and tokens by domain.

Key = tuple[str, str, str]
"""Stream, domain and id of a record."""


class Amount(Struct):
    """How much of a domain a version holds."""

    records: int = 0
    tokens: int = 0
    trained_tokens: int = 0

    def add(self, record: StoredRecord) -> None:
        """Count one record."""
        self.records += 1
        self.tokens += len(record.ids)
        self.trained_tokens += int(np.count_nonzero(record.weights > 0))


class Changed(Struct, frozen=True, eq=False):
    """A record in two versions; `None` in a version that lacks it."""

    key: Key
    before: StoredRecord | None
    after: StoredRecord | None


class Difference(Struct, frozen=True):
    """Two versions of a store compared.

    Attributes:
        before, after: the versions.
        recipe: recipe keys that differ.
        same: count of records with equal tokens and weights.
        came, went, changed: count of records only in the later version, only in the earlier one, and in both with different content.
        amounts: domain → its amounts in the earlier and the later version.
        examples: differing records, changed ones first.
    """

    before: Published
    after: Published
    recipe: tuple[str, ...]
    same: int
    came: int
    went: int
    changed: int
    amounts: dict[str, tuple[Amount, Amount]] = field(default_factory=dict)
    examples: tuple[Changed, ...] = ()


def diff(workspace: Workspace, asset: str, version: str | None = None, *, partition: str = "", examples: int = 10) -> Difference:
    """Compare the current store with another version of it: an older one, a draft or a rejected candidate.

    Args:
        version: ``draft``, ``candidate``, or a prefix of its folder's name; by default the latest one that is not current.
        examples: how many records to show.

    Raises:
        ConfigError: no such version, or no current store.
    """
    place = workspace.place(asset, partition)
    current = place.current()
    if current is None:
        raise ConfigError(f"{place.label} has no current store to compare with")
    other = _latest_other(place, current) if version is None else version_named(place, version)
    place.check_readable(other)
    newer = {store.version for store in (place.draft(), place.candidate()) if store is not None}
    before, after = (current, other) if other.version in newer else (other, current)
    return compare(workspace, before, after, examples=examples)


def _latest_other(place: Place, current: Published) -> Published:
    others = [store for store in versions(place) if store.version != current.version]
    if not others:
        raise ConfigError(f"{place.label} has one version only, the current one: {current.where}")
    return others[0]


def compare(
    workspace: Workspace, before: Published, after: Published, *, examples: int = 10, of_before: Workspace | None = None
) -> Difference:
    """Compare two versions of a store. Memory holds one hash per record, and the records that are shown.

    Args:
        of_before: the workspace of the earlier version, where it is another one.
    """
    old, new = _VersionRecords(of_before or workspace, before), _VersionRecords(workspace, after)
    same = sum((old.digests & new.digests).values())
    removed, added = old.only(new.digests), new.only(old.digests)
    changed = removed.keys() & added.keys()
    amounts = {name: (old.amount(name), new.amount(name)) for name in sorted({*old.amounts, *new.amounts})}
    chosen = [*sorted(changed), *sorted(added.keys() - changed), *sorted(removed.keys() - changed)][:examples]
    records = old.take(removed.keys() & set(chosen)), new.take(added.keys() & set(chosen))
    shown = tuple(Changed(key, records[0].get(key), records[1].get(key)) for key in chosen)
    recipe = differences(before.manifest.recipe, after.manifest.recipe)
    # a changed key counts once, however often a version has its record
    came, went = (keys.total() - len(changed) for keys in (added, removed))
    return Difference(before, after, recipe, same, came, went, len(changed), amounts, shown)


class _VersionRecords:
    """The records of a version, read once for hashes, and again for records to show."""

    def __init__(self, workspace: Workspace, published: Published) -> None:
        self.read: Callable[[], Iterator[StoredRecord]] = lambda: records(workspace, published)
        self.digests: Counter[bytes] = Counter()
        self.amounts: dict[str, Amount] = {}
        for record in self.read():
            self.digests[record.digest] += 1
            self.amounts.setdefault(record.domain, Amount()).add(record)

    def amount(self, domain: str) -> Amount:
        return self.amounts.get(domain, Amount())

    def only(self, other_digests: Counter[bytes]) -> Counter[Key]:
        """Keys of the records that this version has more often than the other one."""
        surplus, keys = self.digests - other_digests, Counter[Key]()
        for record in self.read() if surplus else ():
            if surplus[record.digest] > 0:
                surplus[record.digest] -= 1
                keys[record.stream, record.domain, record.id] += 1
        return keys

    def take(self, wanted: Collection[Key]) -> dict[Key, StoredRecord]:
        """The records with the wanted keys."""
        return {key: record for record in (self.read() if wanted else ()) if (key := (record.stream, record.domain, record.id)) in wanted}


# `compare`: the stores of two folders side by side: figures, refusals, leaks, and which records only one of them has.


class Pair(Struct, frozen=True):
    """A store in two folders.

    Attributes:
        label: its asset and domain.
        before, after: what is current there; `None` where it has none.
        figures: metric → its values, for those that differ; `None` where a side has none.
        difference: of their records; `None` where they are equal, only on one side, or are none.
    """

    label: str
    before: Published | None
    after: Published | None
    figures: dict[str, tuple[float | None, float | None]]
    difference: Difference | None

    @property
    def same(self) -> bool:
        """Whether both sides hold the same bytes."""
        return self.before is not None and self.after is not None and self.before.manifest.content_hash == self.after.manifest.content_hash


def side_by_side(before: Workspace, after: Workspace, only: Sequence[str] = (), *, examples: int = 0) -> Iterator[Pair]:
    """Compare every store that either folder has, in the order of the graph.

    Args:
        before, after: two configurations, or one, each with its folder of stores.
        only: assets; empty: all.
        examples: how many records of each store to show.

    Raises:
        ConfigError: no such asset, or neither folder has a store.
    """
    sides = [assets_of(workspace) for workspace in (before, after)]
    assets = {**sides[1], **sides[0]}
    if unknown := [name for name in only if name not in assets]:
        raise ConfigError(f"no asset {unknown[0]!r}{nearest(unknown[0], assets) or '.'}")
    found = False
    for name in only or assets:
        partitions = dict.fromkeys(
            partition
            for workspace, side in zip((before, after), sides, strict=True)
            if name in side
            for partition in side[name].partitions(workspace)
        )
        for partition in partitions:
            old, new = (workspace.published(name, partition) for workspace in (before, after))
            if old is None and new is None:
                continue
            found = True
            figures = [metrics_of(side[name], store) if store else {} for side, store in zip(sides, (old, new), strict=True)]
            differing = {
                key: (figures[0].get(key), figures[1].get(key))
                for key in {**figures[1], **figures[0]}
                if figures[0].get(key) != figures[1].get(key)
            }
            difference = None
            if old and new and old.manifest.content_hash != new.manifest.content_hash and has_records(old):
                difference = compare(after, old, new, examples=examples, of_before=before)
            yield Pair(before.place(name, partition).label, old, new, differing, difference)
    if not found:
        raise ConfigError(f"neither {before.stores} nor {after.stores} has a store of {', '.join(only) or 'any asset'}")


# `impact`: the effects of a configuration change, found by a trial build. Nothing is written to the folder of stores.
#
# A store whose recipe changes is built in a temporary folder, without checks; equal content stops the change there, as in a real build. Large domains, and
# all that reads their sources, are built from their first rows, before and after the change; stores made from a sample wait where the sample changes.

LONG = 64 << 20
"""Bytes of source files above which a domain is tried on a sample."""
SAMPLE = 2000
"""Rows of that sample."""
Outcome = Literal["same", "equal", "changed", "new", "removed", "fails", "blocked", "waits", "absent"]
"""``same``: its recipe stays. ``equal``: it is built again, with the same content. ``changed``: with another content. ``new``: the configuration has it
now. ``removed``: no longer. ``fails``: the change does not allow it. ``blocked``: it is made from one that fails. ``waits``: it is made from one that was
tried on a sample, and changes there.
``absent``: it has no store yet, so that there is nothing to compare.
"""
STALE = ("equal", "changed", "new", "fails", "blocked", "waits")
"""Outcomes of stores that a build would build."""


_FOLLOWS: Mapping[Outcome, Outcome] = {"fails": "blocked", "blocked": "blocked", "waits": "waits", "absent": "absent"}
"""Outcome of a store → outcome of what is made from it."""


class Effect(Struct, frozen=True):
    """The effect of a change on one store.

    Attributes:
        asset, partition: the store.
        outcome: see `Outcome`.
        why: the keys of its recipe that change, or what stops it.
        sample: how many rows of each domain it was tried on; `None` for all.
        difference: records and tokens that change, where it was built and holds records.
        refused: records that would be newly rejected, or for another reason.
        accepted: count of records that would no longer be rejected.
    """

    asset: str
    partition: str
    outcome: Outcome
    why: str = ""
    sample: int | None = None
    difference: Difference | None = None
    refused: tuple[Refusal, ...] = ()
    accepted: int = 0

    @property
    def label(self) -> str:
        """The label of the store in messages."""
        return label_of(self.asset, self.partition)


def impact(workspace: Workspace, changed: Workspace, *, examples: int = 3, sample: int = SAMPLE, long: int = LONG) -> Iterator[Effect]:
    """Yield the effect on every store, upstream stores first.

    Args:
        workspace: the stores as they are.
        changed: the same with other options, or with another folder of configurations.
        examples: records that are shown of each store.
        sample: rows of a sample of a domain.
        long: bytes of sources above which a domain is sampled.

    Raises:
        ConfigError: the configuration is invalid.
    """
    with tempfile.TemporaryDirectory(prefix="prep-assets-") as folder:
        trial = _Trial(workspace.plain, changed, Overlay(workspace.stores, Path(folder)), examples, sample, long)
        for asset in assets_of(changed).values():
            for partition in asset.partitions(changed):
                trial.effect(asset, partition)
        yield from trial.outcomes.values()
        for asset in assets_of(workspace.plain).values():
            for partition in asset.partitions(workspace.plain):
                if (asset.name, partition) not in trial.outcomes and workspace.place(asset.name, partition).exists:
                    yield Effect(asset.name, partition, "removed", "the configuration has it no longer")


class _Trial:
    def __init__(self, now: Workspace, changed: Workspace, aside: Overlay, examples: int, sample: int, long: int) -> None:
        self._now, self._aside = now, aside
        self._then = Workspace(changed.configs, aside.folder, changed.overrides, changed.progress)
        self._examples, self._sample, self._long = examples, sample, long
        self.outcomes: dict[tuple[str, str], Effect] = {}

    def effect(self, asset: Asset, partition: str) -> Effect:
        """The effect on one store, which is then in the overlay, unless it fails or waits. Those on stores upstream, of other families too, come first."""
        if (known := self.outcomes.get((asset.name, partition))) is None:
            known = self._effect(asset, partition)
            self.outcomes[asset.name, partition] = known
        return known

    def _effect(self, asset: Asset, partition: str) -> Effect:
        inputs = [self.effect(upstream, key) for upstream, key in upstream_of(self._then, asset, partition)]
        for upstream in inputs:
            if (follows := _FOLLOWS.get(upstream.outcome)) is not None:
                return Effect(asset.name, partition, follows, f"it is made from {upstream.label}")
            if upstream.sample is not None and upstream.outcome == "changed":
                return Effect(asset.name, partition, "waits", f"it is made from {upstream.label}, which changes and was tried on a sample")
        current = self._now.published(asset.name, partition)
        try:
            if current is None and self._is_configured_now(asset, partition):
                return Effect(asset.name, partition, "absent", "it has no store yet")
            recipe = asset.recipe(self._then, partition)
            if current is not None and current.manifest.build_key == build_key(recipe):
                self._aside.link(asset.name, partition)
                return Effect(asset.name, partition, "same")
            return self._build_and_compare(asset, partition, current, recipe)
        except (PrepAssetsError, OSError) as error:
            return Effect(asset.name, partition, "fails", str(error))

    def _is_configured_now(self, asset: Asset, partition: str) -> bool:
        known = assets_of(self._now)
        return asset.name in known and partition in known[asset.name].partitions(self._now)

    def _build_and_compare(self, asset: Asset, partition: str, current: Published | None, recipe: Mapping[str, Any]) -> Effect:
        rows = self._rows(asset, partition)
        why = ", ".join(differences(current.manifest.recipe, recipe)) if current else "the configuration has it now"
        then = self._build(self._then, asset, partition, rows)
        if current is None:
            return Effect(asset.name, partition, "new", why, rows)
        before = current if rows is None else self._before(asset, partition, rows)
        equal = before.manifest.content_hash == then.manifest.content_hash
        if rows is not None and equal:  # so that downstream builds read the real store
            self._relink(asset.name, partition)
        compared = (
            None if equal or not has_records(then) else compare(self._then, before, then, examples=self._examples, of_before=self._now)
        )
        refused, accepted = _rejections(before, then)
        return Effect(asset.name, partition, "equal" if equal else "changed", why, rows, compared, refused, accepted)

    def _build(self, workspace: Workspace, asset: Asset, partition: str, rows: int | None) -> Published:
        built = asset.build(workspace if rows is None else _limited(workspace, asset, rows), partition).propose()
        workspace.place(asset.name, partition).accept(built, {})
        return built

    def _before(self, asset: Asset, partition: str, rows: int) -> Published:
        """Build the sample with the current configuration."""
        overlay = Overlay(self._aside.real, self._aside.folder / ".before" / f"{asset.name}-{partition}")
        now = Workspace(self._now.configs, overlay.folder, {}, self._now.progress)
        for above, key in upstream_of(now, asset, partition):
            overlay.link(above.name, key)
        return self._build(now, asset, partition, rows)

    def _relink(self, asset: str, partition: str) -> None:
        place = self._then.place(asset, partition)
        place.directory.rename(place.directory.with_name(f".{place.directory.name}-sample"))
        self._aside.link(asset, partition)

    def _rows(self, asset: Asset, partition: str) -> int | None:
        """Rows to try per domain; `None` (all) where sources are small or none are read."""
        domains = [key for above, key in upstream_of(self._then, asset, partition) if above.name.endswith("_raw")]
        stores = [self._then.published(f"{asset.family}_raw", key) for key in domains]
        total = sum(store.manifest.counts.get("bytes", 0) for store in stores if store is not None)
        return self._sample if total > self._long else None


def _limited(workspace: Workspace, asset: Asset, rows: int) -> Workspace:
    """The workspace limited to the first rows of its domains."""
    options = dict(workspace.overrides.get(asset.family, {}))
    domains: Mapping[str, Any] = options.get("domains", {})
    limits = {name: min(rows, domain.max_items or rows) for name, domain in workspace.declared(FAMILIES[asset.family]).domains.items()}
    options["domains"] = {**domains, **{name: {**domains.get(name, {}), "max_items": limit} for name, limit in limits.items()}}
    return workspace.overriding(asset.family, options)


def _rejections(before: Published, then: Published) -> tuple[tuple[Refusal, ...], int]:
    """The rejections that are new or have another reason, and the count of records that are no longer rejected."""
    old, new = (
        {rejection.id: rejection for rejection in read_quarantine(store.quarantine)} if store.quarantine else {} for store in (before, then)
    )
    fresh = tuple(rejection for key, rejection in new.items() if key not in old or old[key].reason != rejection.reason)
    return fresh, len(old.keys() - new.keys())


class Overlay:
    """A folder of stores on top of the real one, which is never written to."""

    def __init__(self, real: Path, folder: Path) -> None:
        self.real, self.folder = real, folder
        hashes = real / ".hashes"
        if hashes.is_dir():  # so that no source file is hashed again
            shutil.copytree(hashes, folder / ".hashes")

    def link(self, asset: str, partition: str) -> None:
        """Link a store to the real one."""
        link = Place(self.folder, asset, partition).directory
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Place(self.real, asset, partition).directory.absolute(), target_is_directory=True)


def version_named(place: Place, name: str) -> Published:
    """Return the version of a name: ``draft``, ``candidate``, ``current``, or a prefix of a folder's name or of a build key.

    Raises:
        ConfigError: no version matches, or several do; the message lists all versions.
    """
    lookup = {"draft": place.draft, "candidate": place.candidate, "current": place.current}.get(name)
    if lookup is not None:
        if (published := lookup()) is None:
            raise ConfigError(f"{place.label} has no {name}")
        return published
    all_versions = versions(place)
    matches = [store for store in all_versions if store.version.startswith(name) or store.manifest.build_key.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    known = [store.version for store in all_versions]
    problem = f"several versions that begin with {name!r}." if matches else f"no version {name!r}{nearest(name, known) or '.'}"
    raise ConfigError(f"{place.label} has {problem} There are: {', '.join(known) or 'none'}")
