"""`diff`, what differs between two versions of a store, and `impact`, what a change of the configuration would change."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prep_assets.config.models import FAMILIES
from prep_assets.data.quarantine import Refusal, read_quarantine
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.explain.where import StoredRecord, contents, has_records
from prep_assets.graph.graph import assets_of, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import build_key, differences
from prep_assets.stores.published import Place, version_named, versions
from prep_assets.stores.version_folders import Published

# What differs between two versions of a store: records in, out and changed, and tokens by domain.

Key = tuple[str, str, str]
"""Stream, domain and id of a record."""


@dataclass(slots=True)
class Amount:
    """How much of a domain a version holds."""

    records: int = 0
    tokens: int = 0
    trained: int = 0

    def add(self, held: StoredRecord) -> None:
        """Count one record."""
        self.records += 1
        self.tokens += len(held.ids)
        self.trained += int(np.count_nonzero(held.weights > 0))


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """A record in two versions; `None` where one has it not."""

    key: Key
    before: StoredRecord | None
    after: StoredRecord | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Two versions of a store compared.

    Attributes:
        before, after: the versions.
        recipe: keys at which what they were made from and with differs.
        same: records that both hold, to the token and its weight.
        came, went, changed: records that only the later one holds, only the earlier one, and both with another content.
        amounts: domain → what the earlier and the later version hold of it.
        examples: some of these records: changed ones first.
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
    """The current store against another version of it: what came since an old one, or what a draft or a refused candidate would bring.

    Args:
        version: ``draft``, ``candidate``, or the beginning of its folder's name; the one written last apart from the current one, where left out.
        examples: how many records to show.

    Raises:
        ConfigError: no such version; or no store at all.
    """
    place = workspace.place(asset, partition)
    current = place.current()
    if current is None:
        raise ConfigError(f"{place.label} has no current store to compare with")
    other = _other(place, current) if version is None else version_named(place, version)
    newer = {each.version for each in (place.draft(), place.candidate()) if each is not None}
    before, after = (current, other) if other.version in newer else (other, current)
    return compare(workspace, before, after, examples=examples)


def _other(place: Place, current: Published) -> Published:
    others = [each for each in versions(place) if each.version != current.version]
    if not others:
        raise ConfigError(f"{place.label} has one version only, the current one: {current.where}")
    return others[0]


def compare(workspace: Workspace, before: Published, after: Published, *, examples: int = 10) -> Difference:
    """Two versions of a store. Memory holds a hash for each record, and the records that are shown."""
    left, right = _Side(workspace, before), _Side(workspace, after)
    same = sum((left.digests & right.digests).values())
    gone, come = left.only(right.digests), right.only(left.digests)
    changed = gone.keys() & come.keys()
    amounts = {name: (left.amount(name), right.amount(name)) for name in sorted({*left.amounts, *right.amounts})}
    chosen = [*sorted(changed), *sorted(come.keys() - changed), *sorted(gone.keys() - changed)][:examples]
    held = left.take(gone.keys() & set(chosen)), right.take(come.keys() & set(chosen))
    shown = tuple(Changed(key, held[0].get(key), held[1].get(key)) for key in chosen)
    recipe = differences(before.manifest.recipe, after.manifest.recipe)
    # of a record that is in one version several times, one is the changed one
    came, went = (keys.total() - len(changed) for keys in (come, gone))
    return Difference(before, after, recipe, same, came, went, len(changed), amounts, shown)


class _Side:
    """A version, read once for its hashes, and once more for the records that are shown."""

    def __init__(self, workspace: Workspace, published: Published) -> None:
        self.read: Callable[[], Iterator[StoredRecord]] = lambda: contents(workspace, published)
        self.digests: Counter[bytes] = Counter()
        self.amounts: dict[str, Amount] = {}
        for held in self.read():
            self.digests[held.digest] += 1
            self.amounts.setdefault(held.domain, Amount()).add(held)

    def amount(self, domain: str) -> Amount:
        return self.amounts.get(domain, Amount())

    def only(self, other: Counter[bytes]) -> Counter[Key]:
        """The records that are here more often than in the other version."""
        surplus, found = self.digests - other, Counter[Key]()
        for held in self.read() if surplus else ():
            if surplus[held.digest] > 0:
                surplus[held.digest] -= 1
                found[held.stream, held.domain, held.id] += 1
        return found

    def take(self, wanted: Collection[Key]) -> dict[Key, StoredRecord]:
        """The records of these keys."""
        return {key: held for held in (self.read() if wanted else ()) if (key := (held.stream, held.domain, held.id)) in wanted}


# `impact`: what a change of the configuration would change, found by building it aside. Nothing in the folder of stores is written.
#
# Every store whose recipe changes is built in a temporary folder, unchecked; what has the same content as the current store changes nothing further on, as in
# a real build. A domain that is long is built from its first rows, before and after the change, and so is what else reads its sources; what is made from a
# sample counts as changed where the sample does.

LONG = 64 << 20
"""Bytes of source files from which on a domain is tried on a sample."""
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
"""Outcomes that decide about what is made from a store."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What the change does to one store.

    Attributes:
        asset, partition: which.
        outcome: see `Outcome`.
        why: the keys of its recipe that change, or what stops it.
        sample: how many rows of each domain it was tried on; `None` for all.
        difference: the records and tokens that change, where it was built and holds records.
        refused: records that it refuses then and does not refuse now, and those that it refuses for another reason.
        accepted: how many records it refuses now and would not refuse then.
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
        """How messages call it."""
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset


