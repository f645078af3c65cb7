"""What a store is at this moment, and what lies in the folder of stores that the configuration does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from prep_assets.checks.bounds import judged_anew
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.graph.graph import EVERY, family_assets, family_of_export, upstream_of
from prep_assets.pipeline.asset import Asset
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.manifest import Result, build_key, differences
from prep_assets.stores.published import Place
from prep_assets.stores.remote import Remote, at_once, remote_of
from prep_assets.stores.version_folders import Pointers, Published

# What a store is at this moment: missing, out of date, damaged, doubted or current; and why.

State = Literal["missing", "broken", "stale", "failed", "unchecked", "current"]
"""``missing``: never built. ``broken``: its manifest cannot be read. ``stale``: its recipe, or what it is made from, has changed.

``failed``: a check did not hold when it last ran. ``unchecked``: not every check has run. ``current``: none of these.
"""
SHOWN = 4
"""Differences of a recipe that are named."""
AT_ONCE = 32
"""Stores of a bucket that are read at a time."""


class Status(Struct, frozen=True):
    """What a store is.

    Attributes:
        state: see `State`.
        why: the reason, in a few words; empty where it is current.
        published: the store that `current` points to; `None` where there is none that can be read.
        overrides: what is not as the configuration file says, because a run that set options was asked to publish.
        inherited: the overrides of what it is made from, each with its store.
        failed: the checks of the published store that do not hold.
        candidate: a newer store that is not published, and the checks that it fails.
        draft: the store that a run with options of its own made last.
        results: what each check of the published store said when it last ran, by the rules of now.
        ruled_anew: whether other rules are recorded with the store.
    """

    state: State
    why: str = ""
    published: Published | None = None
    overrides: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    failed: Mapping[str, Result] = field(default_factory=dict)
    candidate: Published | None = None
    draft: Published | None = None
    results: Mapping[str, Result] = field(default_factory=dict)
    ruled_anew: bool = False

    @property
    def refused(self) -> Mapping[str, Result]:
        """The checks that the candidate fails."""
        return failures(self.candidate)


def state(workspace: Workspace, asset: Asset, partition: str = "") -> State:
    """The state of one store."""
    return Statuses(workspace).at(asset, partition).state


def failures(published: Published | None) -> Mapping[str, Result]:
    """What the checks that a store failed said when they last ran."""
    return _failed((published.results if published else None) or {})


def _failed(results: Mapping[str, Result]) -> Mapping[str, Result]:
    return {name: result for name, result in results.items() if not result.passed}


class _Kept(NamedTuple):
    """What is kept of a store; `fault`: why its manifest cannot be read."""

    published: Published | None
    candidate: Published | None
    draft: Published | None
    results: Mapping[str, Result]
    fault: str


class Statuses:
    """One look at the stores of a workspace, as the configuration files ask for them. Each store is looked at once."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace.plain.at_a_glance()
        self._seen: dict[tuple[str, str], Status] = {}
        self._kept: dict[tuple[str, str], _Kept] = {}

    def ahead(self, stores: Iterable[tuple[Asset, str]]) -> None:
        """Read stores and all that they are made from, many at a time, where each answer takes a while: in a bucket."""
        if remote_of(self._workspace.stores) is None:
            return
        missing: dict[tuple[str, str], None] = {}
        with suppress(PrepAssetsError):  # which `at` tells of the store that it is about
            waiting = list(stores)
            while waiting:
                asset, partition = waiting.pop()
                if (key := (asset.name, partition)) not in missing and key not in self._kept:
                    missing[key] = None
                    waiting += upstream_of(self._workspace, asset, partition)
            self._kept.update(zip(missing, at_once(lambda key: self._read(*key), missing, AT_ONCE), strict=True))

    def at(self, asset: Asset, partition: str) -> Status:
        """What a store is.

        Raises:
            PrepAssetsError: what it is made from cannot be looked at, e.g. a source file that is gone.
        """
        key = (asset.name, partition)
        if key not in self._seen:
            self._seen[key] = self._look(asset, partition)
        return self._seen[key]

    @property
    def faults(self) -> dict[str, str]:
        """Store and check → what it says, for each that a store which was looked at fails, those that others are made from first."""
        failed = ((key, name, result) for key, status in self._seen.items() for name, result in status.failed.items())
        return {f"{self._workspace.place(*key).label} {name}": result.summary for key, name, result in failed}

    def _read(self, name: str, partition: str) -> _Kept:
        place = self._workspace.place(name, partition)
        pointers = place.pointers
        candidate, draft = _pointed(place.candidate, pointers), _pointed(place.draft, pointers)
        try:
            published = self._workspace.published(name, partition, pointers)
        except StoreError as error:
            return _Kept(None, candidate, draft, {}, str(error))
        return _Kept(published, candidate, draft, (published.results if published else None) or {}, "")

    def _look(self, asset: Asset, partition: str) -> Status:
        key = asset.name, partition
        published, candidate, draft, results, fault = self._kept.get(key) or self._read(*key)
        if fault:
            return Status("broken", fault, candidate=candidate, draft=draft)
        if published is None:
            return Status("missing", "no store yet", candidate=candidate, draft=draft)
        results = judged_anew(self._workspace, asset, published, recorded := results)
        above = {
            self._workspace.place(source.name, key).label: self.at(source, key)
            for source, key in upstream_of(self._workspace, asset, partition)
        }
        behind = [f"{label} is {standing.state}" for label, standing in above.items() if standing.state != "current"]
        if behind:
            why = behind[0] + (f", and {len(behind) - 1} more" if len(behind) > 1 else "")
            return Status("stale", why, published, (), (), _failed(results), candidate, draft, results)
        recipe = asset.recipe(self._workspace, partition)
        now, why = _state(asset, published, recipe, results)
        overrides = _overrides(published, recipe) if now != "stale" else ()
        inherited = tuple(f"{label}: {override}" for label, status in above.items() for override in (*status.overrides, *status.inherited))
        failed, ruled_anew = _failed(results), results != recorded
        return Status(now, why, published, overrides, inherited, failed, candidate, draft, results, ruled_anew)


