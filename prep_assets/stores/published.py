"""Where stores live, and how one gets there: write, audit, check, publish.

    <root>/<asset>[/<partition>]/
        current                        what trainers open: a link to versions/<build key>
        candidate                      likewise, a newer store whose checks have not all passed (yet); gone when it is published
        draft                          likewise, the last store that a run with options of its own made; never read unless asked for
        versions/<build key>/          payload and manifest.json
        versions/<build key>-2/        the same, written again beside a current store that is damaged or was doubted
        versions/<build key>.quarantine.jsonl
        versions/<build key>.checks.json
        versions/.writing-…            a build under way, or what a killed one left; never read

A store is written into a directory of its own, audited there, synced to disk and renamed: it is proposed. When its checks hold it is accepted:
`current` is replaced in one step. So a reader sees the whole old store or the whole new one, never one that failed, and a build that dies
leaves nothing that can be read. A store that replaces a damaged one goes the same way: it is written beside it.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prep_assets.errors import StoreError
from prep_assets.stores.checked import CHECKS, Result, read_results, write_results
from prep_assets.stores.folders import sync, sync_tree
from prep_assets.stores.manifest import MANIFEST, Manifest, file_hash, list_payload, payload_faults

KEY_LENGTH = 20
QUARANTINE = ".quarantine.jsonl"
POINTERS = ("current", "candidate", "draft")
Write = Callable[[Path, Path], "Draft"]
Audit = Callable[[Path], None]


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

    @property
    def results(self) -> Mapping[str, Result] | None:
        """What each check said when it last ran on exactly this content; `None` where none ever did."""
        return read_results(self.directory, self.manifest.content_hash)

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
        pointer = self.directory / name
        if not pointer.exists():
            return None
        # a file system without links has a pointer file instead
        return (self.directory / pointer.read_text("utf-8").strip() if pointer.is_file() else pointer).resolve()

    def version(self, build_key: str, number: int = 1) -> Path:
        """Where the store of this build key is, or would be; a later `number` is for one that is written beside the current one."""
        return self.directory / "versions" / (build_key[:KEY_LENGTH] + (f"-{number}" if number > 1 else ""))

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
        """
        with self._locked():
            there = self._sound(build_key)
            found = None if again else there
            if found is None:
                final = self._build(build_key, write, config_key, recipe, audit)
                if there is not None and there.directory != final and _same(there.manifest, Manifest.read(final)):
                    self._remove(final)
                    final = there.directory
            else:
                final = found.directory
                if found.manifest.config_key != config_key and not draft:
                    _write_manifest(final, replace(found.manifest, config_key=config_key))
            if draft:
                self._point("draft", final)
            elif self._target("current") == final.resolve():
                self._unpoint("candidate")
            else:
                self._point("candidate", final)
            return Published(final, Manifest.read(final), reused=found is not None)

    def record(self, published: Published, results: Mapping[str, Result]) -> None:
        """Write down beside a store what its checks say. What was written before of checks that did not run now is kept."""
        with self._locked():
            write_results(published.directory, published.manifest.content_hash, {**(published.results or {}), **results})

    def accept(self, published: Published, results: Mapping[str, Result]) -> None:
        """Make a proposed store current, on the word of its checks, which is written down beside it.

        Raises:
            StoreError: a check does not hold, or the store is there no longer or cannot be read; `current` stays what it is.
        """
        failed = [name for name, result in results.items() if not result.passed]
        if failed:
            raise StoreError(f"{self.label}: {published.directory} is not published: it fails {', '.join(failed)}")
        with self._locked():
            try:
                Manifest.read(published.directory)
            except StoreError as error:
                raise StoreError(
                    f"{self.label}: {published.directory} cannot be published, it was removed or damaged since it was built: {error}. "
                    "Materialize the asset again"
                ) from error
            write_results(published.directory, published.manifest.content_hash, results)
            self._point("current", published.directory)
            for name in ("candidate", "draft"):
                if self._target(name) == published.directory.resolve():
                    self._unpoint(name)

    def unused(self) -> tuple[Path, ...]:
        """The versions that nothing points to, sorted."""
        used = {self._target(name) for name in POINTERS}
        return tuple(path for path in self._versions() if path.resolve() not in used)

    def leftovers(self) -> tuple[Path, ...]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        return tuple(sorted((self.directory / "versions").glob(".writing-*")))

    def remove_unused(self) -> tuple[Path, ...]:
        """Delete what is `unused` with what lies beside it, and all leftovers; no build is under way meanwhile."""
        with self._locked():
            gone = self.unused()
            for path in gone:
                self._remove(path)
        return gone

    def _versions(self) -> list[Path]:
        versions = self.directory / "versions"
        found = versions.iterdir() if versions.is_dir() else ()
        return sorted(path for path in found if path.is_dir() and not path.name.startswith("."))

    def _sound(self, build_key: str) -> Published | None:
        """The store that is exactly what this build would give; of several, the current one. A damaged one stays until its successor is current."""
        current = self._target("current")
        for directory in sorted(self._of_key(build_key), key=lambda path: path.resolve() != current):
            try:
                published = Published(directory, Manifest.read(directory))
                published.verify()
            except StoreError:
                continue
            if published.manifest.build_key == build_key:
                return published
        return None

    def _of_key(self, build_key: str) -> list[Path]:
        return [path for path in self._versions() if path.name.partition("-")[0] == build_key[:KEY_LENGTH]]

    def _build(self, build_key: str, write: Write, config_key: str, recipe: dict[str, Any], audit: Audit) -> Path:
        """Write a store beside whatever is current, and return its directory."""
        work = self.version(build_key).with_name(f".writing-{build_key[:KEY_LENGTH]}")
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
            sync_tree(work)
            final = self._free(build_key)
            if refused:
                quarantine.replace(final.with_name(final.name + QUARANTINE))
            payload.rename(final)
            sync(final.parent)
            return final
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _free(self, build_key: str) -> Path:
        """A version that nobody reads: a new one, or that of a store which is not current and which this build replaces."""
        current, number = self._target("current"), 1
        while (final := self.version(build_key, number)).exists():
            if final.resolve() != current:
                self._remove(final)
                break
            number += 1
        return final

    def _remove(self, path: Path) -> None:
        # renamed first, so that a version that is half deleted is never taken for a store
        doomed = path.with_name(f".writing-{path.name}-removed")
        path.rename(doomed)
        shutil.rmtree(doomed)
        for suffix in (QUARANTINE, CHECKS):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def _point(self, name: str, final: Path) -> None:
        target = final.resolve().relative_to(self.directory.resolve())
        pointer, fresh = self.directory / name, self.directory / f".{name}-new"
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(target, target_is_directory=True)
        except OSError:
            fresh.write_text(target.as_posix() + "\n", "utf-8")
        fresh.replace(pointer)
        sync(self.directory)

    def _unpoint(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One builder at a time; whatever an earlier one left half-written is removed."""
        versions = self.directory / "versions"
        versions.mkdir(parents=True, exist_ok=True)
        with (versions / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in self.leftovers():
                shutil.rmtree(left)
            self._remove_strays()
            yield

    def _remove_strays(self) -> None:
        """Delete the quarantine and the checks of versions that are gone: a build or a removal was killed between two steps."""
        kept = {path.name for path in self._versions()}
        for suffix in (QUARANTINE, CHECKS):
            for path in (self.directory / "versions").glob(f"*{suffix}"):
                if path.name.removesuffix(suffix) not in kept:
                    path.unlink()


def _same(one: Manifest, other: Manifest) -> bool:
    return (one.content_hash, one.quarantine) == (other.content_hash, other.quarantine)


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a sound store in one step; the payload stays as it is."""
    work = directory.with_name(f".writing-manifest-{directory.name}")
    work.mkdir()
    manifest.write(work)
    sync_tree(work)
    (work / MANIFEST).replace(directory / MANIFEST)
    sync(directory)
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
