"""A store on disk: versions are folders that are renamed to their place, pointers are links, and a lock of the kernel lets in one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prep_assets.disk.faults import told
from prep_assets.disk.folders import folder_size, locked, make_folder, remove_tree, sync
from prep_assets.errors import StoreError
from prep_assets.stores import pointers
from prep_assets.stores.checked import Result, write_results
from prep_assets.stores.leases import is_read
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.shelf import Move, Pointers
from prep_assets.stores.version import Published
from prep_assets.stores.version_folders import (
    PAYLOAD,
    QUARANTINE,
    WORK_QUARANTINE,
    clean,
    leftovers_in,
    name_of,
    remove_version,
    versions_in,
)


@dataclass(frozen=True, slots=True)
class DiskShelf:
    """The versions below a folder."""

    directory: Path

    @property
    def where(self) -> str:
        return str(self.directory)

    @property
    def versions(self) -> Path:
        return self.directory / "versions"

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        with told(self.directory):
            make_folder(self.directory)
            with locked(self.versions / ".lock"):
                pointers.remove_unfinished(self.directory)
                pointers.unpoint(self.directory, "current" if self.pointers().damaged else "damaged")
                removed = clean(self.versions)
                yield [f"removed what a killed build left: {', '.join(removed)}"] if removed else []

    def pointers(self) -> Pointers:
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
        for name, version in move(self.pointers()).items():
            if version:
                pointers.point(self.directory, name, self.versions / version)
            else:
                pointers.unpoint(self.directory, name)

    def published(self, version: str) -> Published:
        directory = self.versions / version
        return Published(directory, Manifest.read(directory))

    def add(self, work: Path, manifest: Manifest) -> str:
        number, damaged = 1, self.pointers().damaged
        while (final := self.versions / name_of(manifest.build_key, manifest.content_hash, number)).exists():
            if final.name != damaged and _is(final, manifest):
                remove_tree(work)
                return final.name
            number += 1
        if manifest.quarantine:
            (work / WORK_QUARANTINE).replace(final.with_name(final.name + QUARANTINE))
        (work / PAYLOAD).rename(final)
        sync(self.versions)
        remove_tree(work)
        return final.name

    def relabel(self, version: str, manifest: Manifest) -> None:
        directory = self.versions / version
        work = directory.with_name(f".writing-manifest-{version}")
        work.mkdir()
        manifest.write(work)
        sync(work / MANIFEST)
        (work / MANIFEST).replace(directory / MANIFEST)
        sync(directory)
        remove_tree(work)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        write_results(self.versions / version, content_hash, results)

    def names(self) -> list[str]:
        return [path.name for path in versions_in(self.versions)]

    def written(self, version: str) -> int:
        return (self.versions / version / MANIFEST).stat().st_mtime_ns

    def leftovers(self) -> list[str]:
        return [path.name for path in leftovers_in(self.versions)]

    def size(self, name: str) -> int:
        return folder_size(self.versions / name)

    def remove(self, version: str) -> bool:
        return remove_version(self.versions / version)

    def remove_all(self) -> None:
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
