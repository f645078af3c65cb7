"""A store in a bucket, as a `DiskShelf` is one on disk: written in the mirror, proven there, and sent; read from there when it is fetched."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from prep_assets.disk.faults import told
from prep_assets.disk.folders import locked, remove_tree, sync_folders
from prep_assets.errors import StoreError
from prep_assets.stores import bucket_versions, cache, catalog
from prep_assets.stores.bucket import Bucket
from prep_assets.stores.bucket_versions import key_of
from prep_assets.stores.checked import CHECKS, Result, parse_results, results_text
from prep_assets.stores.disk_shelf import DiskShelf
from prep_assets.stores.leases import Lease, lease
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.pointers import Move, Pointers
from prep_assets.stores.version import Published, version_faults
from prep_assets.stores.version_folders import PAYLOAD, QUARANTINE, WORK_QUARANTINE, name_of, remove_version

T = TypeVar("T")
Item = TypeVar("Item")
AT_ONCE = 8
"""Files that are sent or fetched at a time."""


@dataclass(slots=True)
class BucketShelf:
    """The versions below a prefix of a bucket.

    Attributes:
        objects: below that prefix.
        mirror: the folder on this machine that stands for it.
    """

    objects: Bucket
    mirror: DiskShelf
    _held: list[Lease | None] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return BucketShelf, (self.objects, self.mirror)

    @property
    def where(self) -> str:
        return self.objects.url

    @property
    def versions(self) -> Path:
        return self.mirror.versions

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """One builder at a time on this machine; those of others come to the same bytes, and one of them is first."""
        with self.mirror.building() as notes:
            yield notes

    def pointers(self) -> Pointers:
        return catalog.read(self.objects).catalog.pointers

    def change(self, move: Move) -> None:
        catalog.change(self.objects, lambda now: now.pointed(move(now.pointers)))

    def published(self, version: str) -> Published:
        key = key_of(version, MANIFEST)
        held = self.objects.get(key)
        if held is None:
            raise StoreError(f"{self.where}/versions/{version} is not a store: it has no {MANIFEST}")
        manifest = Manifest.parse(held.data, f"{self.where}/{key}")
        return Published(self.versions / version, manifest, keeper=BucketShelf(self.objects, self.mirror))

    def add(self, work: Path, manifest: Manifest) -> str:
        for name, entry in manifest.files.items():
            cache.keep(str(entry["sha256"]), work / PAYLOAD / name)
        version = bucket_versions.send(
            self.objects,
            (name_of(manifest.build_key, manifest.content_hash, number) for number in range(1, 1000)),
            partial(self._upload, work, manifest),
            manifest.text.encode(),
            partial(self._is, manifest),
        )
        view = self.versions / version
        if view.exists() and not version_faults(view, manifest):
            remove_tree(work)
            return version
        self._drop(version)
        return self.mirror.put(work, manifest, version)

    def _upload(self, work: Path, manifest: Manifest, version: str) -> None:
        files = {key_of(version, name): work / PAYLOAD / name for name in manifest.files}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = work / WORK_QUARANTINE
        at_once(lambda key: self.objects.upload(key, files[key]), files)

    def _is(self, manifest: Manifest, version: str, there: bytes) -> bool:
        """Whether the bucket gives back what was built, every byte."""
        try:
            found = Manifest.parse(there, version)
        except StoreError:
            return False
        return found.same_store(manifest) and not self.faults(version, found)

    def relabel(self, version: str, manifest: Manifest) -> None:
        bucket_versions.replace_manifest(self.objects, version, manifest.text.encode())

    def blocks(self, version: str, name: str, start: int) -> Iterator[bytes]:
        """A file of the payload of a version from byte `start` on, read from the bucket.

        Raises:
            FileNotFoundError: it is not there.
        """
        return self.objects.read(key_of(version, name), start)

    def fetch(self, version: str, manifest: Manifest) -> Path:
        """The folder of a version in the mirror. It stays as long as this object does."""
        folder = self.versions / version
        while not (self._held and folder.is_dir()):
            with told(folder), locked(self.versions / f".fetch-{version}"):
                if not folder.is_dir():
                    self._fetch(version, manifest, folder)
                elif Manifest.read(folder) != manifest:
                    self.mirror.relabel(version, manifest)
                self._held = [lease(folder)]
        with suppress(OSError):
            os.utime(folder)  # it was used
        return folder

    def _fetch(self, version: str, manifest: Manifest, folder: Path) -> None:
        work = folder.with_name(f".fetching-{version}")
        remove_tree(work)
        cache.make_room(sum(int(entry["bytes"]) for entry in manifest.files.values()))
        with bucket_versions.leased(self.objects, version) as held:
            work.mkdir(parents=True)

            def one(name: str) -> None:
                entry = manifest.files[name]
                cache.fetch(self.objects, key_of(version, name), entry["sha256"], int(entry["bytes"]), work / name, held)

            at_once(one, manifest.files)
            if manifest.quarantine:
                self._fetch_quarantine(version, manifest)
        manifest.write(work)
        sync_folders(work)
        work.rename(folder)

    def _fetch_quarantine(self, version: str, manifest: Manifest) -> None:
        held = self.objects.get(f"versions/{version}{QUARANTINE}")
        if held is None or hashlib.sha256(held.data).hexdigest() != manifest.quarantine:
            raise StoreError(f"{self.where}/versions/{version}{QUARANTINE}: missing or altered. Build the store again")
        (self.versions / f"{version}{QUARANTINE}").write_bytes(held.data)

    def faults(self, version: str, manifest: Manifest) -> list[str]:
        """Of the files in the bucket. A folder in the mirror that is damaged is dropped, and fetched again when it is read."""
        view = self.versions / version
        if view.is_dir() and version_faults(view, manifest) and not self._drop(version):
            return [f"{view} is damaged, and a process reads it. End that process, then try again"]
        files = {key_of(version, name): (name, str(entry["sha256"])) for name, entry in manifest.files.items()}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = (f"{version}{QUARANTINE}", manifest.quarantine)
        return [fault for fault in at_once(lambda key: self._fault(key, *files[key]), files) if fault]

    def _fault(self, key: str, name: str, sha256: str) -> str:
        digest = hashlib.sha256()
        try:
            for block in self.objects.read(key):
                digest.update(block)
        except FileNotFoundError:
            return f"{name}: missing"
        found = digest.hexdigest()
        return "" if found == sha256 else f"{name}: content altered: sha256 is {found[:16]}…, the manifest says {sha256[:16]}…"

    def results(self, version: str, content_hash: str) -> Mapping[str, Result] | None:
        """What the checks of a version said of this content."""
        held = self.objects.get(f"versions/{version}{CHECKS}")
        return None if held is None else parse_results(held.data, content_hash)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        if self.results(version, content_hash) != results:
            self.objects.put(f"versions/{version}{CHECKS}", results_text(content_hash, results).encode())

    def names(self) -> list[str]:
        return list(catalog.read(self.objects).catalog.versions)

    def written(self, version: str) -> int:
        held = self.objects.get(key_of(version, MANIFEST))
        return int(held.modified * 1e9) if held else 0

    def leftovers(self) -> list[str]:
        return list(bucket_versions.orphans(self.objects))

    def size(self, name: str) -> int:
        return sum(entry.size for entry in self.objects.entries(f"versions/{name}/"))

    def remove(self, version: str) -> bool:
        removed = bucket_versions.remove(self.objects, version)
        if removed:
            self._drop(version)
        return removed

    def _drop(self, version: str) -> bool:
        """Delete the folder of a version in the mirror; false where it has readers."""
        view = self.versions / version
        return not view.is_dir() or remove_version(view)

    def remove_all(self) -> None:
        with self.building():
            catalog.change(self.objects, lambda now: now.pointed(dict.fromkeys(asdict(now.pointers), "")))
            for name in (*self.names(), *self.leftovers()):
                self.remove(name)


def at_once(work: Callable[[Item], T], items: Iterable[Item], most: int = AT_ONCE) -> list[T]:
    """What the work makes of each, a few at a time. The first failure, or Ctrl-C, leaves out those that have not begun."""
    pool = ThreadPoolExecutor(most)
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(cancel_futures=True)
