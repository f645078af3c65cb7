"""A store in a bucket: its catalog, its versions, what is fetched of them, finished shards."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from prep_assets.errors import ConfigError, StoreError
from prep_assets.extensions.buckets.bucket import Bucket, checked
from prep_assets.stores.files import folder_size, loads, locked, os_errors_in_words, remove_tree, removed_on_failure, sync_folders
from prep_assets.stores.manifest import CHECKS, MANIFEST, Manifest, Result, parse_results, results_text
from prep_assets.stores.remote import Unanswered, at_once, cache_folder
from prep_assets.stores.version_folders import (
    PAYLOAD,
    QUARANTINE,
    WORK_QUARANTINE,
    Lease,
    LocalBackend,
    Move,
    Pointers,
    Published,
    lease,
    name_of,
    remove_version,
    shards_in,
    version_faults,
    versions_in,
)

# The catalog of one store in a bucket: its pointers and versions in one small object, replaced only if it is unchanged since it was read.
#
# Every change carries a token, and the object keeps the tokens of the last changes. So a writer that lost the answer sees that its change was made,
# even when others have changed the object since; applying it twice would revert theirs.
#
# A version is condemned in the catalog before it is deleted. A version that is pointed to cannot be condemned, a condemned one never pointed to.

KEY = "catalog.json"
REMEMBERED = 64
"""Changes whose tokens are kept."""
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class Catalog:
    """The pointers and versions of a store.

    Attributes:
        generation: number of changes.
        pointers: see `prep_assets.stores.version_folders`.
        versions: every version that was ever pointed to and is not condemned, sorted.
        condemned: versions that are deleted or about to be, with the day of that decision. Their names are not reused for `KEPT` seconds.
        done: tokens of the last changes, the latest last.
    """

    generation: int
    pointers: Pointers
    versions: tuple[str, ...]
    condemned: Mapping[str, str]
    done: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes | None, url: str) -> Catalog:
        """Parse the object at an address; `None`: there is none yet.

        Raises:
            StoreError: it cannot be parsed.
        """
        if data is None:
            return cls(0, Pointers(), (), {}, ())
        try:
            return msgspec.convert(loads(data), cls)
        except (msgspec.ValidationError, ValueError) as error:
            raise StoreError(
                f"{url}/{KEY} cannot be read ({type(error).__name__}: {error}); it was edited. Put its last version back"
            ) from error

    @property
    def data(self) -> bytes:
        """The bytes of its object."""
        fields = asdict(self)
        if not self.pointers.damaged:
            del fields["pointers"]["damaged"]
        return json.dumps(fields).encode() + b"\n"

    def pointed(self, moved: Mapping[str, str]) -> Catalog:
        """Return the catalog with pointers moved.

        Raises:
            StoreError: a pointer would lead to a condemned version.
        """
        pointers = replace(self.pointers, **moved)
        used = pointers.used
        if pruned := sorted(used & self.condemned.keys()):
            raise StoreError(f"{pruned[0]} was pruned meanwhile")
        return replace(self, pointers=pointers, versions=tuple(sorted({*self.versions, *used})))

    def condemn(self, version: str, day: str, oldest: str) -> Catalog:
        """Return the catalog with a version condemned, unless it is pointed to. Entries older than the day `oldest` are dropped."""
        if version in self.pointers.used or version in self.condemned:
            return self
        recent = {name: condemned_day for name, condemned_day in self.condemned.items() if condemned_day >= oldest}
        return replace(self, versions=tuple(name for name in self.versions if name != version), condemned={**recent, version: day})


def read(objects: Bucket) -> Catalog:
    """Read the catalog.

    Raises:
        StoreError: it cannot be parsed.
    """
    stored = objects.get(KEY)
    return Catalog.parse(stored and stored.data, objects.url)


def change_catalog(objects: Bucket, change: Callable[[Catalog], Catalog]) -> Catalog:
    """Apply a change exactly once, even with concurrent writers and lost answers.

    Args:
        change: returns the catalog after the change; it is called again with each newer catalog, and returns it unchanged if there is nothing to do.

    Raises:
        Unanswered: the object store keeps failing, and whether the change was made is unknown.
    """
    token, first = secrets.token_hex(8), -1

    def changed(data: bytes | None) -> bytes | None:
        nonlocal first
        catalog = Catalog.parse(data, objects.url)
        first = catalog.generation if first < 0 else first
        if token in catalog.done:
            return data
        if catalog.generation - first > REMEMBERED:
            raise Unanswered(f"{objects.url}/{KEY}: more than {REMEMBERED} changes by others since this one began. Build again")
        if (after := change(catalog)) == catalog:
            return data
        return replace(after, generation=catalog.generation + 1, done=(*catalog.done, token)[-REMEMBERED:]).data

    return Catalog.parse(update(objects, KEY, changed), objects.url)


def update(objects: Bucket, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Change an object by optimistic concurrency: read, write if nobody else has, retry. Return what it holds then.

    Args:
        change: returns the new content, given that of the object, `None` if it does not exist; the same if there is nothing to do.

    Raises:
        Unanswered: the object store keeps failing, and whether the object was written is unknown.
    """
    fault: Unanswered | None = None
    for tried in range(ATTEMPTS):
        if tried:
            objects.pause(tried)
        stored = objects.get(key)
        before = None if stored is None else stored.data
        after = change(before)
        if after is None or after == before:
            return after
        try:
            if objects.put_new(key, after) if stored is None else objects.put_if(key, after, stored.tag):
                return after
            fault = None
        except Unanswered as error:
            fault = error
    raise fault or Unanswered(f"{objects.url}/{key}: others changed it {ATTEMPTS} times in a row. Build again")


