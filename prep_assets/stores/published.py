"""How a store becomes current: written, proven, audited, checked, published; and all of its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.errors import ConfigError, StoreError, nearest
from prep_assets.stores.bucket import Unanswered, bucket_of
from prep_assets.stores.bucket_backend import BucketBackend
from prep_assets.stores.files import removed_on_failure, sync_folders
from prep_assets.stores.manifest import MANIFEST, Manifest, Result
from prep_assets.stores.readers import h5_layout
from prep_assets.stores.verification import prove, read_back, recording
from prep_assets.stores.version_folders import PAYLOAD, WORK_QUARANTINE, LocalBackend, Pointers, Published, drop_shards, of_key, work_folder

# One store, from an empty folder to a version: written, proven, audited, named by its content.

Write = Callable[[Path, Path], "Draft"]
Audit = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a build says about the payload that it has just written."""

    counts: dict[str, Any]
    metrics: dict[str, Any]
    checks: tuple[str, ...]


def build_version(backend: LocalBackend | BucketBackend, manifest: Manifest, write: Write, audit: Audit, *, before: int) -> str:
    """Write a store, prove that the disk has what was written, audit it, and make it a version, whose name is returned.

    Args:
        manifest: all but what only the build knows.
        before: bytes of the store that is current, for the message that the disk is full.

    Raises:
        StoreError: the disk is full, or does not hold what was written; nothing of the build is left. Of a build that ends otherwise its finished
            shards are.
    """
    work = work_folder(backend.versions, manifest.build_key)
    payload, quarantine = work / PAYLOAD, work / WORK_QUARANTINE
    with removed_on_failure(work, backend.versions, replaced_bytes=before, cleanup=lambda: drop_shards(backend.versions)):
        payload.mkdir(parents=True)
        with recording(work) as expected_files:
            draft = write(payload, quarantine)
            files = {name: {**sums._asdict(), **h5_layout(payload / name)} for name, sums in prove(payload, expected_files).items()}
            refused = read_back(quarantine, expected_files.get(quarantine.absolute())).sha256 if quarantine.exists() else ""
            audit(payload)
            manifest = replace(manifest, counts=draft.counts, metrics=draft.metrics, files=files, checks=draft.checks, quarantine=refused)
            manifest.write(payload)
            read_back(payload / MANIFEST, expected_files[payload.absolute() / MANIFEST])
        sync_folders(payload)
        version = backend.add(work, manifest)
        drop_shards(backend.versions)
    return version