def _state(asset: Asset, published: Published, recipe: Mapping[str, Any], results: Mapping[str, Result]) -> tuple[State, str]:
    if published.manifest.config_key != build_key(recipe):
        return "stale", _changed(differences(published.manifest.recipe, recipe))
    if failed := _failed(results):
        return "failed", f"fails {', '.join(failed)}"
    unseen = [check.name for check in asset.checks if check.name not in results]
    return ("unchecked", f"not checked yet: {', '.join(unseen)}") if unseen else ("current", "")


def _overrides(published: Published, recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """What an accepted store has that the configuration file does not say."""
    return () if published.manifest.build_key == published.manifest.config_key else differences(recipe, published.manifest.recipe)


def _changed(keys: tuple[str, ...]) -> str:
    if not keys:
        return "built from other options"
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return f"changed: {', '.join(keys[:SHOWN])}{more}"


def _pointed(look: Callable[[Pointers], Published | None], pointers: Pointers) -> Published | None:
    try:
        return look(pointers)
    except StoreError:
        return None


# What lies in the folder of stores and belongs to nothing that the configuration has: stores of removed domains and families.


def forgotten(workspace: Workspace) -> list[Place]:
    """Stores of assets and domains that the configuration does not have, sorted. Those of a family that cannot be read are left out."""
    known, unclear = set[tuple[str, str]](), set[str]()
    for family, kind in FAMILIES.items():
        try:
            if workspace.has(family):
                workspace.family(kind)
                known |= {(asset.name, key) for asset in family_assets(workspace, family).values() for key in asset.partitions(workspace)}
        except PrepAssetsError:
            unclear.add(family)
    return [
        place
        for place in places_in(workspace.stores)
        if (place.asset, place.partition) not in known and _family(place.asset) in FAMILIES.keys() - unclear
    ]


def _family(asset: str) -> str:
    return EVERY[asset].family if asset in EVERY else family_of_export(asset)


def _elsewhere(root: Path, remote: Remote) -> Iterator[Place]:
    for asset in remote.folders():
        for place in (Place(root, asset, partition) for partition in ("", *remote.below(asset).folders())):
            if not asset.startswith(".") and place.backend.names():
                yield place


def places_in(root: Path) -> list[Place]:
    """Every folder below a root that has versions of a store, sorted; folders whose names begin with a dot are no stores of assets."""
    if (remote := remote_of(root)) is not None:
        return list(_elsewhere(root, remote))
    places = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if folder.name.startswith("."):
            continue
        if (folder / "versions").is_dir():
            places.append(Place(root, folder.name))
        elif folder.is_dir():
            places += [Place(root, folder.name, part.name) for part in sorted(folder.iterdir()) if (part / "versions").is_dir()]
    return places