# The versions of one store in a bucket: uploaded whole or not at all, read under a lease, deleted when they have no readers.
#
#     catalog.json                                see `prep_assets.extensions.buckets.backend`
#     versions/<version>/…                        payload; manifest.json last, and only if it does not exist
#     versions/<version>.quarantine.jsonl, .checks.json
#     leases/<version>/<token>                    the lease of a reader; valid for `LEASE` seconds
#
# A version exists once it has a manifest. Only pruning, which deletes what the catalog does not name, relies on listings.

LEASE = 3600
"""Seconds for which a lease is valid, by the clock of the object store."""
DAY = 86_400
KEPT = 7 * DAY
"""Seconds for which the name of a deleted version is not reused: far longer than any request can be delayed."""


def key_of(version: str, name: str) -> str:
    """Return the key of a file of a version."""
    return f"versions/{version}/{name}"


def send(
    objects: Bucket,
    names: Iterable[str],
    upload: Callable[[str], None],
    manifest: bytes,
    is_complete: Callable[[str, bytes], bool],
) -> str:
    """Upload a version under the first free name: its payload, then its manifest, if that does not exist. Return the name.

    Args:
        names: the candidates, in order.
        upload: uploads the payload under a name.
        is_complete: whether the version of a name, with the manifest that the bucket holds, has every byte of this one.

    Raises:
        StoreError: no name is free.
        Unanswered: the object store keeps failing. The version exists, or an invisible part of it.
    """
    catalog = read(objects)
    for version in names:
        if version in catalog.condemned or version == catalog.pointers.damaged:
            continue
        stored = objects.get(key_of(version, MANIFEST))
        if stored is None:
            upload(version)
        if is_complete(version, put_manifest(objects, version, manifest) if stored is None else stored.data):
            return version
    raise StoreError(f"{objects.url}: no version of this content is sound, and no name is left. Look at the bucket")


def put_manifest(objects: Bucket, version: str, manifest: bytes) -> bytes:
    """Write a manifest if the version has none, and return the one that it then has; an earlier attempt may have written this one."""
    return update(objects, key_of(version, MANIFEST), lambda stored: manifest if stored is None else stored) or manifest


def replace_manifest(objects: Bucket, version: str, manifest: bytes) -> None:
    """Replace the manifest of a version.

    Raises:
        StoreError: the version has none.
    """

    def change(stored: bytes | None) -> bytes:
        if stored is None:
            raise StoreError(f"{objects.url}/{key_of(version, MANIFEST)} is gone. Build the store again")
        return manifest

    update(objects, key_of(version, MANIFEST), change)