# Where stores live, and how one gets there: write, prove, audit, check, publish.
#
#     <root>/<asset>[/<partition>]/
#         current                        what trainers open: a link to a version
#         candidate                      likewise, a newer store whose checks have not all passed (yet); gone when it is published
#         draft                          likewise, the last store that a run with options of its own made; never read unless asked for
#         damaged                        what was current until damage was found in it; never read, gone when another is published
#         versions/                      see `prep_assets.stores.version_folders`
#
# A store is written into a folder of its own, read back from the disk, audited and renamed to its version: it is proposed. When its checks hold it is
# accepted: `current` is replaced in one step. So a reader sees the whole old store or the whole new one, never one that failed, and a build that dies leaves
# nothing that can be read. A version is never written again: what replaces a damaged or doubted one is another version.

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
    def label(self) -> str:
        """How messages call it."""
        return f"{self.asset}[{self.partition}]" if self.partition else self.asset

    @property
    def exists(self) -> bool:
        """Whether there is a published store, sound or not."""
        pointers = self.pointers
        return bool(pointers.current or pointers.damaged)

    @property
    def backend(self) -> LocalBackend | BucketBackend:
        """Where its versions are kept."""
        return backend_of(self.directory)

    @property
    def pointers(self) -> Pointers:
        """The versions that have a name of their own."""
        return self.backend.pointers()

    def current(self, seen: Pointers | None = None) -> Published | None:
        """The published store, or `None` where there is none. `seen`: the pointers, where they were just read.

        Raises:
            StoreError: it is damaged, or its manifest is.
        """
        return self._pointed("current", seen)

    def candidate(self, seen: Pointers | None = None) -> Published | None:
        """The store that is proposed and not accepted, or `None` where there is none."""
        return self._pointed("candidate", seen)

    def draft(self, seen: Pointers | None = None) -> Published | None:
        """The store that a run with options of its own made last, or `None` where there is none."""
        return self._pointed("draft", seen)

    def _pointed(self, name: str, pointers: Pointers | None) -> Published | None:
        backend, seen = self.backend, ""
        while True:
            now = pointers or backend.pointers()  # given for the first look: one at a thousand stores asks each of them for three names
            pointers = None
            if name == "current" and now.damaged:
                raise StoreError(f"{backend.published(now.damaged).damage()}. Build the store again")
            if not (version := getattr(now, name)):
                return None
            try:
                published = backend.published(version)
            except StoreError:
                if version == seen:
                    raise
                seen = version  # unless it was pruned, because the pointer has moved meanwhile
                continue
            return replace(published, folder=published.folder.resolve())

    def propose(
        self,
        build_key: str,
        write: Write,
        *,
        config_key: str,
        recipe: dict[str, Any],
        audit: Audit,
        options: Mapping[str, Any] | None = None,
        draft: bool = False,
        again: bool = False,
    ) -> Published:
        """Build the store of `build_key`, or find the one that is there, if its files are sound. It is the candidate unless it is current.

        Args:
            write: is given an empty directory for the payload and the path for the quarantine file.
            audit: structural checks on the written payload; it raises to forbid publication.
            options: what this run set over the configuration file.
            draft: point `draft` to it and leave everything else as it is.
            again: build it even where a sound one is there. Equal content keeps the store that is there.

        Raises:
            StoreError: the disk is full or faulty, or does not hold what was written.
        """
        backend = self.backend
        with backend.building() as notes:
            there = _sound(backend, build_key)
            found = None if again else there
            drop_shards(backend.versions, going_on="" if again or found else build_key)
            if found is None:
                manifest = Manifest(self.asset, self.partition, build_key, config_key, recipe, {}, {}, {}, options=options or {})
                version = build_version(backend, manifest, write, audit, before=self._size())
                notes += _difference(there, backend.published(version))
            else:
                version = found.version
                if found.manifest.config_key != config_key and not draft:
                    backend.relabel(version, replace(found.manifest, config_key=config_key))
                if draft and found.manifest.options != options:
                    backend.relabel(version, replace(found.manifest, options=options or {}))

            def pointed(now: Pointers) -> dict[str, str]:
                self._refuse_damaged(now, version)
                return {"draft": version} if draft else {"candidate": "" if now.current == version else version}

            backend.change(pointed)
            return replace(backend.published(version), reused=found is not None, notes=tuple(notes))

    def set_aside(self, published: Published, results: Mapping[str, Result]) -> bool:
        """Have nothing read a store any more that is current, because of what was found in it; false where another is current.

        Its files stay for those who have them open.
        """
        backend, version = self.backend, published.version
        with backend.building():
            if backend.pointers().current == version:
                backend.record(version, published.manifest.content_hash, {**(published.results or {}), **results})
                backend.change(lambda now: {"damaged": version, "current": ""} if now.current == version else {})
            return backend.pointers().damaged == version

    def record(self, published: Published, results: Mapping[str, Result]) -> None:
        """Write down beside a store what its checks say. What was written before of checks that did not run now is kept."""
        with self.backend.building():
            self.backend.record(published.version, published.manifest.content_hash, {**(published.results or {}), **results})

    def accept(self, published: Published, results: Mapping[str, Result]) -> None:
        """Make a proposed store current, on the word of its checks, which is written down beside it.

        Raises:
            StoreError: a check does not hold, or the store is not the one that was checked, is there no longer, or cannot be read; `current`
                stays what it is.
        """
        failed = [name for name, result in results.items() if not result.passed]
        if failed:
            raise StoreError(f"{self.label}: {published.where} is not published: it fails {', '.join(failed)}")
        backend, version, content = self.backend, published.version, published.manifest.content_hash
        with backend.building():
            try:
                found = backend.published(version).manifest.content_hash
                if found != content:
                    raise StoreError(f"its content is {found[:12]}…, {content[:12]}… was checked")
            except StoreError as error:
                raise StoreError(
                    f"{self.label}: {published.where} cannot be published, it was removed or damaged since it was built: {error}. "
                    "Materialize the asset again"
                ) from error
            backend.record(version, content, results)

            def pointed(now: Pointers) -> dict[str, str]:
                self._refuse_damaged(now, version)
                others = [name for name in ("candidate", "draft") if getattr(now, name) == version]
                return {"current": version} | dict.fromkeys([*others, "damaged"], "")

            backend.change(pointed)

    def _refuse_damaged(self, now: Pointers, version: str) -> None:
        if now.damaged == version:
            raise StoreError(f"{self.label}: damage was found in {version} meanwhile. Build the store again")

    def let_go(self, version: str) -> None:
        """Have no draft and no candidate be a version; it stays on disk, where nothing uses it."""
        backend = self.backend
        with backend.building():
            backend.change(lambda now: {name: "" for name in ("candidate", "draft") if getattr(now, name) == version})

    def unused(self) -> tuple[str, ...]:
        """The versions that nothing points to, sorted."""
        backend = self.backend
        used = backend.pointers().used
        return tuple(name for name in backend.names() if name not in used)

    def remove_unused(self) -> tuple[str, ...]:
        """Delete what is `unused` and read by nobody, with what lies beside it, and all leftovers; no build is under way meanwhile."""
        backend = self.backend
        with backend.building():
            drop_shards(backend.versions)
            return tuple(version for version in (*self.unused(), *self.leftovers()) if backend.remove(version))

    def leftovers(self) -> tuple[str, ...]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        return tuple(self.backend.leftovers())

    @property
    def size(self) -> int:
        """Bytes of all versions and of what was left."""
        backend = self.backend
        return sum(backend.size(name) for name in (*backend.names(), *backend.leftovers()))

    def remove(self) -> None:
        """Delete the store with all its versions, unless one of them has readers."""
        self.backend.remove_all()

    def _size(self) -> int:
        try:
            current = self.current()
        except StoreError:
            return 0
        return current.bytes if current else 0


