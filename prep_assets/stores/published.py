"""Publication of a store: written, verified, checked, made current; and its versions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets import plugins
from prep_assets.caches import bounded_cache
from prep_assets.errors import StoreError
from prep_assets.stores.files import removed_on_failure, sync_folders
from prep_assets.stores.h5 import h5_layout
from prep_assets.stores.manifest import MANIFEST, Manifest, Result, label_of
from prep_assets.stores.remote import Unanswered, backend_of, remote_of
from prep_assets.stores.verification import prove, read_back, recording
from prep_assets.stores.version_folders import (
    KEY_LENGTH,
    OTHERWISE,
    PAYLOAD,
    RECORD,
    WORK_QUARANTINE,
    WRITING,
    Backend,
    Pointers,
    Published,
    end_lease,
    of_key,
)

# A build of one store, from an empty folder to a version: written, verified, named by its content.

Write = Callable[[Path, Path], "Draft"]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a build reports about the payload that it has written."""

    counts: dict[str, Any]
    metrics: dict[str, Any]
    checks: tuple[str, ...] = ()


def build_version(backend: Backend, manifest: Manifest, write: Write, *, before: Callable[[], int]) -> str:
    """Write a store, verify what the disk holds, and add it as a version. Return its name.

    Args:
        manifest: without counts, metrics, files and checks, which the build fills in.
        before: the bytes of the current store, for the message that the disk is full.

    Raises:
        StoreError: the disk is full, or does not hold what was written; nothing of the build is left. A build that fails otherwise leaves its
            finished shards.
    """
    work = backend.versions / f"{WRITING}{manifest.build_key[:KEY_LENGTH]}"
    payload, quarantine = work / PAYLOAD, work / WORK_QUARANTINE
    with removed_on_failure(work, backend.versions, replaced_bytes=before, cleanup=backend.drop_shards):
        payload.mkdir(parents=True)
        with recording(work) as expected_files:
            draft = write(payload, quarantine)
            files = {name: {**sums._asdict(), **h5_layout(payload / name)} for name, sums in prove(payload, expected_files).items()}
            quarantine_hash = read_back(quarantine, expected_files.get(quarantine.absolute())).sha256 if quarantine.exists() else ""
            manifest = replace(
                manifest, counts=draft.counts, metrics=draft.metrics, files=files, checks=draft.checks, quarantine=quarantine_hash
            )
            manifest.write(payload)
            read_back(payload / MANIFEST, expected_files[payload.absolute() / MANIFEST])
        sync_folders(payload)
        version = backend.add(work, manifest)
        backend.drop_shards()
    return version


# The place of a store, and publication: write, verify, check, publish.
#
#     <root>/<asset>[/<partition>]/
#         current                        what trainers open: a link to a version
#         candidate                      a link to a newer version whose checks have not all passed (yet); removed when it is published
#         draft                          a link to the last version built with the options of one run; never read unless asked for
#         damaged                        a link to the version that was current until damage was found; never read, removed when another is published
#         versions/                      see `prep_assets.stores.version_folders`
#
# A store is proposed: written into a folder of its own, read back from the disk and renamed to its version. When its checks hold it is accepted:
# `current` is replaced atomically. So a reader sees the whole old store or the whole new one, never one that failed, and a build that dies leaves nothing
# that can be read. A version is never rewritten: a damaged or suspect one is replaced by another version.

__all__ = ["Draft", "Place", "Published", "open_published"]


@bounded_cache("functions of recalls", 4)
def _recalls(name: str) -> Any:
    return plugins.of_extension("recalls", name)