class BucketLease:
    """A lease on a version, which keeps it from being deleted. Without permission to write there is none."""

    def __init__(self, objects: Bucket, version: str) -> None:
        self._objects, self._key = objects, f"leases/{version}/{secrets.token_hex(8)}"
        self._renew_at = 0.0
        self.renew()

    def renew(self) -> None:
        """Renew the lease if half of its time is over."""
        if time.monotonic() > self._renew_at:
            with suppress(Unanswered):
                self._objects.put(self._key, b"")
            self._renew_at = time.monotonic() + LEASE / 2

    def end(self) -> None:
        """Give the lease up."""
        with suppress(Unanswered):
            self._objects.delete(self._key)


@contextmanager
def leased(objects: Bucket, version: str) -> Iterator[BucketLease]:
    """Hold a lease on a version while the block runs.

    Raises:
        StoreError: the version is deleted, or about to be.
    """
    lease = BucketLease(objects, version)
    try:
        # take the lease first, then read the catalog; pruning condemns first, then looks for leases
        if version in read(objects).condemned:
            raise StoreError(f"{objects.url}/versions/{version} was pruned")
        yield lease
    finally:
        lease.end()


def remove_from_bucket(objects: Bucket, version: str) -> bool:
    """Delete a version; return false if it is pointed to, or has readers.

    A version with readers stays condemned: no new reader can open it, and the next removal deletes it.
    """
    if _is_read(objects, version):
        return False
    day, oldest = (time.strftime("%Y-%m-%d", time.gmtime(time.time() - age)) for age in (0, KEPT))
    catalog = change_catalog(objects, lambda catalog: catalog.condemn(version, day, oldest))
    if version not in catalog.condemned or _is_read(objects, version):
        return False
    delete(objects, version)
    return True


def _is_read(objects: Bucket, version: str) -> bool:
    leases = [entry.modified for entry in objects.entries(f"leases/{version}/")]
    return bool(leases) and max(leases) + LEASE > _server_time(objects)


def delete(objects: Bucket, version: str) -> None:
    """Delete the objects of a condemned version, its manifest first: without that it no longer exists."""
    objects.delete(key_of(version, MANIFEST))
    for entry in [*objects.entries(f"versions/{version}/"), *objects.entries(f"leases/{version}/")]:
        objects.delete(entry.key)
    for suffix in (QUARANTINE, CHECKS):
        objects.delete(f"versions/{version}{suffix}")


def orphans(objects: Bucket) -> dict[str, int]:
    """Return the bytes, by name, of versions that the catalog does not name and that nothing was written to for a day: left by builds or removals.

    A younger one may be about to enter the catalog.
    """
    totals: dict[str, tuple[int, float]] = {}
    for entry in objects.entries("versions/"):
        name = entry.key.split("/")[1]
        name = next((name.removesuffix(suffix) for suffix in (QUARANTINE, CHECKS) if name.endswith(suffix)), name)
        size, modified = totals.get(name, (0, 0.0))
        totals[name] = (size + entry.size, max(modified, entry.modified))
    known, now = set(read(objects).versions), time.time()
    return {name: size for name, (size, modified) in sorted(totals.items()) if name not in known and modified + DAY < now}


def _server_time(objects: Bucket) -> float:
    """Return the time by the clock of the object store."""
    objects.put("leases/clock", b"")
    stored = objects.get("leases/clock")
    if stored is None:
        raise Unanswered(f"{objects.url}/leases/clock was written and is not there. Try again")
    return stored.modified


# Versions that are fetched: verified on arrival, bounded in bytes.

LIMIT = "PREP_ASSETS_CACHE_BYTES"
"""Environment variable: most bytes of fetched and built versions of buckets on this machine; unbounded if it is not set."""