def backend_of(directory: Path) -> LocalBackend | BucketBackend:
    """Where the versions of the store in a folder are kept."""
    bucket = bucket_of(directory)
    return LocalBackend(directory) if bucket is None else BucketBackend(bucket, LocalBackend(directory))


def _sound(backend: LocalBackend | BucketBackend, build_key: str) -> Published | None:
    """The store that is exactly what a build would give; of several, the current one. A damaged one stays until its successor is current."""
    now = backend.pointers()
    for version in sorted(of_key(backend.names(), build_key), key=lambda name: name != now.current):
        if version == now.damaged:
            continue
        try:
            published = backend.published(version)
            published.verify()
        except StoreError:
            continue
        if published.manifest.build_key == build_key:
            return published
    return None


def _difference(before: Published | None, after: Published) -> list[str]:
    """What to say where two builds of one key differ."""
    if before is None or before.version == after.version:
        return []
    now = after.manifest
    if (now.content_hash, now.quarantine) == (before.manifest.content_hash, before.manifest.quarantine):
        return []
    names = sorted({*now.files, *before.manifest.files})
    differing = [name for name in names if now.files.get(name) != before.manifest.files.get(name)] or ["refused records"]
    return [
        f"two builds of one key differ, in {', '.join(differing[:4])}: the build is not deterministic, or the store before was wrong. "
        f"Compare {before.where} with {after.where}"
    ]


def open_published(root: Path, asset: str, partition: str = "", *, remedy: str = "") -> Published:
    """The current store of an asset.

    Raises:
        StoreError: there is none, or its manifest is missing or damaged; `remedy` is the command that builds it.
    """
    place = Place(root, asset, partition)
    try:
        found = place.current()
    except Unanswered:  # building would not help
        raise
    except StoreError as error:
        again = f". Build it again:\n  {remedy}" if remedy else ""
        raise StoreError(f"{str(error).removesuffix('. Build the store again') if remedy else error}{again}") from error
    if found is None:
        raise StoreError(f"{place.label}: no store in {place.backend.where}." + (f" Build it with:\n  {remedy}" if remedy else ""))
    return found


# All versions of a store that are there: those that are pointed to, and those that nothing points to any more.


def versions(place: Place) -> list[Published]:
    """Every version that can be read, the one that was written last first."""
    backend, found = place.backend, list[Published]()
    damaged = backend.pointers().damaged
    for version in backend.names():
        if version != damaged:
            with suppress(StoreError):  # a damaged one is not worth a look
                found.append(backend.published(version))
    return sorted(found, key=lambda each: (-backend.written(each.version), each.version))


def version_named(place: Place, name: str) -> Published:
    """The version of this name: ``draft``, ``candidate``, or the beginning of a folder's name or of a build key.

    Raises:
        ConfigError: none, or several; the message has them all.
    """
    pointed = {"draft": place.draft, "candidate": place.candidate, "current": place.current}.get(name)
    if pointed is not None:
        if (found := pointed()) is None:
            raise ConfigError(f"{place.label} has no {name}")
        return found
    every = versions(place)
    chosen = [each for each in every if each.version.startswith(name) or each.manifest.build_key.startswith(name)]
    if len(chosen) == 1:
        return chosen[0]
    known = [each.version for each in every]
    problem = f"several versions that begin with {name!r}." if chosen else f"no version {name!r}{nearest(name, known) or '.'}"
    raise ConfigError(f"{place.label} has {problem} There are: {', '.join(known) or 'none'}")


def version_with(place: Place, content: str | None) -> Published | None:
    """The version with this content hash, where it is still there."""
    return next((each for each in versions(place) if each.manifest.content_hash == content), None)