def _may_have_recalls(root: Path) -> bool:
    """Whether a record of recalls may be in a folder of stores. What reads it loads all assets, and most folders have none."""
    return (root / RECORD).is_dir() or remote_of(root) is not None


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
    def label(self) -> str:
        """Its name in messages."""
        return label_of(self.asset, self.partition)

    @property
    def exists(self) -> bool:
        """Whether there is a published store, damaged or not."""
        pointers = self.pointers
        return bool(pointers.current or pointers.damaged)

    @property
    def backend(self) -> Backend:
        """The backend of its versions."""
        return backend_of(self.directory)

    @property
    def pointers(self) -> Pointers:
        """The versions that are current, candidate, draft and damaged."""
        return self.backend.pointers()

    def current(self, seen: Pointers | None = None) -> Published | None:
        """Return the published store, or `None`. `seen`: the pointers, if they were just read.

        Raises:
            StoreError: the store or its manifest is damaged.
        """
        return self._pointed("current", seen)

    def candidate(self, seen: Pointers | None = None) -> Published | None:
        """Return the store that is proposed and not yet accepted, or `None`."""
        return self._pointed("candidate", seen)

    def draft(self, seen: Pointers | None = None) -> Published | None:
        """Return the store that was last built with the options of one run, or `None`."""
        return self._pointed("draft", seen)

    def _pointed(self, name: str, pointers: Pointers | None) -> Published | None:
        seen = ""
        while True:
            # the given ones serve the first attempt: a status of a thousand stores needs three names of each
            now, pointers = pointers or self.pointers, None
            if name == "current" and now.damaged:
                raise StoreError(f"{self.backend.published(now.damaged).damage()}. Build the store again")
            if not (version := getattr(now, name)):
                return None
            try:
                published = self.backend.published(version)
            except StoreError:
                if version == seen:
                    raise
                seen = version  # unless it was pruned, because the pointer has moved meanwhile
                continue
            self.check_readable(published)
            return replace(published, folder=published.folder.resolve())

    def check_readable(self, published: Published) -> None:
        """Raise a `StoreError` for a version that is recalled. Every reader asks this, whatever leads it there: a pointer, a name or a path."""
        if why := self.recalled(published.manifest):
            raise StoreError(f"{published.where} is recalled, so nothing reads it: {why}; {OTHERWISE}. Build the store again")

    def recalled(self, manifest: Manifest, *, publishing: bool = False) -> str:
        """Why nothing may read a version of this place, made as a manifest says, or publish it; empty if nothing is said against it."""
        if not publishing and not _may_have_recalls(self.root):
            return ""
        return str(why(self, manifest, publishing=publishing)) if (why := _recalls("why")) else ""

    def proofs(self) -> Mapping[str, str]:
        """Unused versions that alone show that equal bytes, which are recalled, are sound → the recall. What was made from them stands on that."""
        found: Mapping[str, str] = proofs(self) if _may_have_recalls(self.root) and (proofs := _recalls("proofs")) else {}
        return found

    def _check_not_recalled(self, manifest: Manifest) -> None:
        if why := self.recalled(manifest, publishing=True):
            raise StoreError(f"what this makes is recalled, so it is neither built nor published: {why}; {OTHERWISE}")

    def propose(
        self,
        build_key: str,
        write: Write,
        *,
        config_key: str,
        recipe: dict[str, Any],
        options: Mapping[str, Any] | None = None,
        draft: bool = False,
        again: bool = False,
    ) -> Published:
        """Build the store of `build_key`, or reuse an existing one whose files are sound. It becomes the candidate unless it is current.

        Args:
            write: receives an empty directory for the payload and the path of the quarantine file.
            options: what this run overrides in the configuration file.
            draft: move only the pointer `draft`.
            again: build even if a sound store exists. If the content is equal, the existing version is kept.

        Raises:
            StoreError: the disk is full or faulty, or does not hold what was written; or what would be written is recalled.
        """
        backend, manifest = (
            self.backend,
            Manifest(self.asset, self.partition, build_key, config_key, recipe, {}, {}, {}, options=options or {}),
        )
        self._check_not_recalled(manifest)
        with backend.building() as notes:
            sound = _sound_version(backend, build_key)
            reused = None if again else sound
            backend.drop_shards("" if again or reused else build_key)
            if reused is None:
                version = build_version(backend, manifest, write, before=self._current_bytes)
                notes += _determinism_notes(sound, backend.published(version)) if sound and sound.version != version else []
            else:
                version = reused.version
                if reused.manifest.config_key != config_key and not draft:
                    backend.relabel(version, replace(reused.manifest, config_key=config_key))
                if draft and reused.manifest.options != options:
                    backend.relabel(version, replace(reused.manifest, options=options or {}))

            def move(pointers: Pointers) -> dict[str, str]:
                self._check_not_damaged(pointers, version)
                return {"draft": version} if draft else {"candidate": "" if pointers.current == version else version}

            backend.change(move)
            return replace(backend.published(version), reused=reused is not None, notes=tuple(notes))

    def set_aside(self, published: Published, results: Mapping[str, Result]) -> bool:
        """Withdraw the current store as damaged; return false if another one is current by now.

        Its files stay for readers that have them open.
        """
        backend, version = self.backend, published.version
        with backend.building():
            if backend.pointers().current == version:
                backend.record(version, published.manifest.content_hash, {**(published.results or {}), **results})
                backend.change(lambda pointers: {"damaged": version, "current": ""} if pointers.current == version else {})
            return backend.pointers().damaged == version

    def record(self, published: Published, results: Mapping[str, Result]) -> None:
        """Record check results of a store. Earlier results of checks that did not run now are kept."""
        with self.backend.building():
            self.backend.record(published.version, published.manifest.content_hash, {**(published.results or {}), **results})

    def accept(self, published: Published, results: Mapping[str, Result]) -> None:
        """Make a proposed store current if its checks hold, and record their results.

        Raises:
            StoreError: a check fails, or the store is not the one that was checked, was removed, or cannot be read; `current` is unchanged.
        """
        failed = [name for name, result in results.items() if not result.passed]
        if failed:
            raise StoreError(f"{self.label}: {published.where} is not published: it fails {', '.join(failed)}")
        backend, version, content = self.backend, published.version, published.manifest.content_hash
        with backend.building():
            try:
                stored = backend.published(version).manifest
                if (actual := stored.content_hash) != content:
                    raise StoreError(f"its content is {actual[:12]}…, {content[:12]}… was checked")
            except StoreError as error:
                raise StoreError(
                    f"{self.label}: {published.where} cannot be published, it was removed or damaged since it was built: {error}. "
                    "Materialize the asset again"
                ) from error
            self._check_not_recalled(stored)
            self._check_not_damaged(backend.pointers(), version)  # before what was found in it is written over
            backend.record(version, content, results)

            def move(pointers: Pointers) -> dict[str, str]:
                self._check_not_damaged(pointers, version)
                moved_pointers = [name for name in ("candidate", "draft") if getattr(pointers, name) == version]
                return {"current": version} | dict.fromkeys([*moved_pointers, "damaged"], "")

            backend.change(move)

    def _check_not_damaged(self, pointers: Pointers, version: str) -> None:
        if pointers.damaged == version:
            raise StoreError(f"{self.label}: damage was found in {version} meanwhile. Build the store again")

    def let_go(self, version: str) -> None:
        """Remove the draft and candidate pointers to a version; it stays on disk, unused."""
        backend = self.backend
        with backend.building():
            backend.change(lambda pointers: {name: "" for name in ("candidate", "draft") if getattr(pointers, name) == version})

    def discard(self, version: str) -> bool:
        """Delete a version that is not current and that this process reads no more; return false if others read it."""
        self.let_go(version)
        end_lease(self.backend.versions / version)
        with self.backend.building():
            return self.backend.remove(version)

    def unused(self) -> tuple[str, ...]:
        """Return the versions that nothing points to, sorted."""
        backend = self.backend
        used = backend.pointers().used
        return tuple(name for name in backend.names() if name not in used)

    def remove_unused(self, keep: Collection[str] = ()) -> tuple[str, ...]:
        """Delete `unused` versions without readers, their quarantine and check files, and all leftovers; not those to `keep`. Builds are locked out
        meanwhile. Return what was deleted."""
        backend = self.backend
        with backend.building():
            backend.drop_shards()
            doomed = [name for name in (*self.unused(), *self.leftovers()) if name not in keep]
            return tuple(version for version in doomed if backend.remove(version))

    def leftovers(self) -> tuple[str, ...]:
        """Return what killed builds left half-written, sorted. A running build looks the same."""
        return tuple(self.backend.leftovers())

    @property
    def size(self) -> int:
        """Bytes of all versions and leftovers."""
        backend = self.backend
        return sum(backend.size(name) for name in (*backend.names(), *backend.leftovers()))

    def remove(self) -> None:
        """Delete the store with all its versions, unless one of them has readers."""
        self.backend.remove_all()

    def _current_bytes(self) -> int:
        try:
            current = self.current()
        except StoreError:
            return 0
        return current.bytes if current else 0