def fetch_file(objects: Bucket, key: str, sha256: str, size: int, target: Path, lease: BucketLease) -> None:
    """Download an object to `target`.

    Raises:
        StoreError: it is missing, or has other content.
    """
    digest, length = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("wb") as file:
            for block in objects.read(key):
                digest.update(block)
                file.write(block)
                length += len(block)
                lease.renew()
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise StoreError(
            f"{error} is gone: its version was pruned, or somebody deleted it. Open the store again, or build it again"
        ) from error
    if (digest.hexdigest(), length) != (sha256, size):
        raise StoreError(
            f"{objects.url}/{key}: {length:,} bytes with sha256 {digest.hexdigest()[:16]}…, the manifest says {size:,} with {sha256[:16]}…: "
            "the bucket altered it, or somebody did. Build the store again"
        )


def make_room(size: int) -> None:
    """Delete fetched versions without readers, least recently used first, until `size` more bytes fit.

    Raises:
        StoreError: they do not fit even then.
    """
    if (limit := _limit()) is None:
        return
    stores = cache_folder() / "stores"
    folders = [folder for pattern in ("*/*/versions", "*/*/*/versions") for folder in stores.glob(pattern)]
    with locked(stores / ".room.lock"):
        versions = sorted(
            (version for folder in folders for version in versions_in(folder)), key=lambda version: version.stat().st_mtime_ns
        )
        used = sum(map(folder_size, folders))
        while used + size > limit and versions:
            freed = folder_size(oldest := versions.pop(0))
            used -= freed if remove_version(oldest) else 0
    if used + size > limit:
        raise StoreError(
            f"{cache_folder()}: the cache of stores in buckets holds {used:,} bytes that are in use, {size:,} more are needed, and "
            f"{LIMIT} allows {limit:,}. Raise it, or end what reads the others"
        )


def _limit() -> int | None:
    from pydantic import ByteSize, TypeAdapter

    if not (text := os.environ.get(LIMIT, "").strip().upper()):
        return None
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValueError as error:
        raise ConfigError(f"{LIMIT} is {text!r}; it is a number of bytes, or one with KB, MB, GB or TB, e.g. 500GB") from error


# The backend of a store in a bucket, as `LocalBackend` is that of one on disk: written to and verified in the mirror, then uploaded; read from the mirror.


