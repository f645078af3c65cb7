"""A store on disk: versions are folders that are renamed to their place, pointers are links, and a lock of the kernel lets in one at a time.

What publication needs of a storage backend is what this one and `prep_assets.stores.bucket_backend` have in common. A version is put there whole or not at
all, and is never written again. The pointers are replaced together, and only if they are as they were read. Nothing else needs to be promised: no
rename, no lock, no list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prep_assets.errors import StoreError
from prep_assets.stores import version_folders as pointers
from prep_assets.stores.files import folder_size, locked, make_folder, remove_tree, sync, told
from prep_assets.stores.manifest import MANIFEST, Manifest, Result, write_results
from prep_assets.stores.version_folders import (
    PAYLOAD,
    QUARANTINE,
    WORK_QUARANTINE,
    Move,
    Pointers,
    Published,
    clean,
    is_read,
    leftovers_in,
    name_of,
    remove_version,
    versions_in,
)


@dataclass(frozen=True, slots=True)
class LocalBackend:
    """The versions below a folder."""

    directory: Path

    @property
    def where(self) -> str:
        """How messages call the place."""
        return str(self.directory)

    @property
    def versions(self) -> Path:
        """The folder in which versions are written, and from which they are read."""
        return self.directory / "versions"

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """While one version is built: what is in `versions` is this process's alone. Gives notes on what an earlier process left there."""
        with told(self.directory):
            make_folder(self.directory)
            with locked(self.versions / ".lock"):
                pointers.remove_unfinished(self.directory)
                pointers.unpoint(self.directory, "current" if self.pointers().damaged else "damaged")
                removed = clean(self.versions)
                yield [f"removed what a killed build left: {', '.join(removed)}"] if removed else []

    def pointers(self) -> Pointers:
        """As they are now."""
        found = {name: self._pointed(name) for name in pointers.POINTERS}
        for name in ("current", "damaged", "current"):  # one goes when the other comes, perhaps between two looks
            if not (found["current"] or found["damaged"]):
                found[name] = self._pointed(name)
        if found["current"] == found["damaged"]:  # a process was killed while it set this one aside
            found["current"] = ""
        elif found["current"]:  # another is published since
            found["damaged"] = ""
        return Pointers(**found)

    def _pointed(self, name: str) -> str:
        with suppress(OSError):  # where it is no link, or is not there
            link = (self.directory / name).readlink()
            if link.parent == Path("versions"):
                return link.name if (self.versions / link.name).exists() else ""
        target = pointers.target(self.directory, name)
        if target is None:
            return ""
        return target.name if target.parent == self.versions.resolve() else str(target)

    def change(self, move: Move) -> None:
        """Move pointers; the move is durable when this returns. Changes of others are not lost. On disk, `building` is entered."""
        for name, version in move(self.pointers()).items():
            if version:
                pointers.point(self.directory, name, self.versions / version)
            else:
                pointers.unpoint(self.directory, name)

    def published(self, version: str) -> Published:
        """A version.

        Raises:
            StoreError: it is not there, or its manifest is damaged.
        """
        directory = self.versions / version
        return Published(directory, Manifest.read(directory))

    def add(self, work: Path, manifest: Manifest) -> str:
        """Make a version of a folder that holds a proven ``payload`` and maybe a ``quarantine.jsonl``; its name is returned.

        A sound version of the same content stays, and `work` is dropped; not one that `damaged` leads to.
        """
        number, damaged = 1, self.pointers().damaged
        while (final := self.versions / name_of(manifest.build_key, manifest.content_hash, number)).exists():
            if final.name != damaged and _is(final, manifest):
                remove_tree(work)
                return final.name
            number += 1
        return self.put(work, manifest, final.name)

    def put(self, work: Path, manifest: Manifest, version: str) -> str:
        """Give a written folder the name of a version, which is free, and return the name."""
        if manifest.quarantine:
            (work / WORK_QUARANTINE).replace(self.versions / f"{version}{QUARANTINE}")
        (work / PAYLOAD).rename(self.versions / version)
        sync(self.versions)
        remove_tree(work)
        return version

    def relabel(self, version: str, manifest: Manifest) -> None:
        """Replace the manifest of a sound version in one step; the payload stays as it is."""
        directory = self.versions / version
        work = directory.with_name(f".writing-manifest-{version}")
        work.mkdir()
        manifest.write(work)
        sync(work / MANIFEST)
        (work / MANIFEST).replace(directory / MANIFEST)
        sync(directory)
        remove_tree(work)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        """Write down what the checks of a version say."""
        write_results(self.versions / version, content_hash, results)

    def names(self) -> list[str]:
        """Every version, sorted."""
        return [path.name for path in versions_in(self.versions)]

    def written(self, version: str) -> int:
        """When the manifest of a version was written, in nanoseconds."""
        return (self.versions / version / MANIFEST).stat().st_mtime_ns

    def leftovers(self) -> list[str]:
        """What killed builds left half-written, sorted. A build that is under way looks the same."""
        return [path.name for path in leftovers_in(self.versions)]

    def size(self, name: str) -> int:
        """Bytes of a version, or of what was left."""
        return folder_size(self.versions / name)

    def remove(self, version: str) -> bool:
        """Delete a version that nothing points to; false where it has readers."""
        return remove_version(self.versions / version)

    def remove_all(self) -> None:
        """Delete all versions and pointers, unless one of them has readers."""
        with self.building():
            if any(is_read(self.versions / version) for version in self.names()):
                return
        with told(self.directory):
            if leftovers := remove_tree(self.directory):
                raise StoreError(f"{self.directory} cannot be deleted: {'; '.join(leftovers[:3])}. Delete it by hand")


def _is(version: Path, manifest: Manifest) -> bool:
    try:
        there = Published(version, Manifest.read(version))
        there.verify()
    except StoreError:
        return False
    return there.manifest.same_store(manifest)