def _sound_version(backend: Backend, build_key: str) -> Published | None:
    """Return the sound version of a build key, preferably the current one. A damaged version is never reused."""
    pointers = backend.pointers()
    for version in sorted(of_key(backend.names(), build_key), key=lambda name: name != pointers.current):
        if version == pointers.damaged:
            continue
        try:
            published = backend.published(version)
            published.verify()
        except StoreError:
            continue
        if published.manifest.build_key == build_key:
            return published
    return None


def _determinism_notes(before: Published, after: Published) -> list[str]:
    """Return a note if two builds of one key differ."""
    after_manifest = after.manifest
    if (after_manifest.content_hash, after_manifest.quarantine) == (before.manifest.content_hash, before.manifest.quarantine):
        return []
    names = sorted({*after_manifest.files, *before.manifest.files})
    differing = [name for name in names if after_manifest.files.get(name) != before.manifest.files.get(name)] or ["refused records"]
    return [
        f"two builds of one key differ, in {', '.join(differing[:4])}: the build is not deterministic, or the store before was wrong. "
        f"Compare {before.where} with {after.where}"
    ]


def open_published(root: Path, asset: str, partition: str = "", *, remedy: str = "") -> Published:
    """Open the current store of an asset.

    Raises:
        StoreError: there is none, or its manifest is missing or damaged; `remedy` is the command that builds it.
    """
    place = Place(root, asset, partition)
    try:
        published = place.current()
    except Unanswered:  # building would not help
        raise
    except StoreError as error:
        build_hint = f". Build it again:\n  {remedy}" if remedy else ""
        raise StoreError(f"{str(error).removesuffix('. Build the store again') if remedy else error}{build_hint}") from error
    if published is None:
        raise StoreError(f"{place.label}: no store in {place.backend.where}." + (f" Build it with:\n  {remedy}" if remedy else ""))
    return published


def check_readable(version: Path) -> None:
    """Raise a `StoreError` for a version in a folder of stores, opened by its path, that is recalled."""
    for root in version.parents[2:4]:  # without a partition, and with one
        if _may_have_recalls(root):
            manifest = Manifest.read(version)
            if (place := Place(root, manifest.asset, manifest.partition)).directory == version.parents[1]:
                place.check_readable(Published(version, manifest))


# All existing versions of a store, pointed to or not.


def versions(place: Place) -> list[Published]:
    """Return every readable version, the latest first."""
    backend, readable = place.backend, list[Published]()
    damaged = backend.pointers().damaged
    for version in backend.names():
        if version != damaged:
            with suppress(StoreError):  # skip damaged versions
                readable.append(backend.published(version))
    return sorted(readable, key=lambda store: (-backend.written(store.version), store.version))


def version_with(place: Place, content: str | None) -> Published | None:
    """Return the version with this content hash, or `None`."""
    return next((store for store in versions(place) if store.manifest.content_hash == content), None)