@dataclass(slots=True)
class BucketBackend:
    """The versions below a prefix of a bucket.

    Attributes:
        objects: below that prefix.
        mirror: the backend of the local folder.
    """

    objects: Bucket
    mirror: LocalBackend
    _leases: list[Lease | None] = field(default_factory=list, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return BucketBackend, (self.objects, self.mirror)

    @property
    def where(self) -> str:
        return self.objects.url

    @property
    def versions(self) -> Path:
        return self.mirror.versions

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """Lock out other builders of this machine; those of other machines write the same bytes, and the first one wins."""
        with self.mirror.building() as notes:
            yield notes

    def pointers(self) -> Pointers:
        return read(self.objects).pointers

    def change(self, move: Move) -> None:
        change_catalog(self.objects, lambda now: now.pointed(move(now.pointers)))

    def published(self, version: str) -> Published:
        key = key_of(version, MANIFEST)
        stored = self.objects.get(key)
        if stored is None:
            raise StoreError(f"{self.where}/versions/{version} is not a store: it has no {MANIFEST}")
        manifest = Manifest.parse(stored.data, f"{self.where}/{key}")
        return Published(self.versions / version, manifest, keeper=BucketBackend(self.objects, self.mirror))

    def add(self, work: Path, manifest: Manifest) -> str:
        version = send(
            self.objects,
            (name_of(manifest.build_key, manifest.content_hash, number) for number in range(1, 1000)),
            partial(self._upload, work, manifest),
            manifest.text.encode(),
            partial(self._is_stored, manifest),
        )
        mirrored = self.versions / version
        if mirrored.exists() and not version_faults(mirrored, manifest):
            remove_tree(work)
            return version
        self._remove_from_mirror(version)
        return self.mirror.put(work, manifest, version)

    def _upload(self, work: Path, manifest: Manifest, version: str) -> None:
        files = {key_of(version, name): work / PAYLOAD / name for name in manifest.files}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = work / WORK_QUARANTINE
        at_once(lambda key: self.objects.upload(key, files[key]), files)

    def _is_stored(self, manifest: Manifest, version: str, manifest_read: bytes) -> bool:
        """Return whether the bucket holds every byte of what was built."""
        try:
            stored = Manifest.parse(manifest_read, version)
        except StoreError:
            return False
        return stored.same_store(manifest) and not self.faults(version, stored)

    def drop_shards(self, going_on: str = "") -> None:
        for folder in shards_in(self.versions, going_on):
            with suppress(Unanswered):  # what stays there is deleted by prune
                ShardDepot(self.objects.below(f"versions/{folder.name}")).clear()
        self.mirror.drop_shards(going_on)

    def relabel(self, version: str, manifest: Manifest) -> None:
        replace_manifest(self.objects, version, manifest.text.encode())

    def blocks(self, version: str, name: str, start: int) -> Iterator[bytes]:
        """Yield the blocks of a payload file from byte `start` on, read from the bucket.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        return self.objects.read(key_of(version, name), start)

    def fetch(self, version: str, manifest: Manifest) -> Path:
        """Return the folder of a version in the mirror, fetched if need be. A lease keeps it for the life of this object."""
        folder = self.versions / version
        while not (self._leases and folder.is_dir()):
            with os_errors_in_words(folder), locked(self.versions / f".fetch-{version}"):
                if not folder.is_dir():
                    self._fetch(version, manifest, folder)
                elif Manifest.read(folder) != manifest:
                    self.mirror.relabel(version, manifest)
                self._leases = [lease(folder)]
        with suppress(OSError):
            os.utime(folder)  # mark it as used, for `make_room`
        return folder

    def _fetch(self, version: str, manifest: Manifest, folder: Path) -> None:
        work = folder.with_name(f".fetching-{version}")
        remove_tree(work)
        make_room(sum(int(entry["bytes"]) for entry in manifest.files.values()))
        with removed_on_failure(work, folder), leased(self.objects, version) as bucket_lease:
            work.mkdir(parents=True)

            def fetch_one(name: str) -> None:
                entry = manifest.files[name]
                fetch_file(self.objects, key_of(version, name), entry["sha256"], int(entry["bytes"]), work / name, bucket_lease)

            at_once(fetch_one, manifest.files)
            if manifest.quarantine:
                key = f"versions/{version}{QUARANTINE}"
                quarantine = self.objects.get(key)
                if quarantine is None or hashlib.sha256(quarantine.data).hexdigest() != manifest.quarantine:
                    raise StoreError(f"{self.where}/{key}: missing or altered. Build the store again")
                (self.versions / f"{version}{QUARANTINE}").write_bytes(quarantine.data)
        manifest.write(work)
        sync_folders(work)
        work.rename(folder)

    def faults(self, version: str, manifest: Manifest) -> list[str]:
        """Return the faults of the files in the bucket. A damaged folder in the mirror is removed, and fetched again when it is read."""
        mirrored = self.versions / version
        if mirrored.is_dir() and version_faults(mirrored, manifest) and not self._remove_from_mirror(version):
            return [f"{mirrored} is damaged, and a process reads it. End that process, then try again"]
        files = {key_of(version, name): (name, str(entry["sha256"])) for name, entry in manifest.files.items()}
        if manifest.quarantine:
            files[f"versions/{version}{QUARANTINE}"] = (f"{version}{QUARANTINE}", manifest.quarantine)
        return [fault for fault in at_once(lambda key: self._file_fault(key, *files[key]), files) if fault]

    def _file_fault(self, key: str, name: str, sha256: str) -> str:
        digest = hashlib.sha256()
        try:
            for block in self.objects.read(key):
                digest.update(block)
        except FileNotFoundError:
            return f"{name}: missing"
        sha256_read = digest.hexdigest()
        return "" if sha256_read == sha256 else f"{name}: content altered: sha256 is {sha256_read[:16]}…, the manifest says {sha256[:16]}…"

    def results(self, version: str, content_hash: str) -> Mapping[str, Result] | None:
        """Return the check results of a version for this content."""
        stored = self.objects.get(f"versions/{version}{CHECKS}")
        return None if stored is None else parse_results(stored.data, content_hash)

    def record(self, version: str, content_hash: str, results: Mapping[str, Result]) -> None:
        if self.results(version, content_hash) != results:
            self.objects.put(f"versions/{version}{CHECKS}", results_text(content_hash, results).encode())

    def names(self) -> list[str]:
        return list(read(self.objects).versions)

    def written(self, version: str) -> int:
        stored = self.objects.get(key_of(version, MANIFEST))
        return int(stored.modified * 1e9) if stored else 0

    def leftovers(self) -> list[str]:
        return list(orphans(self.objects))

    def size(self, name: str) -> int:
        return sum(entry.size for entry in self.objects.entries(f"versions/{name}/"))

    def remove(self, version: str) -> bool:
        removed = remove_from_bucket(self.objects, version)
        if removed:
            self._remove_from_mirror(version)
        return removed

    def _remove_from_mirror(self, version: str) -> bool:
        """Delete the folder of a version in the mirror; return false if it has readers."""
        mirrored = self.versions / version
        return not mirrored.is_dir() or remove_version(mirrored)

    def remove_all(self) -> None:
        with self.building():
            change_catalog(self.objects, lambda now: now.pointed(dict.fromkeys(asdict(now.pointers), "")))
            for name in (*self.names(), *self.leftovers()):
                self.remove(name)


# The depot of finished shards, next to the versions of a store in a bucket, for workers that share no folder with the process that merges them.
#
#     versions/.shards-<build key>/<hash of the work>/<name>.tar
#
# Objects are written whole or not at all, and named by content, so writing one twice is harmless. They are deleted with the local folder of that name;
# `prune` deletes what a lost machine left after a day.

_SUFFIX = ".tar"


class ShardDepot(Struct, frozen=True):
    """Folders as objects below a prefix.

    Attributes:
        objects: below that prefix.
    """

    objects: Bucket

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names of shards, of all or of one folder."""
        prefix = f"{folder}/" if folder else ""
        for entry in self.objects.entries(prefix):
            if entry.key.endswith(_SUFFIX):
                yield entry.key.removesuffix(_SUFFIX)

    def put(self, name: str, folder: Path) -> None:
        """Upload the files of a folder."""
        with tempfile.NamedTemporaryFile(suffix=_SUFFIX) as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(folder, arcname="")
            file.flush()
            self.objects.upload(name + _SUFFIX, Path(file.name))

    def clear(self) -> None:
        """Delete all shards."""
        at_once(self.objects.delete, [entry.key for entry in self.objects.entries("")])

    def fetch(self, name: str, folder: Path) -> None:
        """Download what was uploaded under a name into `folder`.

        Raises:
            FileNotFoundError: nothing was uploaded under that name.
        """
        temporary = folder.with_name(f".{folder.name}.part")
        temporary.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent) as file:
            for block in self.objects.read(name + _SUFFIX):
                file.write(block)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r") as tar:
                tar.extractall(temporary, filter="data")
        temporary.rename(folder)


class StoresInBucket(Struct, frozen=True):
    """An address in a bucket: a store, or a folder of stores (`prep_assets.stores.remote.Remote`)."""

    objects: Bucket

    @property
    def url(self) -> str:
        """The address."""
        return self.objects.url

    @property
    def is_store(self) -> bool:
        """Whether a catalog is here."""
        return self.objects.get(KEY) is not None

    def folders(self) -> list[str]:
        """The names of the folders below it, without those of a store."""
        return [name for name in self.objects.folders() if name not in ("versions", "leases")]

    def below(self, path: str) -> StoresInBucket:
        """What is at a path below it."""
        return StoresInBucket(self.objects.below(path))

    def backend(self, mirror: LocalBackend) -> BucketBackend:
        """The versions of the store here."""
        return BucketBackend(self.objects, mirror)

    def depot(self) -> ShardDepot:
        """Finished shards below this address."""
        return ShardDepot(self.objects)


def at_address(url: str) -> StoresInBucket:
    """Return what an address names.

    Raises:
        ConfigError: it names no bucket, or holds credentials.
    """
    return StoresInBucket(Bucket(checked(url)))