def impact(workspace: Workspace, changed: Workspace, *, examples: int = 3, sample: int = SAMPLE, long: int = LONG) -> Iterator[Effect]:
    """What every store would become, one after another, what feeds others first.

    Args:
        workspace: the stores as they are.
        changed: the same with other options, or with another folder of configurations.
        examples: records that are shown of each store.
        sample: rows of a domain that is tried on a sample.
        long: bytes of sources from which on a domain is.

    Raises:
        ConfigError: a configuration that means nothing.
    """
    with tempfile.TemporaryDirectory(prefix="prep-assets-") as folder:
        trial = _Trial(workspace.plain, changed, Overlay(workspace.stores, Path(folder)), examples, sample, long)
        for asset in assets_of(changed).values():
            for partition in asset.partitions(changed):
                yield trial.effect(asset, partition)
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
        """What the change does to a store; it is then in the overlay, unless it fails, or waits."""
        found = self._effect(asset, partition)
        self.outcomes[asset.name, partition] = found
        return found

    def _effect(self, asset: Asset, partition: str) -> Effect:
        above = [self.outcomes[each.name, key] for each, key in upstream_of(self._then, asset, partition)]
        for each in above:
            if (follows := _FOLLOWS.get(each.outcome)) is not None:
                return Effect(asset.name, partition, follows, f"it is made from {each.label}")
            if each.sample is not None and each.outcome == "changed":
                return Effect(asset.name, partition, "waits", f"it is made from {each.label}, which changes and was tried on a sample")
        current = self._now.published(asset.name, partition)
        try:
            if current is None and self._was_there(asset, partition):
                return Effect(asset.name, partition, "absent", "it has no store yet")
            recipe = asset.recipe(self._then, partition)
            if current is not None and current.manifest.build_key == build_key(recipe):
                self._aside.link(asset.name, partition)
                return Effect(asset.name, partition, "same")
            return self._built(asset, partition, current, recipe)
        except (PrepAssetsError, OSError) as error:
            return Effect(asset.name, partition, "fails", str(error))

    def _was_there(self, asset: Asset, partition: str) -> bool:
        known = assets_of(self._now)
        return asset.name in known and partition in known[asset.name].partitions(self._now)

    def _built(self, asset: Asset, partition: str, current: Published | None, recipe: Mapping[str, Any]) -> Effect:
        rows = self._rows(asset, partition)
        why = ", ".join(differences(current.manifest.recipe, recipe)) if current else "the configuration has it now"
        then = self._build(self._then, asset, partition, rows)
        if current is None:
            return Effect(asset.name, partition, "new", why, rows)
        before = current if rows is None else self._before(asset, partition, rows)
        equal = before.manifest.content_hash == then.manifest.content_hash
        if rows is not None and equal:  # what is made from it finds the store that is there
            self._relink(asset.name, partition)
        compared = None if equal or not has_records(then) else compare(self._now, before, then, examples=self._examples)
        refused, accepted = _refusals(before, then)
        return Effect(asset.name, partition, "equal" if equal else "changed", why, rows, compared, refused, accepted)

    def _build(self, workspace: Workspace, asset: Asset, partition: str, rows: int | None) -> Published:
        built = asset.build(workspace if rows is None else _limited(workspace, asset, rows), partition).propose()
        workspace.place(asset.name, partition).accept(built, {})
        return built

    def _before(self, asset: Asset, partition: str, rows: int) -> Published:
        """The current configuration's store of a sample."""
        beside = Overlay(self._aside.real, self._aside.folder / ".before" / f"{asset.name}-{partition}")
        now = Workspace(self._now.configs, beside.folder, {}, self._now.progress)
        for above, key in upstream_of(now, asset, partition):
            beside.link(above.name, key)
        return self._build(now, asset, partition, rows)

    def _relink(self, asset: str, partition: str) -> None:
        place = self._then.place(asset, partition)
        place.directory.rename(place.directory.with_name(f".{place.directory.name}-sample"))
        self._aside.link(asset, partition)

    def _rows(self, asset: Asset, partition: str) -> int | None:
        """How many rows of each domain are tried; all where the sources are short, and of what reads no sources."""
        raw = [key for above, key in upstream_of(self._then, asset, partition) if above.name.endswith("_raw")]
        sizes = [self._then.published(f"{asset.family}_raw", key) for key in raw]
        total = sum(each.manifest.counts.get("bytes", 0) for each in sizes if each is not None)
        return self._sample if total > self._long else None


def _limited(workspace: Workspace, asset: Asset, rows: int) -> Workspace:
    """The workspace with the first rows of each domain."""
    options = dict(workspace.overrides.get(asset.family, {}))
    given: Mapping[str, Any] = options.get("domains", {})
    limits = {name: min(rows, each.max_items or rows) for name, each in workspace.declared(FAMILIES[asset.family]).domains.items()}
    options["domains"] = {**given, **{name: {**given.get(name, {}), "max_items": limit} for name, limit in limits.items()}}
    return workspace.overriding(asset.family, options)


def _refusals(before: Published, then: Published) -> tuple[tuple[Refusal, ...], int]:
    """What is refused then and not now, or for another reason; and how many records are refused now and not then."""
    old, new = ({each.id: each for each in read_quarantine(one.quarantine)} if one.quarantine else {} for one in (before, then))
    fresh = tuple(each for key, each in new.items() if key not in old or old[key].reason != each.reason)
    return fresh, len(old.keys() - new.keys())


class Overlay:
    """A folder of stores over another one. Nothing is ever written to that one."""

    def __init__(self, real: Path, folder: Path) -> None:
        self.real, self.folder = real, folder
        hashes = real / ".hashes"
        if hashes.is_dir():  # so that no source file is hashed again
            shutil.copytree(hashes, folder / ".hashes")

    def link(self, asset: str, partition: str) -> None:
        """Let a store be the real one."""
        here = Place(self.folder, asset, partition).directory
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(Place(self.real, asset, partition).directory.absolute(), target_is_directory=True)
