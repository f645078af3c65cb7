"""Where stores live, and how one gets there: write, audit, check, publish.

    <root>/<asset>[/<partition>]/
        current                        what trainers open: a link to versions/<build key>
        candidate                      likewise, a newer store whose checks have not all passed (yet); gone when it is published
        versions/<build key>/          payload and manifest.json
        versions/<build key>.quarantine.jsonl
        versions/.writing-…            a build under way, or what a killed one left; never read

A store is written into a directory of its own, audited there, synced to disk and renamed: it is proposed. When its checks hold it is accepted:
`current` is replaced in one step. So a reader sees the whole old store or the whole new one, never one that failed, and a build that dies
leaves nothing that can be read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.errors import StoreError
from prep_assets.stores.manifest import MANIFEST, Manifest, file_hash, list_payload, payload_faults

KEY_LENGTH = 20
QUARANTINE = ".quarantine.jsonl"


@dataclass(frozen=True, slots=True)
class Published:
    """A store that can be read."""

    directory: Path
    manifest: Manifest
    reused: bool = False

    @property
    def quarantine(self) -> Path | None:
        """The file of refused records, or `None` where nothing was refused."""
        path = self.directory.with_name(self.directory.name + QUARANTINE)
        return path if self.manifest.quarantine else None

    def verify(self) -> None:
        """Compare every file with the manifest.

        Raises:
            StoreError: a file is missing, cut short, altered or foreign; every such file is named.
        """
        faults = payload_faults(self.directory, self.manifest)
        if self.quarantine is not None and (not self.quarantine.is_file() or file_hash(self.quarantine) != self.manifest.quarantine):
            faults.append(f"{self.quarantine.name}: missing or altered")
        if faults:
            raise StoreError(f"{self.directory} is not what its manifest says:\n  " + "\n  ".join(faults))


@dataclass(frozen=True, slots=True)
class Draft:
    """What a build says about the payload that it has just written."""

    counts: dict[str, Any]
    metrics: dict[str, Any]
    checks: tuple[str, ...]


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

    def current(self) -> Published | None:
        """The published store, or `None` where there is none."""
        return self._pointed("current")

    def candidate(self) -> Published | None:
        """The store that is proposed and not accepted, or `None` where there is none."""
        return self._pointed("candidate")

    def _pointed(self, name: str) -> Published | None:
        directory = self._target(name)
        return None if directory is None else Published(directory, Manifest.read(directory))

    def _target(self, name: str) -> Path | None:
        pointer = self.directory / name
        if not pointer.exists():
            return None
        # a file system without links has a pointer file instead
        return (self.directory / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()

    def version(self, build_key: str) -> Path:
        """Where the store of this build key is, or would be."""
        return self.directory / "versions" / build_key[:KEY_LENGTH]

    def propose(
        self,
        build_key: str,
        write: Callable[[Path, Path], Draft],
        *,
        config_key: str,
        recipe: dict[str, Any],
        audit: Callable[[Path], None],
    ) -> Published:
        """Build the store of `build_key`, or find the one that is there, if its files are sound. It is the candidate unless it is current.

        Args:
            write: is given an empty directory for the payload and the path for the quarantine file.
            audit: structural checks on the written payload; it raises to forbid publication.
        """
        with self._locked():
            final = self.version(build_key)
            found = self._sound(final, build_key)
            if found is None:
                self._build(final, build_key, write, config_key, recipe, audit)
            elif found.manifest.config_key != config_key:
                _write_manifest(final, replace(found.manifest, config_key=config_key))
            if self._target("current") == final.resolve():
                self._unpoint("candidate")
            else:
                self._point("candidate", final)
            return Published(final, Manifest.read(final), reused=found is not None)

    def accept(self, published: Published) -> None:
        """Make a proposed store current.

        Raises:
            StoreError: it is there no longer, or its manifest cannot be read; `current` stays what it is.
        """
        with self._locked():
            try:
                Manifest.read(published.directory)
            except StoreError as error:
                raise StoreError(
                    f"{self.label}: {published.directory} cannot be published, it was removed or damaged since it was built: {error}. "
                    "Materialize the asset again"
                ) from error
            self._point("current", published.directory)
            if self._target("candidate") == published.directory.resolve():
                self._unpoint("candidate")

    def unused(self) -> tuple[Path, ...]:
        """The versions that neither `current` nor `candidate` points to, sorted."""
        used = {self._target("current"), self._target("candidate")}
        versions = self.directory / "versions"
        found = versions.iterdir() if versions.is_dir() else ()
        return tuple(sorted(path for path in found if path.is_dir() and not path.name.startswith(".") and path.resolve() not in used))

    def remove_unused(self) -> tuple[Path, ...]:
        """Delete what is `unused`, and the quarantine files of such versions; no build is under way meanwhile."""
        with self._locked():
            gone = self.unused()
            for path in gone:
                # renamed first, so that a version that is half deleted is never taken for a store
                doomed = path.with_name(f".writing-{path.name}")
                path.rename(doomed)
                shutil.rmtree(doomed)
                path.with_name(path.name + QUARANTINE).unlink(missing_ok=True)
        return gone

    def _sound(self, final: Path, build_key: str) -> Published | None:
        """The store at `final`, if it is exactly what this build would give. A damaged one stays where it is until its replacement is ready."""
        if not final.exists():
            return None
        try:
            published = Published(final, Manifest.read(final))
            published.verify()
        except StoreError:
            return None
        return published if published.manifest.build_key == build_key else None

    def _build(
        self,
        final: Path,
        build_key: str,
        write: Callable[[Path, Path], Draft],
        config_key: str,
        recipe: dict[str, Any],
        audit: Callable[[Path], None],
    ) -> None:
        work = final.with_name(f".writing-{final.name}")
        payload, quarantine = work / "payload", work / "quarantine.jsonl"
        payload.mkdir(parents=True)
        try:
            draft = write(payload, quarantine)
            audit(payload)
            refused = file_hash(quarantine) if quarantine.exists() else ""
            files = list_payload(payload)
            manifest = Manifest(
                self.asset, self.partition, build_key, config_key, recipe, draft.counts, draft.metrics, files, draft.checks, refused
            )
            manifest.write(payload)
            _sync_tree(work)
            if final.exists():
                final.rename(work / "damaged")
            if refused:
                quarantine.replace(final.with_name(final.name + QUARANTINE))
            payload.rename(final)
            _sync(final.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _point(self, name: str, final: Path) -> None:
        target = final.resolve().relative_to(self.directory.resolve())
        pointer, fresh = self.directory / name, self.directory / f".{name}-new"
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(target, target_is_directory=True)
        except OSError:
            fresh.write_text(target.as_posix() + "\n", "utf-8")
        fresh.replace(pointer)
        _sync(self.directory)

    def _unpoint(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One builder at a time; whatever an earlier one left half-written is removed."""
        versions = self.directory / "versions"
        versions.mkdir(parents=True, exist_ok=True)
        with (versions / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in versions.glob(".writing-*"):
                shutil.rmtree(left)
            yield


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a sound store in one step; the payload stays as it is."""
    work = directory.with_name(f".writing-manifest-{directory.name}")
    work.mkdir()
    manifest.write(work)
    _sync_tree(work)
    (work / MANIFEST).replace(directory / MANIFEST)
    _sync(directory)
    work.rmdir()


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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(directory: Path) -> None:
    for path in sorted(directory.rglob("*")):
        _sync(path)
    _sync(directory)
