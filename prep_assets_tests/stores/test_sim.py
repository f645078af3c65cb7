"""The short version of `make sim`, and that it finds what is wrong with a protocol from which something is taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from harness import sim
from harness.sim_backends import SimDisk, SimObjects

from prep_assets.extensions.buckets import backend as bucket_versions
from prep_assets.extensions.buckets import backend as catalog
from prep_assets.extensions.buckets.backend import Catalog
from prep_assets.stores.published import Place

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("ground", ["bucket", "disk"])
def test_some_schedules_hold(ground: sim.Ground) -> None:
    figures = sim.schedules(ground, 0, 60)
    assert (figures.points, figures.violations) == (60, [])


def no_if_none_match(patch: Patch) -> None:
    patch.setattr(SimObjects, "put_new", lambda self, key, data: self._write(lambda: self._set(key, data)))


def no_if_match(patch: Patch) -> None:
    patch.setattr(SimObjects, "put_if", lambda self, key, data, tag: self._write(lambda: self._set(key, data)))


def manifest_first(patch: Patch) -> None:
    def send(objects: Any, names: Iterable[str], upload: Callable[[str], None], manifest: bytes, whole: Any) -> str:
        version = next(iter(names))
        bucket_versions.put_manifest(objects, version, manifest)
        upload(version)
        return version

    patch.setattr(bucket_versions, "send", send)


def changes_are_not_remembered(patch: Patch) -> None:
    real = Catalog.parse
    patch.setattr(Catalog, "parse", staticmethod(lambda data, url: replace(real(data, url), done=())))


def prune_without_leases(patch: Patch) -> None:
    patch.setattr(bucket_versions, "_is_read", lambda objects, version: False)


def prune_without_condemning(patch: Patch) -> None:
    def remove(objects: Any, version: str) -> bool:
        pointers = catalog.read(objects).pointers
        if version in (pointers.current, pointers.candidate, pointers.draft) or bucket_versions._is_read(objects, version):
            return False
        bucket_versions.delete(objects, version)
        return True

    patch.setattr(bucket_versions, "remove_from_bucket", remove)


def condemned_versions_are_pointed_to(patch: Patch) -> None:
    real = Catalog.pointed

    def pointed(self: Catalog, moved: Any) -> Catalog:
        return replace(real(replace(self, condemned={}), moved), condemned=self.condemned)

    patch.setattr(Catalog, "pointed", pointed)


def readers_do_not_look_after_taking_a_lease(patch: Patch) -> None:
    @contextmanager
    def leased(objects: Any, version: str) -> Any:
        lease = bucket_versions.BucketLease(objects, version)
        yield lease
        lease.end()

    patch.setattr(bucket_versions, "leased", leased)


def no_lock(patch: Patch) -> None:
    patch.setattr(SimDisk, "locks", False)


def no_leases(patch: Patch) -> None:
    patch.setattr(SimDisk, "leases", False)


def prune_does_not_look_at_pointers(patch: Patch) -> None:
    patch.setattr(Place, "unused", lambda self: tuple(self.backend.names()))


def damaged_versions_are_accepted(patch: Patch) -> None:
    patch.setattr(Place, "_check_not_damaged", lambda self, pointers, version: None)


def whatever_is_current_is_set_aside(patch: Patch) -> None:
    def set_aside(self: Place, found: Any, results: Any) -> bool:
        with self.backend.building():
            self.backend.change(lambda now: {"damaged": found.version, "current": ""})
        return True

    patch.setattr(Place, "set_aside", set_aside)


def accepted_without_a_look(patch: Patch) -> None:
    def accept(self: Place, published: Any, results: Any) -> None:
        with self.backend.building():
            self.backend.change(lambda now: {"current": published.version})

    patch.setattr(Place, "accept", accept)


DEFECTS: list[tuple[sim.Ground, Callable[[Patch], None]]] = [
    ("bucket", no_if_none_match),
    ("bucket", no_if_match),
    ("bucket", manifest_first),
    ("bucket", changes_are_not_remembered),
    ("bucket", prune_without_leases),
    ("bucket", prune_without_condemning),
    ("bucket", condemned_versions_are_pointed_to),
    ("bucket", readers_do_not_look_after_taking_a_lease),
    ("bucket", damaged_versions_are_accepted),
    ("bucket", whatever_is_current_is_set_aside),
    ("disk", no_lock),
    ("disk", no_leases),
    ("disk", prune_does_not_look_at_pointers),
    ("disk", accepted_without_a_look),
    ("disk", damaged_versions_are_accepted),
    ("disk", whatever_is_current_is_set_aside),
]


@pytest.mark.parametrize(("ground", "defect"), DEFECTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_protocol_with_a_defect_is_caught(ground: sim.Ground, defect: Callable[[Patch], None], monkeypatch: Patch) -> None:
    defect(monkeypatch)
    for first in range(0, 1000, 10):
        if sim.schedules(ground, first, 10).violations:
            return
    pytest.fail("no schedule shows it")
