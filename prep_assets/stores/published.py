"""Where stores live, and how one gets there: write, prove, audit, check, publish.

    <root>/<asset>[/<partition>]/
        current                        what trainers open: a link to a version
        candidate                      likewise, a newer store whose checks have not all passed (yet); gone when it is published
        draft                          likewise, the last store that a run with options of its own made; never read unless asked for
        versions/                      see `prep_assets.stores.version_folders`

A store is written into a folder of its own, read back from the disk, audited and renamed to its version: it is proposed. When its checks hold
it is accepted: `current` is replaced in one step. So a reader sees the whole old store or the whole new one, never one that failed, and a
build that dies leaves nothing that can be read. A version is never written again: what replaces a damaged or doubted one is another version.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.disk.faults import told
from prep_assets.disk.folders import make_folder, remove_tree, sync
from prep_assets.errors import StoreError
from prep_assets.stores import pointers
from prep_assets.stores.building import Audit, Draft, Write, build_version
from prep_assets.stores.checked import Result, write_results
from prep_assets.stores.leases import is_read
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.version import Published
from prep_assets.stores.version_folders import clean, leftovers_in, of_key, remove_version, versions_in

__all__ = ["Draft", "Place", "Published", "open_published"]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one asset's store (of one partition) under a root directory."""

    root: Path
    asset: str
    partition: str = ""

    @property
    def directory(self) -> Path:
        """``<root>/<asset>[/<partition>]``."""
        return self.root / self.asset / self.partition

    @property
    def versions(self) -> Path:
        """The folder of its versions."""
        return self.directory / "versions"

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset

    @property
    def exists(self) -> bool:
        """Whether there is a published store, sound or not."""
        return (self.directory / "current").exists()

    def current(self) -> Published | None:
        """The published store, or `None` where there is none."""
        return self._pointed("current")

    def candidate(self) -> Published | None:
        """The store that is proposed and not accepted, or `None` where there is none."""
        return self._pointed("candidate")

    def draft(self) -> Published | None:
        """The store that a run with options of its own made last, or `None` where there is none."""
        return self._pointed("draft")

    def _pointed(self, name: str) -> Published | None:
        directory = self._target(name)
        return None if directory is None else Published(directory, Manifest.read(directory))

    def _target(self, name: str) -> Path | None:
        return pointers.target(self.directory, name)

    def propose(
        self,
        build_key: str,
        write: Write,
        *,
        config_key: str,
        recipe: dict[str, Any],
        audit: Audit,
        draft: bool = False,
        again: bool = False,
    ) -> Published:
        """Build the store of `build_key`, or find the one that is there, if its files are sound. It is the candidate unless it is current.

        Args:
            write: is given an empty directory for the payload and the path for the quarantine file.
            audit: structural checks on the written payload; it raises to forbid publication.
            draft: point `draft` to it and leave everything else as it is.
            again: build it even where a sound one is there. Equal content keeps the store that is there.

        Raises:
            StoreError: the disk is full or faulty, or does not hold what was written.
        """
        with self._locked() as notes:
            there = self._sound(build_key)
            found = None if again else there
            if found is None:
                about = Manifest(self.asset, self.partition, build_key, config_key, recipe, {}, {}, {})
                final = build_version(self.versions, about, write, audit, before=self._size())
                notes += _difference(there, final)
            else:
                final = found.directory
                if found.manifest.config_key != config_key and not draft:
                    _write_manifest(final, replace(found.manifest, config_key=config_key))
            if draft:
                pointers.point(self.directory, "draft", final)
            elif self._target("current") == final.resolve():
                pointers.unpoint(self.directory, "candidate")
            else:
                pointers.point(self.directory, "candidate", final)
            return Published(final, Manifest.read(final), reused=found is not None, notes=tuple(notes))

    def record(self, published: Published, results: Mapping[str, Result]) -> None:
        """Write down beside a store what its checks say. What was written before of checks that did not run now is kept."""
        with self._locked():
            write_results(published.directory, published.manifest.content_hash, {**(published.results or {}), **results})

    def accept(self, published: Published, results: Mapping[str, Result]) -> None:
        """Make a proposed store current, on the word of its checks, which is written down beside it.

        Raises:
            StoreError: a check does not hold, or the store is not the one that was checked, is there no longer, or cannot be read; `current`
                stays what it is.
        """
        failed = [name for name, result in results.items() if not result.passed]
        if failed:
            raise StoreError(f"{self.label}: {published.directory} is not published: it fails {', '.join(failed)}")
        with self._locked():
            try:
                found = Manifest.read(published.directory).content_hash
                if found != published.manifest.content_hash:
                    raise StoreError(f"its content is {found[:12]}…, {published.manifest.content_hash[:12]}… was checked")
            except StoreError as error:
                raise StoreError(
                    f"{self.label}: {published.directory} cannot be published, it was removed or damaged since it was built: {error}. "
                    "Materialize the asset again"
                ) from error
            write_results(published.directory, published.manifest.content_hash, results)
            pointers.point(self.directory, "current", published.directory)
            for name in ("candidate", "draft"):
                if self._target(name) == published.directory.resolve():
                    pointers.unpoint(self.directory, name)

    def unused(self) -> tuple[Path, ...]:
        """The versions that nothing points to, sorted."""
        used = {self._target(name) for name in pointers.POINTERS}
        return tuple(path for path in versions_in(self.versions) if path.resolve() not in used)

    def leftovers(self) -> tuple[Path, ...]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        return leftovers_in(self.versions)

    def remove_unused(self) -> tuple[Path, ...]:
        """Delete what is `unused` and read by nobody, with what lies beside it, and all leftovers; no build is under way meanwhile."""
        with self._locked():
            return tuple(path for path in self.unused() if remove_version(path))

    def remove(self) -> None:
        """Delete the store with all its versions, unless somebody reads one of them."""
        with self._locked():
            if any(is_read(version) for version in versions_in(self.versions)):
                return
        with told(self.directory):
            if left := remove_tree(self.directory):
                raise StoreError(f"{self.directory} cannot be deleted: {'; '.join(left[:3])}. Delete it by hand")

    def _size(self) -> int:
        try:
            current = self.current()
        except StoreError:
            return 0
        return current.bytes if current else 0

    def _sound(self, build_key: str) -> Published | None:
        """The store that is exactly what this build would give; of several, the current one. A damaged one stays until its successor is current."""
        current = self._target("current")
        for directory in sorted(of_key(self.versions, build_key), key=lambda path: path.resolve() != current):
            try:
                published = Published(directory, Manifest.read(directory))
                published.verify()
            except StoreError:
                continue
            if published.manifest.build_key == build_key:
                return published
        return None

    @contextmanager
    def _locked(self) -> Iterator[list[str]]:
        """One builder at a time; whatever an earlier one left half-written is removed, and named in the list."""
        with told(self.directory):
            make_folder(self.directory)
            self.versions.mkdir(exist_ok=True)
            with (self.versions / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                pointers.remove_unfinished(self.directory)
                removed = clean(self.versions)
                yield [f"removed what a killed build left: {', '.join(removed)}"] if removed else []


def _difference(before: Published | None, version: Path) -> list[str]:
    """What to say where two builds of one key differ."""
    if before is None or before.directory == version:
        return []
    now = Manifest.read(version)
    if (now.content_hash, now.quarantine) == (before.manifest.content_hash, before.manifest.quarantine):
        return []
    names = sorted({*now.files, *before.manifest.files})
    differing = [name for name in names if now.files.get(name) != before.manifest.files.get(name)] or ["refused records"]
    return [
        f"two builds of one key differ, in {', '.join(differing[:4])}: the build is not deterministic, or the store before was wrong. "
        f"Compare {before.directory} with {version}"
    ]


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a sound store in one step; the payload stays as it is."""
    work = directory.with_name(f".writing-manifest-{directory.name}")
    work.mkdir()
    manifest.write(work)
    sync(work / MANIFEST)
    (work / MANIFEST).replace(directory / MANIFEST)
    sync(directory)
    remove_tree(work)


def open_published(root: Path, asset: str, partition: str = "", *, remedy: str = "") -> Published:
    """The current store of an asset.

    Raises:
        StoreError: there is none, or its manifest is missing or damaged; `remedy` is the command that builds it.
    """
    place = Place(root, asset, partition)
    try:
        found = place.current()
    except StoreError as error:
        again = f". Build it again:\n  {remedy}" if remedy else ""
        raise StoreError(f"{str(error).removesuffix('. Build the store again') if remedy else error}{again}") from error
    if found is None:
        raise StoreError(f"{place.label}: no store in {place.directory}." + (f" Build it with:\n  {remedy}" if remedy else ""))
    return found
